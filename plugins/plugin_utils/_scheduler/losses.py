# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which hosts a fleet can lose at the same time: whether all their guests have a place on the other hosts, under the rules of an evacuation.

C(can) is proved by a place for each guest in the order in which an evacuation starts them, and C(cannot) by a complete search. Everything else is C(unknown).
"""

from __future__ import annotations

import bisect
import functools
import itertools
import typing as t
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import ENABLED

from .._ledger.documents import pause_collector
from .filters.base import Filter
from .fleet import Fleet, HostState
from .loss_rules import LossRules
from .reach import Refusal, requirement_key
from .repair import Assignment, Board, ExactSearch, OutOfNodesError, Unit, assign_first_fit, build_units, passes_filters, repair_assignment
from .request import Request
from .verdicts import check_host

CAN, CANNOT, UNKNOWN = "can", "cannot", "unknown"
# From the best to the worst.
VERDICTS = (CAN, UNKNOWN, CANNOT)

# How many times a unit may be tried on a host, for all sets of hosts together, and for one of them at least and at most.
TOTAL_NODES = 1_000_000
LEAST_NODES = 1_000
MOST_NODES = 60_000

# So many places of a guest are looked for: more than hosts can be lost together, beside its own.
_MOST_PLACES = 6


@dataclass(frozen=True)
class Loss:
    """The verdict on the loss of these hosts at the same time.

    :arg missing_mib: how much memory the guests need for which no place was found, or how much is missing for all of them together.
    :arg reason: why the verdict is C(unknown) whatever the guests are.
    """

    hosts: tuple[str, ...]
    verdict: str
    missing_mib: int = 0
    reason: str = ""


@dataclass(frozen=True)
class UnplacedGuest:
    """A guest of a lost host without a place, and why each other host refuses it once the other guests are placed as far as possible."""

    request: Request
    refused: tuple[Refusal, ...]


@dataclass
class LossSearch:
    """Judges the loss of any set of hosts of one fleet.

    :arg guests: what the active guests of each host need. Every host of it can be lost.
    :arg rules: see L(make_loss_rules).
    :arg uncertain: why it is not known what runs on a host, by name.
    """

    fleet: Fleet
    guests: Mapping[str, Sequence[Request]]
    rules: LossRules
    uncertain: Mapping[str, str] = field(default_factory=dict)
    _nodes: int = TOTAL_NODES
    _kinds: dict[str, str] = field(default_factory=dict)
    _places: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        states = self.fleet.states
        self._order = sorted(states, key=lambda host: (-states[host].free_mib(), host))
        owners = {request.uuid: host for host, requests in self.guests.items() for request in requests}
        # Guests whose move is under way have a place on another host already.
        self.booked_mib: dict[str, int] = {}
        for host, state in states.items():
            for uuid, guest in state.guests.items():
                if owners.get(uuid, host) != host:
                    self.booked_mib[uuid] = self.booked_mib.get(uuid, 0) + state.ordinary_mib(guest)

    @pause_collector()
    def judge_all(self, count: int, lost: Collection[str] = ()) -> list[Loss]:
        """Return the verdict on each set of that many hosts, in the order of their names.

        :arg lost: hosts that are in each of these sets.
        """
        others = sorted(host for host in self.guests if host not in lost)
        sets = [(*lost, *more) for more in itertools.combinations(others, count - len(lost))]
        self._nodes = TOTAL_NODES
        budget = min(MOST_NODES, max(LEAST_NODES, TOTAL_NODES // max(1, len(sets))))
        return [self.judge(hosts, budget) for hosts in sets]

    def judge(self, hosts: Sequence[str], budget: int = MOST_NODES) -> Loss:
        """Return the verdict on one set of hosts.

        :arg budget: the nodes of each of its searches.
        """
        lost = tuple(sorted(hosts))
        unclear = [f"{host}: {self.uncertain[host]}" for host in lost if host in self.uncertain]
        if unclear:
            return Loss(lost, UNKNOWN, reason="; ".join(unclear))
        search = _OneLoss(self, lost, min(budget, max(0, self._nodes)))
        loss = search.judge()
        self._nodes -= search.used_nodes
        return loss

    def explain(self, loss: Loss) -> list[UnplacedGuest]:
        """Return the guests without a place after a loss that is not C(can)."""
        return [] if loss.reason else _OneLoss(self, loss.hosts, MOST_NODES).list_unplaced(loss.verdict)

    def hosts_without(self, lost: Iterable[str]) -> list[str]:
        """Return the other hosts, the emptiest first."""
        gone = set(lost)
        return [host for host in self._order if host not in gone]

    def has_place(self, request: Request, lost: Collection[str]) -> bool:
        """Whether a host other than these could take the guest alone. Only for guests without a group, for which it does not matter what else is lost."""
        if request.uuid not in self._places:
            fits = (host for host in self._order if passes_filters(request, self.fleet, host, self.rules.possible))
            self._places[request.uuid] = tuple(itertools.islice(fits, _MOST_PLACES))
        places = self._places[request.uuid]
        return any(host not in lost for host in places) or len(places) == _MOST_PLACES

    def kind_of(self, unit: Unit) -> str:
        """Return a text that is the same for units that every host treats alike."""
        if unit.uuid not in self._kinds:
            self._kinds[unit.uuid] = "\n".join(map(self._requirements, unit.requests))
        return self._kinds[unit.uuid]

    def _requirements(self, request: Request) -> str:
        seen = self.rules.seen.get(request.uuid)
        images = sorted((image, sorted(hosts)) for image, hosts in seen.items()) if seen is not None else None
        return f"{requirement_key(request, self.fleet)} {images} {request.group}"


class _OneLoss:
    """The search for one set of hosts."""

    def __init__(self, search: LossSearch, lost: Sequence[str], budget: int) -> None:
        self._search = search
        self._lost = tuple(lost)
        self._units = build_units(request for host in lost for request in search.guests[host])
        self._base = search.fleet.without_guests(lost)
        self._hosts = search.hosts_without(lost)
        self._budget = budget
        self.used_nodes = 0

    def judge(self) -> Loss:
        """Return the verdict."""
        short_mib = self._missing_memory_mib()
        if short_mib > 0:
            return Loss(self._lost, CANNOT, short_mib)
        homeless = [unit for unit in self._units if not unit.requests[0].group and not self._search.has_place(unit.requests[0], self._lost)]
        if homeless:
            return Loss(self._lost, CANNOT, _memory_of(homeless))
        board = self._board(self._search.rules.proved)
        placed = assign_first_fit(board, self._units)
        if len(placed) == len(self._units):
            return Loss(self._lost, CAN)
        missing_mib = _memory_of(unit for unit in self._units if unit.uuid not in placed)
        if self._budget <= 0:
            return Loss(self._lost, UNKNOWN, missing_mib)
        stuck = self._find_stuck()
        if stuck:
            return Loss(self._lost, CANNOT, _memory_of(stuck))
        placed = self._improve(board, placed)
        if len(placed) == len(self._units):
            return Loss(self._lost, CAN)
        missing_mib = _memory_of(unit for unit in self._units if unit.uuid not in placed)
        return Loss(self._lost, CANNOT if self._has_no_placement() else UNKNOWN, missing_mib)

    def list_unplaced(self, verdict: str) -> list[UnplacedGuest]:
        """Return the guests without a place: those that no host could take at all, and those that are left when the others are placed."""
        stuck = self._find_stuck() if verdict == CANNOT else []
        self._units = [unit for unit in self._units if unit not in stuck]
        board = self._board(self._search.rules.proved)
        placed = self._improve(board, assign_first_fit(board, self._units))
        left = [unit for unit in self._units if unit.uuid not in placed]
        fleet = board.fleet(placed)
        reasons = [(stuck, self._search.rules.possible), (left, self._search.rules.proved)]
        return [UnplacedGuest(request, self._list_refusals(request, fleet, rules)) for units, rules in reasons for unit in units for request in unit.requests]

    def _board(self, rules: Sequence[Filter]) -> Board:
        return Board(self._base, {unit.uuid: unit for unit in self._units}, self._hosts, rules, self._budget)

    def _improve(self, board: Board, placed: Assignment) -> Assignment:
        """Return an assignment with more units; one with all of them only if each passes in the order of an evacuation."""
        better = repair_assignment(board, placed)
        self._count_nodes(board)
        return better if len(better) < len(self._units) or self._passes_in_order(better, board.filters) else placed

    def _passes_in_order(self, placed: Assignment, rules: Sequence[Filter]) -> bool:
        fleet: t.Optional[Fleet] = self._base
        for unit in self._units:
            fleet = unit.fleet_with_unit(fleet, placed[unit.uuid], rules) if fleet else None
        return fleet is not None

    def _find_stuck(self) -> list[Unit]:
        """Return the units that no other host could take even if it got no other guest of the set."""
        rules = self._search.rules.possible
        if self._depends_on_order:
            return []
        return [unit for unit in self._units if not any(unit.can_fit(self._base, host, rules) for host in self._hosts)]

    def _missing_memory_mib(self) -> int:
        """Return how much more memory beside huge pages the guests need than is free on all hosts that accept guests."""
        states = [self._base.states[host] for host in self._hosts if not _is_closed(self._base.states[host])]
        booked = sum(self._search.booked_mib.get(request.uuid, 0) for unit in self._units for request in unit.requests)
        free = [max(0, state.free_mib()) for state in states]
        return max(0, sum(unit.least_mib for unit in self._units) - booked - sum(free), self._missing_slots_mib(free))

    def _missing_slots_mib(self, free: Sequence[int]) -> int:
        """Return the memory of the guests that are in excess of those that fit, counting for each size how many guests of at least that size fit on a host."""
        booked = self._search.booked_mib
        sizes = sorted(unit.least_mib for unit in self._units if unit.least_mib and not any(request.uuid in booked for request in unit.requests))
        excess = ((size, len(sizes) - bisect.bisect_left(sizes, size) - sum(mib // size for mib in free)) for size in dict.fromkeys(sizes))
        return max((size * count for size, count in excess if count > 0), default=0)

    def _has_no_placement(self) -> bool:
        """Whether a complete search has found no place for all units. False if it did not end."""
        if self._depends_on_order:
            return False
        board = self._board(self._search.rules.possible)
        try:
            return ExactSearch(board, self._units, self._search.kind_of).find_assignment() is None
        except OutOfNodesError:
            return False
        finally:
            self._count_nodes(board)

    def _count_nodes(self, board: Board) -> None:
        # Each search begins with the question which hosts could take which units.
        self.used_nodes += self._budget - max(0, board.nodes) + len(self._units) * len(self._hosts)

    @functools.cached_property
    def _depends_on_order(self) -> bool:
        return _depends_on_order(self._units, self._base)

    def _list_refusals(self, request: Request, fleet: Fleet, rules: Sequence[Filter]) -> tuple[Refusal, ...]:
        found: dict[tuple[str, ...], list[tuple[str, str]]] = {}
        for host in sorted(self._hosts):
            verdict = check_host(request, fleet.states[host], fleet, rules)
            filters = tuple(dict.fromkeys(failure["filter"] for failure in verdict.failures))
            found.setdefault(filters, []).append((host, verdict.reason))
        return tuple(
            Refusal(tuple(host for host, _reason in refused), filters, refused[0][1] or "It could accept the guest, but not with the rest of its group.")
            for filters, refused in found.items()
        )


def _is_closed(state: HostState) -> bool:
    """Whether the host accepts no guest at all: memory that is free there does not count."""
    return state.unanswered is not None or (state.state != ENABLED and "enabled" not in state.settings.filters_off)


def _memory_of(units: Iterable[Unit]) -> int:
    return sum(unit.memory_mib for unit in units)


def _requests_of(units: Iterable[Unit]) -> tuple[Request, ...]:
    return tuple(request for unit in units for request in unit.requests)


def _depends_on_order(units: Sequence[Unit], fleet: Fleet) -> bool:
    """Whether guests can be refused after others and accepted before them, so that a search in one order proves nothing.

    Memory that is bound to cells is overcommitted for some guests only, and members of a group may give it different policies.
    """
    requests = _requests_of(units)
    bound = [request for request in requests if request.bindings]
    exclusive = [request for request in bound if request.dedicated_cpus or request.hugepages]
    if exclusive and len(bound) > len(exclusive):
        return True
    return any(len(set(_group_policies(requests, fleet, name))) > 1 for name in {request.group.name for request in requests if request.group})


def _group_policies(requests: Iterable[Request], fleet: Fleet, name: str) -> Iterator[str]:
    wanted = (request.group for request in requests)
    present = (guest.group for members in fleet.group_members(name).values() for guest in members.values())
    for group in itertools.chain(wanted, present):
        if group and group.name == name:
            yield group.policy


def worst_verdict(verdicts: Iterable[str]) -> str:
    """Return the worst of these verdicts; C(can) for none."""
    return max(verdicts, key=VERDICTS.index, default=CAN)
