# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which hosts could be emptied and switched off: all of their guests find a place, and the other hosts can still lose any one of them (N+1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import DomainFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import MAINTENANCE

from .._drain.sorting import make_remaining_request
from .._ledger.documents import pause_collector
from .._scheduler.filters.base import names_text, one_or_many
from .._scheduler.fleet import Fleet, HostState
from .._scheduler.fleet_guests import FleetGuests
from .._scheduler.loss_rules import make_loss_rules
from .._scheduler.losses import CAN, Loss, LossSearch
from .._scheduler.planner import Placement, plan_placements
from .._scheduler.reach import REACH_FILTERS, find_reach
from .._scheduler.request import Request
from .candidates import Candidates
from .inputs import BalanceInputs, select_hosts
from .options import NOTHING_PLANNED, BalanceOptions

# From this many hosts that could not be emptied on, the others are not tried: the emptiest come first, and the fuller ones are less likely.
_MOST_FAILURES = 20
# What decides whether a host could ever start a domain.
_START_FILTERS = tuple(rule for rule in make_loss_rules().possible if rule.name in {other.name for other in REACH_FILTERS})


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


@pause_collector()
def find_emptiable(states: Mapping[str, HostState], inputs: BalanceInputs, options: BalanceOptions, count: int) -> Emptying:
    """Return up to that many hosts, tried in the order of the memory of their guests. Raises L(InvalidArgument), and what L(select_hosts) raises."""
    hosts = select_hosts(states, inputs, options)
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < len(hosts):
        raise InvalidArgument(f"balance_empty is {count!r}.", f"Give a whole number from 0 to {len(hosts) - 1}. {NOTHING_PLANNED}")
    candidates, refused, found = Candidates(inputs, options), dict[str, str](), list[EmptiableHost]()
    fleet, leavers = Fleet(dict(states)), _find_leavers(hosts, inputs, candidates)
    plan = FleetGuests(fleet, _list_requests(hosts, inputs, fleet, leavers))
    for host in sorted(hosts, key=lambda name: (sum(guest.memory_mib for guest in hosts[name].guests.values()), name)):
        if len(found) == count or len(refused) == _MOST_FAILURES:
            break
        unmovable = [guest.name for guest in plan.fleet.states[host].guests.values() if guest.uuid not in leavers]
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


def _find_leavers(hosts: Iterable[str], inputs: BalanceInputs, candidates: Candidates) -> dict[str, Request]:
    """Return what the domains need that may leave their host, by UUID."""
    active = ((domain.uuid, host) for host in hosts for domain in inputs.drain.list_domains(host) if domain.active)
    return {uuid: leaver.request for uuid, host in active if (leaver := candidates.find(uuid, host))}


def _list_requests(hosts: Iterable[str], inputs: BalanceInputs, fleet: Fleet, leavers: Mapping[str, Request]) -> dict[str, list[Request]]:
    """Return what the domains of each host need after its loss. Those that no other host could start are lost with it, whichever hosts are emptied."""
    found = {host: [leavers.get(domain.uuid) or _stay(domain, host, inputs) for domain in inputs.drain.list_domains(host) if domain.active] for host in hosts}
    reaches = find_reach((request for requests in found.values() for request in requests if request.uuid not in leavers), fleet, _START_FILTERS)
    bound = {request.uuid for reach in reaches for request in reach.guests if not set(reach.hosts) - {request.source}}
    return {host: [request for request in requests if request.uuid not in bound] for host, requests in found.items()}


def _stay(domain: DomainFacts, host: str, inputs: BalanceInputs) -> Request:
    return make_remaining_request(domain, inputs.drain.host_ref(host))


def _closed(fleet: Fleet, host: str, guests: Sequence[Request]) -> Fleet:
    """Return the fleet without the host as a destination. Its guests are no members of their groups there."""
    closed = replace(fleet.states[host], state=MAINTENANCE, state_reason="it is to be emptied")
    return Fleet({**fleet.states, host: closed}, frozenset(request.uuid for request in guests))


def _empty_host(plan: FleetGuests, host: str, placements: Sequence[Placement]) -> FleetGuests:
    for placement in placements:
        plan = plan.place_guest(placement.request, placement.destination or "")
    return plan.empty_hosts([host])


def _find_losses(plan: FleetGuests) -> list[Loss]:
    """Return the losses of one further host that the fleet could not bear, or of which that is not known."""
    search = LossSearch(plan.fleet, plan.guests, make_loss_rules())
    return [loss for loss in search.judge_all(1) if loss.verdict != CAN]


def _why_refused(homeless: Sequence[str], losses: Sequence[Loss]) -> str:
    if homeless:
        return f"There is no other place for {names_text(homeless)}."
    lost = [host for loss in losses for host in loss.hosts]
    return f"Without it, the loss of {names_text(lost)} could not be compensated: {one_or_many(len(lost), 'its', 'their')} domains would have no place."
