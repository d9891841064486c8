# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a drain does with a domain: its strategy, its priority, its disks, and where a policy of it is wrong."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.known import Known
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan import make_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.wish import Wish
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f

GROUP = {"name": "pair", "policy": "affinity"}


def plan_of(*guests: dict[str, t.Any], wish: Wish | None = None, **known: t.Any) -> dict[str, t.Any]:
    facts = {"kvm1": f.host("kvm1", domains=guests), "kvm2": f.host("kvm2", 8192), "kvm3": f.host("kvm3", 4096)}
    return make_plan(Known(facts, **known), ["kvm1"], ["kvm2", "kvm3"], wish)


def names(entries: list[dict[str, t.Any]]) -> list[str]:
    return [entry["name"] for entry in entries]


def test_each_strategy_has_its_own_part_of_the_plan() -> None:
    plan = plan_of(f.domain("web"), f.domain("db", drain="leave"), f.domain("batch", drain="shutdown"), f.domain("off", state="shut off", active=False))
    assert (names(plan["moves"]), names(plan["shutdowns"])) == (["web"], ["batch"])
    assert [(entry["name"], entry["drain"]) for entry in plan["skipped"]] == [("db", "leave"), ("off", "")]
    assert "kvm1 will not be safe to reboot" in plan["skipped"][0]["reason"]


def test_the_host_s_default_holds_for_domains_that_say_nothing() -> None:
    plan = plan_of(f.domain("web"), f.domain("db", drain="migrate"), policies={"kvm1": {"drain": "leave", "priority": 3}})
    assert (names(plan["moves"]), names(plan["skipped"])) == (["db"], ["web"])
    assert plan["moves"][0]["priority"] == 3


def test_the_profile_s_strategy_priority_and_labels_hold() -> None:
    profiles = {"kvm1": {"gold": {"priority": 7, "labels": ["ssd"]}, "spot": {"drain": "shutdown"}}}
    guests = [f.domain("a", policy={"profile": "gold"}), f.domain("b", policy={"profile": "spot"})]
    plan = plan_of(*guests, profiles=profiles, scheduler={"kvm3": {"labels": ["ssd"]}})
    assert [(move["name"], move["priority"], move["request"]["labels"]) for move in plan["moves"]] == [("a", 7, ["ssd"])]
    assert names(plan["shutdowns"]) == ["b"]


def test_a_group_from_a_profile_counts_on_other_hosts_too() -> None:
    apart = {"kvm1": {"ha": {"group": {"name": "db", "policy": "anti-affinity"}}}}
    guest, other = f.domain("db1", policy={"profile": "ha"}), f.domain("db2", policy={"profile": "ha"})
    facts = {"kvm1": f.host("kvm1", domains=[guest]), "kvm2": f.host("kvm2", 8192, domains=[other]), "kvm3": f.host("kvm3", 2048)}
    plan = make_plan(Known(facts, profiles={**apart, "kvm2": apart["kvm1"]}), ["kvm1"], ["kvm2", "kvm3"])
    assert [move["destination"] for move in plan["moves"]] == ["kvm3"]


def test_the_higher_priority_moves_first() -> None:
    plan = plan_of(f.domain("small", 256, priority=5), f.domain("large", 4096), f.domain("low", 4000, priority=-1))
    assert [(move["order"], move["name"]) for move in plan["moves"]] == [(1, "small"), (2, "large"), (3, "low")]


@pytest.mark.parametrize(
    ("guest", "words"),
    [
        (f.domain("a", policy={"profile": "gone"}), "There is no profile 'gone'"),
        (f.domain("a", policy_problems={"priority": "It is no number."}), "<priority>: It is no number."),
        (f.domain("a", policy={"auto_converge": True, "post_copy": True}), "auto_converge and post_copy would both be on"),
        (f.domain("a", state="paused", reason="user", drain="shutdown"), "only a running domain can be shut down"),
        (f.domain("a", disks=[f.disk("vda"), f.disk("vdb", shared=False)]), "storage of kvm1 alone (disk vdb)"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_moves(guest: dict[str, t.Any], words: str) -> None:
    plan = plan_of(guest, f.domain("web"))
    assert (names(plan["moves"]), names(plan["unplaced"])) == (["web"], ["a"])
    assert words in plan["unplaced"][0]["reason"]


@pytest.mark.parametrize("options", [{"copy_storage": "auto"}, {"unsafe": True}])
def test_a_local_disk_moves_where_the_drain_copies_it_or_answers_for_it(options: dict[str, t.Any]) -> None:
    plan = plan_of(f.domain("a", disks=[f.disk("vdb", shared=False)]), wish=Wish.of(options=options))
    assert names(plan["moves"]) == ["a"]
    assert plan["options"]["moves"] == options


def test_a_local_medium_that_is_only_read_does_not_hold_the_domain() -> None:
    assert names(plan_of(f.domain("a", disks=[f.disk("sda", shared=False, device="cdrom", readonly=True, optional=True)]))["moves"]) == ["a"]


def test_a_member_that_is_left_holds_its_affinity_group_and_one_that_is_shut_down_does_not() -> None:
    assert names(plan_of(f.domain("a", group=GROUP), f.domain("b", group=GROUP, drain="leave"))["unplaced"]) == ["a"]
    assert names(plan_of(f.domain("a", group=GROUP), f.domain("b", group=GROUP, drain="shutdown"))["moves"]) == ["a"]


def test_members_on_hosts_that_are_no_candidates_count_for_their_group() -> None:
    facts = {"kvm1": f.host("kvm1", domains=[f.domain("a", group=GROUP)]), "kvm2": f.host("kvm2"), "kvm9": f.host("kvm9", domains=[f.domain("b", group=GROUP)])}
    plan = make_plan(Known(facts), ["kvm1"], ["kvm2"])
    assert names(plan["unplaced"]) == ["a"]
    assert [entry["host"] for entry in plan["unplaced"][0]["rejected"]] == ["kvm2"]
    assert plan["candidates"] == ["kvm2"]


def test_a_domain_on_its_way_is_not_left() -> None:
    facts = {"kvm1": f.host("kvm1", domains=[f.domain("a", drain="leave", job="outgoing migration")]), "kvm2": f.host("kvm2", domains=[f.domain("a")])}
    plan = make_plan(Known(facts), ["kvm1"], ["kvm2"])
    assert [(move["name"], move["destination"]) for move in plan["moves"]] == [("a", "kvm2")]


def test_measured_dirty_rates_give_seconds_and_a_pause() -> None:
    plan = plan_of(f.domain("calm", 2048, dirty_rate_mib=10), f.domain("wild", 1024, dirty_rate_mib=500), f.domain("unknown", 512))
    moves = {move["name"]: move for move in plan["moves"]}
    assert 0 < moves["calm"]["predicted_downtime_ms"] <= 520
    assert moves["calm"]["predicted_seconds"] > 2048 / 110
    assert moves["wild"]["predicted_downtime_ms"] is None
    assert "too fast" in moves["wild"]["warnings"][-1]
    assert moves["unknown"]["predicted_downtime_ms"] is None
    assert not [warning for warning in moves["unknown"]["warnings"] if "too fast" in warning]


def test_a_busy_guest_is_expected_to_end_as_its_strategy_lets_it() -> None:
    busy = f.domain("busy", 2048, dirty_rate_mib=40)
    seconds = {
        strategy: plan_of(busy, policies={"kvm1": {"downtime_strategy": strategy} if strategy else {}})["moves"][0]["predicted_seconds"]
        for strategy in ("", "adaptive", "stepped")
    }
    assert seconds[""] == seconds["adaptive"] < seconds["stepped"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"parallel": 0}, "parallel is 0"),
        ({"parallel": True}, "parallel is True"),
        ({"n_plus_one": "maybe"}, "n_plus_one is 'maybe'"),
        ({"options": ["unsafe"]}, "no dictionary of options"),
        ({"options": {"copy_storage": "sometimes"}}, "copy_storage"),
        ({"options": {"speed": 1}}, "speed"),
        ({"options": {"destination": "kvm3"}}, "destination"),
        ({"options": {"bandwidth_mib": -5}}, "bandwidth_mib of the moves is -5"),
        ({"options": {"bandwidth_mib": "fast"}}, "bandwidth_mib"),
        ({"options": {"timeout_seconds": -1}}, "timeout_seconds is -1"),
    ],
)
def test_options_that_cannot_be_are_refused(given: dict[str, t.Any], words: str) -> None:
    def planned() -> None:
        plan = plan_of(f.domain("web"), wish=Wish.of(**given))
        raise InvalidArgument(plan["unplaced"][0]["reason"])

    with pytest.raises(InvalidArgument, match=words):
        planned()


def test_options_come_in_the_types_that_live_migrate_gives_them() -> None:
    assert Wish.of(options={"bandwidth_mib": "64", "unsafe": "yes"}).moves == {"bandwidth_mib": 64, "unsafe": True}


@pytest.mark.parametrize("settings", [{"ram_allocation_ratio": 0}, {"ram_allocation_ratio": "much"}, {"cpu_allocation_ratio": -1}, {"colour": 1}])
def test_settings_of_a_host_that_cannot_be_stop_the_plan(settings: dict[str, t.Any]) -> None:
    with pytest.raises(InvalidArgument, match=r"kvmfleet_scheduler.* of kvm2"):
        plan_of(f.domain("web"), scheduler={"kvm2": settings})
