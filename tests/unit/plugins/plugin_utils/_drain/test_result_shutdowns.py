# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a drain's result says of domains that were to be shut down, and of those that were to be left."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.result import host_result
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.table import result_lines
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._drain.builders import domain, facts

POLITE, KEEPER = domain("polite"), domain("keeper")
GONE = domain("polite", state="shut off", reason="shutdown")


def entry(of: dict[str, t.Any], **more: t.Any) -> dict[str, t.Any]:
    return {"name": of["name"], "uuid": of["uuid"], "source": "kvm1", "reason": "Its policy.", **more}


def plan(**parts: t.Any) -> dict[str, t.Any]:
    return {"moves": [], "shutdowns": [entry(POLITE)], "unplaced": [], "skipped": [], "created_at": "now", "predicted_seconds": {}, **parts}


def result(*here: dict[str, t.Any], there: tuple[dict[str, t.Any], ...] = (), check_mode: bool = False, why: str = "", **parts: t.Any) -> dict[str, t.Any]:
    known = {"kvm1": facts("kvm1", *here), "kvm2": facts("kvm2", *there)}
    return host_result("kvm1", plan(**parts), known, [], [], refusals={POLITE["uuid"]: why} if why else {}, check_mode=check_mode)


def test_one_that_is_off_is_shut_down_and_its_host_is_safe() -> None:
    for here in ((GONE,), ()):
        told = result(*here)
        assert [stopped["name"] for stopped in told["shut_down"]] == ["polite"]
        assert (told["failed"], told["safe_to_reboot"]) == ([], True)
        assert any("polite" in line and "shut down" in line for line in result_lines({"kvm1": told}))


def test_one_that_still_runs_has_failed_and_says_why() -> None:
    told = result(POLITE, why="It was not destroyed.")
    assert (told["shut_down"], told["failed"][0]["status"]) == ([], "not shut down")
    assert told["failed"][0]["error"] == "It is still running (booted). It was not destroyed."
    assert told["blockers"] == ["polite is running (booted) here."]


def test_one_that_was_held_back_says_for_what() -> None:
    stuck = entry(domain("stuck"), memory_mib=512)
    assert "other domains of this host find no place" in result(POLITE, unplaced=[stuck])["failed"][1]["error"]


def test_one_that_is_active_elsewhere_was_not_shut_down() -> None:
    assert "It is active on kvm2." in result(there=(POLITE,))["failed"][0]["error"]


def test_a_silent_host_leaves_it_open() -> None:
    told = host_result("kvm1", plan(), {"kvm2": facts("kvm2")}, [], [])
    assert (told["shut_down"], told["failed"][0]["status"]) == ([], "unknown")


def test_in_check_mode_only_what_was_refused_has_failed() -> None:
    assert result(POLITE, check_mode=True)["failed"] == []
    assert result(POLITE, check_mode=True, why="It cannot react.")["failed"][0]["error"] == "It cannot react."


def test_what_is_left_by_its_policy_did_not_come_later_but_keeps_the_host_from_a_reboot() -> None:
    told = result(KEEPER, shutdowns=[], skipped=[entry(KEEPER, state="running", drain="leave")])
    assert (told["failed"], [left["name"] for left in told["skipped"]]) == ([], ["keeper"])
    assert (told["safe_to_reboot"], told["blockers"]) == (False, ["keeper is running (booted) here."])


def test_what_was_off_when_the_plan_was_made_and_runs_now_is_named() -> None:
    told = result(KEEPER, shutdowns=[], skipped=[entry(KEEPER, state="shut off", drain="")])
    assert told["failed"][0]["error"] == "It came here after the plan was made."
