# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a drain does with a domain: its strategy, its priority, its disks, and where a policy of it is wrong."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.libvirt_formats import MIB
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.inputs import DrainInputs, DrainOptions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan import make_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan_entries import PlannedMove, PlannedShutdown, SkippedDomain, UnplacedDomain
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.saved_plan import DrainPlan
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f

GROUP = {"name": "pair", "policy": "affinity"}


def plan_of(*guests: dict[str, t.Any], wish: DrainOptions | None = None, **known: t.Any) -> DrainPlan:
    facts = {"kvm1": f.host("kvm1", domains=guests), "kvm2": f.host("kvm2", 8192), "kvm3": f.host("kvm3", 4096)}
    return make_plan(DrainInputs(facts, **known), ["kvm1"], ["kvm2", "kvm3"], wish)


def names(entries: t.Iterable[PlannedMove | PlannedShutdown | UnplacedDomain | SkippedDomain]) -> list[str]:
    return [entry.name for entry in entries]


def test_each_drain_strategy_has_its_own_part_of_the_plan() -> None:
    plan = plan_of(f.domain("web"), f.domain("db", drain="leave"), f.domain("batch", drain="shutdown"), f.domain("off", state="shut off", active=False))
    assert (names(plan.moves), names(plan.shutdowns)) == (["web"], ["batch"])
    assert [(entry.name, entry.drain) for entry in plan.skipped] == [("db", "leave"), ("off", "")]
    assert "kvm1 will not be safe to reboot" in plan.skipped[0].reason


def test_the_default_strategy_of_the_host_applies_to_domains_without_one() -> None:
    plan = plan_of(f.domain("web"), f.domain("db", drain="migrate"), policies={"kvm1": {"drain": "leave", "priority": 3}})
    assert (names(plan.moves), names(plan.skipped)) == (["db"], ["web"])
    assert plan.moves[0].priority == 3


def test_strategy_priority_and_labels_of_a_profile_apply() -> None:
    profiles = {"kvm1": {"gold": {"priority": 7, "labels": ["ssd"]}, "spot": {"drain": "shutdown"}}}
    guests = [f.domain("a", policy={"profile": "gold"}), f.domain("b", policy={"profile": "spot"})]
    plan = plan_of(*guests, profiles=profiles, scheduler={"kvm3": {"labels": ["ssd"]}})
    assert [(move.name, move.priority, move.request["labels"]) for move in plan.moves] == [("a", 7, ["ssd"])]
    assert names(plan.shutdowns) == ["b"]


def test_a_group_of_a_profile_applies_on_other_hosts() -> None:
    apart = {"kvm1": {"ha": {"group": {"name": "db", "policy": "anti-affinity"}}}}
    guest, other = f.domain("db1", policy={"profile": "ha"}), f.domain("db2", policy={"profile": "ha"})
    facts = {"kvm1": f.host("kvm1", domains=[guest]), "kvm2": f.host("kvm2", 8192, domains=[other]), "kvm3": f.host("kvm3", 2048)}
    plan = make_plan(DrainInputs(facts, profiles={**apart, "kvm2": apart["kvm1"]}), ["kvm1"], ["kvm2", "kvm3"])
    assert [move.destination for move in plan.moves] == ["kvm3"]


def test_the_higher_priority_moves_first() -> None:
    plan = plan_of(f.domain("small", 256, priority=5), f.domain("large", 4096), f.domain("low", 4000, priority=-1))
    assert [(move.order, move.name) for move in plan.moves] == [(1, "small"), (2, "large"), (3, "low")]


@pytest.mark.parametrize(
    ("guest", "words"),
    [
        (f.domain("a", policy={"profile": "gone"}), "There is no profile 'gone'"),
        (f.domain("a", policy_problems={"priority": "It is no number."}), "<priority>: It is no number."),
        (f.domain("a", policy={"auto_converge": True, "post_copy": True}), "auto_converge and post_copy are both on in the domain's own policy"),
        (f.domain("a", state="paused", reason="user", drain="shutdown"), "only a running domain can be shut down"),
        (f.domain("a", disks=[f.disk("vda"), f.disk("vdb", shared=False)]), "storage of kvm1 alone (disk vdb)"),
    ],
)
def test_a_domain_with_an_invalid_policy_is_unplaced(guest: dict[str, t.Any], words: str) -> None:
    plan = plan_of(guest, f.domain("web"))
    assert (names(plan.moves), names(plan.unplaced)) == (["web"], ["a"])
    assert words in plan.unplaced[0].reason


@pytest.mark.parametrize("options", [{"copy_storage": "auto"}, {"unsafe": True}])
def test_a_local_disk_is_placed_with_copy_storage_or_unsafe(options: dict[str, t.Any]) -> None:
    plan = plan_of(f.domain("a", disks=[f.disk("vdb", shared=False)]), wish=DrainOptions.from_values(options=options))
    assert names(plan.moves) == ["a"]
    assert plan.options.moves == options


def test_a_full_copy_of_an_overlay_counts_what_it_is_built_on() -> None:
    overlay = f.disk("vda", shared=False, bytes=2 * MIB, below_bytes=900 * MIB)
    for mode, copied in (("full", 902), ("incremental", 2)):
        (move,) = plan_of(f.domain("a", disks=[overlay]), wish=DrainOptions.from_values(options={"copy_storage": mode})).moves
        assert move.request["copied_disk_bytes"] == {"vda": copied * MIB}


def test_an_optional_read_only_local_medium_does_not_prevent_the_move() -> None:
    assert names(plan_of(f.domain("a", disks=[f.disk("sda", shared=False, device="cdrom", readonly=True, optional=True)])).moves) == ["a"]


def test_a_group_member_that_is_left_prevents_the_move_and_a_shut_down_one_not() -> None:
    assert names(plan_of(f.domain("a", group=GROUP), f.domain("b", group=GROUP, drain="leave")).unplaced) == ["a"]
    assert names(plan_of(f.domain("a", group=GROUP), f.domain("b", group=GROUP, drain="shutdown")).moves) == ["a"]


def test_group_members_on_hosts_that_are_not_candidates_count() -> None:
    facts = {"kvm1": f.host("kvm1", domains=[f.domain("a", group=GROUP)]), "kvm2": f.host("kvm2"), "kvm9": f.host("kvm9", domains=[f.domain("b", group=GROUP)])}
    plan = make_plan(DrainInputs(facts), ["kvm1"], ["kvm2"])
    assert names(plan.unplaced) == ["a"]
    assert [entry.host for entry in plan.unplaced[0].rejected] == ["kvm2"]
    assert plan.candidates == ("kvm2",)


def test_a_moving_domain_is_followed_although_its_strategy_is_leave() -> None:
    facts = {"kvm1": f.host("kvm1", domains=[f.domain("a", drain="leave", job="outgoing migration")]), "kvm2": f.host("kvm2", domains=[f.domain("a")])}
    plan = make_plan(DrainInputs(facts), ["kvm1"], ["kvm2"])
    assert [(move.name, move.destination) for move in plan.moves] == [("a", "kvm2")]


def test_measured_dirty_rates_give_predicted_seconds_and_downtime() -> None:
    plan = plan_of(f.domain("calm", 2048, dirty_rate_mib=10), f.domain("wild", 1024, dirty_rate_mib=500), f.domain("unknown", 512))
    moves = {move.name: move for move in plan.moves}
    assert 0 < moves["calm"].predicted_downtime_ms <= 520
    assert moves["calm"].predicted_seconds > 2048 / 110
    assert moves["wild"].predicted_downtime_ms is None
    assert "too fast" in moves["wild"].warnings[-1]
    assert moves["unknown"].predicted_downtime_ms is None
    assert not [warning for warning in moves["unknown"].warnings if "too fast" in warning]


def test_the_predicted_seconds_follow_the_downtime_strategy() -> None:
    busy = f.domain("busy", 2048, dirty_rate_mib=40)
    seconds = {
        strategy: plan_of(busy, policies={"kvm1": {"downtime_strategy": strategy} if strategy else {}}).moves[0].predicted_seconds
        for strategy in ("", "adaptive", "stepped")
    }
    assert seconds[""] == seconds["adaptive"] < seconds["stepped"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"parallel": 0}, "parallel is 0"),
        ({"parallel": True}, "parallel is True"),
        ({"parallel": "many"}, "parallel is 'many'"),
        ({"n_plus_one": "maybe"}, "n_plus_one is 'maybe'"),
        ({"options": ["unsafe"]}, "not a dictionary of options"),
        ({"options": {"copy_storage": "sometimes"}}, "copy_storage"),
        ({"options": {"speed": 1}}, "speed"),
        ({"options": {"destination": "kvm3"}}, "destination"),
        ({"options": {"bandwidth_mib": -5}}, "bandwidth_mib of the moves is -5"),
        ({"options": {"bandwidth_mib": "fast"}}, "bandwidth_mib"),
        ({"options": {"timeout_seconds": -1}}, "timeout_seconds is -1"),
    ],
)
def test_invalid_options_of_a_drain_are_refused(given: dict[str, t.Any], words: str) -> None:
    def planned() -> None:
        plan = plan_of(f.domain("web"), wish=DrainOptions.from_values(**given))
        raise InvalidArgument(plan.unplaced[0].reason)

    with pytest.raises(InvalidArgument, match=words):
        planned()


def test_options_are_converted_to_the_types_of_live_migrate() -> None:
    assert DrainOptions.from_values(options={"bandwidth_mib": "64", "unsafe": "yes"}).moves == {"bandwidth_mib": 64, "unsafe": True}


@pytest.mark.parametrize("settings", [{"ram_allocation_ratio": 0}, {"ram_allocation_ratio": "much"}, {"cpu_allocation_ratio": -1}, {"colour": 1}])
def test_invalid_scheduler_settings_of_a_host_are_refused(settings: dict[str, t.Any]) -> None:
    with pytest.raises(InvalidArgument, match=r"kvmfleet_scheduler.* of kvm2"):
        plan_of(f.domain("web"), scheduler={"kvm2": settings})
