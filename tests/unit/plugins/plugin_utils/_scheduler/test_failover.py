# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The reserve for failover: what moves do to it, also against an exhaustive search."""

from __future__ import annotations

import collections
import copy
import dataclasses
import itertools
import random
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import MAINTENANCE
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.failover import (
    ReserveJudge,
    describe_broken,
    describe_missing,
    judge_reserve,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.fleet import HostState
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.fleet_guests import FleetGuests, collect_guests
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.loss_rules import make_loss_rules
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.repair import passes_filters
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.request import Request
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.verdicts import DEFAULT_FILTERS
from ansible_collections.kvmfleet.migration.tests.simulator import exhaustive, fleets
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f

RULES = make_loss_rules()


def view(*hosts: f.Document, settings: dict[str, f.Document] | None = None, **states: str) -> FleetGuests:
    """These hosts with their guests; C(states) are those of the ledger, by host."""
    known = {str(one["name"]): decode(HostFacts, one) for one in hosts}
    found = {name: HostState.from_facts(name, facts, settings=(settings or {}).get(name)) for name, facts in known.items()}
    closed = {name: dataclasses.replace(state, state=states.get(name, state.state)) for name, state in found.items()}
    return collect_guests(closed, {name: facts.domains or () for name, facts in known.items()})


def guest(of: FleetGuests, name: str) -> Request:
    return next(request for request in of.requests if request.name == name)


def broken_by(before: FleetGuests, name: str, destination: str, hosts: int = 1) -> list[tuple[str, ...]]:
    verdict = judge_reserve(before, before.place_guest(guest(before, name), destination), hosts)
    assert verdict.is_kept == (not verdict.broken)
    return [loss.hosts for loss in verdict.broken]


NARROW = (
    f.host("kvm1", 1000, domains=[f.domain("a", 1000)]),
    f.host("kvm2", 1500),
    f.host("kvm3", 1500, domains=[f.domain("c", 1200)]),
)
TIGHT = (
    f.host("kvm1", 2048, domains=[f.domain("a", 1024)]),
    f.host("kvm2", 2048, domains=[f.domain("b", 1024)]),
    f.host("kvm3", 1024),
)


def test_a_move_that_takes_the_place_of_the_guests_of_another_host_breaks_the_reserve() -> None:
    # Only kvm2 has room for c; kvm1 would not have, even without a.
    before = view(*NARROW)
    assert broken_by(before, "a", "kvm2") == [("kvm3",)]
    assert broken_by(before, "c", "kvm2") == []


def test_without_a_reserve_nothing_is_judged() -> None:
    assert broken_by(view(*NARROW), "a", "kvm2", hosts=0) == []


def test_a_loss_that_was_not_possible_before_is_missing_and_not_broken() -> None:
    hosts = (
        f.host("kvm1", 4096, domains=[f.domain("big", 4096)]),
        f.host("kvm2", 4096, domains=[f.domain("b", 64)]),
        f.host("kvm3", 2048, domains=[f.domain("a", 512)]),
    )
    before = view(*hosts)
    verdict = judge_reserve(before, before.place_guest(guest(before, "a"), "kvm2"), 1)
    assert (verdict.is_kept, [loss.hosts for loss in verdict.missing]) == (True, [("kvm1",)])


def test_a_guest_that_no_other_host_could_start_is_left_out() -> None:
    hosts = f.host("kvm1", 4096, domains=[f.domain("big", 4096), f.domain("a", 64)]), f.host("kvm2", 2048), f.host("kvm3", 4095, domains=[local_guest()])
    before = view(*hosts)
    verdict = judge_reserve(before, before.place_guest(guest(before, "a"), "kvm2"), 1)
    assert (verdict.broken, verdict.missing, verdict.left_out) == ((), (), ("big", "local"))
    # It would be lost with kvm2, as it would be with kvm3.
    assert broken_by(before, "local", "kvm2") == []
    new = Request.from_needs(f.request(64, disks=[f.disk("vda", shared=False)]), f.uuid_of("new"), "new")
    assert judge_reserve(before, before.place_guest(new, "kvm2"), 1).left_out == ("big", "local", "new")


def local_guest() -> f.Document:
    return f.domain("local", 512, disks=[f.disk("vda", shared=False)])


def test_a_host_that_is_out_of_service_is_one_of_the_lost_hosts() -> None:
    # kvm4 uses up a reserve of one host; of two, one is left.
    before = view(*NARROW, f.host("kvm4", 8192), kvm4=MAINTENANCE)
    assert broken_by(before, "a", "kvm2", hosts=1) == []
    assert broken_by(before, "a", "kvm2", hosts=2) == [("kvm3", "kvm4")]
    both = view(*NARROW, f.host("kvm4", 8192), f.host("kvm5", 8192), kvm4=MAINTENANCE, kvm5=MAINTENANCE)
    assert broken_by(both, "a", "kvm2", hosts=1) == []


def test_the_guests_of_a_cordoned_host_keep_their_place() -> None:
    before = view(
        f.host("kvm1", 4096, domains=[f.domain("a", 1024)]), f.host("kvm2", 2048), f.host("kvm3", 2048, domains=[f.domain("b", 2048)]), kvm3=MAINTENANCE
    )
    assert broken_by(before, "a", "kvm2") == []
    full = view(
        f.host("kvm1", 2048, domains=[f.domain("a", 2000)]), f.host("kvm2", 4000), f.host("kvm3", 4096, domains=[f.domain("b", 4000)]), kvm3=MAINTENANCE
    )
    assert broken_by(full, "a", "kvm2") == [("kvm3",)]


def test_a_new_guest_can_break_the_reserve() -> None:
    before = view(f.host("kvm1", 2048, domains=[f.domain("a", 2048)]), f.host("kvm2", 2048))
    wanted = Request.from_needs(f.request(64), f.uuid_of("new"), "new")
    assert [loss.hosts for loss in judge_reserve(before, before.place_guest(wanted, "kvm2"), 1).broken] == [("kvm1",), ("kvm2",)]


def test_a_host_that_does_not_answer_is_missing_before_and_after() -> None:
    silent = {"kvm3": HostState("kvm3", unanswered="No route to host")}
    known = view(f.host("kvm1", 4096, domains=[f.domain("a", 512)]), f.host("kvm2", 4096))
    before = collect_guests({**known.fleet.states, **silent}, {"kvm1": decode(HostFacts, f.host("kvm1", domains=[f.domain("a", 512)])).domains or ()})
    verdict = judge_reserve(before, before.place_guest(guest(before, "a"), "kvm2"), 1)
    assert (verdict.is_kept, [(loss.hosts, loss.verdict) for loss in verdict.missing]) == (True, [(("kvm3",), "unknown")])


def test_a_placed_guest_is_on_its_new_host_alone() -> None:
    before = view(*TIGHT)
    after = before.place_guest(guest(before, "a"), "kvm3")
    assert {host: [request.name for request in requests] for host, requests in after.guests.items()} == {"kvm1": [], "kvm2": ["b"], "kvm3": ["a"]}
    assert {host: state.used_mib for host, state in after.fleet.states.items()} == {"kvm1": 0, "kvm2": 1024, "kvm3": 1024}
    assert guest(after, "a").source == "kvm3"
    assert after.place_guest(guest(before, "a"), "kvm3") == after
    emptied = after.empty_hosts(["kvm3"])
    assert (emptied.guests["kvm3"], emptied.fleet.states["kvm3"].used_mib, emptied.fleet.states["kvm3"].state) == ((), 0, MAINTENANCE)


def test_the_host_that_a_protected_guest_leaves_sees_its_images() -> None:
    before = dataclasses.replace(view(*TIGHT), seen={f.uuid_of("a"): {"disk vda": frozenset({"id-2"})}})
    named = dataclasses.replace(before, guests={**before.guests, "kvm1": [dataclasses.replace(guest(before, "a"), source_id="id-1")]})
    assert named.place_guest(guest(named, "a"), "kvm2").seen[f.uuid_of("a")] == {"disk vda": frozenset({"id-1", "id-2"})}


def test_sentences_name_the_first_sets_and_count_the_rest() -> None:
    assert describe_broken([("kvm1",)], 1) == "The fleet could no longer lose kvm1 for certain (failover_hosts: 1)."
    sets = list(itertools.combinations(["kvm1", "kvm2", "kvm3", "kvm4"], 2))
    assert "kvm1 and kvm2, nor kvm1 and kvm3, nor kvm1 and kvm4, nor 3 more sets of hosts" in describe_missing(sets, 2)


# -- any fleet -------------------------------------------------------------------------------------------------------


def view_of(whole: fleets.Whole) -> FleetGuests:
    return view(*whole.facts.values(), settings=whole.settings)


def moved(whole: fleets.Whole, moves: t.Mapping[str, str]) -> fleets.Whole:
    """The fleet with these domains, by UUID, on other hosts."""
    facts = copy.deepcopy(whole.facts)
    for host in list(facts):
        for domain in [one for one in facts[host]["domains"] if moves.get(one["uuid"], host) != host]:
            facts[host]["domains"].remove(domain)
            facts[moves[domain["uuid"]]]["domains"].append(domain)
    return fleets.Whole(facts, whole.settings)


def can_lose(whole: fleets.Whole, lost: t.Sequence[str], left_out: t.Sequence[str] = ()) -> bool:
    return exhaustive.placement_after_loss(whole, lost, RULES.proved, left_out) is not None


def draw_moves(chance: random.Random, before: FleetGuests) -> tuple[FleetGuests, dict[str, str]]:
    """Return up to three moves, one after the other, to hosts that pass the filters, and the fleet after them."""
    after, moves = before, dict[str, str]()
    for _number in range(chance.randint(1, 3)):
        request, host = chance.choice(after.requests), chance.choice(sorted(after.fleet.states))
        if host != request.source and passes_filters(request, after.fleet, host, DEFAULT_FILTERS):
            after, moves = after.place_guest(request, host), {**moves, request.uuid: host}
    return after, moves


@pytest.mark.parametrize("hosts", [1, 2])
def test_admitted_moves_never_take_a_loss_away_that_was_possible_before(hosts: int) -> None:
    counts, kept = collections.Counter[bool](), 0
    for seed in range(250):
        whole, chance = fleets.whole(seed), random.Random(seed)
        before = view_of(whole)
        if not before.requests or len(whole.facts) <= hosts:
            continue
        after, moves = draw_moves(chance, before)
        if not moves:
            continue
        then = moved(whole, moves)
        verdict = judge_reserve(before, after, hosts)
        sets = [*itertools.combinations(sorted(whole.facts), hosts)]
        could, can = ([can_lose(one, lost, verdict.left_out) for lost in sets] for one in (whole, then))
        assert {loss.hosts for loss in verdict.broken} == {lost for lost, had, has in zip(sets, could, can) if had and not has}, seed
        assert {loss.hosts for loss in verdict.missing} == {lost for lost, had, has in zip(sets, could, can) if not had and not has}, seed
        if verdict.is_kept and all(can_lose(whole, lost) for lost in sets):
            assert all(can_lose(then, lost) for lost in sets), seed
            kept += 1
        counts[verdict.is_kept] += 1
    # All of this happens in numbers.
    assert min(counts[True], counts[False], kept) > 3, (counts, kept)


@pytest.mark.parametrize("hosts", [1, 2])
def test_a_judge_of_many_changes_judges_each_as_if_it_were_the_only_one(hosts: int) -> None:
    changes, broken = 0, 0
    for seed in range(60):
        whole, chance = fleets.whole(seed), random.Random(seed)
        before = view_of(whole)
        if not before.requests or len(whole.facts) <= hosts:
            continue
        judge = ReserveJudge(before, hosts)
        for _change in range(3):
            after, moves = draw_moves(chance, before)
            verdict = judge.judge(after)
            assert verdict == judge_reserve(before, after, hosts), seed
            changes, broken = changes + bool(moves), broken + (not verdict.is_kept)
    assert (changes > 20, broken > 0) == (True, True), (changes, broken)


def test_guests_are_placed_together_as_one_after_the_other() -> None:
    placed = 0
    for seed in range(60):
        whole, chance = fleets.whole(seed), random.Random(seed)
        before = view_of(whole)
        if not before.requests:
            continue
        moves = [(chance.choice(before.requests), chance.choice(sorted(before.fleet.states))) for _number in range(5)]
        after = before
        for request, host in moves:
            after = after.place_guest(request, host)
        assert before.place_guests(moves) == after, seed
        placed += after != before
    assert placed > 10
