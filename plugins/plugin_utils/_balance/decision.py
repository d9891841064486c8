# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The decision of a balance: which domains move, what each move brings and costs, why the search ended, and why the domains of busy hosts stay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent

from .._drain.plan_entries import PlannedReserve
from .._drain.reserve import Move, MoveJudge
from .._ledger.documents import pause_collector
from .._scheduler.fleet import Fleet, HostState
from .annealing import Annealing
from .candidates import Candidates
from .goals import make_goal
from .inputs import BalanceInputs, select_hosts
from .load import HostUse, read_uses
from .options import EVEN, BalanceOptions
from .pressure import Vector
from .pruning import carry_out_again, drop_needless_moves
from .repairs import repair_fleet
from .search import BalanceSearch, Proposal
from .stages import assign_stages
from .state import BalanceState, ChosenMove, UnitMove

# The search first also chooses moves that gain less than the operator wants, by this factor. Those that the others make needless are dropped.
_EXPLORED = 0.5
# For so many domains at most it is said why they stay.
_MOST_REASONS = 200


@dataclass(frozen=True)
class LeftGuest:
    """A domain of a busy host that stays there, and why."""

    name: str
    uuid: str
    host: str
    reason: str


@dataclass(frozen=True)
class HostForecast:
    """The shares of a host before and after the plan; C(is_measured) as that of L(HostUse)."""

    name: str
    before: Vector
    after: Vector
    is_measured: bool


@dataclass(frozen=True)
class Balance:
    """The decision.

    :arg sentence: what the score is.
    :arg moves: in the order in which they start.
    :arg broken: what the plan could not repair.
    :arg stopped: why it has no more moves.
    :arg silent: hosts that did not answer, and take no part.
    :arg reserve: what the moves do to the reserve for failover.
    """

    sentence: str
    score_before: float
    score_after: float
    hosts: tuple[HostForecast, ...]
    moves: tuple[ChosenMove, ...]
    left: tuple[LeftGuest, ...]
    broken: tuple[str, ...]
    stopped: str
    silent: tuple[str, ...]
    reserve: PlannedReserve | Absent = ABSENT


@pause_collector()
def decide_balance(states: Mapping[str, HostState], inputs: BalanceInputs, options: BalanceOptions) -> Balance:
    """Return the decision, the same for the same facts. Raises what L(select_hosts) raises.

    :arg states: all hosts of the fleet.
    """
    uses = read_uses(select_hosts(states, inputs, options))
    fleet, candidates = Fleet(dict(states)), Candidates(inputs, options)
    search = BalanceSearch(_begin(uses, fleet, candidates, options))
    broken = repair_fleet(search.state)
    search.run(options.min_gain * _EXPLORED)
    drop_needless_moves(search.state)
    if options.goal == EVEN:
        # Hosts under pressure are few, and what relieves them hardly depends on the other moves.
        Annealing(search).run()
    score = _begin(uses, fleet, candidates, options).goal.score()
    state, reserve, dropped = _keep_reserve(search.state.unit_moves, lambda: _begin(uses, fleet, candidates, options), inputs, states)
    return Balance(
        sentence=state.goal.sentence,
        score_before=score,
        score_after=state.goal.score(),
        hosts=tuple(HostForecast(use.name, use.shares, after, use.is_measured) for use, after in zip(uses, state.goal.shares, strict=True)),
        moves=tuple(assign_stages(state.chosen, fleet)),
        left=tuple(_list_left(state)),
        broken=tuple(broken),
        stopped=_dropped_text(dropped, reserve) + _why_stopped(state, search.next_best, options),
        silent=tuple(sorted(name for name, one in states.items() if one.unanswered is not None)),
        reserve=reserve,
    )


def _begin(uses: Sequence[HostUse], fleet: Fleet, candidates: Candidates, options: BalanceOptions) -> BalanceState:
    return BalanceState(uses, fleet, make_goal([use.shares for use in uses], options), candidates, options)


def _keep_reserve(
    moves: Sequence[UnitMove], begin: Callable[[], BalanceState], inputs: BalanceInputs, hosts: Iterable[str]
) -> tuple[BalanceState, PlannedReserve | Absent, int]:
    """Carry out as many of these moves as the reserve for failover permits, the first ones. Return how many were dropped for it."""
    failover_hosts = inputs.drain.failover_hosts
    state = _carry_out(moves, begin())
    if not failover_hosts:
        return state, ABSENT, 0
    judge, count = MoveJudge(inputs.drain.collect_guests(hosts), failover_hosts), len(moves)
    while (reserve := judge.judge(_list_moves(state))).broken and count:
        count -= 1
        state = _carry_out(moves[:count], begin())
    return state, reserve, len(moves) - count


def _carry_out(moves: Sequence[UnitMove], state: BalanceState) -> BalanceState:
    carry_out_again(moves, state)
    return state


def _list_moves(state: BalanceState) -> list[Move]:
    return [(one.leaver.request, one.destination) for one in state.chosen]


def _dropped_text(dropped: int, reserve: PlannedReserve | Absent) -> str:
    if not dropped or not reserve:
        return ""
    what = "1 further move is" if dropped == 1 else f"{dropped} further moves are"
    return f"{what} left out, because the fleet could not lose as many hosts as before after it (failover_hosts: {reserve.hosts}). "


def _why_stopped(state: BalanceState, next_best: Proposal | None, options: BalanceOptions) -> str:
    if state.moves_left <= 0:
        return f"The plan has as many moves as it may have (max_moves: {options.max_moves})."
    if next_best is not None:
        return _next_text(state, next_best, options)
    if options.goal == EVEN and options.tolerated_unevenness and state.goal.is_reached():
        return f"The hosts are even enough (tolerated_unevenness: {options.tolerated_unevenness:g})."
    if not state.goal.source_order():
        return "All hosts are equally busy." if options.goal == EVEN else f"No host is under more pressure than is tolerated ({options.tolerated_pressure:g})."
    return "No move that is permitted would make the fleet better."


def _next_text(state: BalanceState, proposal: Proposal, options: BalanceOptions) -> str:
    names = ", ".join(guest.name for guest in proposal.unit.guests)
    brings = proposal.gain * options.horizon_seconds
    where = f"{names} from {state.uses[proposal.source].name} to {state.uses[proposal.destination].name}"
    if proposal.gain < options.min_gain:
        return f"The next best move, {where}, would gain {proposal.gain:.3f}, and {options.min_gain:g} is the least (min_gain)."
    return f"The next best move, {where}, would bring {brings:.0f} s and cost {brings - proposal.net_seconds:.0f} s."


def _list_left(state: BalanceState) -> list[LeftGuest]:
    """Return why the domains stay that were considered and may not move, and those of hosts that are still busier than they should be."""
    found, reasons = [], state.candidates.reasons
    busy = {number for number in state.goal.source_order() if state.options.goal != EVEN}
    for number, use in enumerate(state.uses):
        for guest in use.guests:
            if guest.uuid in state.moved:
                continue
            reason = reasons.get(guest.uuid) or (state.why_left(number, guest.uuid) if number in busy else "")
            if reason:
                found.append(LeftGuest(guest.name, guest.uuid, use.name, reason))
    return found[:_MOST_REASONS]
