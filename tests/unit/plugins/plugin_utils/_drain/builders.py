# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Facts, entries and records in their real shapes, for tests."""

from __future__ import annotations

import dataclasses
import typing as t
import uuid

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan_entries import (
    PlannedMove,
    PlannedShutdown,
    PlanOptions,
    SkippedDomain,
    UnplacedDomain,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.saved_plan import PLAN_SCHEMA, DrainPlan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import read_facts

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


def host_facts(name: str, *domains: dict[str, t.Any], gib: int = 8) -> HostFacts:
    """The facts of a host as they are read."""
    return read_facts(facts(name, *domains, gib=gib))


def record(domain_name: str, source: str, destination: str, status: str = "running", memory_mib: int = 256, **changes: t.Any) -> MoveRecord:
    """A live migration's record."""
    made = new_record(
        "live-migration",
        DomainRef(uuid_of(domain_name), domain_name),
        HostRef(source, None, uuid_of(source)),
        HostRef(destination, None, uuid_of(destination)),
        {},
        "test",
        {"memory_mib": memory_mib, "vcpus": 1},
    )
    return dataclasses.replace(made, status=status, **changes)


_NOTHING = {"reason": "", "rejected": (), "warnings": (), "request": {}, "memory_mib": 0, "priority": 0, "order": 1, "predicted_seconds": 0, "state": ""}
_KINDS = {"moves": PlannedMove, "shutdowns": PlannedShutdown, "unplaced": UnplacedDomain, "skipped": SkippedDomain}


def sealed_plan(**parts: t.Any) -> DrainPlan:
    """Return a plan with these parts. What an entry of them does not say has a value that says nothing."""
    entries = {key: tuple(_plan_entry(kind, one) for one in parts.pop(key, ())) for key, kind in _KINDS.items()}
    options = PlanOptions(**{"parallel": 4, "n_plus_one": False, "moves": {}, **parts.pop("options", {})})
    given = {"created_at": "now", "sources": ("kvm1",), "candidates": (), "settings": {}, "n_plus_one": None, "predicted_seconds": {}, **parts}
    return DrainPlan(PLAN_SCHEMA, "", options=options, **entries, **given).seal()


def _plan_entry(kind: t.Any, given: dict[str, t.Any]) -> t.Any:
    values = {"predicted_downtime_ms": None, **_NOTHING, **given}
    return kind(**{field.name: values[field.name] for field in dataclasses.fields(kind) if field.name in values})
