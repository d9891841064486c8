# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a drain's result says of domains that were to be shut down, and of those that were to be left."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.result import build_host_result
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.saved_plan import DrainPlan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.tables import HostDrain, result_lines
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._drain.builders import domain, host_facts, sealed_plan

POLITE, KEEPER = domain("polite"), domain("keeper")
GONE = domain("polite", state="shut off", reason="shutdown")


def entry(of: dict[str, t.Any], **more: t.Any) -> dict[str, t.Any]:
    return {"name": of["name"], "uuid": of["uuid"], "source": "kvm1", "reason": "Its policy.", **more}


def plan(**parts: t.Any) -> DrainPlan:
    return sealed_plan(**{"shutdowns": [entry(POLITE)], **parts})


def result(*here: dict[str, t.Any], there: tuple[dict[str, t.Any], ...] = (), check_mode: bool = False, why: str = "", **parts: t.Any) -> HostDrain:
    known = {"kvm1": host_facts("kvm1", *here), "kvm2": host_facts("kvm2", *there)}
    return build_host_result("kvm1", plan(**parts), known, [], [], refusals={POLITE["uuid"]: why} if why else {}, check_mode=check_mode)


def test_an_inactive_domain_counts_as_shut_down_and_its_host_is_safe() -> None:
    for here in ((GONE,), ()):
        told = result(*here)
        assert [stopped.name for stopped in told.shut_down] == ["polite"]
        assert (told.failed, told.safe_to_reboot) == ((), True)
        assert any("polite" in line and "shut down" in line for line in result_lines({"kvm1": told}))


def test_a_domain_that_still_runs_is_failed_with_the_reason() -> None:
    told = result(POLITE, why="It was not destroyed.")
    assert (told.shut_down, told.failed[0].status) == ((), "not shut down")
    assert told.failed[0].error == "It is still running (booted). It was not destroyed."
    assert told.blockers == ("polite is running (booted) here.",)


def test_a_shutdown_that_was_withheld_names_the_unplaced_domains() -> None:
    stuck = entry(domain("stuck"), memory_mib=512)
    assert "other domains of this host cannot be placed" in result(POLITE, unplaced=[stuck]).failed[1].error


def test_a_domain_that_is_active_elsewhere_was_not_shut_down() -> None:
    assert "It is active on kvm2." in result(there=(POLITE,)).failed[0].error


def test_a_shutdown_on_a_silent_host_has_the_status_unknown() -> None:
    told = build_host_result("kvm1", plan(), {"kvm2": host_facts("kvm2")}, [], [])
    assert (told.shut_down, told.failed[0].status) == ((), "unknown")


def test_check_mode_counts_only_refused_shutdowns_as_failed() -> None:
    assert result(POLITE, check_mode=True).failed == ()
    assert result(POLITE, check_mode=True, why="It cannot react.").failed[0].error == "It cannot react."


def test_a_domain_that_is_left_by_its_policy_blocks_the_reboot_without_failing() -> None:
    told = result(KEEPER, shutdowns=[], skipped=[entry(KEEPER, state="running", drain="leave")])
    assert (told.failed, [left.name for left in told.skipped]) == ((), ["keeper"])
    assert (told.safe_to_reboot, told.blockers) == (False, ("keeper is running (booted) here.",))


def test_a_domain_that_started_after_the_plan_is_failed() -> None:
    told = result(KEEPER, shutdowns=[], skipped=[entry(KEEPER, state="shut off", drain="")])
    assert told.failed[0].error == "It arrived after the plan was made."
