# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks as jobs: artifacts, output while they run, and the state after a cancelled job."""

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.tests.integration.awx.support.jobs import Awx
from ansible_collections.kvmfleet.migration.tests.integration.evacuation.conftest import Make
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import HELD, Lab, eventually
from ansible_collections.kvmfleet.migration.tests.integration.support.site import Site
from ansible_collections.kvmfleet.migration.tests.schemas.check import check_document

# At this cap a slow guest takes some seconds.
CAP_MIB = 12
SLOW = ("--mib", "64", "--dirty-mib", "40")
ENDLESS = ("--mib", "96", "--dirty-mib", "64", "--rate", "6000")


@pytest.mark.long
def test_a_host_is_drained_and_recovered_and_its_guest_is_moved_back(lab: Lab, site: Site, guest: Make, awx: Awx) -> None:
    web, name = guest("web", *SLOW), lab.host(1)
    drained = awx.run("drain", own=True, target=name, drain_host_parallel="3", drain_host_options={"bandwidth_mib": CAP_MIB})
    assert drained.status == "successful", drained.text
    check_document("drain-result.json", drained.artifacts["drain_host_result"])
    result = drained.artifacts["drain_host_result"][name]
    assert (result["safe_to_reboot"], [one["name"] for one in result["moved"]]) == (True, [web]), result
    assert any("running" in line for line in drained.lines(web)), drained.text
    assert 1 not in lab.places(web)

    # What the last job published is handed on, as in a workflow.
    recovered = awx.run("recover", target=name, recover_host_bring_home=True, recover_host_result={}, **drained.artifacts)
    assert recovered.status == "successful", recovered.text
    assert list(recovered.artifacts["recover_host_result"]) == [name]
    assert lab.places(web) == {1: "running"}


@pytest.mark.long
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
    assert (hidden.status, lab.places(web)) == ("failed", {2: "running"}), hidden.text
    # A survey without answers but the domain: the host is found, and the scheduler chooses.
    again = awx.run("migrate", own=True, domain=web, destination="", source="", migrate_force="false")
    assert again.status == "successful", again.text
    assert 2 not in lab.places(web)


@pytest.mark.long
def test_answers_of_a_survey_limit_a_move(lab: Lab, guest: Make, awx: Awx) -> None:
    web = guest("web", *ENDLESS)
    options = {**HELD, "stall_seconds": 0}
    moved = awx.run("migrate", domain=web, destination=lab.host(2), migrate_options=options, migrate_timeout_seconds=5, migrate_on_timeout="abort")
    assert moved.status == "failed", moved.text
    assert '"error_code": "timeout"' in moved.text
    assert lab.places(web) == {1: "running"}


@pytest.mark.long
def test_a_move_is_seen_and_aborted_by_jobs_that_do_not_know_its_host(lab: Lab, site: Site, guest: Make, awx: Awx) -> None:
    """The record names the user and the job of AWX, and a second abort of the same record changes nothing."""
    web = guest("web", *ENDLESS)
    moving = awx.launch("migrate", domain=web, destination=lab.host(2), migrate_options={**HELD, "timeout_seconds": 0})
    state = lab.under_way(lab.uuid(web))
    seen = awx.run("status")
    assert seen.status == "successful", seen.text
    ((move,), attention) = seen.artifacts["status_result"]["moves"], seen.artifacts["status_result"]["attention"]
    assert (move["id"], move["host"], move["watched"], attention) == (state["id"], lab.host(1), True, [])
    assert f"{lab.host(1)} -> {lab.host(2)} {web} running" in seen.text

    aborted = awx.run("abort", id=state["id"], domain="", awx_user_name="ann", awx_job_id=42)
    assert aborted.status == "successful", aborted.text
    assert moving.wait().status == "failed"
    record = open_ledger(*awx.ledger).read_record(state["id"]).record
    assert (record.status, record.reason) == ("cancelled", "operator")
    assert str(record.requester_of("abort_start")).endswith("AWX user ann, job 42")
    again = awx.run("abort", id=state["id"], domain="")
    assert (again.status, '"error_code": "invalid_state"' in again.text) == ("failed", True), again.text
    nothing = awx.run("abort", domain=web, abort_missing_ok="true")
    assert nothing.status == "successful", nothing.text
    assert lab.places(web) == {1: "running"}


@pytest.mark.long
def test_a_move_is_forced_by_a_job_that_does_not_know_its_host(lab: Lab, guest: Make, awx: Awx) -> None:
    web = guest("web", *ENDLESS)
    moving = awx.launch("migrate", domain=web, destination=lab.host(2), migrate_options={**HELD, "timeout_seconds": 0})
    lab.under_way(lab.uuid(web))
    forced = awx.run("force_complete", domain=web, id="", force_complete_complete="true", force_complete_bandwidth_mib=0)
    assert forced.status == "successful", forced.text
    assert moving.wait().status == "successful", moving.text
    assert lab.places(web) == {2: "running"}


@pytest.mark.long
def test_the_policy_of_a_domain_is_set_and_where_it_can_go_is_checked_by_jobs(lab: Lab, guest: Make, awx: Awx) -> None:
    web = guest("web")
    assert awx.run("policy", domain=web, policy_post_copy="false", policy_timeout_seconds=900, policy_profile="").status == "successful"
    shown = awx.run("policy", domain=lab.uuid(web))
    assert ("post_copy: false (domain)" in shown.text, "timeout_seconds: 900 (domain)" in shown.text) == (True, True), shown.text
    checked = awx.run("check", domain=web, destination="", check_copy_storage="none")
    assert checked.status == "successful", checked.text
    assert f"{web} can go to {lab.host(2)}, {lab.host(3)} (best first)." in checked.text or f"{lab.host(3)}, {lab.host(2)} (best" in checked.text
    refused = awx.run("check", domain=web, destination=lab.host(1))
    assert (refused.status, lab.places(web)) == ("failed", {1: "running"})


@pytest.mark.parametrize("playbook", ["abort", *(pytest.param(name, marks=pytest.mark.long) for name in ("check", "force_complete", "migrate", "policy"))])
def test_bad_answers_of_a_survey_change_nothing(lab: Lab, site: Site, guest: Make, awx: Awx, playbook: str) -> None:
    web = guest("web")
    wrong = (
        ({"domain": ""}, "invalid_argument"),
        ({"domain": "nosuch"}, "not_found"),
        ({"domain": web, "source": "nosuch"}, "invalid_argument"),
        ({"domain": web, f"{playbook}_options": {"nosuch": 1}}, "invalid_argument"),
    )
    for answers, code in wrong:
        job = awx.run(playbook, **answers)
        assert (job.status, f'"error_code": "{code}"' in job.text) == ("failed", True), job.text
    assert lab.places(web) == {1: "running"}
    assert not site.path.exists()


def test_the_screen_of_the_fleet_shows_a_dead_host_and_needs_no_ledger(lab: Lab, site: Site, guest: Make, awx: Awx) -> None:
    guest("web", storage="shared")
    site.lose(1)
    seen = awx.run("status")
    assert seen.status == "successful", seen.text
    result = seen.artifacts["status_result"]
    assert result["hosts"]["silent"] == [lab.host(1)]
    assert any(finding.startswith(f"{lab.host(1)} does not answer: ") for finding in result["attention"])
    assert any(finding.startswith("The ledger cannot be read: ") for finding in result["attention"])


@pytest.mark.long
@pytest.mark.parametrize("kept", ["awx", "diskless"])
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
def test_a_dead_host_is_evacuated_by_jobs_first_the_named_domain_and_then_the_rest(lab: Lab, site: Site, guest: Make, awx: Awx) -> None:
    web, rest, name = guest("web", storage="shared"), guest("rest", storage="shared"), lab.host(1)
    protected = awx.run("protect", target="kvmfleet_hosts", protect_host_guard=False)
    assert protected.status == "successful", protected.text
    assert sorted(protected.artifacts["protect_host_result"]) == [lab.host(number) for number in (1, 2, 3)]
    site.lose(1)
    refused = awx.run("evacuate", source=name, evacuate_domains=web, evacuate_host_destination="", evacuate_host_force="true")
    assert (refused.status, site.records()) == ("failed", []), refused.text
    assert "evacuate_host_destination is empty" in " ".join(refused.text.split())
    named = awx.run("evacuate", source=name, evacuate_domains=web, evacuate_host_destination=lab.host(3), evacuate_host_force="false")
    assert named.status == "successful", named.text
    result = named.artifacts["evacuate_host_result"][name]
    assert [(one["name"], one["host"]) for one in result["evacuated"]] == [(web, lab.host(3))], result
    assert [one["name"] for one in result["not_selected"]] == [rest], result
    evacuated = awx.run("evacuate", source=name, evacuate_domains="", evacuate_host_destination="", evacuate_host_force="false")
    assert evacuated.status == "successful", evacuated.text
    assert [one["name"] for one in evacuated.artifacts["evacuate_host_result"][name]["evacuated"]] == [rest], evacuated.text
    assert sorted(site.fleet()[2] | site.fleet()[3]) == sorted([web, rest])
