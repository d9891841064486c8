# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The scheduler's view of a simulated fleet, and the answer that needs no cleverness: every dealing out of domains to hosts is tried."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import pause_collector
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.filters.base import Filter
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.fleet import Fleet, HostState
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.request import Request
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.verdicts import DEFAULT_FILTERS, check_host
from ansible_collections.kvmfleet.migration.tests.simulator.fleets import Drain, Whole


def requests_of(drain: Drain) -> list[Request]:
    """Return what the active domains of the drained host need."""
    return requests_from(drain.source, drain.facts[drain.source])


def requests_from(host: str, facts: Mapping[str, t.Any]) -> list[Request]:
    """Return what the active domains of a host need."""
    active = [domain for domain in facts["domains"] if domain["active"]]
    return [Request.from_needs(domain["request"], domain["uuid"], domain["name"], host, facts["host_uuid"]) for domain in active]


@pause_collector()
def fleet_of(drain: Drain) -> Fleet:
    """Return the fleet before anything moves; the drained host takes nothing, and all its active domains leave."""
    states = {name: HostState.from_facts(name, decode(HostFacts, facts), settings=drain.settings.get(name)) for name, facts in drain.facts.items()}
    return Fleet(states, frozenset(request.uuid for request in requests_of(drain)))


def is_allowed(fleet: Fleet, requests: Sequence[Request], hosts: Mapping[str, str]) -> bool:
    """Whether every domain passes on its host when all of them move one after the other.

    :arg hosts: by the domain's UUID.
    """
    for request in requests:
        host = hosts[request.uuid]
        if not check_host(request, fleet.states[host], fleet).passed:
            return False
        fleet = fleet.with_domain(request, host)
    return True


def placement_of_all(fleet: Fleet, requests: Sequence[Request], hosts: Sequence[str], filters: Sequence[Filter] = DEFAULT_FILTERS) -> dict[str, str] | None:
    """Return a host for every domain, by its UUID, that no filter refuses; None where there is none. Tries everything that may work."""
    if not requests:
        return {}
    first, rest = requests[0], requests[1:]
    for host in hosts:
        if check_host(first, fleet.states[host], fleet, filters).passed:
            found = placement_of_all(fleet.with_domain(first, host), rest, hosts, filters)
            if found is not None:
                return {first.uuid: host, **found}
    return None


@pause_collector()
def whole_fleet_of(whole: Whole) -> Fleet:
    """Return the fleet as it is."""
    return Fleet({name: HostState.from_facts(name, decode(HostFacts, facts), settings=whole.settings.get(name)) for name, facts in whole.facts.items()})


def placement_after_loss(whole: Whole, lost: Sequence[str], filters: Sequence[Filter], left_out: Sequence[str] = ()) -> dict[str, str] | None:
    """Return a host for every guest of the lost hosts, by its UUID; None where there is none.

    :arg left_out: names of guests that need no place.

    The fleet is made anew without these hosts' guests, so that nothing of the search that is judged has a part in it.
    """
    left = {name: {**facts, "domains": []} if name in lost else facts for name, facts in whole.facts.items()}
    requests = [request for name in lost for request in requests_from(name, whole.facts[name]) if request.name not in left_out]
    in_order = sorted(requests, key=lambda request: (-request.priority, -request.memory_mib, request.name))
    return placement_of_all(whole_fleet_of(Whole(left, whole.settings)), in_order, sorted(set(left) - set(lost)), filters)
