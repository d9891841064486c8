# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which hosts could be emptied and switched off: all of their guests find a place, and the other hosts can still lose any one of them (N+1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import MAINTENANCE

from .._ledger.documents import pause_collector
from .._scheduler.filters.base import names_text, one_or_many
from .._scheduler.fleet import Fleet, HostState
from .._scheduler.loss_rules import make_loss_rules
from .._scheduler.losses import CAN, Loss, LossSearch
from .._scheduler.planner import Placement, plan_placements
from .._scheduler.request import Request
from .candidates import Candidates
from .inputs import BalanceInputs, select_hosts
from .options import NOTHING_PLANNED, BalanceOptions

# From this many hosts that could not be emptied on, the others are not tried: the emptiest come first, and the fuller ones are less likely.
_MOST_FAILURES = 20


@dataclass(frozen=True)
class EmptiableHost:
    """A host that could be emptied after those before it.

    :arg moves: where each of its domains would go: name and host.
    """

    host: str
    moves: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Emptying:
    """The hosts that could be emptied together, and why others could not."""

    hosts: tuple[EmptiableHost, ...]
    refused: Mapping[str, str]


@dataclass(frozen=True)
class _Plan:
    """The fleet with some hosts emptied, and what the guests of each remaining host need."""

    fleet: Fleet
    guests: Mapping[str, Sequence[Request]]


@pause_collector()
def find_emptiable(states: Mapping[str, HostState], inputs: BalanceInputs, options: BalanceOptions, count: int) -> Emptying:
    """Return up to that many hosts, tried in the order of the memory of their guests. Raises L(InvalidArgument), and what L(select_hosts) raises."""
    hosts = select_hosts(states, inputs, options)
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < len(hosts):
        raise InvalidArgument(f"balance_empty is {count!r}.", f"Give a whole number from 0 to {len(hosts) - 1}. {NOTHING_PLANNED}")
    candidates, refused, found = Candidates(inputs, options), dict[str, str](), list[EmptiableHost]()
    plan = _Plan(Fleet(dict(states)), {host: _list_requests(host, state, candidates) for host, state in hosts.items()})
    for host in sorted(hosts, key=lambda name: (hosts[name].used_mib, name)):
        if len(found) == count or len(refused) == _MOST_FAILURES:
            break
        unmovable = [guest.name for guest in hosts[host].guests.values() if guest.uuid in candidates.reasons or candidates.find(guest.uuid, host) is None]
        if unmovable:
            refused[host] = f"{names_text(unmovable)} cannot leave it."
            continue
        placements = plan_placements(plan.guests[host], _closed(plan.fleet, host, plan.guests[host]), hosts=sorted(hosts))
        homeless = [placement.request.name for placement in placements if not placement.destination]
        after = None if homeless else _empty_host(plan, host, placements)
        losses = _find_losses(after) if after else []
        if after and not losses:
            plan = after
            found.append(EmptiableHost(host, tuple((placement.request.name, placement.destination or "") for placement in placements)))
        else:
            refused[host] = _why_refused(homeless, losses)
    return Emptying(tuple(found), refused)


def _list_requests(host: str, state: HostState, candidates: Candidates) -> list[Request]:
    """Return what the guests of a host need. Those that stay are listed for the loss of their host."""
    found = []
    for uuid, guest in state.guests.items():
        leaver = candidates.find(uuid, host)
        needs = {"memory_mib": max(1, guest.memory_mib), "vcpus": max(1, guest.vcpus)}
        found.append(leaver.request if leaver else Request.from_needs(needs, uuid, guest.name, host, state.host_uuid, source_id=state.host_id))
    return found


def _closed(fleet: Fleet, host: str, guests: Sequence[Request]) -> Fleet:
    """Return the fleet without the host as a destination. Its guests are no members of their groups there."""
    closed = replace(fleet.states[host], state=MAINTENANCE, state_reason="it is to be emptied")
    return Fleet({**fleet.states, host: closed}, frozenset(request.uuid for request in guests))


def _empty_host(plan: _Plan, host: str, placements: Sequence[Placement]) -> _Plan:
    fleet = _closed(plan.fleet, host, ())
    guests = {name: list(requests) for name, requests in plan.guests.items() if name != host}
    for placement in placements:
        request, destination = placement.request, placement.destination or ""
        state = fleet.states[destination]
        fleet = fleet.without_domain(request.uuid, host).with_domain(request, destination)
        guests[destination].append(replace(request, source=destination, source_uuid=state.host_uuid, source_id=state.host_id))
    return _Plan(fleet, guests)


def _find_losses(plan: _Plan) -> list[Loss]:
    """Return the losses of one further host that the fleet could not bear, or of which that is not known."""
    search = LossSearch(plan.fleet, plan.guests, make_loss_rules())
    return [loss for loss in search.judge_all(1) if loss.verdict != CAN]


def _why_refused(homeless: Sequence[str], losses: Sequence[Loss]) -> str:
    if homeless:
        return f"There is no other place for {names_text(homeless)}."
    lost = [host for loss in losses for host in loss.hosts]
    return f"Without it, the loss of {names_text(lost)} could not be compensated: {one_or_many(len(lost), 'its', 'their')} domains would have no place."
