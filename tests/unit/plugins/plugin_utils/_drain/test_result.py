# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import HistoryLine
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.inputs import DrainInputs
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.plan import make_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.result import build_host_result, find_reboot_blockers
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.tables import plan_lines, result_lines
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._drain.builders import domain, facts, host_facts, record

WEB, DB = domain("web1"), domain("db1", 512)
OFF = domain("off1", state="shut off", reason="shutdown")
PLAN = make_plan(DrainInputs({"kvm1": facts("kvm1", WEB, DB, OFF), "kvm2": facts("kvm2")}), ["kvm1"], ["kvm2"])


def done(name: str, status: str = "completed", reason: str | None = None, detail: str = "") -> MoveRecord:
    made = record(name, "kvm1", "kvm2", status, reason=reason)
    result = dataclasses.replace(made.result, elapsed_ms=1500, downtime_ms=40)
    return dataclasses.replace(made, result=result, history=(*made.history, HistoryLine(made.updated_at, status, "test", detail)))


def after(*stayed: dict[str, t.Any], at_kvm2: tuple[dict[str, t.Any], ...]) -> dict[str, HostFacts]:
    return {"kvm1": host_facts("kvm1", OFF, *stayed), "kvm2": host_facts("kvm2", *at_kvm2)}


def test_domains_that_both_hosts_confirm_are_moved() -> None:
    result = build_host_result("kvm1", PLAN, after(at_kvm2=(WEB, DB)), [done("web1"), done("db1")], [])
    assert sorted(entry.name for entry in result.moved) == ["db1", "web1"]
    assert result.moved[0].actual_seconds == 1.5
    assert result.moved[0].downtime_ms == 40
    assert (result.failed, result.safe_to_reboot, result.blockers) == ((), True, ())
    assert [entry.name for entry in result.skipped] == ["off1"]


def test_a_domain_that_stayed_is_failed_with_the_reason_of_its_record() -> None:
    outcomes = [done("web1", "cancelled", "timeout", "The guest is running on the source."), done("db1")]
    result = build_host_result("kvm1", PLAN, after(WEB, at_kvm2=(DB,)), outcomes, [])
    assert [entry.name for entry in result.moved] == ["db1"]
    assert "cancelled (timeout). The guest is running on the source." in result.failed[0].error
    assert result.safe_to_reboot is False
    assert result.blockers == ("web1 is running (booted) here.",)


def test_a_completed_record_without_an_active_domain_is_failed() -> None:
    result = build_host_result("kvm1", PLAN, after(at_kvm2=(DB,)), [done("web1"), done("db1")], [])
    assert [entry.name for entry in result.failed] == ["web1"]
    assert "not active on kvm2" in result.failed[0].error


def test_a_move_that_was_never_started_is_failed_as_not_started() -> None:
    result = build_host_result("kvm1", PLAN, after(WEB, DB, at_kvm2=()), [], [], ["The task failed."])
    assert {entry.status for entry in result.failed} == {"not started"}
    assert result.problems == ("The task failed.",)


def test_a_move_whose_task_lost_its_host_is_not_called_unstarted() -> None:
    """The task returns no records then, but the ledger has them."""
    moving = record("web1", "kvm1", "kvm2", "running")
    result = build_host_result("kvm1", PLAN, {"kvm2": host_facts("kvm2")}, [], [moving], ["kvm1 has not answered for 120 s."])
    errors = {entry.name: (entry.status, entry.error) for entry in result.failed}
    assert errors["web1"] == (
        "running",
        f"kvm1 did not answer, so the move is not verified. Its move has not ended: the ledger has it as running ({moving.id}).",
    )
    assert errors["db1"] == ("not started", "kvm1 did not answer, so the move is not verified. Its move was not started.")


def test_a_destination_that_did_not_answer_leaves_the_move_unverified() -> None:
    result = build_host_result("kvm1", PLAN, {"kvm1": host_facts("kvm1", OFF)}, [done("web1"), done("db1")], [])
    assert all("kvm2 did not answer" in entry.error for entry in result.failed)


def test_a_guest_that_arrived_after_the_plan_is_failed() -> None:
    result = build_host_result("kvm1", PLAN, after(domain("late"), at_kvm2=(WEB, DB)), [done("web1"), done("db1")], [])
    assert [entry.name for entry in result.failed] == ["late"]


def test_a_refused_move_has_the_reason_of_the_refusal() -> None:
    whys = {WEB["uuid"]: "Its disk vda is not on shared storage."}
    result = build_host_result("kvm1", PLAN, after(WEB, at_kvm2=(DB,)), [done("db1")], [], refusals=whys)
    assert [entry.error for entry in result.failed] == ["It is still running (booted) on kvm1. Its disk vda is not on shared storage."]


def test_a_move_that_failed_has_the_next_step_of_its_task() -> None:
    whys = {WEB["uuid"]: "Domain web1 was not moved from kvm1 to kvm2: cancelled (timeout). It runs on the source. Try auto_converge."}
    outcomes = [done("web1", "cancelled", "timeout", "It runs on the source."), done("db1")]
    result = build_host_result("kvm1", PLAN, after(WEB, at_kvm2=(DB,)), outcomes, [], refusals=whys)
    assert [(entry.status, entry.error) for entry in result.failed] == [("cancelled", f"It is still running (booted) on kvm1. {whys[WEB['uuid']]}")]


def test_check_mode_counts_refused_moves_as_failed() -> None:
    whys = {WEB["uuid"]: "Its disk vda is not on shared storage."}
    result = build_host_result("kvm1", PLAN, {"kvm1": host_facts("kvm1", WEB, DB)}, [], [], refusals=whys, check_mode=True)
    assert [(entry.name, entry.status, entry.error) for entry in result.failed] == [("web1", "refused", whys[WEB["uuid"]])]


def test_check_mode_without_refusals_has_neither_moved_nor_failed() -> None:
    result = build_host_result("kvm1", PLAN, {"kvm1": host_facts("kvm1", WEB, DB)}, [], [], check_mode=True)
    assert (result.moved, result.failed, result.safe_to_reboot) == ((), (), False)
    assert len(result.plan.moves) == 2


def test_any_active_domain_blocks_a_reboot() -> None:
    guests = (domain("a", state="paused", reason="migration", job="incoming migration"), domain("b", state="crashed", reason="panicked"))
    assert len(find_reboot_blockers("kvm1", {"kvm1": host_facts("kvm1", *guests)}, [])) == 2


def test_a_definition_with_autostart_blocks_a_reboot_if_it_is_active_elsewhere() -> None:
    left = domain("web1", state="shut off", reason="migrated", autostart=True)
    elsewhere = {"kvm1": host_facts("kvm1", left), "kvm2": host_facts("kvm2", WEB)}
    assert "active on kvm2" in find_reboot_blockers("kvm1", elsewhere, [])[0]
    assert find_reboot_blockers("kvm1", {"kvm1": host_facts("kvm1", left), "kvm2": host_facts("kvm2")}, []) == []
    assert find_reboot_blockers("kvm1", {"kvm1": host_facts("kvm1", {**left, "autostart": False}), "kvm2": host_facts("kvm2", WEB)}, []) == []


def test_an_unsettled_record_blocks_a_reboot_of_source_and_destination() -> None:
    known = {"kvm1": host_facts("kvm1")}
    assert find_reboot_blockers("kvm1", known, [record("web1", "kvm1", "kvm2", "error")])
    assert find_reboot_blockers("kvm1", known, [record("web1", "kvm2", "kvm1", "queued")])
    assert not find_reboot_blockers("kvm1", known, [record("web1", "kvm2", "kvm3"), record("web1", "kvm1", "kvm2", "completed")])


def test_a_guest_that_arrived_after_the_host_was_queried_blocks_a_reboot() -> None:
    arrived = record("web1", "kvm2", "kvm1", "completed", generation=7)
    (blocker,) = find_reboot_blockers("kvm1", {"kvm1": host_facts("kvm1")}, [arrived])
    assert "web1 arrived here after the host was queried" in blocker
    assert not find_reboot_blockers("kvm1", {"kvm1": host_facts("kvm1", {**OFF, "uuid": arrived.domain.uuid})}, [arrived])
    assert not find_reboot_blockers("kvm1", {"kvm1": host_facts("kvm1")}, [record("web1", "kvm1", "kvm2", "completed", generation=8), arrived])


def test_an_evacuation_that_is_done_does_not_block_a_reboot() -> None:
    assert not find_reboot_blockers("kvm1", {"kvm1": host_facts("kvm1")}, [record("web1", "kvm1", "kvm2", "done", type="evacuation")])


def test_a_host_that_does_not_answer_is_not_safe_to_reboot() -> None:
    assert find_reboot_blockers("kvm1", {}, []) == ["kvm1 does not answer."]


def test_the_table_of_a_plan_names_every_domain() -> None:
    lines = "\n".join(plan_lines(PLAN))
    assert all(name in lines for name in ("web1", "db1", "kvm2", "512 MiB", "LEFT   off1"))


def test_the_table_of_a_result_has_moved_and_failed_domains_and_the_verdict() -> None:
    result = build_host_result("kvm1", PLAN, after(WEB, at_kvm2=(DB,)), [done("web1", "failed"), done("db1")], [])
    lines = result_lines({"kvm1": result})
    assert lines[0].split() == ["DOMAIN", "FROM", "TO", "STATUS", "PREDICTED", "ACTUAL", "DOWNTIME"]
    assert lines[-1].startswith("kvm1: 1 moved, 1 failed, 1 left as they were. NOT safe to reboot: web1 is running")
