# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Options of the module C(report), which its action plugin checks too."""

from __future__ import annotations

from ._argspec import Spec, ledger_spec

FORMATS = ("html", "json", "csv", "markdown", "junit")


def report_spec() -> Spec:
    """Return the options of C(report)."""
    return {
        **ledger_spec(),
        "dest": {"type": "str", "required": True},
        "name": {"type": "str", "default": "report"},
        "formats": {"type": "list", "elements": "str", "choices": list(FORMATS), "default": ["html"]},
        "mode": {"type": "raw", "default": "0600"},
        "title": {"type": "str"},
        "since": {"type": "str"},
        "until": {"type": "str"},
        "host": {"type": "str"},
        "domain": {"type": "str"},
        "ids": {"type": "list", "elements": "str"},
        "drain_host_result": {"type": "dict"},
    }
