# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan, approval, apply: the approved plan is passed from one job to the next as an artifact, without a shared disk."""

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.awx.support.jobs import Awx
from ansible_collections.kvmfleet.migration.tests.integration.evacuation.conftest import Make
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab


def test_an_approved_plan_is_applied_exactly_or_refused_when_the_fleet_drifted(lab: Lab, guest: Make, diskless: Awx) -> None:
    web, name = guest("web"), lab.host(1)
    planned = diskless.run("drain", target=name, drain_host_plan_only=True, drain_host_options={"timeout_seconds": 300})
    assert planned.status == "successful", planned.text
    assert web in planned.text
    assert lab.places(web) == {1: "running"}
    assert isinstance(planned.artifacts["drain_host_plan"], str)

    # A guest that nobody has approved.
    other = guest("other")
    drifted = diskless.run("drain", target=name, drain_host_plan_apply=True, **planned.artifacts)
    assert drifted.status == "failed"
    assert other in " ".join(drifted.failures)
    assert "drain_host_result" not in drifted.artifacts
    again = diskless.run("drain", target=name, drain_host_plan_apply=True, drain_host_plan=planned.artifacts["drain_host_plan"][:-12])
    assert again.status == "failed"
    assert "cannot be unpacked" in " ".join(again.failures)
    none = diskless.run("drain", target=name, drain_host_plan_apply=True)
    assert "drain_host_plan" in " ".join(none.failures), none.text
    assert (lab.places(web), lab.places(other)) == ({1: "running"}, {1: "running"})

    # One that is off is nobody's business.
    lab.virsh(1, "destroy", other)
    applied = diskless.run("drain", target=name, drain_host_plan_apply=True, **planned.artifacts)
    assert applied.status == "successful", applied.text
    # It is this job's own result, not the one that it was handed.
    before, result = planned.artifacts["drain_host_result"][name], applied.artifacts["drain_host_result"][name]
    assert (before["safe_to_reboot"], result["safe_to_reboot"]) == (False, True), (before, result)
    wanted = {move["name"]: move["destination"] for move in before["plan"]["moves"]}
    assert {one["name"]: one["destination"] for one in result["moved"]} == wanted
    assert lab.places(web) == {int(wanted[web][-1]): "running"}
    assert "drain_host_plan" not in applied.artifacts


@pytest.mark.long
def test_a_failed_drain_does_not_inherit_safe_to_reboot_from_an_earlier_job(lab: Lab, guest: Make, awx: Awx) -> None:
    """The drain gets an older result that says that the host may be rebooted, and cannot empty the host."""
    name = lab.host(1)
    empty = awx.run("drain", target=name)
    assert empty.artifacts["drain_host_result"][name]["safe_to_reboot"] is True
    guest("web")
    failed = awx.run("drain", target=name, drain_host_candidates=[], **empty.artifacts)
    assert failed.status == "failed", failed.text
    assert failed.artifacts["drain_host_result"][name]["safe_to_reboot"] is False
