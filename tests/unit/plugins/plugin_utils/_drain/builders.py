# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Facts, entries and records in their real shapes, for tests."""

from __future__ import annotations

import typing as t
import uuid

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema

GIB = 1024**3


def uuid_of(name: str) -> str:
    """A UUID that belongs to a name."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


def domain(name: str, memory_mib: int = 256, state: str = "running", reason: str = "booted", **changes: t.Any) -> dict[str, t.Any]:
    """A domain of kvmfleet_host."""
    return {
        "uuid": uuid_of(name),
        "name": name,
        "state": state,
        "reason": reason,
        "active": state != "shut off",
        "persistent": True,
        "autostart": False,
        "job": "none",
        "memory_mib": memory_mib,
        "vcpus": 1,
        "disks": [],
        "request": {"memory_mib": memory_mib, "vcpus": 1},
        **changes,
    }


def facts(name: str, *domains: dict[str, t.Any], gib: int = 8) -> dict[str, t.Any]:
    """kvmfleet_host of a host."""
    return {
        "gathered_at": "2026-11-21T03:00:00.000Z",
        "host_uuid": uuid_of(name),
        "host_id": None,
        "hostname": name,
        "memory": {"total_bytes": gib * GIB, "free_bytes": gib * GIB // 2},
        "cpus": 4,
        "domains": list(domains),
    }


def record(domain_name: str, source: str, destination: str, status: str = "running", memory_mib: int = 256, **changes: t.Any) -> dict[str, t.Any]:
    """A live migration's record."""
    made = schema.new_record(
        "live-migration",
        {"uuid": uuid_of(domain_name), "name": domain_name},
        schema.place(source, None, uuid_of(source)),
        schema.place(destination, None, uuid_of(destination)),
        {},
        "test",
        {"memory_mib": memory_mib, "vcpus": 1},
    )
    return {**made, "status": status, **changes}
