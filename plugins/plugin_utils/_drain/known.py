# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a plan is made from: facts of hosts, the ledger's words on them, and the inventory's settings."""

from __future__ import annotations

import functools
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.hosts import same_answer, same_host
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import place
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.statuses import UNSETTLED

from .._scheduler.entries import entry_of
from .._scheduler.host_state import HostState
from .._scheduler.settings import SchedulerSettings
from .._settings import Settings
from . import policy

Body = Mapping[str, t.Any]

_FAILED = "Task failed: "


@dataclass(frozen=True)
class Known:
    """What is known when a plan is made or applied.

    :arg facts: C(kvmfleet_host) by inventory name, of the sources and of the candidates that answered.
    :arg entries: the ledger's documents of hosts.
    :arg records: unsettled records of the whole fleet.
    :arg unreachable: why a candidate did not answer, by name.
    :arg scheduler: C(kvmfleet_scheduler) by name.
    :arg history: completed records, for the prediction.
    :arg policies: C(kvmfleet_migration_policy) by name.
    :arg profiles: C(kvmfleet_profiles) by name.
    """

    facts: Mapping[str, Body]
    entries: Sequence[Body] = ()
    records: Sequence[Body] = ()
    unreachable: Mapping[str, str] = field(default_factory=dict)
    scheduler: Mapping[str, Body] = field(default_factory=dict)
    history: Sequence[Body] = ()
    policies: Mapping[str, t.Any] = field(default_factory=dict)
    profiles: Mapping[str, t.Any] = field(default_factory=dict)

    def state(self, host: str) -> HostState:
        """Return the host as the scheduler sees it."""
        facts = self.facts.get(host) or {}
        entries = [*self._entries.get(host, ()), *self._entries.get(facts.get("host_uuid"), ()), *self._entries.get(facts.get("host_id"), ())]
        entry = entry_of(entries, host, facts.get("host_uuid"), facts.get("host_id"))
        return HostState.of(host, self._told(host), self.records, entry, SchedulerSettings.of(self.scheduler.get(host), host))

    def domains(self, host: str) -> Sequence[Body]:
        """Return the domains of a host that answered, as it tells them and with what their profiles add."""
        told = self._told(host) or {}
        return told.get("domains", ())

    def record_from(self, uuid: str, source: Body) -> t.Optional[Body]:
        """Return the unsettled record of the domain's move away from that host, given as a place of records."""
        for record in self.records:
            ours = same_host(record["source"], source) or record["source"].get("host") == source["host"]
            if record["domain"]["uuid"] == uuid and record["status"] in UNSETTLED and ours:
                return record
        return None

    def active_on(self, uuid: str, but: t.Optional[Body] = None) -> list[str]:
        """Return the names of the hosts where the domain is active.

        :arg but: a host that is not meant, under whatever name.
        """
        active = self._active.get(uuid, ())
        return [host for host in active if but is None or not (host == but["host"] or same_answer(self.place(host), but))]

    def place(self, host: str) -> Body:
        """Return a host as a place of records."""
        facts = self.facts[host]
        return place(host, facts.get("host_id"), facts.get("host_uuid"))

    @functools.cached_property
    def settings(self) -> Settings:
        """Policies and profiles, read as everywhere else."""
        names = {*self.policies, *self.profiles}
        variables = {name: {"kvmfleet_migration_policy": self.policies.get(name), "kvmfleet_profiles": self.profiles.get(name)} for name in names}
        return Settings({"hostvars": variables})

    @functools.cached_property
    def _entries(self) -> dict[t.Any, list[Body]]:
        index: dict[t.Any, list[Body]] = {}
        for entry in self.entries:
            for key in {entry.get("name"), entry.get("host_uuid"), entry.get("host_id")} - {None}:
                index.setdefault(key, []).append(entry)
        return index

    @functools.cached_property
    def _active(self) -> dict[str, list[str]]:
        index: dict[str, list[str]] = {}
        for host in sorted(name for name, facts in self.facts.items() if facts):
            for domain in self.facts[host]["domains"]:
                if domain["active"]:
                    index.setdefault(domain["uuid"], []).append(host)
        return index

    def _told(self, host: str) -> t.Optional[Body]:
        """Return the host's facts with what the profiles of its domains add; facts of a host that no longer answers do not count."""
        facts, silence = self.facts.get(host), self.unreachable.get(host)
        if silence is not None or not facts:
            return {"answered": False, "msg": silence.removeprefix(_FAILED)} if silence else None
        if not any((domain.get("policy") or {}).get("profile") for domain in facts["domains"]):
            return facts
        return {**facts, "domains": [self._with_profile(domain, host) for domain in facts["domains"]]}

    def _with_profile(self, domain: Body, host: str) -> Body:
        try:
            return {**domain, "request": policy.needs_of(domain, policy.place_of(domain, host, self.settings))}
        except InvalidArgument:
            # What its host is told of it is wrong: that is said when it is its turn to move, and hinders nobody else.
            return domain
