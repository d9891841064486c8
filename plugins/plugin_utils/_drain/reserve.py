# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a plan does to the reserve for failover. The end of the plan is judged, and not each of its moves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import ENABLED

from .._scheduler.failover import ReserveJudge, describe_broken, describe_left_out, describe_missing, describe_used_up
from .._scheduler.fleet_guests import FleetGuests
from .._scheduler.losses import Loss
from .._scheduler.request import Request
from .inputs import DrainInputs
from .plan_entries import PlannedReserve

# A domain, and the host that it runs on after the plan.
Move = tuple[Request, str]
_REMEDY = (
    "Nothing was moved. Free memory, add hosts, switch off guests that are not needed, or lower kvmfleet_scheduler.failover_hosts. "
    "kvmfleet.migration.fleet_check names the guests without a place."
)


def plan_reserve(inputs: DrainInputs, hosts: Iterable[str], moves: Iterable[Move], sources: Sequence[str] = ()) -> PlannedReserve | Absent:
    """Return what a plan does to the reserve; absent without one.

    :arg hosts: the fleet, as far as the plan knows it.
    :arg moves: the domains that run on another host after the plan.
    :arg sources: the hosts that the plan drains. They are out of service afterwards, and empty.
    """
    if not inputs.failover_hosts:
        return ABSENT
    return judge_moves(inputs.collect_guests(sorted({*hosts, *sources})), moves, inputs.failover_hosts, sources)


def replay_reserve(inputs: DrainInputs, hosts: Iterable[str], destinations: Mapping[str, str]) -> PlannedReserve | Absent:
    """Return what the rest of a plan does to the reserve now; absent without one.

    :arg destinations: of the plan, by the UUID of the domain. A domain that is there already, or runs nowhere, is not moved.
    """
    if not inputs.failover_hosts:
        return ABSENT
    before = inputs.collect_guests(hosts)
    return judge_moves(before, [(guest, destinations[guest.uuid]) for guest in before.requests if guest.uuid in destinations], inputs.failover_hosts)


def judge_moves(before: FleetGuests, moves: Iterable[Move], failover_hosts: int, sources: Sequence[str] = ()) -> PlannedReserve:
    """Return what moves do to the reserve of a fleet, see L(plan_reserve)."""
    return MoveJudge(before, failover_hosts).judge(moves, sources)


class MoveJudge:
    """Judges what moves do to the reserve of a fleet. What is known of the fleet before is found once for all plans that are judged."""

    def __init__(self, before: FleetGuests, failover_hosts: int) -> None:
        self._before = before
        self._failover_hosts = failover_hosts
        self._reserve = ReserveJudge(before, failover_hosts)

    def judge(self, moves: Iterable[Move], sources: Sequence[str] = ()) -> PlannedReserve:
        """Return what these moves do to the reserve, see L(plan_reserve)."""
        after = self._before.place_guests(move for move in moves if move[1] in self._before.guests)
        verdict = self._reserve.judge(after.empty_hosts(sources))
        broken, missing = _list_sets(verdict.broken), _list_sets(verdict.missing)
        return PlannedReserve(self._failover_hosts, broken, missing, verdict.left_out, out_of_service=verdict.out or ABSENT)


def count_further_losses(inputs: DrainInputs, hosts: Iterable[str], sources: Sequence[str]) -> int:
    """Return how many hosts the fleet has to be able to lose once these sources are out of service."""
    if not inputs.failover_hosts:
        return 0
    out = [host for host in {*hosts, *sources} if host in sources or inputs.host_state(host).state != ENABLED]
    return max(0, inputs.failover_hosts - len(out))


def check_reserve(reserve: PlannedReserve | Absent) -> None:
    """Raise L(Conflict) for a plan that uses up the reserve."""
    if reserve and reserve.broken:
        raise Conflict(f"The plan would use up the reserve for failover. {describe_broken(reserve.broken, reserve.hosts)}", _REMEDY)


def find_reserve_drift(before: PlannedReserve | Absent, now: PlannedReserve | Absent) -> list[str]:
    """Return a sentence if a plan that kept the reserve would use it up now. Sets of hosts that could not be lost when it was made do not count."""
    if not before or before.broken or not now:
        return []
    broken = [hosts for hosts in now.broken if hosts not in before.missing]
    return [describe_broken(broken, now.hosts)] if broken else []


def reserve_lines(reserve: PlannedReserve | Absent) -> list[str]:
    """Return what a plan does to the reserve, line by line; nothing for a plan without one."""
    if not reserve:
        return []
    if reserve.out_of_service:
        return [f"RESERVE {describe_used_up(reserve.out_of_service, reserve.hosts)}"]
    lines = [f"RESERVE {describe_broken(reserve.broken, reserve.hosts)}"] if reserve.broken else []
    lines += [f"RESERVE {describe_missing(reserve.missing, reserve.hosts)}"] if reserve.missing else []
    lines = lines or [f"RESERVE The fleet keeps its reserve (failover_hosts: {reserve.hosts})."]
    return lines + ([f"RESERVE {describe_left_out(reserve.left_out)}"] if reserve.left_out else [])


def _list_sets(losses: Sequence[Loss]) -> tuple[tuple[str, ...], ...]:
    return tuple(loss.hosts for loss in losses)
