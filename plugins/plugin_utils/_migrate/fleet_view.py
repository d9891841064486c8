# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The fleet from the point of view of one task: the results of its survey, recent facts of hosts, and the current ledger."""

from __future__ import annotations

import datetime
import math
import time
import typing as t
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.flags import versions_under_guest
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, JsonObject, decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import NotFound, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import DomainFacts, HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import REPLACEABLE
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import CpuVerdict, Survey, SurveyedDomain
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import DomainEntry
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.host_entries import read_hosts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.unreadable_hosts import LedgerHosts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.known_facts import (
    SeenStorage,
    add_profile_groups,
    fill_facts,
    find_seen_devices,
    readable_profiles,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.fleet import Fleet, HostState, find_entry
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.fleet_guests import FleetGuests, collect_guests
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.scheduler import SchedulerSettings, check_failover_hosts, count_failover_hosts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import Settings

# How far back closed records are read; only clocks that differ by more could hide one.
_WINDOW = datetime.timedelta(minutes=10)


class RecentMoves:
    """Created before a survey; returns later which domains have come to another host since then, by moves or evacuations.

    :arg ledger: None if it does not exist.
    """

    def __init__(self, ledger: Ledger | None) -> None:
        self._ledger = ledger
        self._since = (datetime.datetime.now(datetime.UTC) - _WINDOW).isoformat()
        self._known: dict[str, MoveRecord | None] = dict.fromkeys(self._closed_ids())
        self._evacuated = frozenset(record.id for record in read_open_records(ledger) if record.status == s.DONE)

    def list_arrivals(self, open_records: Sequence[MoveRecord]) -> list[MoveRecord]:
        """Return the new records of arrivals, only the latest of each domain, because a later one makes the earlier destination obsolete.

        :arg open_records: what L(read_open_records) returns now. A domain that an evacuation has started is among them until the dead host was cleaned up.
        """
        self._known |= {key: self._read_completed(key) for key in self._closed_ids() if key not in self._known}
        started = [record for record in open_records if record.status == s.DONE and record.id not in self._evacuated]
        found = sorted((record for record in [*started, *self._known.values()] if record), key=lambda record: record.generation)
        return list({record.domain.uuid: record for record in found}.values())

    def _closed_ids(self) -> set[str]:
        return self._ledger.list_closed_since(self._since) if self._ledger else set()

    def _read_completed(self, key: str) -> MoveRecord | None:
        """Return the record of a completed move. The ledger reports a record that cannot be read, and sets a damaged one aside."""
        try:
            record = t.cast(Ledger, self._ledger).read_record(key).record
        except (NotFound, NotSupported):
            return None
        return record if record.status == s.COMPLETED else None


def read_open_records(ledger: Ledger | None) -> list[MoveRecord]:
    """Return the records that are not closed: the unsettled ones, and those of evacuations whose dead host was not cleaned up yet."""
    return list(ledger.list_records(statuses=sorted(s.UNSETTLED | s.TOMBSTONE))) if ledger else []


# How old entries may be by which a host is only chosen.
_ENTRIES_SECONDS = 1.0


class _ReadHosts(t.NamedTuple):
    """:arg read_at: on the monotonic clock, before they were read."""

    read_at: float
    hosts: LedgerHosts


def _read_facts(gathered: JsonObject | None) -> HostFacts | None:
    """Return the facts that a host gathered; None for those of another version, whose domains cannot be read."""
    facts = decode(HostFacts, gathered) if gathered is not None else None
    return None if facts is None or "domains" in facts.extra else facts


@dataclass
class FleetView:
    """Returns the states of hosts; each call reads the ledger again, so that an answer under a lock is valid under that lock.

    :arg ledger: None if it does not exist yet.
    :arg source: inventory name of the host that the task runs on.
    :arg survey: of that host and of all candidates.
    :arg uris: of all hosts that were queried, by name.
    :arg recent_moves: created before the survey.
    :arg leaving: UUIDs of the domains that this task moves.
    :arg overrides: a task's own scheduler settings, over those of every host.
    """

    ledger: Ledger | None
    settings: Settings
    source: str
    survey: Survey
    uris: Mapping[str, str]
    recent_moves: RecentMoves
    leaving: frozenset[str] = frozenset()
    overrides: JsonObject | None = None
    planned: list[MoveRecord] = field(default_factory=list)
    _settings_by_host: dict[str, SchedulerSettings] = field(default_factory=dict)
    _facts_by_host: dict[str, HostFacts | None] = field(default_factory=dict)
    _documents: list[DomainEntry] | None = None
    _hosts: _ReadHosts = field(default_factory=lambda: _ReadHosts(-math.inf, LedgerHosts()))

    def check_settings(self, hosts: Iterable[str]) -> None:
        """Raise L(InvalidArgument) for a C(kvmfleet_scheduler) of these hosts, or of the source, that is invalid; before any record is opened."""
        check_failover_hosts(self.count_failover_hosts(hosts), len(self.settings.fleet()))

    def count_failover_hosts(self, hosts: Iterable[str]) -> int:
        """Return how many hosts the fleet has to be able to lose, according to these hosts and the source."""
        return count_failover_hosts([self.scheduler_settings(host) for host in (self.source, *hosts)])

    def scheduler_settings(self, host: str) -> SchedulerSettings:
        """Return the host's scheduler settings with those of the task applied."""
        if host not in self._settings_by_host:
            own = self.settings.scheduler(host)
            self._settings_by_host[host] = own.with_task(self.overrides) if self.overrides else own
        return self._settings_by_host[host]

    def candidate_facts(self, host: str, uri: str) -> HostFacts:
        """Return what is known of a candidate."""
        return fill_facts(self.survey.destinations[uri], self._fresh_facts(host))

    def source_facts(self) -> HostFacts:
        """Return what is known of the host that the task runs on."""
        return fill_facts(self.survey.source, self._fresh_facts(self.source))

    def versions_under(self, domain: SurveyedDomain) -> Mapping[str, int]:
        """Return the versions of libvirt and QEMU that move that domain away, see L(versions_under_guest)."""
        machine = (domain.request.machine or None) if domain.request else None
        return versions_under_guest(self.survey.source.versions or {}, bool(domain.qemu_replaced), machine)

    def remembered_moves(self) -> Iterator[tuple[str, Sequence[JsonObject]]]:
        """Yield the moves that the source remembers, and those of the other hosts of this task with fresh facts."""
        yield self.source, self.survey.source.remembered or ()
        for host in self.uris:
            facts = self._fresh_facts(host)
            if host != self.source and facts is not None:
                yield host, facts.remembered or ()

    def seen_devices(self, domain: SurveyedDomain, uris: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        """Return, by candidate, the devices of the domain that the candidate has according to the ledger, although the survey could not prove them."""
        if not domain.unproved_devices:
            return {}
        storage = SeenStorage.from_ledger(self.ledger, self.source_facts().host, domain.uuid)
        pools, found = self.source_facts().pools or (), {host: self.candidate_facts(host, uri) for host, uri in uris.items()}
        return {
            host: find_seen_devices(domain.unproved_devices, storage, facts.host, pools, facts.pools or (), facts.boot_id or None)
            for host, facts in found.items()
        }

    def own_facts(self) -> HostFacts | None:
        """Return the fresh facts of the host on which the task runs, or None."""
        own = self._fresh_facts(self.source)
        return own if own is not None and own.host.is_same(self.survey.source.host) else None

    def build_fleet(self, domain: SurveyedDomain, uuid: str, uris: Mapping[str, str], has_group: bool = True, is_binding: bool = True) -> Fleet:
        """Return the source, these candidates, and for a domain with a group every further host with known facts.

        :arg domain: the survey's part about the domain, with the answers of each candidate.
        :arg uris: of the candidates, by name.
        :arg is_binding: false if a host is only chosen, and judged again under its lock; then entries of hosts may be a second old.
        """
        records, hosts = self._current_records(), self._read_hosts(is_binding)
        seen = self.seen_devices(domain, uris)
        states = {host: self._candidate_state(host, uri, domain, uuid, records, hosts) for host, uri in uris.items()}
        states |= {host: replace(states[host], seen_devices=frozenset(paths)) for host, paths in seen.items()}
        if self.source not in states:
            states[self.source] = self._host_state(self.source, self.source_facts(), records, hosts, self.scheduler_settings(self.source))
        if has_group:
            self._add_others(states, records, hosts)
        return Fleet(states, self.leaving)

    def collect_guests(self, uris: Mapping[str, str]) -> FleetGuests:
        """Return the source and these candidates with their guests, all by the same kind of knowledge: that of one domain's survey is left out.

        Room is kept for guests that start elsewhere only with fresh files, because a person may accept these.

        :arg uris: of the candidates, by name.
        """
        records, hosts = self._current_records(), self._read_hosts(is_binding=False)
        facts = {self.source: self.source_facts(), **{host: self.candidate_facts(host, uri) for host, uri in uris.items()}}
        states = {host: self._host_state(host, known, records, hosts, self.scheduler_settings(host)) for host, known in facts.items()}
        if self._documents is None:
            self._documents = [document.domain for document in self.ledger.list_domains()] if self.ledger else []
        return collect_guests(states, {host: self._list_domains(host, known) for host, known in facts.items()}, hosts.entries, self._documents, REPLACEABLE)

    def _list_domains(self, host: str, facts: HostFacts) -> Sequence[DomainFacts]:
        """Return the domains of a host with the groups of their profiles, and with what its own facts say about their images, which a survey cannot read."""
        own = self._fresh_facts(host)
        requests = {domain.uuid: domain.request for domain in (own.domains if own else ()) or () if domain.request}
        domains = tuple(replace(domain, request=requests.get(domain.uuid, domain.request)) for domain in facts.domains or ())
        return add_profile_groups(replace(facts, domains=domains), readable_profiles(self.settings, host)).domains or ()

    def _read_hosts(self, is_binding: bool) -> LedgerHosts:
        """Return all hosts of the ledger."""
        if is_binding or time.monotonic() - self._hosts.read_at > _ENTRIES_SECONDS:
            self._hosts = _ReadHosts(time.monotonic(), read_hosts(self.ledger))
        return self._hosts.hosts

    def _add_others(self, states: dict[str, HostState], records: list[MoveRecord], hosts: LedgerHosts) -> None:
        """Add the hosts that are not judged, only read for their domains."""
        for host, facts in self._other_hosts(records):
            if host not in states and not any(facts.host.is_same(state.host_ref) for state in states.values()):
                states[host] = self._host_state(host, facts, records, hosts, SchedulerSettings.from_variable(None, host))

    def _other_hosts(self, records: Iterable[MoveRecord]) -> Iterator[tuple[str, HostFacts]]:
        """Yield the hosts that this task queried for other moves, those with fresh facts, and those that are destinations in the ledger."""
        for host, uri in self.uris.items():
            if self.survey.destinations[uri].answered:
                yield host, self.candidate_facts(host, uri)
        for host in self.settings.fleet():
            facts = self._fresh_facts(host)
            if facts is not None and facts.host_uuid:
                yield host, facts
        for record in records:
            destination = record.destination
            if destination.host and destination.host_uuid:
                yield destination.host, HostFacts(host_id=destination.host_id, host_uuid=destination.host_uuid, domains=())

    def _candidate_state(self, host: str, uri: str, domain: SurveyedDomain, uuid: str, records: list[MoveRecord], hosts: LedgerHosts) -> HostState:
        verdict, paths, facts = (domain.cpu or {}).get(uri), (domain.paths or {}).get(uri), self.candidate_facts(host, uri)
        state = self._host_state(host, facts, records, hosts, self.scheduler_settings(host), paths, {uuid: verdict} if verdict else None)
        return replace(state, other_files=frozenset((domain.other_files or {}).get(uri, ())))

    def _host_state(
        self,
        host: str,
        facts: HostFacts,
        records: list[MoveRecord],
        hosts: LedgerHosts,
        settings: SchedulerSettings,
        paths: Mapping[str, bool] | None = None,
        cpu_verdicts: Mapping[str, CpuVerdict] | None = None,
    ) -> HostState:
        entry = find_entry(hosts.entries, host, facts.host_uuid or None, facts.host_id or None, hosts.unreadable)
        known = add_profile_groups(facts, readable_profiles(self.settings, host))
        maps = self.settings.resource_maps(host)
        return HostState.from_facts(
            host,
            known,
            records=records,
            entry=entry,
            settings=settings,
            paths=paths,
            cpu_verdicts=cpu_verdicts,
            resource_maps=maps,
            ledger_id=self.ledger.ledger_id if self.ledger else ABSENT,
        )

    def _fresh_facts(self, host: str) -> HostFacts | None:
        """Return the fresh facts of the host. They are read once for the task, because the inventory templates all of them at each access."""
        if host not in self._facts_by_host:
            self._facts_by_host[host] = _read_facts(self.settings.fresh_facts(host))
        return self._facts_by_host[host]

    def _current_records(self) -> list[MoveRecord]:
        """Return the unsettled records, and those of domains that have arrived since the hosts were queried: the answers may lack their guests."""
        open_records = read_open_records(self.ledger)
        unsettled = [record for record in open_records if record.is_unsettled]
        return [*unsettled, *self.recent_moves.list_arrivals(open_records), *self.planned]
