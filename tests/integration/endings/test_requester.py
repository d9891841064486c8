# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two people at two terminals, and a control node that is lost: who aborted, which move it was, and that every record is closed without a new move."""

from __future__ import annotations

import json
import subprocess
import typing as t
import uuid
from dataclasses import replace

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import record_in
from ansible_collections.kvmfleet.migration.tests.integration.endings.support.hosts import put_to_sleep, wake
from ansible_collections.kvmfleet.migration.tests.integration.endings.support.phases import await_status
from ansible_collections.kvmfleet.migration.tests.integration.endings.support.session import Session, check_completed, check_stayed, course, writers
from ansible_collections.kvmfleet.migration.tests.integration.support.control import LIMIT_SECONDS, Record, Running
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import HELD, Lab, eventually

# What AWX adds to the variables of its jobs.
ANN = ("-e", json.dumps({"awx_user_name": "ann", "awx_job_id": 42}))
OF_ANN = ", AWX user ann, job 42"


def audit_of(control: Session) -> list[Record]:
    """Return the lines of the audit, oldest first."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(control.path.rglob("audit*")) if path.is_file()]
    return [line for text in texts for line in map(json.loads, filter(lambda line: line.startswith("{"), text.splitlines())) if "to" in line]


def begin(lab: Lab, control: Session, name: str, **options: t.Any) -> tuple[Running, Record]:
    """Begin a move that does not end by itself; return its task, and its state file."""
    running = control.begin_move(name, **{**HELD, **options})
    return running, lab.under_way(lab.uuid(name))


@pytest.mark.long
def test_the_person_at_the_second_terminal_is_the_requester(lab: Lab, control: Session, endless: str) -> None:
    running, _state = begin(lab, control, endless)
    aborted = control.abort(endless, *ANN)
    assert (aborted.code, aborted.changed, aborted.ended()) == (0, True, ("cancelled", "operator")), aborted.text
    done = running.wait()
    check_stayed(lab, control, done, endless, ("cancelled", "operator"), "aborted")
    (asked,), (ended,) = writers(done.record, "abort_start"), writers(done.record, "cancelled")
    assert asked.startswith(f"{control.person} pid ")
    assert asked.endswith(OF_ANN)
    assert ended.startswith("watcher pid ")
    assert ended.endswith(f" for {asked}")
    assert audit_of(control)[-1]["by"] == ended
    control.verify_audit()


@pytest.mark.long
def test_forcing_names_the_person_at_the_second_terminal(lab: Lab, control: Session, endless: str) -> None:
    running, _state = begin(lab, control, endless, timeout_seconds=600)
    assert control.force(endless, *ANN).changed
    done = running.wait()
    check_completed(lab, control, done, endless)
    (asked,) = writers(done.record, "force_complete")
    assert asked.endswith(OF_ANN)
    assert writers(done.record, "completed")[0].endswith(f" for {asked}")
    assert audit_of(control)[-1]["by"].endswith(OF_ANN)


@pytest.mark.long
def test_an_abort_by_id_never_hits_a_newer_move(lab: Lab, control: Session, endless: str) -> None:
    """Ann looks at the first move; until she aborts it, it has ended, and Bob moves the guest again."""
    running, first = begin(lab, control, endless)
    assert [found["id"] for found in control.in_progress(endless)] == [first["id"]]
    assert control.abort("", id=first["id"]).changed
    assert running.wait().refused() == "aborted"
    ended = control.abort("", id=first["id"])
    assert ended.refused() == "invalid_state"
    again, second = begin(lab, control, endless)
    for name in (endless, ""):
        refused = control.abort(name, *ANN, id=first["id"])
        assert refused.refused() == "conflict"
        assert second["id"] in refused.msg
    assert control.force(endless, id=first["id"]).refused() == "conflict"
    assert lab.has_job(endless)
    assert "abort_start" not in course(lab.state_file(lab.uuid(endless)) or {"history": []})
    assert control.abort("", "--check", id=second["id"]).changed
    assert control.abort("nobody", id=second["id"]).refused() == "invalid_argument"
    assert control.abort("", id="7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c99").refused() == "not_found"
    assert control.abort("", id="nonsense").refused() == "invalid_argument"
    assert lab.has_job(endless)
    assert control.abort("", id=second["id"]).changed
    assert again.wait().refused() == "aborted"
    assert [record["status"] for record in control.records()] == ["cancelled", "cancelled"]


@pytest.mark.long
def test_an_id_on_the_wrong_host_names_the_source(lab: Lab, control: Session, endless: str) -> None:
    running, state = begin(lab, control, endless)
    wrong = control.task(3, "migration_abort", {"id": state["id"]})
    assert wrong.refused() == "invalid_argument"
    assert f"Run the task on {lab.host(1)}" in wrong.msg
    assert lab.has_job(endless)
    assert control.abort(endless).changed
    running.wait()


def test_an_abort_closes_the_record_when_the_control_node_of_the_move_is_lost(lab: Lab, control: Session, endless: str) -> None:
    running, state = begin(lab, control, endless)
    running.kill_with_workers()
    aborted = control.abort(endless, *ANN)
    assert (aborted.code, aborted.ended()) == (0, ("cancelled", "operator")), aborted.text
    record = control.only_record()
    assert (record["id"], record["status"], record["reason"]) == (state["id"], "cancelled", "operator")
    assert writers(record, "abort_start")[0].endswith(OF_ANN)
    assert (lab.places(endless), lab.has_job(endless)) == ({1: "running"}, False)


@pytest.mark.long
@pytest.mark.parametrize("how", ["abort", "settle"])
def test_a_move_that_ended_unseen_is_closed_and_no_move_is_started(lab: Lab, control: Session, endless: str, how: str) -> None:
    """The control node is lost first, then the job is cancelled. The same task of live_migrate would move the guest again."""
    running, state = begin(lab, control, endless)
    running.kill_with_workers()
    lab.virsh(1, "domjobabort", endless)
    await_status(lab, endless, "cancelled")
    left = control.only_record()["status"]
    assert left in ("queued", "running")
    predicted = control.abort(endless, "--check")
    assert (predicted.code, predicted.changed, control.only_record()["status"]) == (0, True, left), predicted.text
    if how == "abort":
        ended = control.abort(endless)
        assert (ended.code, ended.record["id"]) == (0, state["id"]), ended.text
    else:
        settled = control.settle(state["id"], "failed")
        assert (settled.code, settled.changed, settled.result["records"][0]["status"]) == (0, True, "cancelled"), settled.text
    assert control.only_record()["status"] == "cancelled"
    assert (lab.places(endless), lab.has_job(endless)) == ({1: "running"}, False)
    assert control.abort(endless).refused() == "not_found"


@pytest.mark.long
@pytest.mark.parametrize("how", ["abort", "settle"])
def test_a_move_without_control_node_and_watcher_is_settled_by_asking_both_hosts(lab: Lab, control: Session, endless: str, how: str) -> None:
    running, state = begin(lab, control, endless)
    running.kill_with_workers()
    lab.on(1, "kill", "-9", str(state["watcher"]["pid"]))
    if how == "settle":
        assert control.settle(state["id"], "failed").refused() == "invalid_state", "it is still in progress"
        assert lab.has_job(endless)
    lab.virsh(1, "domjobabort", endless)
    eventually(lambda: not lab.has_job(endless), "the job is over")
    outcome = control.abort(endless, *ANN) if how == "abort" else control.settle(state["id"], "failed")
    assert (outcome.code, outcome.changed) == (0, True), outcome.text
    record = control.only_record()
    assert (record["id"], record["status"], record["generation"] > state["generation"]) == (state["id"], "failed", True)
    assert (lab.places(endless), lab.has_job(endless)) == ({1: "running"}, False)
    if how == "abort":
        assert writers(record, "abort_too_late")[0].endswith(OF_ANN)


@pytest.mark.long
def test_an_abort_after_the_guest_has_arrived_closes_the_record_and_says_so(lab: Lab, control: Session, slow: str) -> None:
    running, state = begin(lab, control, slow)
    running.kill_with_workers()
    lab.hurry(slow)
    await_status(lab, slow, "completed")
    late = control.abort(slow)
    assert (late.code != 0, late.result["error_code"], late.record["id"]) == (True, "invalid_state", state["id"]), late.text
    assert control.only_record()["status"] == "completed"
    assert lab.places(slow) == {2: "running"}


@pytest.mark.long
def test_a_person_who_is_wrong_is_contradicted_by_the_hosts(lab: Lab, control: Session, slow: str) -> None:
    running, state = begin(lab, control, slow)
    running.kill_with_workers()
    lab.hurry(slow)
    await_status(lab, slow, "completed")
    wrong = control.settle(state["id"], "failed")
    assert (wrong.code != 0, wrong.result["error_code"]) == (True, "conflict"), wrong.text
    assert wrong.result["records"][0]["status"] == "completed"
    assert control.only_record()["status"] == "completed"


@pytest.mark.long
def test_a_ledger_that_cannot_be_used_does_not_prevent_an_abort(lab: Lab, control: Session, endless: str) -> None:
    running, _state = begin(lab, control, endless)
    assert control.abort(endless, ledger="/proc/version").refused() == "invalid_argument"
    # No etcd listens there.
    aborted = control.abort(endless, ledger="etcd://127.0.0.1:9/kvmfleet")
    assert (aborted.code, aborted.changed) == (0, True), aborted.text
    assert "does not record what it does" in aborted.warnings
    check_stayed(lab, control, running.wait(), endless, ("cancelled", "operator"), "aborted")


@pytest.mark.long
@pytest.mark.usefixtures("mended")
def test_an_abort_during_a_long_settlement_says_so(lab: Lab, control: Session, endless: str) -> None:
    """The destination stops answering, and libvirt gives the job up: nothing can be cancelled any more, and the watcher asks for minutes."""
    running, state = begin(lab, control, endless)
    put_to_sleep(lab, 2)
    lab.virsh(1, "domjobabort", endless)
    eventually(lambda: str((lab.state_file(lab.uuid(endless)) or {}).get("waits_for") or "").startswith("is being settled"), "the move is being settled")
    late = control.abort(endless, wait_seconds=30)
    assert late.refused() == "invalid_state"
    assert "is being settled" in late.msg
    assert lab.host(2) in late.msg
    wake(lab, 2)
    assert running.wait().record["id"] == state["id"]
    assert control.only_record()["status"] in ("cancelled", "failed")


# -- a migration of another tool --------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_foreign_job_that_is_forced_has_a_record_with_the_host_it_went_to(lab: Lab, control: Session, endless: str, foreign: subprocess.Popen[str]) -> None:
    forced = control.force(endless, *ANN)
    assert (forced.code, forced.changed) == (0, True), forced.text
    text, dummy = foreign.communicate(timeout=LIMIT_SECONDS)
    assert foreign.returncode == 0, text
    record = control.only_record()
    assert (record["id"], record["status"], record["destination"]["host"]) == (forced.record["id"], "completed", lab.host(2))
    assert writers(record, "force_complete")[0].endswith(OF_ANN)
    assert writers(record, "completed")[0].endswith(OF_ANN)
    assert lab.places(endless) == {2: "running"}
    control.verify_audit()


@pytest.mark.long
@pytest.mark.parametrize("goes_on", [True, False])
def test_the_record_of_a_foreign_job_whose_abort_was_killed_is_closed_by_the_next_task(
    lab: Lab, control: Session, endless: str, foreign: subprocess.Popen[str], goes_on: bool
) -> None:
    """The first abort opened the record and was killed. The job goes on, or somebody cancels it with virsh."""
    [found] = control.in_progress(endless)
    left = decode(MoveRecord, record_in(found))
    opened = replace(left, id=str(uuid.uuid4()), source=replace(left.source, host=lab.host(1))).advance("running", "bob@control pid 1")
    control.ledger.open_record(opened.note("abort_start", "bob@control pid 1", "operator").intend("abort: operator"))
    if not goes_on:
        lab.virsh(1, "domjobabort", endless)
        eventually(lambda: not lab.has_job(endless), "the job is over")
    ended = control.abort(endless, *ANN)
    assert (ended.code, ended.changed, ended.record["id"]) == (0, True, opened.id), ended.text
    record = control.only_record()
    assert (record["id"], record["status"], record["reason"]) == (opened.id, "cancelled", "operator")
    assert record["history"][-1]["by"].endswith(OF_ANN)
    assert (lab.places(endless), lab.has_job(endless)) == ({1: "running"}, False)
    foreign.communicate(timeout=LIMIT_SECONDS)
