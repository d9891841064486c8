# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks as jobs: artifacts, output while they run, and the state after a cancelled job."""

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.awx.support.jobs import Awx
from ansible_collections.kvmfleet.migration.tests.integration.evacuation.conftest import Make
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import HELD, Lab, eventually
from ansible_collections.kvmfleet.migration.tests.integration.support.site import Site

# At this cap a slow guest takes some seconds.
CAP_MIB = 12
SLOW = ("--mib", "64", "--dirty-mib", "40")
ENDLESS = ("--mib", "96", "--dirty-mib", "64", "--rate", "6000")


@pytest.mark.long
def test_a_host_is_drained_and_recovered_and_its_guest_is_moved_back(lab: Lab, site: Site, guest: Make, awx: Awx) -> None:
    web, name = guest("web", *SLOW), lab.host(1)
    drained = awx.run("drain", own=True, target=name, drain_host_options={"bandwidth_mib": CAP_MIB})
    assert drained.status == "successful", drained.text
    result = drained.artifacts["drain_host_result"][name]
    assert (result["safe_to_reboot"], [one["name"] for one in result["moved"]]) == (True, [web]), result
    assert any("running" in line for line in drained.lines(web)), drained.text
    assert 1 not in lab.places(web)

    # What the last job published is handed on, as in a workflow.
    recovered = awx.run("recover", target=name, recover_host_bring_home=True, recover_host_result={}, **drained.artifacts)
    assert recovered.status == "successful", recovered.text
    assert list(recovered.artifacts["recover_host_result"]) == [name]
    assert lab.places(web) == {1: "running"}


def test_one_domain_is_moved_by_a_job_with_a_limit_and_many_forks(lab: Lab, guest: Make, awx: Awx) -> None:
    web, name = guest("web"), lab.host(1)
    refused = awx.run("migrate", source=name, domain="nosuch", destination=lab.host(2))
    assert refused.status == "failed"
    assert "nosuch" in " ".join(refused.failures)
    # A job's limit has to leave the control node in: the first play runs there.
    moved = awx.run("migrate", limit=f"{name}:localhost", forks=50, source=name, domain=web, destination=lab.host(2))
    assert moved.status == "successful", moved.text
    assert lab.places(web) == {2: "running"}
    hidden = awx.run("migrate", limit=lab.host(3), source=lab.host(2), domain=web, destination=lab.host(1))
    assert lab.places(web) == {2: "running"}, hidden.text


@pytest.mark.parametrize("kept", [pytest.param("awx", marks=pytest.mark.long), "diskless"])
def test_a_move_of_a_cancelled_drain_job_continues_and_the_next_job_finishes_it(
    lab: Lab, site: Site, guest: Make, kept: str, request: pytest.FixtureRequest
) -> None:
    awx: Awx = request.getfixturevalue(kept)
    web, name = guest("web", *ENDLESS), lab.host(1)
    uuid = lab.uuid(web)
    job = awx.launch("drain", target=name, drain_host_options={**HELD, "timeout_seconds": 0})
    state = lab.under_way(uuid)
    assert eventually(lambda: job.lines(web), "a line about the guest")
    assert job.cancel().status == "canceled"
    assert job.artifacts == {}

    def later() -> bool:
        now = lab.state_file(uuid)
        return bool(now and now["progress"]["memory_processed_bytes"] > state["progress"]["memory_processed_bytes"])

    assert eventually(later, "the move goes on")
    assert lab.has_job(web)
    before = lab.runs()
    second = awx.launch("drain", target=name)
    eventually(lambda: lab.runs() - before, "the next job follows the move")
    lab.hurry(web)
    assert second.wait().status == "successful", second.text
    result = second.artifacts["drain_host_result"][name]
    assert (result["safe_to_reboot"], [one["name"] for one in result["moved"]]) == (True, [web]), result
    last = lab.state_file(uuid)
    assert last
    assert (last["id"], last["generation"]) == (state["id"], state["generation"])
    assert list(lab.places(web).values()) == ["running"]


@pytest.mark.long
def test_a_dead_host_is_evacuated_by_a_job(lab: Lab, site: Site, guest: Make, awx: Awx) -> None:
    web, name = guest("web", storage="shared"), lab.host(1)
    protected = awx.run("protect", target="kvmfleet_hosts", protect_host_guard=False)
    assert protected.status == "successful", protected.text
    assert sorted(protected.artifacts["protect_host_result"]) == [lab.host(number) for number in (1, 2, 3)]
    site.lose(1)
    evacuated = awx.run("evacuate", source=name)
    assert evacuated.status == "successful", evacuated.text
    result = evacuated.artifacts["evacuate_host_result"][name]
    assert [one["name"] for one in result["evacuated"]] == [web], result
    assert sorted(site.fleet()[2] | site.fleet()[3]) == [web]
