# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Options of the module C(displaced_domains), which its action plugin checks too."""

from __future__ import annotations

from ._argspec import Spec, ledger_spec


def displaced_spec() -> Spec:
    """Return the options of C(displaced_domains)."""
    return {**ledger_spec(), "name": {"type": "str"}}
