# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The result of a balance, from what its tasks returned and what the hosts answered afterwards."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.options import BalanceOptions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.plan import make_balance_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.result import judge_balance
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.tables import result_lines
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.saved_plan import DrainPlan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.verify_request import DomainFailure, DomainsResult
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import read_facts
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._balance.builders import crowded, inputs_of
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._balance.test_drift import carry_out

FACTS = crowded(6)
PLAN: DrainPlan = make_balance_plan(inputs_of(FACTS), [*FACTS], BalanceOptions())


def test_a_domain_has_moved_if_both_of_its_hosts_say_so() -> None:
    facts = {host: read_facts(known) for host, known in carry_out(FACTS, PLAN, 1).items()}
    result = judge_balance(PLAN, {"kvm1": [DomainsResult()]}, facts, nothing_done=False)
    assert [entry.name for entry in result.moved["kvm1"]] == [PLAN.moves[0].name]
    assert [(entry.name, entry.status, entry.error) for entry in result.failed["kvm1"]] == [
        (PLAN.moves[1].name, "not started", "It is still running (booted) on kvm1. Its move was not started.")
    ]
    assert result.failures == 1
    assert (PLAN.balance and PLAN.balance.score_before, PLAN.balance and PLAN.balance.score_after) == (result.score_before, result.score_after)


def test_a_host_that_does_not_answer_afterwards_proves_nothing() -> None:
    facts = {host: read_facts(known) for host, known in carry_out(FACTS, PLAN, 2).items() if host != "kvm1"}
    result = judge_balance(PLAN, {}, facts, nothing_done=False)
    assert (result.moved["kvm1"], len(result.failed["kvm1"])) == ((), 2)
    assert "kvm1 did not answer, so the move is not verified." in str(result.failed["kvm1"][0].error)


def test_a_task_that_could_not_run_at_all_is_a_problem_of_its_host() -> None:
    facts = {host: read_facts(known) for host, known in FACTS.items()}
    tasks = [DomainsResult(unreachable=True, msg="No route to host")]
    result = judge_balance(PLAN, {"kvm1": tasks}, facts, nothing_done=False)
    assert result.problems == {"kvm1": ("It could not be reached: No route to host",)}
    assert "FAILED kvm1: It could not be reached: No route to host" in result_lines(result)
    untouched = judge_balance(PLAN, {}, facts, nothing_done=True)
    assert (untouched.failures, result_lines(untouched)) == (0, ["Nothing was moved."])


def test_a_move_of_an_earlier_run_that_is_not_settled_is_a_problem_of_its_source() -> None:
    facts = {host: read_facts(known) for host, known in carry_out(FACTS, PLAN, 2).items()}
    failure = DomainFailure("77777777-0000-4000-8000-000000000007", "kvm3 did not answer.")
    result = judge_balance(PLAN, {"kvm1": [DomainsResult()], "kvm2": [DomainsResult(failed=True, failures=(failure,))]}, facts, nothing_done=False)
    assert (result.failures, result.problems) == (1, {"kvm2": ("The move of an earlier run is not settled: kvm3 did not answer.",)})
