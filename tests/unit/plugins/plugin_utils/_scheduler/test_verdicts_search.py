# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The quick choice against the full verdicts: the same hosts in the same order, on random fleets."""

from __future__ import annotations

import random

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.fleet import PlanReplay
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.planner import plan_placements
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.verdicts import DEFAULT_FILTERS, hosts_by_weight, rank_hosts
from ansible_collections.kvmfleet.migration.tests.simulator import exhaustive, fleets
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import (
    Fleet,
    Request,
    domain,
    fleet,
    host,
    record,
    request,
    silent_host,
)

GROUPS = [None, None, {"name": "apart", "policy": "anti-affinity"}, {"name": "soft", "policy": "soft-anti-affinity"}, {"name": "near", "policy": "affinity"}]


def by_verdicts(asked: Request, hosts: Fleet) -> list[str]:
    passed = [verdict for verdict in rank_hosts(asked, hosts, sorted(hosts.states), DEFAULT_FILTERS) if verdict.passed]
    return [verdict.host for verdict in sorted(passed, key=lambda verdict: (-verdict.weight, verdict.host))]


def mixed_fleet(seed: int) -> tuple[Request, Fleet]:
    """A domain, and hosts of every kind: full ones, silent ones, in maintenance, without its label, with moves, with wishes of their own."""
    chance = random.Random(seed)
    states = []
    for number in range(chance.randint(0, 12)):
        guests = [domain(f"g{number}-{one}", chance.choice([256, 512, 2048]), group=chance.choice(GROUPS)) for one in range(chance.randint(0, 4))]
        states.append(
            host(
                f"kvm{number + 2}",
                *guests,
                memory_mib=chance.choice([1024, 4096, 4096, 8192]),
                entry={"state": "maintenance"} if chance.random() < 0.1 else None,
                records=[record(f"m{number}", "kvm1", f"kvm{number + 2}", "running", memory_mib=64)] if chance.random() < 0.3 else (),
                settings={"labels": chance.choice([[], ["ssd"]]), "weights": {"free_cpu": chance.choice([0, 1, -2])}},
            )
        )
    asked = request("web1", memory_mib=chance.choice([512, 1024, 2048]), group=chance.choice(GROUPS), labels=chance.choice([[], [], ["ssd"]]))
    return asked, fleet(host("kvm1", domain("web1")), silent_host("kvm99"), *states)


@pytest.mark.parametrize("seed", range(400))
def test_the_fast_choice_has_the_order_of_the_full_verdicts(seed: int) -> None:
    asked, hosts = mixed_fleet(seed)
    assert list(hosts_by_weight(asked, hosts, sorted(hosts.states), DEFAULT_FILTERS)) == by_verdicts(asked, hosts)


def test_the_choice_without_hosts_is_empty() -> None:
    assert not list(hosts_by_weight(request(), fleet(), [], DEFAULT_FILTERS))


def test_verdicts_of_a_plan_do_not_depend_on_when_they_are_read() -> None:
    drain = fleets.tight(11, mixed=True)
    placements = plan_placements(exhaustive.requests_of(drain), exhaustive.fleet_of(drain))
    later = plan_placements(exhaustive.requests_of(drain), exhaustive.fleet_of(drain))
    backwards = [one.verdicts for one in reversed(later)][::-1]
    assert [one.verdicts for one in placements] == backwards
    chosen = {verdict.host: verdict.passed for one in placements for verdict in one.verdicts if verdict.host == one.destination}
    assert chosen
    assert all(chosen.values())


def test_a_plan_replay_returns_the_fleet_before_every_step() -> None:
    hosts = fleet(host("kvm1"), host("kvm2"), host("kvm3"))
    steps = [(request("a"), "kvm2"), (request("b"), None), (request("c"), "kvm3")]
    course = PlanReplay(hosts, steps)
    used = [[course.fleet_before(number).states[name].used_mib for name in ("kvm2", "kvm3")] for number in (3, 0, 1, 2)]
    assert used == [[1024, 1024], [0, 0], [1024, 0], [1024, 0]]
