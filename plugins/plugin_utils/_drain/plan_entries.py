# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The parts of a plan of a drain: what is done with each domain, and the options of the drain."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Sequence
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, MOST, Absent, Json, JsonObject, ShapeError, SignedInt
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import LEAVE
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import COLD_METHODS, OFFLINE
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import NameChange

from .._settings.parallel import AUTO

_MAX_SECONDS = 1e12
_UUID_LENGTH = 36
# The lower and the upper end of a range.
_ENDS = 2


@dataclass(frozen=True)
class Rejection:
    """A host that was not chosen for a domain, and why."""

    host: str
    reason: str
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class PassedStrategy:
    """A strategy that was not possible for a domain, and why."""

    strategy: str
    reason: str
    extra: JsonObject = field(default_factory=dict)


PassedStrategies = t.Union[tuple[PassedStrategy, ...], Absent]
Rewritten = t.Union[tuple[NameChange, ...], Absent]


class _OfDomain:
    """An entry about one domain."""

    uuid: str

    def check(self) -> None:
        """Raise L(ShapeError) for an invalid UUID."""
        if len(self.uuid) != _UUID_LENGTH:
            raise ShapeError("uuid", "a UUID", self.uuid)


@dataclass(frozen=True)
class PlannedMove(_OfDomain):
    """A domain that moves live.

    :arg order: its position among the moves of the plan, from 1.
    :arg predicted_downtime_ms: null if its dirty rate is not known.
    :arg predicted_range: between how many seconds the duration is predicted to be. Plans of earlier versions have none.
    :arg sends_mib: how much it is predicted to send in its first pass.
    :arg request: what the domain needs of a host.
    :arg not_possible: the strategies that its policy prefers. Plans of earlier versions have none.
    :arg rewritten: what its names are at the destination, as far as the facts show them; absent if they are the same.
    :arg stage: of a balance, as C(gain), C(cost_seconds), C(repairs) and C(unit): see C(ChosenMove) there. Plans of drains have none of them.
    """

    order: int
    name: str
    uuid: str
    source: str
    destination: str
    memory_mib: int
    priority: SignedInt
    predicted_seconds: float
    predicted_downtime_ms: t.Optional[int]
    reason: str
    warnings: tuple[str, ...]
    rejected: tuple[Rejection, ...]
    request: JsonObject
    predicted_range: t.Union[tuple[float, ...], Absent] = ABSENT
    sends_mib: t.Union[int, Absent] = ABSENT
    not_possible: PassedStrategies = ABSENT
    rewritten: Rewritten = ABSENT
    stage: t.Union[int, Absent] = ABSENT
    gain: t.Union[float, Absent] = ABSENT
    cost_seconds: t.Union[float, Absent] = ABSENT
    repairs: t.Union[str, Absent] = ABSENT
    unit: t.Union[str, Absent] = ABSENT
    extra: JsonObject = field(default_factory=dict)

    def check(self) -> None:
        """Raise L(ShapeError) for an invalid UUID and an invalid time."""
        super().check()
        if not 0 <= self.predicted_seconds < _MAX_SECONDS:
            raise ShapeError("predicted_seconds", "a number of seconds", self.predicted_seconds)
        if self.predicted_range is not ABSENT and len(self.predicted_range) != _ENDS:
            raise ShapeError("predicted_range", "two numbers of seconds", list(self.predicted_range))


@dataclass(frozen=True)
class PlannedColdMove(_OfDomain):
    """A domain that moves, but not live: its memory is saved and restored, it is shut down first, or it is off.

    :arg method: of C(cold_migrate): C(save), C(shutdown) or C(offline).
    :arg start: whether it runs at the destination. Only then is memory of the destination needed.
    :arg request: what the domain needs of a host.
    :arg not_possible: the strategies that its policy prefers.
    :arg rewritten: as of L(PlannedMove).
    """

    name: str
    uuid: str
    source: str
    destination: str
    method: str
    start: bool
    memory_mib: int
    reason: str
    warnings: tuple[str, ...]
    rejected: tuple[Rejection, ...]
    request: JsonObject
    not_possible: PassedStrategies = ABSENT
    rewritten: Rewritten = ABSENT
    extra: JsonObject = field(default_factory=dict)

    def check(self) -> None:
        """Raise L(ShapeError) for an invalid UUID and an unknown method."""
        super().check()
        if self.method not in COLD_METHODS:
            raise ShapeError("method", f"one of {', '.join(COLD_METHODS)}", self.method)

    @property
    def stops_guest(self) -> bool:
        """Whether the guest runs now, and is stopped for the move."""
        return self.method != OFFLINE


@dataclass(frozen=True)
class PlannedShutdown(_OfDomain):
    """A domain that is shut down and stays on its host, by its policy."""

    name: str
    uuid: str
    source: str
    reason: str
    not_possible: PassedStrategies = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class UnplacedDomain(_OfDomain):
    """A domain that no host can accept, or that can be neither moved nor shut down now."""

    name: str
    uuid: str
    source: str
    memory_mib: int
    reason: str
    rejected: tuple[Rejection, ...]
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class SkippedDomain(_OfDomain):
    """A domain that stays where it is.

    :arg drain: C(leave) for one that its policy leaves on its host; empty for one that is off.
    """

    name: str
    uuid: str
    source: str
    state: str
    drain: str
    reason: str
    not_possible: PassedStrategies = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class NPlusOne:
    """Whether the remaining hosts could lose any one of them.

    :arg host: the one whose loss is the worst; C(missing_mib) and C(domains) are what could not be placed then.
    :arg hosts: all hosts whose loss would not be absorbed.
    """

    holds: bool
    host: t.Optional[str]
    missing_mib: int
    domains: tuple[str, ...]
    hosts: tuple[str, ...]
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class PlannedReserve:
    """What the plan does to the reserve for failover (C(kvmfleet_scheduler.failover_hosts)).

    :arg hosts: how many hosts the fleet has to be able to lose, including those that are out of service.
    :arg broken: the sets of hosts that the fleet could lose before, and not for certain after the plan.
    :arg missing: the sets that it could not lose before either.
    :arg left_out: the names of guests that no other host could start for certain: no reserve helps them.
    :arg out_of_service: the hosts that are out of service after the plan, if they are more than C(hosts): the reserve is used up, and nothing is judged.
    """

    hosts: int
    broken: tuple[tuple[str, ...], ...]
    missing: tuple[tuple[str, ...], ...]
    left_out: tuple[str, ...]
    out_of_service: t.Union[tuple[str, ...], Absent] = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class PlanOptions:
    """The options of the drain. C(moves) are those of C(live_migrate).

    :arg parallel: the number of simultaneous moves of one source, or C(auto).
    :arg strategies: of domains whose policy has none. These and the further options are absent if they have their defaults, see L(StrategyOptions).
    """

    parallel: Json
    n_plus_one: bool
    moves: JsonObject
    strategies: t.Union[tuple[str, ...], Absent] = ABSENT
    shut_off: t.Union[str, Absent] = ABSENT
    restart: t.Union[bool, Absent] = ABSENT
    save_folder: t.Union[str, Absent] = ABSENT
    extra: JsonObject = field(default_factory=dict)

    def check(self) -> None:
        """Raise L(ShapeError) if the number of moves is neither a whole number nor C(auto)."""
        if self.parallel != AUTO and (isinstance(self.parallel, bool) or not isinstance(self.parallel, int) or not 0 <= self.parallel < MOST):
            raise ShapeError("parallel", f"a whole number or {AUTO}", self.parallel)


def find_active_uuids(
    parts: Iterable[Sequence[PlannedMove | PlannedShutdown | UnplacedDomain]], cold_moves: Iterable[PlannedColdMove], skipped: Iterable[SkippedDomain]
) -> set[str]:
    """Return the UUIDs of the domains that were active: those in these parts of a plan, those that are stopped, and those that are left by their policy."""
    stopped = {move.uuid for move in cold_moves if move.stops_guest}
    return {entry.uuid for part in parts for entry in part} | stopped | {entry.uuid for entry in skipped if entry.drain == LEAVE}
