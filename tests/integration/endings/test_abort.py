# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A second session aborts a move of a first one: in each phase, with the result of both sessions."""

from __future__ import annotations

import subprocess
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.endings.support.hosts import put_to_sleep, state_of, wake
from ansible_collections.kvmfleet.migration.tests.integration.endings.support.phases import POST_COPY, await_post_copy, await_status
from ansible_collections.kvmfleet.migration.tests.integration.endings.support.session import Session, acts, check_completed, check_stayed, course, writers
from ansible_collections.kvmfleet.migration.tests.integration.support.control import LIMIT_SECONDS, Outcome, Record
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import HELD, Lab, eventually

Make = t.Callable[..., str]
SMALL = ("--mib", "48", "--dirty-mib", "16")


def check_aborted(aborted: Outcome, name: str) -> None:
    """The session that requested the abort reports it as its change."""
    assert (aborted.code, aborted.changed, aborted.ended()) == (0, True, ("cancelled", "operator")), aborted.text
    assert aborted.record["domain"]["name"] == name


def of(records: list[Record], name: str) -> Record:
    return next(record for record in records if record["domain"]["name"] == name)


def test_a_running_move_is_aborted(lab: Lab, control: Session, endless: str) -> None:
    running = control.begin_move(endless, **HELD)
    lab.under_way(lab.uuid(endless))
    predicted = control.abort(endless, "--check")
    assert (predicted.code, predicted.changed, predicted.record["status"]) == (0, True, "running"), predicted.text
    assert lab.has_job(endless)
    aborted = control.abort(endless)
    check_aborted(aborted, endless)
    done = running.wait()
    check_stayed(lab, control, done, endless, ("cancelled", "operator"), "aborted")
    assert acts(done.record) == ["migrate", "abort: operator"]
    line = course(done.record)
    assert line.index("running") < line.index("abort_start") < line.index("abort_end") < line.index("cancelled")
    assert aborted.record["id"] == done.record["id"]
    assert lab.check(endless)["intact"]
    assert control.move(endless).ended() == ("completed", None)


@pytest.mark.long
def test_a_queued_move_is_aborted_and_the_running_one_continues(lab: Lab, control: Session, guest: Make, endless: str) -> None:
    queued = guest("queued", *SMALL)
    running = control.begin_moves([(endless, 2), (queued, 2)], parallel=1, **HELD)
    lab.under_way(lab.uuid(endless))
    assert lab.state_file(lab.uuid(queued))["status"] == "queued"
    check_aborted(control.abort(queued), queued)
    assert lab.has_job(endless)
    check_aborted(control.abort(endless), endless)
    done = running.wait()
    assert done.result["error_code"] == "aborted"
    record = of(done.records, queued)
    assert "migrate" not in acts(record)
    assert "running" not in course(record)
    assert course(record).index("abort_start") < course(record).index("abort_end") < course(record).index("cancelled")
    assert (lab.places(queued), lab.places(endless)) == ({1: "running"}, {1: "running"})
    assert {record["status"] for record in control.records()} == {"cancelled"}


@pytest.mark.long
@pytest.mark.usefixtures("mended")
def test_a_move_that_is_being_prepared_is_aborted_without_a_job(lab: Lab, control: Session, guest: Make, endless: str) -> None:
    """The destination does not answer for a while, so that the move stays in this phase; its job is never started."""
    prepared = guest("prepared", *SMALL)
    running = control.begin_moves([(endless, 3), (prepared, 2)], parallel=1, **HELD)
    lab.under_way(lab.uuid(endless))
    put_to_sleep(lab, 2)
    check_aborted(control.abort(endless), endless)
    await_status(lab, prepared, "preparing")
    aborting = control.begin_act("migration_abort", prepared)
    pattern = f"/run/kvmfleet/{lab.uuid(prepared)}.*.intent"
    eventually(lambda: lab.try_("exec", lab.host(1), "--", "sh", "-c", f"ls {pattern}").returncode == 0, "the intent is there")
    wake(lab, 2)
    check_aborted(aborting.wait(), prepared)
    record = of(running.wait().records, prepared)
    assert (record["status"], record["reason"]) == ("cancelled", "operator")
    assert "migrate" not in acts(record)
    assert lab.places(prepared) == {1: "running"}
    assert not lab.has_job(prepared)


@pytest.mark.long
def test_the_abort_of_one_of_several_moves_leaves_the_others(lab: Lab, control: Session, endless: str, slow: str) -> None:
    running = control.begin_moves([(endless, 2), (slow, 3)], **HELD)
    for name in (endless, slow):
        lab.under_way(lab.uuid(name))
    check_aborted(control.abort(endless), endless)
    lab.hurry(slow)
    done = running.wait()
    assert done.result["error_code"] == "aborted"
    assert done.changed
    assert [record["status"] for record in done.records] == ["cancelled", "completed"]
    assert (lab.places(endless), lab.places(slow)) == ({1: "running"}, {3: "running"})


@pytest.mark.long
def test_post_copy_cannot_be_aborted(lab: Lab, control: Session, guest: Make) -> None:
    calm = guest("calm", "--mib", "128", "--dirty-mib", "96", "--rate", "500")
    running = control.begin_move(calm, **POST_COPY)
    await_post_copy(lab, calm)
    refused = control.abort(calm)
    assert refused.refused() == "not_supported"
    assert "post-copy" in refused.msg
    assert state_of(lab, calm, 1) == "paused (post-copy)"
    assert state_of(lab, calm, 2) == "running (post-copy)"
    lab.hurry(calm, "--postcopy")
    done = running.wait()
    check_completed(lab, control, done, calm)
    assert done.record["result"]["mode"] == "post-copy"
    assert "abort_start" not in course(done.record)
    assert lab.check(calm)["intact"]


@pytest.mark.long
@pytest.mark.usefixtures("mended")
def test_an_abort_is_refused_while_the_move_finishes(lab: Lab, control: Session, guest: Make) -> None:
    """All memory is transferred and the destination has not confirmed yet: an abort is too late, and its error says so."""
    name = guest("finishing", "--mib", "96", "--dirty-mib", "64")
    running = control.begin_move(name, **HELD)
    lab.under_way(lab.uuid(name))
    put_to_sleep(lab, 2)
    lab.hurry(name)
    eventually(lambda: state_of(lab, name, 1) == "paused (migrating)", "the memory is over")
    aborting = control.begin_act("migration_abort", name)
    eventually(lambda: "abort_start" in course(lab.state_file(lab.uuid(name)) or {"history": []}), "the abort was tried")
    wake(lab, 2)
    assert aborting.wait().refused() == "invalid_state"
    check_completed(lab, control, running.wait(), name)


@pytest.mark.long
def test_an_abort_of_a_domain_without_a_move_is_not_found(lab: Lab, control: Session, slow: str) -> None:
    assert control.abort(slow).refused() == "not_found"
    lenient = control.abort(slow, missing_ok=True)
    assert (lenient.code, lenient.changed, lenient.records) == (0, False, []), lenient.text
    unknown = control.abort("nobody", missing_ok=True)
    assert unknown.refused() == "not_found"
    assert "nobody" in unknown.msg
    assert lab.places(slow) == {1: "running"}


@pytest.mark.long
def test_an_abort_after_the_end_of_the_move_is_not_found(lab: Lab, control: Session, slow: str) -> None:
    assert control.move(slow).ended() == ("completed", None)
    assert control.abort(slow).refused() == "not_found"
    assert lab.places(slow) == {2: "running"}


@pytest.mark.long
def test_a_foreign_job_is_aborted(lab: Lab, control: Session, endless: str, foreign: subprocess.Popen[str]) -> None:
    [found] = control.in_progress(endless)
    assert (found["id"], found["watched"], found["status"]) == (None, False, "running")
    aborted = control.abort(endless)
    check_aborted(aborted, endless)
    text, dummy = foreign.communicate(timeout=LIMIT_SECONDS)
    assert foreign.returncode != 0, text
    record = control.only_record()
    assert (record["id"], record["status"], record["destination"]["host"]) == (aborted.record["id"], "cancelled", None)
    assert course(record) == ["accepted", "running", "abort_start", "abort_end", "cancelled"]
    assert [writer.split(" pid ")[0] for writer in writers(record, "abort_start") + writers(record, "cancelled")] == [control.person, control.person]
    assert lab.places(endless) == {1: "running"}
    assert not lab.has_job(endless)


@pytest.mark.long
def test_a_move_whose_watcher_died_is_aborted_by_a_new_watcher(lab: Lab, control: Session, endless: str) -> None:
    """Another watcher is started for the abort; the next run finds its result."""
    running = control.begin_move(endless, **HELD)
    uuid = lab.uuid(endless)
    state = lab.under_way(uuid)
    running.kill()
    lab.on(1, "kill", "-9", str(state["watcher"]["pid"]))
    check_aborted(control.abort(endless), endless)
    last = lab.state_file(uuid)
    assert last is not None
    assert (last["id"], last["status"], last["reason"]) == (state["id"], "cancelled", "operator")
    assert last["generation"] > state["generation"]
    assert last["watcher"]["pid"] != state["watcher"]["pid"]
    assert lab.places(endless) == {1: "running"}
    assert [record["status"] for record in control.records()] == ["cancelled"], "nobody follows the move: the abort itself has closed the record"
    assert control.move(endless).ended() == ("completed", None)
    assert [(record["status"], record["reason"]) for record in control.records()] == [("cancelled", "operator"), ("completed", None)]
