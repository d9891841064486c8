# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The plan of a balance, in the form that every plan has: each move with its reason, its gain and its cost, and what stays where it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent, SignedInt

from .._drain.balance_entries import PlannedBalance, PlannedBalanceOptions, PlannedDeparture, PlannedEmptyHost, PlannedEmptying, PlannedHostUse
from .._drain.plan import list_resource_maps, read_scheduler_settings
from .._drain.plan_entries import PlannedMove, SkippedDomain
from .._drain.prediction import SourcePrediction, predict_source
from .._drain.saved_plan import PLAN_SCHEMA, DrainPlan, to_plain_object
from .._scheduler.fleet import Fleet
from .decision import Balance, HostForecast, LeftGuest, decide_balance
from .emptying import Emptying, find_emptiable
from .inputs import BalanceInputs
from .options import BalanceOptions
from .pressure import RESOURCES, Vector
from .state import ChosenMove

_DIGITS = 4


def make_balance_plan(inputs: BalanceInputs, hosts: Sequence[str], options: BalanceOptions, empty: int = 0) -> DrainPlan:
    """Return the plan, the same for the same facts but for its time. Raises what L(decide_balance) and L(find_emptiable) raise.

    :arg hosts: the inventory names of the fleet.
    :arg empty: for so many hosts at most the plan says whether they could be emptied; 0 for none.
    """
    states = {host: inputs.drain.host_state(host) for host in sorted(hosts)}
    balance = decide_balance(states, inputs, options)
    emptying = _describe_emptying(find_emptiable(states, inputs, options, empty)) if empty else ABSENT
    predicted = _predict_moves(balance.moves, Fleet(states), inputs, options)
    return DrainPlan(
        schema=PLAN_SCHEMA,
        digest="",
        created_at=utc_now(),
        sources=tuple(predicted),
        candidates=tuple(states),
        options=options.moves.for_plan(),
        settings=read_scheduler_settings(inputs.drain, (), tuple(states)),
        moves=tuple(sorted((move for one in predicted.values() for move in one.moves), key=lambda move: move.order)),
        shutdowns=(),
        unplaced=(),
        skipped=tuple(map(_describe_left, balance.left)),
        n_plus_one=None,
        predicted_seconds={source: one.seconds for source, one in predicted.items()},
        predicted_ranges={source: (one.low, one.high) for source, one in predicted.items()},
        balance=_describe_balance(balance, inputs, options, emptying),
        resource_maps=list_resource_maps(inputs.drain, (), tuple(states)),
        reserve=balance.reserve,
    ).seal()


def describe_options(options: BalanceOptions) -> PlannedBalanceOptions:
    """Return the options as the plan keeps them."""
    given = {name: value for name, value in vars(options).items() if name not in ("moves", "weights")}
    return PlannedBalanceOptions(**given, weights=_by_resource(options.weight_vector))


def restore_options(plan: PlannedBalanceOptions) -> BalanceOptions:
    """Return the options of a saved plan. Raises L(InvalidArgument) for one that is out of range."""
    return BalanceOptions(**{name: value for name, value in asdict(plan).items() if name != "extra"})


def _predict_moves(moves: Sequence[ChosenMove], fleet: Fleet, inputs: BalanceInputs, options: BalanceOptions) -> dict[str, SourcePrediction]:
    """Return the moves with their predictions, by source."""
    leavers = {move.leaver.request.uuid: move.leaver for move in moves}
    described = [_describe_move(order, move, fleet, options) for order, move in enumerate(moves, 1)]
    sources = sorted({move.source for move in described})
    return {source: predict_source(source, [move for move in described if move.source == source], leavers, inputs.drain, options.moves) for source in sources}


def _describe_move(order: int, move: ChosenMove, fleet: Fleet, options: BalanceOptions) -> PlannedMove:
    """Return a move without a prediction."""
    request = move.leaver.request
    return PlannedMove(
        order=order,
        name=request.name,
        uuid=request.uuid,
        source=request.source,
        destination=move.destination,
        memory_mib=request.memory_mib,
        priority=SignedInt(request.priority),
        predicted_seconds=0.0,
        predicted_downtime_ms=None,
        reason=_explain_move(move, options),
        warnings=(),
        rejected=(),
        request=to_plain_object(request.as_json()),
        stage=move.stage,
        gain=round(move.gain, _DIGITS),
        cost_seconds=round(move.cost_seconds, 1),
        repairs=move.why,
        unit=move.unit,
        rewritten=fleet.list_renamed(request, move.destination) or ABSENT,
    )


def _explain_move(move: ChosenMove, options: BalanceOptions) -> str:
    """Return why a domain moves: what it repairs, or else what it brings; and how the use of both hosts changes where it changes most."""
    brings = f"It brings {move.gain * options.horizon_seconds:.0f} s within {options.horizon_seconds:g} s, and costs {move.cost_seconds:.1f} s."
    others = [f"It moves together with {', '.join(move.together)}."] if move.together else []
    return " ".join([move.why or brings, *others, _explain_shares(move, options.weight_vector)])


def _explain_shares(move: ChosenMove, weights: Vector) -> str:
    (left, joined), (left_after, joined_after) = move.before, move.after
    resource = max(range(len(RESOURCES)), key=lambda number: ((left[number] - left_after[number]) * weights[number], -number))
    ends = (move.leaver.request.source, left, left_after), (move.destination, joined, joined_after)
    changes = [f"{host} {before[resource]:.0%} to {after[resource]:.0%}" for host, before, after in ends]
    return f"Use of {RESOURCES[resource]}: {', '.join(changes)}."


def _describe_left(guest: LeftGuest) -> SkippedDomain:
    return SkippedDomain(guest.name, guest.uuid, guest.host, domain_states.RUNNING, "", guest.reason)


def _describe_balance(balance: Balance, inputs: BalanceInputs, options: BalanceOptions, emptying: PlannedEmptying | Absent) -> PlannedBalance:
    return PlannedBalance(
        sentence=balance.sentence,
        score_before=round(balance.score_before, _DIGITS),
        score_after=round(balance.score_after, _DIGITS),
        hosts=tuple(map(_describe_use, balance.hosts)),
        broken=balance.broken,
        stopped=balance.stopped,
        silent={host: inputs.drain.host_state(host).unanswered or "" for host in balance.silent},
        options=describe_options(options),
        emptying=emptying,
    )


def _describe_use(host: HostForecast) -> PlannedHostUse:
    return PlannedHostUse(host.name, _by_resource(host.before), _by_resource(host.after), host.is_measured)


def _by_resource(values: Iterable[float]) -> dict[str, float]:
    return {name: round(value, _DIGITS) for name, value in zip(RESOURCES, values, strict=True)}


def _describe_emptying(found: Emptying) -> PlannedEmptying:
    hosts = [PlannedEmptyHost(one.host, tuple(PlannedDeparture(*move) for move in one.moves)) for one in found.hosts]
    return PlannedEmptying(tuple(hosts), dict(found.refused))
