# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Options of the module C(host), which its action plugin checks too."""

from __future__ import annotations

from ._argspec import Spec, internal_spec, ledger_spec, libvirt_spec

STATES = ("enabled", "maintenance", "fenced")
# What a person decides where no fact can; each with a reason, and one a task.
DECISIONS = ("adopt_identity", "source_discarded", "revoke_token", "settle")
# What a record can be settled as.
SETTLED = ("completed", "done", "failed", "cancelled")


def host_spec() -> Spec:
    """Return the options of C(host)."""
    return {
        **libvirt_spec(),
        **ledger_spec(),
        "state": {"type": "str", "choices": list(STATES)},
        "reason": {"type": "str"},
        "name": {"type": "str"},
        "adopt_identity": {"type": "bool", "default": False},
        "source_discarded": {"type": "bool", "default": False},
        "revoke_token": {"type": "bool", "default": False},
        "settle": {
            "type": "dict",
            "options": {"id": {"type": "str", "required": True}, "status": {"type": "str", "required": True, "choices": list(SETTLED)}},
        },
        **internal_spec(),
    }
