# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Groups of real guests: kept apart, kept together, and a policy that somebody wrote by hand."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.policy.support.operator import by_hand
from ansible_collections.kvmfleet.migration.tests.integration.scheduler.support.desk import Desk, check_moved, check_refused, check_untouched, reasons, verdict
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Make = t.Callable[..., str]
GROUP = "db"
SMALL = ("--mib", "48", "--dirty-mib", "8", "--rate", "500", "--integrity")


def group(name: str, policy: str, **more: int) -> dict[str, t.Any]:
    return {"group": {"name": name, "policy": policy, **more}}


@pytest.mark.long
def test_anti_affinity_refuses_a_host_with_another_member(lab: Lab, control: Desk, guest: Make) -> None:
    here, there = guest("here", *SMALL), guest("there", *SMALL, on=2)
    control.set_policy(here, **group("db", "anti-affinity"))
    control.set_policy(there, on=2, **group("db", "anti-affinity"))
    check_refused(lab, control, control.move(here, 2), here, "db", there, lab.host(2))
    seen = control.check(name=here)
    assert set(reasons(seen.result, lab.host(2))) == {"anti_affinity"}
    assert (seen.result["selected"], verdict(seen.result, lab.host(3))["passed"]) == (lab.host(3), True)
    two = group("db", "anti-affinity", max_per_host=2)
    control.set_policy(here, **two)
    control.set_policy(there, on=2, **two)
    check_moved(lab, control.move(here, 2), here, 2)


def join(lab: Lab, name: str, policy: str, on: int = 1) -> None:
    """Put a guest into the one group of these scenarios, faster than by the module."""
    by_hand(lab, name, f"<group name='{GROUP}' policy='{policy}'/>", "--live", "--config", on=on)


@pytest.mark.long
def test_anti_affinity_counts_an_earlier_move_of_the_same_task(lab: Lab, control: Desk, guest: Make) -> None:
    """Two that are to one host in one task: the second is refused, as the first is there by then."""
    names = [guest(name, *SMALL) for name in ("one", "two")]
    for name in names:
        join(lab, name, "anti-affinity")
    done = control.moves([(name, 2) for name in names])
    assert sorted(record["status"] for record in done.records) == ["completed", "conflict"], done.text
    assert sorted(str(lab.places(name)) for name in names) == ["{1: 'running'}", "{2: 'running'}"]


@pytest.mark.long
def test_affinity_keeps_members_on_one_host_unless_they_move_together(lab: Lab, control: Desk, guest: Make) -> None:
    names = [guest(name, *SMALL) for name in ("app", "cache")]
    for name in names:
        join(lab, name, "affinity")
    check_refused(lab, control, control.move(names[0], 2), names[0], GROUP, names[1])
    done = control.moves([(name, 2) for name in names])
    assert (done.code, [record["status"] for record in done.records]) == (0, ["completed"] * 2), done.text
    for name in names:
        assert lab.places(name) == {2: "running"}
        assert lab.check(name)["intact"]
    third = guest("third", *SMALL)
    join(lab, third, "affinity")
    seen = control.play(1, [("scheduler_check", {"name": third})], facts=True)[0]
    assert seen["selected"] == lab.host(2)
    assert "affinity" in reasons(seen, lab.host(3))
    check_moved(lab, control.move(third, 2), third, 2)


@pytest.mark.long
def test_soft_affinity_and_soft_anti_affinity_rank_equal_hosts(lab: Lab, control: Desk, guest: Make) -> None:
    here, there = guest("here", *SMALL), guest("there", *SMALL, on=2)
    for policy, chosen in (("soft-affinity", 2), ("soft-anti-affinity", 3)):
        for name, on in ((here, 1), (there, 2)):
            join(lab, name, policy, on)
        # Memory that is used there shall not decide.
        done = control.check(2, 3, name=here, scheduler={"weights": {"free_memory": 0, "free_cpu": 0}})
        assert done.result["selected"] == lab.host(chosen), done.text


@pytest.mark.long
def test_members_of_one_group_with_different_policies_are_refused(lab: Lab, control: Desk, guest: Make) -> None:
    here, there = guest("here", *SMALL), guest("there", *SMALL, on=2)
    join(lab, here, "affinity")
    join(lab, there, "anti-affinity", on=2)
    check_refused(lab, control, control.move(here, 2), here, GROUP, "anti-affinity")


@pytest.mark.long
def test_an_unknown_group_policy_is_refused_for_its_own_guest_alone(lab: Lab, control: Desk, web: str, guest: Make) -> None:
    """Its own guest stays; another one may move there."""
    name = guest("handmade", *SMALL)
    guest("unknown", "--mib", "32", on=2)
    join(lab, name, "friends")
    join(lab, "unknown", "friends", on=2)
    done = control.move(name)
    assert done.refused() == "invalid_argument", done.text
    assert name in done.msg
    assert "friends" in done.msg
    assert control.records() == []
    check_untouched(lab, name)
    check_moved(lab, control.move(web, 2), web, 2)
