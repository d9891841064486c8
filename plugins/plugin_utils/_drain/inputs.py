# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The inputs of a plan: the options of the drain, facts of hosts, entries and records of the ledger, and settings of the inventory."""

from __future__ import annotations

import functools
import typing as t
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.kvmfleet.migration.plugins.module_utils._argspec import move_spec
from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.policy import check_task_features
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Json, JsonObject, Maybe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import DomainFacts, HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import NO_COPY, read_copy_mode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import NO_MAPS, ResourceMaps
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import REPLACEABLE
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import AUTO_PARALLEL

from .._ledger.documents import DomainEntry, HostEntry, pause_collector
from .._ledger.unreadable_hosts import UnreadableHost
from .._scheduler.fleet import HostState, find_entry
from .._scheduler.fleet_guests import FleetGuests, collect_guests
from .._settings.options import use_own_names
from .._settings.parallel import AUTO, parallel_value, read_parallel
from .._settings.policies import build_needs, owner_of, read_scheduling
from .._settings.scheduler import SchedulerSettings, count_failover_hosts
from .._settings.variables import Settings, read_facts
from .answers import active_uuids
from .plan_entries import PlanOptions
from .saved_plan import short_text, to_plain_object
from .strategy_options import GivenStrategies, StrategyOptions

# The options that a plan itself sets for each move.
_PLANNED_OPTIONS = ("name", "uuid", "destination", "destination_uri")
_LOWEST_VALUES = {"bandwidth_mib": 0, "link_mib": 1}


@dataclass(frozen=True)
class DrainOptions:
    """The options of the operator.

    :arg parallel: the maximum number of simultaneous moves of one source, or C(AUTO_PARALLEL).
    :arg moves: options of C(live_migrate).
    :arg cold: about domains that do not move live.
    """

    parallel: int = AUTO_PARALLEL
    n_plus_one: bool = False
    moves: JsonObject = field(default_factory=dict)
    cold: StrategyOptions = field(default_factory=StrategyOptions)

    @classmethod
    def from_values(cls, parallel: Json = AUTO, n_plus_one: Json = False, options: Json = None, **strategies: Json) -> DrainOptions:
        """Return the options. Raises L(InvalidArgument) for an invalid value, L(Conflict) for moves with both auto-converge and post-copy.

        :arg strategies: the fields of L(GivenStrategies).
        """
        number = read_parallel(parallel)
        if not isinstance(n_plus_one, bool):
            raise InvalidArgument(f"n_plus_one is {short_text(n_plus_one)}, which is neither true nor false.")
        if options is not None and not isinstance(options, Mapping):
            raise InvalidArgument(f"options is {short_text(options)}, which is not a dictionary of options of live_migrate.")
        return cls(number, n_plus_one, _validate_moves(options or {}), StrategyOptions.from_given(GivenStrategies(**strategies)))

    @classmethod
    def from_plan(cls, options: PlanOptions, given: JsonObject) -> DrainOptions:
        """Return the options of a saved plan, except for those arguments of L(from_values) that are given. Raises what L(from_values) raises."""
        kept = {"parallel": options.parallel, "n_plus_one": options.n_plus_one, "options": options.moves}
        return cls.from_values(**{**kept, **vars(StrategyOptions.from_plan(options)), **given})

    @property
    def copies_storage(self) -> bool:
        """Whether disks that are not shared are copied."""
        return self.copy_mode != NO_COPY

    @property
    def copy_mode(self) -> str:
        """How disks that are not shared are copied."""
        return str(self.moves.get("copy_storage") or NO_COPY)

    @property
    def is_unsafe(self) -> bool:
        """Whether the operator confirms that disks are the same on all hosts."""
        return self.moves.get("unsafe") is True

    @property
    def permits_one_way(self) -> bool:
        """Whether domains may move to hosts from which they could not move back."""
        return self.moves.get("one_way") is not False

    def for_plan(self) -> PlanOptions:
        """Return the options as the plan keeps them."""
        return self.cold.for_plan(PlanOptions(parallel_value(self.parallel), self.n_plus_one, self.moves))

    @property
    def bandwidth_mib(self) -> int:
        """The most MiB/s of one move; 0 for no limit."""
        return self._read_number("bandwidth_mib") or 0

    @property
    def link_mib(self) -> int | None:
        """The MiB/s of the link, if the operator has set it."""
        return self._read_number("link_mib")

    def _read_number(self, option: str) -> int | None:
        value = self.moves.get(option)
        return value if isinstance(value, int) else None


def _validate_moves(moves: JsonObject) -> JsonObject:
    """Return the options in their own types, as C(live_migrate) would take them."""
    spec = {name: option for name, option in move_spec().items() if name not in _PLANNED_OPTIONS}
    given = use_own_names(to_plain_object(moves), spec)
    result = ArgumentSpecValidator(spec).validate(given)
    if result.error_messages:
        messages = "; ".join(message.rstrip(".") for message in result.error_messages)
        raise InvalidArgument(f"live_migrate does not accept the options of the moves: {messages}.", "Nothing was moved.")
    checked = {name: value for name, value in result.validated_parameters.items() if name in given}
    if checked.get("copy_storage") is not None:
        checked["copy_storage"] = read_copy_mode(checked["copy_storage"])
    for name, lowest in _LOWEST_VALUES.items():
        if checked.get(name) is not None and checked[name] < lowest:
            raise InvalidArgument(f"The option {name} of the moves is {checked[name]}.", f"Give MiB/s, a whole number from {lowest}.")
    check_task_features(checked)
    return checked


_FAILED_PREFIX = "Task failed: "


@dataclass(frozen=True)
class DrainInputs:
    """What is known when a plan is made or applied.

    :arg facts: C(kvmfleet_host) by inventory name, of the sources and of the candidates that answered.
    :arg entries: the ledger's hosts; C(unreadable) are those whose document cannot be read.
    :arg records: unsettled records of the whole fleet.
    :arg unreachable: why a candidate did not answer, by name.
    :arg scheduler: C(kvmfleet_scheduler) by name.
    :arg history: completed records, for the prediction.
    :arg policies: C(kvmfleet_migration_policy) by name.
    :arg profiles: C(kvmfleet_profiles) by name.
    :arg resource_maps: what each host calls its resources, by name.
    :arg documents: the ledger's domains, where it is judged which hosts can be lost.
    :arg ledger_id: of the ledger; absent if there is none.
    """

    facts: Mapping[str, JsonObject]
    entries: Sequence[HostEntry] = ()
    records: Sequence[MoveRecord] = ()
    unreachable: Mapping[str, str] = field(default_factory=dict)
    scheduler: JsonObject = field(default_factory=dict)
    history: Sequence[MoveRecord] = ()
    policies: JsonObject = field(default_factory=dict)
    profiles: JsonObject = field(default_factory=dict)
    resource_maps: Mapping[str, ResourceMaps] = field(default_factory=dict)
    documents: Sequence[DomainEntry] = ()
    unreadable: Sequence[UnreadableHost] = ()
    ledger_id: Maybe[str] = ABSENT

    def host_state(self, host: str) -> HostState:
        """Return the host as the scheduler sees it."""
        ref = self.host_ref(host)
        entries = [entry for key in (host, ref.host_uuid, ref.host_id) for entry in self._entries_by_key.get(key, ())]
        entry = find_entry(entries, host, ref.host_uuid, ref.host_id, self.unreadable)
        facts, settings = self._usable_facts(host), SchedulerSettings.from_variable(self.scheduler.get(host), host)
        maps = self.resource_maps.get(host, NO_MAPS)
        return HostState.from_facts(host, facts, self.records, entry, settings, resource_maps=maps, ledger_id=self.ledger_id)

    def list_domains(self, host: str) -> Sequence[DomainFacts]:
        """Return the domains of a host that answered, as the host reports them and with the additions of their profiles."""
        facts = self._usable_facts(host)
        return (facts.domains or ()) if facts and host not in self.unreachable else ()

    def collect_guests(self, hosts: Iterable[str], accept_fresh: Collection[str] = REPLACEABLE) -> FleetGuests:
        """Return these hosts with their guests.

        :arg accept_fresh: kinds of files of which an evacuation accepts new ones. For the reserve, that is any: whoever accepts them needs room for the guest.
        """
        states = {host: self.host_state(host) for host in hosts}
        return collect_guests(states, {host: self.list_domains(host) for host in states}, self.entries, self.documents, accept_fresh)

    def find_record_from(self, uuid: str, source: HostRef) -> t.Optional[MoveRecord]:
        """Return the unsettled record of the domain's move away from that host."""
        for record in self.records:
            ours = record.source.is_same(source) or record.source.host == source.host
            if record.domain.uuid == uuid and record.is_unsettled and ours:
                return record
        return None

    def has_arrived(self, record: MoveRecord) -> bool:
        """Whether the domain of an unsettled record is active at its destination, and not on its source any more."""
        active = self.hosts_where_active(record.domain.uuid)
        return record.is_unsettled and record.destination.host in active and record.source.host not in active

    def hosts_where_active(self, uuid: str, but: t.Optional[HostRef] = None) -> list[str]:
        """Return the names of the hosts where the domain is active.

        :arg but: a host to leave out, under any of its names.
        """
        active = self._hosts_by_domain.get(uuid, ())
        return [host for host in active if but is None or not (host == but.host or self.host_ref(host).is_same_answer(but))]

    def host_ref(self, host: str) -> HostRef:
        """Return a host, as records name it."""
        facts = self.hosts.get(host, HostFacts())
        return HostRef(host, facts.host_id or None, facts.host_uuid or None)

    @functools.cached_property
    def failover_hosts(self) -> int:
        """How many hosts the fleet has to be able to lose."""
        return count_failover_hosts(SchedulerSettings.from_variable(value, host) for host, value in self.scheduler.items())

    @functools.cached_property
    def hosts(self) -> Mapping[str, HostFacts]:
        """The facts of the hosts that have any, by inventory name."""
        with pause_collector():
            return {host: read_facts(facts) for host, facts in self.facts.items() if facts}

    @functools.cached_property
    def settings(self) -> Settings:
        """Policies and profiles, as the inventory has them."""
        names = {*self.policies, *self.profiles}
        variables = {name: {"kvmfleet_migration_policy": self.policies.get(name), "kvmfleet_profiles": self.profiles.get(name)} for name in names}
        return Settings({"hostvars": variables})

    @functools.cached_property
    def _entries_by_key(self) -> Mapping[str | None, list[HostEntry]]:
        index: dict[str | None, list[HostEntry]] = {}
        for entry in self.entries:
            for key in {entry.name, entry.host_uuid, entry.host_id} - {None}:
                index.setdefault(key, []).append(entry)
        return index

    @functools.cached_property
    def _hosts_by_domain(self) -> dict[str, list[str]]:
        index: dict[str, list[str]] = {}
        for host, facts in sorted(self.hosts.items()):
            for uuid in active_uuids(facts):
                index.setdefault(uuid, []).append(host)
        return index

    def _usable_facts(self, host: str) -> HostFacts | None:
        """Return the host's facts with what the profiles of its domains add; facts of a host that no longer answers do not count."""
        facts, silence = self.hosts.get(host), self.unreachable.get(host)
        if silence is not None or facts is None:
            return HostFacts(answered=False, msg=silence.removeprefix(_FAILED_PREFIX)) if silence else None
        domains = facts.domains or ()
        if not any((domain.policy or {}).get("profile") for domain in domains):
            return facts
        return replace(facts, domains=tuple(self._with_profile(domain, host) for domain in domains))

    def _with_profile(self, domain: DomainFacts, host: str) -> DomainFacts:
        try:
            return replace(domain, request=build_needs(domain, read_scheduling(owner_of(domain, host), self.settings)))
        except InvalidArgument:
            # Its profile is invalid: this is reported when it moves, and does not affect other domains.
            return domain
