# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The hosts at one moment, each with its identity, state and capacity, and all together for rules that need more than one host."""

from __future__ import annotations

import functools
import typing as t
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, JsonObject, Maybe, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import JOB_INCOMING, JOB_OUTGOING
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import NO_MAPS, HostNames, NameChange, Renaming, ResourceMaps
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import ENABLED
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import CpuVerdict

from .._ledger.documents import HostEntry
from .._ledger.unreadable_hosts import UnreadableHost
from .._settings.scheduler import SchedulerSettings
from .guests import Guest, arriving_records, list_moves_in, list_moves_out
from .hardware import Hardware
from .request import Request

_NO_UUIDS: t.Final[frozenset[str]] = frozenset()
# The state of a host that was protected under another ledger than that of the task, whatever this ledger says about it.
OTHER_LEDGER = "other ledger"


@dataclass(frozen=True)
class HostState:
    """One host at one moment. All memory is in MiB.

    :arg host_id: its own ID; empty if it is not known.
    :arg unanswered: why the host did not answer; None if it did.
    :arg state: of its entry in the ledger, or L(OTHER_LEDGER); a host without an entry is enabled.
    :arg guests: by UUID, the domains that are active there and those that have a reservation.
    :arg used_mib: memory of all guests, without the part in huge pages, see L(ordinary_mib); C(used_vcpus) likewise.
    :arg moves_in: UUIDs of domains whose move towards it has begun; C(moves_out) away from it.
    :arg paths: whether a path exists, for the paths that were looked up.
    :arg other_files: images on shared storage that are other files on this host, by its names.
    :arg seen_devices: paths of the source's devices that this host also has, according to what C(protect) wrote about both.
    :arg cpu_verdicts: libvirt's own comparison by domain UUID.
    :arg vacated: guests that were there when the facts were gathered and have left since: their resources are free in addition to those in the facts.
    :arg resource_maps: what it calls its resources.
    """

    name: str
    host_uuid: str = ""
    host_id: str = ""
    unanswered: t.Optional[str] = None
    state: str = ENABLED
    state_reason: str = ""
    hardware: Hardware = field(default_factory=Hardware)
    settings: SchedulerSettings = field(default_factory=SchedulerSettings)
    guests: Mapping[str, Guest] = field(default_factory=dict, hash=False)
    used_mib: int = 0
    used_vcpus: int = 0
    moves_in: frozenset[str] = _NO_UUIDS
    moves_out: frozenset[str] = _NO_UUIDS
    paths: Mapping[str, bool] = field(default_factory=dict, hash=False)
    other_files: frozenset[str] = _NO_UUIDS
    seen_devices: frozenset[str] = _NO_UUIDS
    cpu_verdicts: Mapping[str, CpuVerdict] = field(default_factory=dict, hash=False)
    vacated: tuple[Guest, ...] = ()
    resource_maps: ResourceMaps = NO_MAPS

    @classmethod
    def from_facts(
        cls,
        name: str,
        facts: t.Optional[HostFacts],
        records: Iterable[MoveRecord] = (),
        entry: t.Optional[HostEntry] = None,
        settings: t.Union[SchedulerSettings, JsonObject, None] = None,
        paths: t.Optional[Mapping[str, bool]] = None,
        cpu_verdicts: t.Optional[Mapping[str, CpuVerdict]] = None,
        resource_maps: ResourceMaps = NO_MAPS,
        ledger_id: Maybe[str] = ABSENT,
    ) -> HostState:
        """Return the state of a host.

        :arg facts: the answer of the host, or why it did not answer; None: never queried.
        :arg records: those that reserve capacity here, or whose move has begun; and ended ones that arrived here, which are given only if they are newer than
          the facts.
        :arg entry: the host's entry in the ledger.
        :arg settings: its C(kvmfleet_scheduler). Raises L(InvalidArgument) for invalid ones.
        :arg ledger_id: of the ledger of the task; absent if it is not known.
        """
        known = settings if isinstance(settings, SchedulerSettings) else SchedulerSettings.from_variable(settings, name)
        state, reason = (entry.state, entry.reason or "") if entry else (ENABLED, "")
        if facts is None or facts.answered is False:
            return cls(name, unanswered=_describe_silence(facts), state=state, state_reason=reason, settings=known, resource_maps=resource_maps)
        if ledger_id and facts.ledger_id and facts.ledger_id != ledger_id:
            state, reason = OTHER_LEDGER, facts.ledger_id
        host_ref, listed = replace(facts.host, host=name), list(records)
        guests = _collect_guests(facts, arriving_records(listed, host_ref))
        return cls(
            name=name,
            host_uuid=host_ref.host_uuid or "",
            host_id=host_ref.host_id or "",
            state=state,
            state_reason=reason,
            hardware=Hardware(facts),
            settings=known,
            moves_in=list_moves_in(listed, host_ref) | _domains_with_job(facts, JOB_INCOMING),
            moves_out=list_moves_out(listed, host_ref) | _domains_with_job(facts, JOB_OUTGOING),
            paths=paths or {},
            cpu_verdicts=cpu_verdicts or {},
            resource_maps=resource_maps,
        )._with_guests(guests, ())

    @functools.cached_property
    def host_ref(self) -> HostRef:
        """The host, as records name it."""
        return HostRef(self.name, self.host_id or None, self.host_uuid or None)

    @functools.cached_property
    def total_mib(self) -> int:
        """The memory of the whole host that is not in huge pages: nothing else can use these."""
        return max(0, self.hardware.total_mib - self.hardware.page_pool_mib)

    @functools.cached_property
    def capacity_mib(self) -> int:
        """The memory for all guests beside huge pages: (total - reserved) x ratio; 0 if more is reserved than exists."""
        return max(0, int((self.total_mib - self.settings.reserved_memory_mib) * self.settings.ram_allocation_ratio))

    def ordinary_mib(self, guest: Guest | Request) -> int:
        """Return how much of this memory the guest uses: all that it does not have in huge pages. Without known huge pages, that is all of its memory."""
        return guest.memory_mib if not self.hardware.page_pool_mib else max(0, guest.memory_mib - guest.page_mib)

    @functools.cached_property
    def capacity_vcpus(self) -> int:
        """The vCPUs for all guests: (CPUs - reserved) x ratio, with the same rule."""
        return max(0, int((self.hardware.cpus - self.settings.reserved_cpus) * self.settings.cpu_allocation_ratio))

    def free_mib(self, without: str = "") -> int:
        """The free memory beside huge pages, without the domain of that UUID; negative on an overcommitted host."""
        guest = self.guests.get(without)
        return self.capacity_mib - self.used_mib + (self.ordinary_mib(guest) if guest else 0)

    def free_vcpus(self, without: str = "") -> int:
        """The free vCPUs, with the same rule."""
        guest = self.guests.get(without)
        return self.capacity_vcpus - self.used_vcpus + (guest.vcpus if guest else 0)

    def with_domain(self, request: Request) -> HostState:
        """Return the host with that domain on it."""
        there, guest = self.guests.get(request.uuid), Guest.from_request(request)
        if there:
            return self._with_guests({**self.guests, request.uuid: there.with_reservation(guest)}, self.vacated)
        used_mib, used_vcpus = self.used_mib + self.ordinary_mib(guest), self.used_vcpus + guest.vcpus
        return replace(self, guests={**self.guests, request.uuid: guest}, used_mib=used_mib, used_vcpus=used_vcpus)

    def without_domain(self, uuid: str) -> HostState:
        """Return the host as it is once the domain of that UUID has left."""
        guest = self.guests.get(uuid)
        if guest is None:
            return self
        rest = {other: kept for other, kept in self.guests.items() if other != uuid}
        return self._with_guests(rest, (*self.vacated, guest) if guest.arrived else self.vacated)

    def _with_guests(self, guests: Mapping[str, Guest], vacated: tuple[Guest, ...]) -> HostState:
        used_mib = sum(map(self.ordinary_mib, guests.values()))
        used_vcpus = sum(guest.vcpus for guest in guests.values())
        return replace(self, guests=guests, used_mib=used_mib, used_vcpus=used_vcpus, vacated=vacated)


def _describe_silence(facts: t.Optional[HostFacts]) -> str:
    return (facts.msg if facts else "") or "there are no facts for it"


def _collect_guests(facts: HostFacts, records: Mapping[str, MoveRecord]) -> dict[str, Guest]:
    """Return the union, by UUID, of the active domains and the reservations of the records."""
    active = {domain.uuid: Guest.from_domain(domain) for domain in facts.domains or () if domain.active}
    for uuid, record in records.items():
        booked = Guest.from_record(record)
        if uuid in active and not record.is_unsettled:
            # The copied disk exists, and counts as used space.
            booked = replace(booked, copies=())
        active[uuid] = active[uuid].with_reservation(booked) if uuid in active else booked
    return active


def _domains_with_job(facts: HostFacts, job: str) -> frozenset[str]:
    return frozenset(domain.uuid for domain in facts.domains or () if domain.active and domain.job == job)


def find_entry(
    entries: Iterable[HostEntry],
    name: str,
    host_uuid: t.Optional[str] = None,
    host_id: t.Optional[str] = None,
    unreadable: Sequence[UnreadableHost] = (),
) -> t.Optional[HostEntry]:
    """Return the entry that belongs to the host by host ID or name, or by libvirt's UUID where one ID is not known; or None.

    Contradicting identities permit nothing: of several matching entries, one that is not enabled is returned first.

    :arg unreadable: the hosts whose document cannot be read: the stand-in of one is returned if it is this host, or may be.
    """
    wanted = HostRef(None, host_id, host_uuid)
    matching = [entry for entry in entries if entry.name == name or entry.host_ref.is_same(wanted)]
    named = HostRef(name, host_id, host_uuid)
    matching += [one.stand_in for one in unreadable if (one.is_host(named) if matching else one.may_be(named))]
    return next((entry for entry in matching if entry.state != ENABLED), matching[0] if matching else None)


# Group to host to the UUIDs of its members on it, and their names.
Groups = Mapping[str, Mapping[str, Mapping[str, Guest]]]


@dataclass(frozen=True)
class Fleet:
    """Hosts by inventory name.

    :arg leaving: UUIDs of domains that will have left the host that they are active on now: they are no longer group members on it.
    """

    states: Mapping[str, HostState] = field(default_factory=dict, hash=False)
    leaving: frozenset[str] = frozenset()

    def with_domain(self, request: Request, host: str) -> Fleet:
        """Return the fleet with that domain on that host as well."""
        state = self.states[host]
        return self._with_host(state, state.with_domain(self.request_at(request, state)), request.uuid)

    def without_domain(self, uuid: str, host: str) -> Fleet:
        """Return the fleet with that domain no longer on that host."""
        return self._with_host(self.states[host], self.states[host].without_domain(uuid), uuid)

    def without_guests(self, hosts: Iterable[str]) -> Fleet:
        """Return the fleet with no guest on these hosts, which remain known as the hosts that their guests leave."""
        empty = {name: replace(self.states[name], guests={}, used_mib=0, used_vcpus=0) for name in hosts}
        groups = {guest.group.name for name in empty for guest in self.states[name].guests.values() if guest.group}
        fleet = replace(self, states={**self.states, **empty})
        self._share_constants(fleet)
        fleet.__dict__["_groups"] = {**self._groups, **{group: self._members_elsewhere(group, empty) for group in groups}}
        return fleet

    def _members_elsewhere(self, group: str, hosts: Collection[str]) -> Mapping[str, Mapping[str, Guest]]:
        return {host: members for host, members in self.group_members(group).items() if host not in hosts}

    def source_of(self, request: Request) -> t.Optional[HostState]:
        """Return the host that the domain leaves."""
        key = (request.source_id, request.source_uuid, request.source)
        if key not in self._sources:
            self._sources[key] = self._find_source(request)
        return self._sources[key]

    def _find_source(self, request: Request) -> t.Optional[HostState]:
        keys = {"host_id": request.source_id, "host_uuid": request.source_uuid, "host": request.source}
        named = (self._by_key.get((kind, value)) for kind, value in keys.items() if value)
        found = (self.states[name] for name in named if name)
        return next((state for state in found if state.host_ref.is_same(request.source_ref)), None)

    @functools.cached_property
    def _sources(self) -> dict[tuple[str, str, str], t.Optional[HostState]]:
        """The source hosts that were found. They are needed for each host of the fleet, and are the same for all of them."""
        return {}

    def request_at(self, request: Request, host: HostState) -> Request:
        """Return the request with the names that the host has for what the domain uses. If no host has a map, nothing is compared."""
        names = self._names_of(request) if request.at_source is None else None
        if names is None or names.maps == host.resource_maps:
            return request
        key = (request, host.name)
        if key not in self._requests_at:
            self._requests_at[key] = request.rename(Renaming.between(names, HostNames(host.name, host.resource_maps)))
        return self._requests_at[key]

    def list_renamed(self, request: Request, host: str) -> tuple[NameChange, ...]:
        """Return what the names of the domain are on that host, as far as the facts show them."""
        there = self.states.get(host)
        return self.request_at(request, there).renamed if there else ()

    def _names_of(self, request: Request) -> t.Optional[HostNames]:
        """Return the names that the request has; None if they are those of every host, or not known."""
        if request.names is not None or not self._has_maps:
            return request.names
        source = self.source_of(request)
        return HostNames(source.name, source.resource_maps) if source else None

    @functools.cached_property
    def _has_maps(self) -> bool:
        return any(state.resource_maps for state in self.states.values())

    @functools.cached_property
    def _requests_at(self) -> dict[tuple[Request, str], Request]:
        """The requests with the names of other hosts. They are needed for each step of a plan, and are the same for all of them."""
        return {}

    def group_members(self, group: str) -> Mapping[str, Mapping[str, Guest]]:
        """Return the members of a group by host and UUID, without those that leave on the host that they leave."""
        return self._groups.get(group, {})

    def group_policies(self, group: str) -> Mapping[str, frozenset[str]]:
        """Return the policies of a group according to its members: policy to their names."""
        if group not in self._policies_by_group:
            policies: dict[str, set[str]] = {}
            for there in self.group_members(group).values():
                for guest in there.values():
                    policies.setdefault(guest.group.policy if guest.group else "", set()).add(guest.name)
            self._policies_by_group[group] = {policy: frozenset(names) for policy, names in policies.items()}
        return self._policies_by_group[group]

    @functools.cached_property
    def _policies_by_group(self) -> dict[str, Mapping[str, frozenset[str]]]:
        """The policies of all groups. They are needed for each host of the fleet, and are the same for all of them."""
        return {}

    @functools.cached_property
    def _by_key(self) -> Mapping[tuple[str, str], str]:
        return {(kind, value): name for name, state in self.states.items() for kind, value in encode(state.host_ref).items() if value}

    @functools.cached_property
    def _groups(self) -> Groups:
        groups: dict[str, dict[str, dict[str, Guest]]] = {}
        for name, state in self.states.items():
            for group, guest in self._group_guests(state):
                groups.setdefault(group, {}).setdefault(name, {})[guest.uuid] = guest
        return groups

    def _group_guests(self, state: HostState) -> Iterator[tuple[str, Guest]]:
        for guest in state.guests.values():
            is_leaving = guest.uuid in self.leaving and guest.arrived and guest.uuid not in state.moves_in
            if guest.group and not is_leaving:
                yield guest.group.name, guest

    def _with_host(self, before: HostState, after: HostState, uuid: str) -> Fleet:
        fleet = replace(self, states={**self.states, after.name: after})
        # Of the groups, only that of one guest has changed.
        self._share_constants(fleet)
        groups = {guest.group.name for guest in (before.guests.get(uuid), after.guests.get(uuid)) if guest and guest.group}
        fleet.__dict__["_groups"] = self._groups if not groups else {**self._groups, **{group: self._updated_group(group, after) for group in groups}}
        return fleet

    def _share_constants(self, fleet: Fleet) -> None:
        """Give another state of this fleet what stays as it is: hosts, and their names for their resources."""
        fleet.__dict__["_by_key"] = self._by_key
        fleet.__dict__["_has_maps"] = self._has_maps
        fleet.__dict__["_requests_at"] = self._requests_at

    def _updated_group(self, group: str, state: HostState) -> Mapping[str, Mapping[str, Guest]]:
        there = {guest.uuid: guest for name, guest in self._group_guests(state) if name == group}
        others = {host: members for host, members in self.group_members(group).items() if host != state.name}
        return {**others, state.name: there} if there else others


Step = tuple[Request, t.Optional[str]]


@dataclass
class PlanReplay:
    """The fleet before each step of a plan. A step is a domain and its new host; None if the domain stays.

    Only the last requested fleet is kept, because one for each step would need too much memory; later ones are computed from it.
    """

    base: Fleet
    steps: Sequence[Step] = ()
    _at: int = field(default=0, init=False)
    _fleet: t.Optional[Fleet] = field(default=None, init=False)

    def fleet_before(self, number: int) -> Fleet:
        """Return the fleet before the step of that number, from 0. If the steps are requested in order, each is computed once."""
        if self._fleet is None or number < self._at:
            self._at, self._fleet = 0, self.base
        for request, host in self.steps[self._at : number]:
            self._fleet = self._fleet.with_domain(request, host) if host else self._fleet
        self._at = number
        return self._fleet
