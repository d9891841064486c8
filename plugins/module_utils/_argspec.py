# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Argument specifications that a module and its action plugin share."""

from __future__ import annotations

import typing as t

from ._hypervisor.uri import TRANSPORTS
from ._migration.flags import COMPRESSIONS, COPY_MODES, NO_COPY
from ._migration.policy import STRATEGIES

Spec = t.Dict[str, t.Dict[str, t.Any]]

# Of the options of domain_spec no two are given.
ONE_DOMAIN: t.Final = [("name", "uuid")]


def libvirt_spec() -> Spec:
    """Return the options of every module that talks to libvirt. Twin of the fragment C(_libvirt)."""
    return {"uri": {"type": "str", "default": "qemu:///system"}}


def domain_spec() -> Spec:
    """Return the options that name a domain. Twin of the fragment C(_domain), for modules that want exactly one."""
    return {"name": {"type": "str"}, "uuid": {"type": "str"}}


def ledger_spec() -> Spec:
    """Return the options of every module whose action plugin uses the ledger. Twin of the fragment C(_ledger)."""
    return {"ledger": {"type": "str"}}


def internal_spec() -> Spec:
    """Return the option by which an action plugin tells its module what to do on the host. Twin of the fragment C(_internal)."""
    return {"_work": {"type": "dict"}}


def move_spec() -> Spec:
    """Return the options that each move of C(live_migrate) has: task-wide, and again in every entry of C(moves)."""
    return {
        **domain_spec(),
        "destination": {"type": "str"},
        "destination_uri": {"type": "str"},
        "transport": {"type": "str", "choices": list(TRANSPORTS)},
        "migrate_uri": {"type": "str"},
        "timeout_seconds": {"type": "int"},
        "on_timeout": {"type": "str", "choices": ["abort", "force_complete"]},
        "stall_seconds": {"type": "int"},
        "queue_timeout_seconds": {"type": "int"},
        "downtime_ms": {"type": "int"},
        "downtime_steps": {"type": "int"},
        "downtime_delay_seconds_per_gib": {"type": "int"},
        "downtime_strategy": {"type": "str", "choices": list(STRATEGIES)},
        "force_suspend_seconds": {"type": "int"},
        "force_pause_max_seconds": {"type": "int"},
        "link_mib": {"type": "int"},
        "auto_converge": {"type": "bool"},
        "post_copy": {"type": "bool"},
        "override_policy": {"type": "bool"},
        "bandwidth_mib": {"type": "int"},
        "post_copy_bandwidth_mib": {"type": "int"},
        "parallel_connections": {"type": "int"},
        "compression": {"type": "str", "choices": list(COMPRESSIONS)},
        "tls": {"type": "bool"},
        "copy_storage": {"type": "str", "choices": list(COPY_MODES)},
        "copy_storage_overwrite": {"type": "list", "elements": "str"},
        "unsafe": {"type": "bool"},
        "force": {"type": "bool"},
    }


def live_migrate_spec() -> Spec:
    """Return the options of C(live_migrate)."""
    return {
        **libvirt_spec(),
        **ledger_spec(),
        **move_spec(),
        "moves": {"type": "list", "elements": "dict", "options": move_spec()},
        "parallel": {"type": "int", "default": 4},
        "progress": {"type": "str", "choices": ["lines", "none"], "default": "lines"},
    }


def scheduler_check_spec() -> Spec:
    """Return the options of C(scheduler_check)."""
    return {
        **libvirt_spec(),
        **ledger_spec(),
        **domain_spec(),
        "request": {"type": "dict"},
        "destination": {"type": "str"},
        "candidates": {"type": "list", "elements": "str"},
        "destination_uri": {"type": "str"},
        "transport": {"type": "str", "choices": list(TRANSPORTS)},
        "copy_storage": {"type": "str", "choices": list(COPY_MODES), "default": NO_COPY},
        "scheduler": {"type": "dict"},
    }
