# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The fleet as one task sees it: what the survey found, what hosts said of themselves lately, and the ledger as it is at that moment."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.hosts import same_host
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.arrivals import Arrivals
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.known import Facts, filled, with_profiles
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.seen_devices import seen_devices
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.entries import entry_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.fleet import Fleet
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.host_state import HostState
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.settings import SchedulerSettings
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings import Settings

Body = Mapping[str, t.Any]


@dataclass
class FleetView:
    """Answers with the states of hosts; every answer reads the ledger anew, so that one that is asked for under a lock holds under it.

    :arg ledger: None where there is none yet.
    :arg source: inventory name of the host that the task runs on.
    :arg survey: C({source, destinations}) as that host found them.
    :arg uris: of all hosts that were asked, by name.
    :arg arrivals: made before the survey.
    :arg leaving: UUIDs of the domains that this task moves.
    :arg overrides: a task's own scheduler settings, over those of every host.
    """

    ledger: Ledger | None
    settings: Settings
    source: str
    survey: Facts
    uris: Mapping[str, str]
    arrivals: Arrivals
    leaving: frozenset[str] = frozenset()
    overrides: Body | None = None
    planned: list[Body] = field(default_factory=list)
    _known: dict[str, SchedulerSettings] = field(default_factory=dict)
    _told: dict[str, Body | None] = field(default_factory=dict)

    def check_settings(self, hosts: Iterable[str]) -> None:
        """Raise L(InvalidArgument) for a C(kvmfleet_scheduler) of these hosts, or of the source, that cannot be; before anything was opened."""
        for host in (self.source, *hosts):
            self.scheduler(host)

    def scheduler(self, host: str) -> SchedulerSettings:
        """Return the host's scheduler settings, the task's own ones worked in."""
        if host not in self._known:
            own = self.settings.scheduler(host)
            self._known[host] = own.with_task(self.overrides) if self.overrides else own
        return self._known[host]

    def facts(self, host: str, uri: str) -> Facts:
        """Return what is known of a candidate."""
        return filled(self.survey["destinations"][uri], self._fresh_facts(host))

    def source_facts(self) -> Facts:
        """Return what is known of the host that the task runs on."""
        return filled(self.survey["source"], self._fresh_facts(self.source))

    def remembered(self) -> Iterator[tuple[str, t.Optional[Sequence[Body]]]]:
        """Yield what the source remembers of moves, and the hosts that this task asks about and that told of themselves lately."""
        yield self.source, self.survey["source"].get("remembered")
        for host in self.uris:
            facts = self._fresh_facts(host)
            if host != self.source and facts is not None:
                yield host, facts.get("remembered")

    def seen_devices(self, domain: Body, uris: Mapping[str, str]) -> dict[str, list[str]]:
        """Return, by candidate, which devices of the domain that the survey could not prove it was seen to have."""
        devices = domain.get("unproved_devices") or ()
        entries = self._entries() if devices else []
        return {host: self._seen_devices(domain, entries, self.facts(host, uri)) for host, uri in uris.items()} if devices else {}

    def own_facts(self) -> Body | None:
        """Return what the host that the task runs on said of itself lately; None where it did not."""
        own = self._fresh_facts(self.source)
        return own if own is not None and same_host(own, self.survey["source"]) else None

    def fleet(self, domain: Body, uuid: str, uris: Mapping[str, str], has_group: bool = True) -> Fleet:
        """Return the source, these candidates, and for a domain with a group every further host of which something is known.

        :arg domain: the survey's part about the domain, for what was asked about it at each candidate.
        :arg uris: of the candidates, by name.
        """
        records, entries = self._records(), self._entries()
        states = {host: self._candidate(host, uri, domain, uuid, records, entries) for host, uri in uris.items()}
        if self.source not in states:
            states[self.source] = self._state(self.source, self.source_facts(), records, entries, self.scheduler(self.source))
        if has_group:
            self._add_others(states, records, entries)
        return Fleet(states, self.leaving)

    def _add_others(self, states: dict[str, HostState], records: list[Body], entries: list[Body]) -> None:
        """Add the hosts that are not judged, only asked who is on them."""
        for host, facts in self._others(records):
            if host not in states and not any(same_host(facts, state.place) for state in states.values()):
                states[host] = self._state(host, facts, records, entries, SchedulerSettings.of(None, host))

    def _others(self, records: Iterable[Body]) -> Iterator[tuple[str, Body]]:
        """Yield the hosts that this task asked for other moves, those that told of themselves lately, and those that the ledger has moves to."""
        for host, uri in self.uris.items():
            if self.survey["destinations"][uri]["answered"]:
                yield host, self.facts(host, uri)
        for host in self.settings.fleet():
            facts = self._fresh_facts(host)
            if facts is not None and facts.get("host_uuid"):
                yield host, facts
        for record in records:
            place = record["destination"]
            if place.get("host") and place.get("host_uuid"):
                yield place["host"], {"host_id": place.get("host_id"), "host_uuid": place["host_uuid"], "domains": []}

    def _candidate(self, host: str, uri: str, domain: Body, uuid: str, records: list[Body], entries: list[Body]) -> HostState:
        verdict, paths, facts = domain.get("cpu", {}).get(uri), domain.get("paths", {}).get(uri), self.facts(host, uri)
        state = self._state(host, facts, records, entries, self.scheduler(host), paths, {uuid: verdict} if verdict else None)
        return replace(state, seen_devices=frozenset(self._seen_devices(domain, entries, facts)))

    def _seen_devices(self, domain: Body, entries: list[Body], facts: Facts) -> list[str]:
        devices = domain.get("unproved_devices") or ()
        return seen_devices(devices, entries, self.source_facts(), facts) if devices else []

    def _state(
        self,
        host: str,
        facts: Body,
        records: list[Body],
        entries: list[Body],
        settings: SchedulerSettings,
        paths: Body | None = None,
        cpu_verdicts: Body | None = None,
    ) -> HostState:
        entry = entry_of(entries, host, facts.get("host_uuid"), facts.get("host_id"))
        known = with_profiles(facts, lambda name: self._profile(host, name))
        return HostState.of(host, known, records=records, entry=entry, settings=settings, paths=paths, cpu_verdicts=cpu_verdicts)

    def _fresh_facts(self, host: str) -> Body | None:
        """Return what the host said of itself lately. Read once for the task: the inventory templates all of it at each reading."""
        if host not in self._told:
            self._told[host] = self.settings.fresh_facts(host)
        return self._told[host]

    def _profile(self, host: str, name: str) -> Body:
        try:
            return self.settings.profile(host, name)
        except InvalidArgument:
            # Somebody else's domain; its own move will say what is wrong.
            return {}

    def _entries(self) -> list[Body]:
        return [document.body for document in self.ledger.hosts()] if self.ledger else []

    def _records(self) -> list[Body]:
        """Return what is unsettled, and the moves that ended since the hosts were asked: their guests need not be in the answers yet."""
        unsettled = self.ledger.records(unsettled_only=True) if self.ledger else ()
        return [*unsettled, *self.arrivals.records(), *self.planned]
