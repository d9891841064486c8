# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Requests, hosts and fleets made from the facts that hosts would give."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.filters import DEFAULT, Finding
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.filters.base import PASS
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.fleet import Fleet
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.host_state import HostState
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.request import Request
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f

MIB = 1024**2
SOURCE = "kvm1"
FILTERS = {rule.name: rule for rule in DEFAULT}
uuid_of = f.uuid_of


def request(name: str = "web1", copied: t.Optional[Mapping[str, int]] = None, copy_paths: t.Optional[Mapping[str, str]] = None, **needs: t.Any) -> Request:
    """A domain of kvm1 that wants a place."""
    return Request.of(f.request(**needs), uuid_of(name), name, SOURCE, uuid_of(SOURCE), copied, copy_paths=copy_paths)


def domain(name: str, memory_mib: int = 1024, vcpus: int = 1, **changes: t.Any) -> f.Document:
    """A domain of kvmfleet_host."""
    return f.domain(name, memory_mib, vcpus, **changes)


def host(
    name: str = "kvm2",
    *domains: f.Document,
    memory_mib: int = 8192,
    records: Sequence[Mapping[str, t.Any]] = (),
    entry: t.Optional[Mapping[str, t.Any]] = None,
    settings: t.Any = None,
    paths: t.Optional[Mapping[str, bool]] = None,
    cpu_verdicts: t.Optional[Mapping[str, t.Any]] = None,
    **facts: t.Any,
) -> HostState:
    """A host that has so much memory for guests beside what is reserved for itself."""
    return HostState.of(name, f.host(name, memory_mib, domains=domains, **facts), records, entry, settings, paths, cpu_verdicts)


def silent(name: str = "kvm3", why: str = "no route to host.") -> HostState:
    """A host that did not answer."""
    return HostState.of(name, {"answered": False, "msg": why})


def fleet(*states: HostState, leaving: Sequence[str] = ()) -> Fleet:
    """These hosts; of the domains in C(leaving) by name."""
    return Fleet({state.name: state for state in states}, frozenset(map(uuid_of, leaving)))


def record(name: str, source: str, destination: str, status: str = "scheduled", copies: t.Optional[Mapping[str, int]] = None, **changes: t.Any) -> f.Document:
    """A live migration's record, with the request that the domain has.

    :arg copies: path at the destination to bytes.
    """
    needs = {key: changes.pop(key) for key in tuple(changes) if key in f.request()}
    ends = (schema.place(end, None, uuid_of(end)) for end in (source, destination))
    made = schema.new_record("live-migration", {"uuid": uuid_of(name), "name": name}, *ends, {}, "test", f.request(**needs))
    if copies:
        made["storage"] = {"mode": "full", "disks": [{"target": "vda", "path": path, "bytes": size} for path, size in copies.items()]}
    return {**made, "status": status, **changes}


def judged(rule: str, asked: Request, there: HostState, *others: HostState, leaving: Sequence[str] = ()) -> Finding:
    """What the filter of that name says of a host within a fleet."""
    found = FILTERS[rule]
    return found.judge(asked, there, fleet(there, *others, leaving=leaving)) if found.concerns(asked) else PASS
