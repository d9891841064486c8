# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Options of the modules C(ledger_info) and C(ledger_copy), which their action plugins check too."""

from __future__ import annotations

from ._argspec import Spec, ledger_spec

# What can be listed, each under its own key of the result.
TERMS = ("migrations", "evacuations", "hosts", "domains")


def query_spec() -> Spec:
    """Return the options that say which records and documents are wanted. Twin of the fragment C(_ledger_query)."""
    return {
        "status": {"type": "list", "elements": "str"},
        "host": {"type": "str"},
        "domain": {"type": "str"},
        "since": {"type": "str"},
        "until": {"type": "str"},
        "forced": {"type": "bool"},
        "query": {"type": "str"},
        "include_definitions": {"type": "bool", "default": False},
    }


def ledger_info_spec() -> Spec:
    """Return the options of C(ledger_info)."""
    return {
        **ledger_spec(),
        "list": {"type": "list", "elements": "str", "choices": list(TERMS)},
        "id": {"type": "str"},
        **query_spec(),
        "verify": {"type": "bool", "default": False},
    }


def ledger_copy_spec() -> Spec:
    """Return the options of C(ledger_copy)."""
    return {**ledger_spec(), "to": {"type": "str", "required": True}, "force": {"type": "bool", "default": False}}
