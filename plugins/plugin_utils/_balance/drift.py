# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Determines what has changed since the plan of a balance was made. All differences are listed, and nothing is applied."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument

from .._drain.balance_entries import PlannedBalance
from .._drain.drift import describe_gone, find_domain_drift, find_maps_drift, find_settings_drift, is_active_on, list_changes
from .._drain.plan import read_scheduler_settings
from .._drain.plan_entries import PlannedMove
from .._drain.reserve import find_reserve_drift, replay_reserve
from .._drain.saved_plan import DrainPlan, read_plan
from .._drain.sorting import LeavingDomain
from .._scheduler.filters.base import names_text
from .._scheduler.fleet import Fleet
from .._scheduler.repair import unit_key
from .._scheduler.verdicts import check_host
from .candidates import Candidates
from .inputs import BalanceInputs, select_hosts
from .plan import restore_options
from .state import is_permitted


def apply_saved_balance(saved: Json | bytes, inputs: BalanceInputs, hosts: Sequence[str], given: JsonObject) -> DrainPlan:
    """Return the saved plan, to be carried out unchanged.

    :arg hosts: the inventory names of the fleet.
    :arg given: the options that the task sets to other values than their defaults, as L(list_options) returns them; the others are as in the plan.

    Raises L(InvalidArgument) for anything but a plan of a balance, what L(select_hosts) raises, and L(Conflict) that names everything that drifted.
    """
    plan = read_plan(saved)
    if not plan.balance:
        raise InvalidArgument("The saved plan is that of a drain, and not of a balance.", "Apply it with the role drain_host. Nothing was moved.")
    options = restore_options(plan.balance.options)
    states = {host: inputs.drain.host_state(host) for host in hosts}
    chosen = select_hosts(states, inputs, options)
    problems = [
        *_find_option_drift(plan, plan.balance, given),
        *find_settings_drift(plan.settings, read_scheduler_settings(inputs.drain, (), tuple(states)), states),
        *find_maps_drift(plan, inputs.drain, tuple(states)),
        *_find_move_drift(plan, _Replay(inputs, Candidates(inputs, options), chosen, Fleet(states))),
        *find_reserve_drift(plan.reserve, replay_reserve(inputs.drain, hosts, {move.uuid: move.destination for move in plan.moves})),
    ]
    if problems:
        raise Conflict(f"The plan of {plan.created_at} no longer applies. {' '.join(problems)}", "Make a new plan. Nothing was moved.")
    return plan


def _find_option_drift(plan: DrainPlan, balance: PlannedBalance, given: JsonObject) -> list[str]:
    before = {**encode(plan.options), **encode(balance.options)}
    return list_changes("The option", before, {**before, **given})


def _find_move_drift(plan: DrainPlan, replay: _Replay) -> list[str]:
    """Carry out the plan stage by stage, and name what is not possible."""
    for _stage, moves in itertools.groupby(plan.moves, key=lambda move: move.stage):
        replay.run_stage(list(moves))
    return replay.problems


class _Replay:
    """A plan that is carried out on the current state of the fleet; C(problems) are the reasons why that is not possible.

    :arg hosts: those that take part.
    """

    def __init__(self, inputs: BalanceInputs, candidates: Candidates, hosts: Collection[str], fleet: Fleet) -> None:
        self._inputs = inputs
        self._candidates = candidates
        self._hosts = hosts
        self._fleet = fleet
        self.problems: list[str] = []

    def run_stage(self, moves: Sequence[PlannedMove]) -> None:
        """Carry out one stage. A domain is counted on both of its hosts until the stage has ended; so is one that an earlier run has begun to move."""
        begun = [move for move in moves if self._is_under_way(move)]
        found = [(move, leaver) for move in moves if move not in begun and (leaver := self._find_leaver(move))]
        for _unit, members in itertools.groupby(found, key=lambda one: (one[0].source, one[0].destination, unit_key(one[1].request))):
            self._move_unit(list(members), begun)
        for move in (*begun, *(move for move, _leaver in found)):
            self._fleet = self._fleet.without_domain(move.uuid, move.source)

    def _find_leaver(self, move: PlannedMove) -> LeavingDomain | None:
        """Return the domain if it can still leave its source; None if it has left, or cannot leave."""
        if missing := [host for host in (move.source, move.destination) if host not in self._hosts]:
            self.problems.append(f"{move.name} was to move from {move.source} to {move.destination}: {names_text(missing)} does not take part now.")
            return None
        if not is_active_on(self._inputs.drain, move.source, move.uuid):
            if not is_active_on(self._inputs.drain, move.destination, move.uuid):
                self.problems.append(describe_gone(move, self._inputs.drain))
            return None
        leaver = self._candidates.find(move.uuid, move.source)
        if leaver is None:
            self.problems.append(f"{move.name} was to move to {move.destination}. {self._candidates.reasons[move.uuid]}")
        else:
            self.problems += find_domain_drift(move, leaver)
        return leaver

    def _is_under_way(self, move: PlannedMove) -> bool:
        """Whether an earlier run has begun the move between hosts that take part, and it has not ended: it is then followed."""
        drain = self._inputs.drain
        record = drain.find_record_from(move.uuid, drain.host_ref(move.source))
        is_begun = record is not None and record.destination.host == move.destination and is_active_on(drain, move.source, move.uuid)
        return is_begun and {move.source, move.destination} <= {*self._hosts}

    def _move_unit(self, members: Sequence[tuple[PlannedMove, LeavingDomain]], begun: Sequence[PlannedMove]) -> None:
        """Carry out the moves of a unit. Its members that are under way do not hold the others back."""
        requests, destination, fleet = [leaver.request for _move, leaver in members], members[0][0].destination, self._fleet
        for move in begun:
            if move.unit == members[0][0].unit:
                fleet = fleet.without_domain(move.uuid, move.source)
        if not is_permitted(requests, fleet, destination):
            reason = "" if len(requests) > 1 else f" {check_host(requests[0], self._fleet.states[destination], self._fleet).reason}"
            self.problems.append(f"{destination} can no longer accept {names_text([request.name for request in requests])}.{reason}")
        for request in requests:
            self._fleet = self._fleet.with_domain(request, destination)
