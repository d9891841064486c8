# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From what the tasks of a drain returned to its result and to why it failed."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode, encode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.inputs import DrainInputs
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan import make_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.result import describe_problems, judge_hosts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.verify_request import DomainsResult, HostTasks, VerifyRequest, VerifyTask
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._drain.builders import domain, facts, host_facts, record, uuid_of

WEB = domain("web1")
BATCH = domain("batch", policy={"drain": "shutdown"})
PLAN = make_plan(DrainInputs({"kvm1": facts("kvm1", WEB, BATCH), "kvm2": facts("kvm2"), "kvm3": facts("kvm3")}), ["kvm1"], ["kvm2", "kvm3"])
TO = PLAN.moves[0].destination

Args = dict[str, t.Any]


def arguments(only: bool = False, **work: t.Any) -> Args:
    return {"plan": encode(PLAN), "only": only, "_work": work, "publish_as": None, "ledger": None}


def request(check_mode: bool = False, only: bool = False, **work: t.Any) -> VerifyRequest:
    return VerifyRequest.from_task(decode(VerifyTask, arguments(only, **work)), check_mode)


def tasks_of(moved: Args, stopped: Args) -> HostTasks:
    return HostTasks(decode(DomainsResult, moved), decode(DomainsResult, stopped))


def test_each_host_of_a_drain_is_listed_once() -> None:
    assert request().hosts == ["kvm1", "kvm2", "kvm3"]


def test_the_latest_answer_of_a_host_counts() -> None:
    first, second, seen = (facts(f"kvm1 {number}") for number in range(3))
    asked = [{"item": "kvm1", "ansible_facts": {"kvmfleet_host": second}}, {"item": TO, "unreachable": True}]
    assert request(answered={"kvm1": first}).answers == {"kvm1": first}
    assert request(answered={"kvm1": first, TO: first}, asked=asked).answers == {"kvm1": second, TO: None}
    assert request(answered={"kvm1": first}, asked=asked, moved={"kvm1": {"_seen": {"kvm1": seen}}}).answers["kvm1"] == seen


@pytest.mark.parametrize(
    ("moved", "problems"),
    [
        ({}, []),
        ({"skipped": True}, []),
        ({"failed": True, "msg": "web1 failed", "failures": [{"uuid": uuid_of("web1"), "msg": "web1 failed"}]}, []),
        ({"failed": True, "msg": "no ledger"}, ["no ledger"]),
        ({"failed": True}, ["The moves could not be run."]),
        ({"failed": False, "error_code": "invalid_argument", "msg": "The policy is invalid."}, ["The policy is invalid."]),
        ({"unreachable": True, "msg": "no route"}, ["It could not be reached: no route"]),
        ({"unreachable": True}, ["It could not be reached: no answer"]),
    ],
)
def test_a_task_that_failed_as_a_whole_is_a_problem_of_the_host(moved: Args, problems: list[str]) -> None:
    assert tasks_of(moved, {}).problems == problems


@pytest.mark.parametrize(
    ("stopped", "why"),
    [
        ({"failed": True, "msg": "late", "failures": [{"uuid": uuid_of("batch"), "msg": "It is late."}]}, "It is late."),
        ({"failed": True, "msg": "forbidden"}, "forbidden"),
        ({"unreachable": True}, "Its result is not known."),
    ],
)
def test_a_failed_shutdown_is_the_refusal_of_its_domain(stopped: Args, why: str) -> None:
    tasks = tasks_of({"failures": [{"uuid": uuid_of("web1"), "msg": "refused"}]}, stopped)
    assert tasks.list_refusals(PLAN.shutdowns) == {uuid_of("web1"): "refused", uuid_of("batch"): why}


def test_successful_shutdowns_have_no_refusals() -> None:
    assert tasks_of({}, {"changed": True, "failures": []}).list_refusals(PLAN.shutdowns) == {}


def test_a_drained_host_has_no_problem() -> None:
    moved = {"kvm1": {"migrations": [encode(record("web1", "kvm1", TO, "completed"))]}}
    after = {
        "kvm1": host_facts("kvm1"),
        "kvm2": host_facts("kvm2", *([WEB] if TO == "kvm2" else [])),
        "kvm3": host_facts("kvm3", *([WEB] if TO == "kvm3" else [])),
    }
    result = judge_hosts(request(moved=moved), after, [])
    assert [entry.name for entry in (*result["kvm1"].moved, *result["kvm1"].shut_down)] == ["web1", "batch"]
    assert result["kvm1"].safe_to_reboot is True
    assert describe_problems(result, nothing_done=False) == {}


def test_the_problem_of_a_host_names_the_domains_that_stayed() -> None:
    after = {"kvm1": host_facts("kvm1", WEB), "kvm2": host_facts("kvm2"), "kvm3": host_facts("kvm3")}
    result = judge_hosts(request(stopped={"kvm1": {"changed": True}}), after, [])
    told = describe_problems(result, nothing_done=False)["kvm1"]
    assert told.startswith("FAILED web1 on kvm1: It is still running (booted) on kvm1. Its move was not started.")
    assert "kvm1: 0 moved, 1 shut down, 1 failed, 0 left as they were. NOT safe to reboot: web1 is running (booted) here." in told
    assert "DOMAIN" not in told


@pytest.mark.parametrize(("check_mode", "only"), [(True, False), (False, True)])
def test_check_mode_and_plan_only_runs_have_no_failures(check_mode: bool, only: bool) -> None:
    given = request(check_mode, only)
    result = judge_hosts(given, {"kvm1": host_facts("kvm1", WEB, BATCH), "kvm2": host_facts("kvm2"), "kvm3": host_facts("kvm3")}, [])
    assert given.nothing_done
    assert result["kvm1"].failed == ()
    assert result["kvm1"].safe_to_reboot is False
    assert describe_problems(result, given.nothing_done) == {}


@pytest.mark.parametrize(("check_mode", "only"), [(True, False), (False, True)])
def test_a_plan_that_fails_says_that_it_changed_nothing(check_mode: bool, only: bool) -> None:
    huge = domain("huge", memory_mib=10**6)
    plan = make_plan(DrainInputs({"kvm1": facts("kvm1", WEB, huge), "kvm2": facts("kvm2")}), ["kvm1"], ["kvm2"])
    given = VerifyRequest.from_task(decode(VerifyTask, {**arguments(only), "plan": encode(plan)}), check_mode)
    result = judge_hosts(given, {"kvm1": host_facts("kvm1", WEB, huge), "kvm2": host_facts("kvm2")}, [])
    told = describe_problems(result, given.nothing_done)["kvm1"]
    assert told.startswith("kvm1 cannot be drained. Only the plan was made: it changed nothing on any host. FAILED huge on kvm1: No host can accept it.")
    assert "0 moved" not in told
    assert "NOT safe to reboot" not in told
