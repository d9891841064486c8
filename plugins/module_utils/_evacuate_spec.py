# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Options of the module C(evacuate), which its action plugin checks too."""

from __future__ import annotations

from ._argspec import Spec, internal_spec, ledger_spec, libvirt_spec
from ._facts.needed_files import REPLACEABLE

AS_RECORDED, RUNNING, DEFINED = "as_recorded", "running", "defined"


def evacuate_spec() -> Spec:
    """Return the options of C(evacuate)."""
    return {
        **libvirt_spec(),
        **ledger_spec(),
        "source": {"type": "str", "required": True},
        "domains": {"type": "list", "elements": "str"},
        "fencing": {"type": "list", "elements": "dict"},
        "force_down": {"type": "dict", "options": {"reason": {"type": "str", "required": True}, "by": {"type": "str"}}},
        "accept_silent": {"type": "list", "elements": "str", "default": []},
        "accept_fresh": {"type": "list", "elements": "str", "choices": list(REPLACEABLE), "default": []},
        "force": {"type": "bool", "default": False},
        "state": {"type": "str", "choices": [AS_RECORDED, RUNNING, DEFINED], "default": AS_RECORDED},
        "parallel": {"type": "int", "default": 4},
        "lock_wait_seconds": {"type": "int"},
        "accept_locked": {
            "type": "dict",
            "options": {
                "images": {"type": "list", "elements": "str", "required": True},
                "reason": {"type": "str", "required": True},
                "by": {"type": "str"},
            },
        },
        **internal_spec(),
        "_definitions": {"type": "dict", "no_log": True},
    }
