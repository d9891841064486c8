# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Options of the module C(domain_policy), which its action plugin checks."""

from __future__ import annotations

from .._argspec import Spec, domain_spec, libvirt_spec
from .fields import DRAIN, FIELDS, GROUP_POLICIES, ON_TIMEOUT


def domain_policy_spec() -> Spec:
    """Return the options of C(domain_policy)."""
    return {
        **libvirt_spec(),
        **domain_spec(),
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "auto_converge": {"type": "bool"},
        "post_copy": {"type": "bool"},
        "timeout_seconds": {"type": "int"},
        "on_timeout": {"type": "str", "choices": list(ON_TIMEOUT)},
        "downtime_ms": {"type": "int"},
        "priority": {"type": "int"},
        "drain": {"type": "str", "choices": list(DRAIN)},
        "group": {
            "type": "dict",
            "options": {
                "name": {"type": "str", "required": True},
                "policy": {"type": "str", "choices": list(GROUP_POLICIES), "required": True},
                "max_per_host": {"type": "int"},
            },
        },
        "labels": {"type": "list", "elements": "str"},
        "profile": {"type": "str"},
        "unset": {"type": "list", "elements": "str", "choices": list(FIELDS), "default": []},
    }
