# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Requests, hosts and fleets made from the facts that hosts would give."""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import CopiedStorage, DiskCopy
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import NO_MAPS, ResourceMaps
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import CpuVerdict
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.filters.base import PASS, Finding
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.fleet import Fleet, HostState
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.request import Request
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.verdicts import DEFAULT_FILTERS
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry

MIB = 1024**2
SOURCE = "kvm1"
FILTERS = {rule.name: rule for rule in DEFAULT_FILTERS}
uuid_of = f.uuid_of


def request(name: str = "web1", copied: t.Optional[Mapping[str, int]] = None, **needs: t.Any) -> Request:
    """A domain of kvm1 that wants a place."""
    return Request.from_needs(f.request(**needs), uuid_of(name), name, SOURCE, uuid_of(SOURCE), copied)


def domain(name: str, memory_mib: int = 1024, vcpus: int = 1, **changes: t.Any) -> f.Document:
    """A domain of kvmfleet_host."""
    return f.domain(name, memory_mib, vcpus, **changes)


def host(
    name: str = "kvm2",
    *domains: f.Document,
    memory_mib: int = 8192,
    records: Sequence[MoveRecord] = (),
    entry: t.Optional[Mapping[str, t.Any]] = None,
    settings: t.Any = None,
    paths: t.Optional[Mapping[str, bool]] = None,
    cpu_verdicts: t.Optional[Mapping[str, CpuVerdict]] = None,
    maps: ResourceMaps = NO_MAPS,
    **facts: t.Any,
) -> HostState:
    """A host that has so much memory for guests beside what is reserved for itself."""
    return HostState.from_facts(
        name,
        decode(HostFacts, f.host(name, memory_mib, domains=domains, **facts)),
        records,
        None if entry is None else host_entry(entry),
        settings,
        paths,
        cpu_verdicts,
        maps,
    )


def silent_host(name: str = "kvm3", why: str = "no route to host.") -> HostState:
    """Return a host that did not answer."""
    return HostState.from_facts(name, HostFacts(answered=False, msg=why))


def fleet(*states: HostState, leaving: Sequence[str] = ()) -> Fleet:
    """These hosts; of the domains in C(leaving) by name."""
    return Fleet({state.name: state for state in states}, frozenset(map(uuid_of, leaving)))


def record(name: str, source: str, destination: str, status: str = "scheduled", copies: t.Optional[Mapping[str, int]] = None, **changes: t.Any) -> MoveRecord:
    """A live migration's record, with the request that the domain has.

    :arg copies: path at the destination to bytes.
    """
    needs = {key: changes.pop(key) for key in tuple(changes) if key in f.request()}
    source_ref, destination_ref = (HostRef(end, None, uuid_of(end)) for end in (source, destination))
    made = new_record("live-migration", DomainRef(uuid_of(name), name), source_ref, destination_ref, {}, "test", f.request(**needs))
    if copies:
        disks = tuple(DiskCopy("vda", path, "qcow2", size, size, "create") for path, size in copies.items())
        made = dataclasses.replace(made, storage=CopiedStorage("full", disks))
    return dataclasses.replace(made, status=status, **changes)


def judge_with(rule: str, asked: Request, there: HostState, *others: HostState, leaving: Sequence[str] = ()) -> Finding:
    """Return the finding of the filter of that name about a host within a fleet."""
    found = FILTERS[rule]
    return found.judge_host(asked, there, fleet(there, *others, leaving=leaving)) if found.applies_to(asked) else PASS
