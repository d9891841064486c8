# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Capacity of real hosts: a full host, an exact fit, two moves to the last capacity, and the choice among several hosts."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.scheduler.support.desk import Desk, check_moved, check_refused, check_untouched, reasons, verdict
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Make = t.Callable[..., str]
SMALL = ("--mib", "64", "--dirty-mib", "8", "--rate", "500", "--integrity")


@pytest.mark.long
def test_one_mib_short_is_refused_and_an_exact_fit_moves(lab: Lab, control: Desk, web: str, guest: Make) -> None:
    control.leave_room(2, 63)
    for options in (("--check",), ()):
        done = control.move(web, 2, *options)
        assert done.refused() == "conflict"
        assert lab.host(2) in done.msg
        assert "1 MiB" in done.msg
        assert control.records() == ([] if options else [done.record])
    check_refused(lab, control, done, web)
    control.leave_room(2, 64)
    check_moved(lab, control.move(web), web, 2)
    # The record of the move and the guest itself are counted once, so there is room again when it has left.
    other = guest("other", *SMALL)
    check_refused(lab, control, control.move(other), other, "64 MiB")
    check_moved(lab, control.task(2, "live_migrate", {"name": web, "destination": lab.host(3)}), web, 3)
    assert control.move(other, 2, "--check").code == 0


def test_the_last_capacity_of_a_host_is_reserved_once(lab: Lab, control: Desk, guest: Make) -> None:
    names = [guest(name, *SMALL) for name in ("first", "second")]
    control.leave_room(2, 64)
    both = [control.begin_move(name, bandwidth_mib=8) for name in names]
    done = {name: running.wait() for name, running in zip(names, both, strict=True)}
    assert sorted(one.ended()[0] for one in done.values()) == ["completed", "conflict"], [one.text for one in done.values()]
    winner, loser = sorted(names, key=lambda name: done[name].code)
    check_moved(lab, done[winner], winner, 2)
    assert done[loser].refused() == "conflict"
    assert "64 MiB" in done[loser].msg
    check_untouched(lab, loser)


@pytest.mark.long
def test_hosts_over_their_limit_of_domains_or_without_a_label_are_refused(lab: Lab, control: Desk, web: str, guest: Make) -> None:
    guest("resident", "--mib", "32", on=2)
    control.set_policy(web, labels=["ssd"])
    control.scheduler(2, labels=["ssd"], limits={"domains": 1})
    done = control.move(web, None)
    check_refused(lab, control, done, web, lab.host(2), lab.host(3), "ssd")
    seen = control.check(2, 3, name=web)
    assert seen.refused() == "conflict"
    assert set(reasons(seen.result, lab.host(2))) == {"max_domains"}
    assert set(reasons(seen.result, lab.host(3))) == {"labels"}
    control.scheduler(2, labels=["ssd", "fast"], limits={"domains": 2})
    check_moved(lab, control.move(web, None), web, 2)


@pytest.mark.long
def test_the_host_with_the_highest_weight_is_chosen(lab: Lab, control: Desk, web: str) -> None:
    control.scheduler(2, reserved_memory_mib=1024)
    control.scheduler(3, reserved_memory_mib=512)
    assert control.check(name=web).result["selected"] == lab.host(3)
    other_way = {"weights": {"free_memory": -1.0}}
    control.scheduler(2, reserved_memory_mib=1024, **other_way)
    control.scheduler(3, reserved_memory_mib=512, **other_way)
    seen = control.check(name=web)
    assert seen.result["selected"] == lab.host(2)
    assert verdict(seen.result, lab.host(2))["weight"] > verdict(seen.result, lab.host(3))["weight"]
    check_moved(lab, control.move(web, None), web, 2)


BAD = {
    "zero": ({"ram_allocation_ratio": 0}, "ram_allocation_ratio"),
    "negative": ({"cpu_allocation_ratio": -1.5}, "cpu_allocation_ratio"),
    "a word": ({"disk_allocation_ratio": "plenty"}, "plenty"),
    "no number": ({"ram_allocation_ratio": ".nan"}, "ram_allocation_ratio"),
    "a negative reserve": ({"reserved_memory_mib": -1}, "reserved_memory_mib"),
    "an unknown key": ({"ram_ratio": 2}, "ram_ratio"),
    "labels that are none": ({"labels": {"ssd": True}}, "labels"),
    "a limit that is none": ({"limits": {"domains": "few"}}, "few"),
    "an unknown limit": ({"limits": {"guests": 3}}, "guests"),
    "a weight that is none": ({"weights": {"free_memory": "heavy"}}, "heavy"),
}


# Each of these is asked of a host's variables, all of them of a task's option.
@pytest.mark.long
@pytest.mark.parametrize("case", ["zero", "negative", "a word", "an unknown key"])
def test_invalid_scheduler_settings_of_a_host_are_refused(lab: Lab, control: Desk, web_for_all: str, case: str) -> None:
    settings, named = BAD[case]
    control.scheduler(2, **settings)
    done = control.move(web_for_all)
    assert done.refused() == "invalid_argument", done.text
    for text in ("kvmfleet_scheduler", lab.host(2), named):
        assert text in done.msg
    assert control.records() == []


@pytest.mark.long
def test_invalid_scheduler_settings_of_a_task_are_refused(lab: Lab, control: Desk, web_for_all: str) -> None:
    tasks = [("scheduler_check", {"name": web_for_all, "scheduler": settings}) for settings, dummy in BAD.values()]
    for answer, (settings, named) in zip(control.play(1, tasks), BAD.values(), strict=True):
        assert answer["error_code"] == "invalid_argument", (settings, answer)
        assert named in answer["msg"]
