# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An abort when nobody follows the move any more: the record is ended by what the hosts know, and no move is started."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import errors as e
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import describe_actor
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import UUID
from ansible_collections.kvmfleet.migration.tests.unit.plugins.action.interventions import RUNNING, Desk


@pytest.fixture
def desk(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(tmp_path, monkeypatch)


def moved(desk: Desk) -> None:
    """Let the guest arrive at its destination."""
    desk.begin().complete()


@pytest.mark.parametrize("how", [{"name": "web1"}, {"name": None, "uuid": UUID}, {"name": None}])
@pytest.mark.parametrize(("status", "reason"), [(s.CANCELLED, s.REASON_CONTROLLER_LOST), (s.FAILED, None)])
def test_the_final_state_file_closes_the_record(desk: Desk, status: str, reason: t.Optional[str], how: t.Dict[str, t.Any]) -> None:
    record = desk.open_record(s.SCHEDULED, s.QUEUED)
    desk.leave_state(record.advance(status, "watcher pid 7", "It ended alone.", reason))
    named = how if how.get("name") or how.get("uuid") else {**how, "id": record.id}
    result = desk.abort(**named)
    assert (result["changed"], result["migrations"][0]["id"], desk.ended()) == (True, record.id, (status, reason))
    assert (desk.phases, desk.control.source.orders) == (["look", "prepare"], [])


@pytest.mark.parametrize("steps", [(), (s.SCHEDULED,), (s.SCHEDULED, s.QUEUED), (s.SCHEDULED, s.QUEUED, s.PREPARING)])
def test_a_move_that_never_began_is_cancelled_for_the_person_and_not_started(desk: Desk, steps: t.Tuple[str, ...]) -> None:
    desk.open_record(*steps)
    result = desk.abort()
    assert (result["changed"], desk.ended()) == (True, (s.CANCELLED, "operator"))
    assert desk.writers("abort_start") == [describe_actor({})]
    assert str(desk.writers(s.CANCELLED)[0]).endswith(f" for {describe_actor({})}")
    assert ([order["adopt"] for order in desk.control.source.orders], desk.fleet.migrations) == ([True], [])
    assert desk.guest.view().describe() == "running (booted)"
    assert FileLedger(desk.where).verify_audit() == []


def test_a_move_that_failed_unseen_keeps_its_own_result(desk: Desk) -> None:
    desk.open_record(*RUNNING)
    desk.abort()
    assert desk.ended() == (s.FAILED, None)
    assert desk.writers("abort_too_late") == [describe_actor({})]
    assert len(desk.control.records()) == 1


@pytest.mark.parametrize("missing_ok", [False, True])
def test_a_move_that_arrived_unseen_is_closed_as_completed(desk: Desk, missing_ok: bool) -> None:
    """live_migrate would be content, or move again to another host; an abort says that it came too late."""
    desk.open_record(*RUNNING)
    moved(desk)
    if missing_ok:
        assert desk.abort(missing_ok=True)["migrations"][0]["status"] == s.COMPLETED
    else:
        with pytest.raises(e.InvalidState, match=r"too late.*completed.*record is closed now") as caught:
            desk.abort()
        assert caught.value.result["migrations"][0]["status"] == s.COMPLETED
    assert desk.ended() == (s.COMPLETED, None)
    assert len(desk.fleet.migrations) == 1


def test_an_abort_never_moves_where_live_migrate_would_move_again(desk: Desk) -> None:
    """The same record that makes live_migrate start a new move ends with an abort."""
    record = desk.open_record(s.SCHEDULED, s.QUEUED)
    desk.leave_state(record.advance(s.CANCELLED, "watcher pid 7", "No heartbeat.", s.REASON_CONTROLLER_LOST))
    desk.abort()
    assert (len(desk.control.records()), desk.fleet.migrations, "start" in desk.phases) == (1, [], False)


def test_a_record_in_error_is_settled_by_asking_again(desk: Desk) -> None:
    desk.open_record(*RUNNING, s.ERROR)
    assert desk.abort()["migrations"][0]["status"] == s.FAILED
    assert desk.ended() == (s.FAILED, None)


def test_a_result_that_cannot_be_proved_fails_the_task_and_keeps_the_record(desk: Desk) -> None:
    desk.open_record(*RUNNING)
    desk.guest.enter("shut off", "crashed")
    with pytest.raises(e.Internal, match="start it where it belongs, and run the same task again") as caught:
        desk.abort()
    assert caught.value.result["migrations"][0]["status"] == s.ERROR
    assert desk.ended() == (s.ERROR, "guest_died")
    desk.guest.enter("running", "booted")
    assert desk.abort()["migrations"][0]["status"] == s.FAILED
    assert desk.ended() == (s.FAILED, None)


def test_a_settlement_that_takes_longer_than_the_wait_continues_on_the_host(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    record = desk.open_record(*RUNNING)
    monkeypatch.setattr(type(desk.control.source), "_carry_on", lambda source, mover: source._waiting.append(mover))
    with pytest.raises(e.TimedOut, match="not settled within the time of wait_seconds") as caught:
        desk.abort(wait_seconds=0)
    assert caught.value.result["migrations"][0]["id"] == record.id
    assert desk.ended() == (s.RUNNING, None)


def test_the_job_of_a_move_whose_state_file_is_lost_is_aborted_under_its_record(desk: Desk) -> None:
    """The folder /run was emptied: to the host, the job is that of another tool."""
    record = desk.open_record(*RUNNING)
    migration = desk.begin()
    result = desk.abort(id=record.id)
    assert (result["migrations"][0]["id"], desk.ended(), migration.ended.is_set()) == (record.id, (s.CANCELLED, "operator"), True)
    assert desk.writers("abort_start") == [describe_actor({})]


def test_check_mode_leaves_the_record_as_it_is(desk: Desk) -> None:
    record = desk.open_record(s.SCHEDULED, s.QUEUED)
    found = desk.abort(check=True)
    assert (found["changed"], found["migrations"][0]["id"], desk.ended()) == (True, record.id, (s.QUEUED, None))
    assert desk.phases == ["look"]


def test_forcing_does_not_end_a_record_that_is_left(desk: Desk) -> None:
    desk.open_record(*RUNNING)
    with pytest.raises(e.NotFound, match="not being migrated"):
        desk.force()
    assert desk.ended() == (s.RUNNING, None)


def test_the_record_of_another_source_and_of_an_evacuation_is_not_ended_here(desk: Desk) -> None:
    record = desk.open_record(*RUNNING, to="kvm3", source=HostRef("kvm2", None, desk.fleet.machines["kvm2"].host_uuid))
    with pytest.raises(e.NotFound):
        desk.abort()
    assert desk.ended() == (s.RUNNING, None)
    ledger = desk.control.ledger
    ledger.update_record(ledger.read_record(record.record_id), ledger.read_record(record.record_id).record.advance(s.FAILED, "bob"))
    evacuation = desk.open_record(s.PRE_MIGRATING, kind=s.EVACUATION)
    with pytest.raises(e.NotFound):
        desk.abort()
    assert desk.ended(evacuation.id) == (s.PRE_MIGRATING, None)


# -- settled by a person -----------------------------------------------------------------------------------------------


def settle(desk: Desk, record: t.Any, status: str, **more: t.Any) -> t.Dict[str, t.Any]:
    return desk.task("host", settle={"id": record.id, "status": status}, reason="seen on its console", **more)


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_settle_closes_what_has_ended_by_the_answers_of_its_hosts(desk: Desk, status: str) -> None:
    record = desk.open_record(*RUNNING)
    result = settle(desk, record, status)
    assert (result["changed"], result["records"][0]["status"], desk.ended()) == (True, "failed", (s.FAILED, None))
    assert result["diff"] == {"before": {"status": "running"}, "after": {"status": "failed"}}
    assert desk.fleet.migrations == []


def test_settle_says_where_the_hosts_contradict_the_person(desk: Desk) -> None:
    record = desk.open_record(*RUNNING)
    moved(desk)
    with pytest.raises(e.Conflict, match="hosts prove 'completed'") as caught:
        settle(desk, record, "failed")
    assert caught.value.result["records"][0]["status"] == s.COMPLETED
    assert desk.ended() == (s.COMPLETED, None)


def test_settle_gives_the_person_s_status_where_the_hosts_prove_nothing(desk: Desk) -> None:
    record = desk.open_record(*RUNNING)
    desk.guest.enter("shut off", "crashed")
    result = settle(desk, record, "failed")
    assert (result["records"][0]["status"], desk.ended()) == ("failed", (s.FAILED, None))
    details = [line["detail"] for line in result["records"][0]["history"]]
    assert any("crashed" in detail for detail in details), "what the hosts answered"
    assert "seen on its console" in details[-1]
    assert result["records"][0]["history"][-1]["by"] == describe_actor({})


@pytest.mark.parametrize("watched", [False, True])
def test_settle_refuses_a_move_that_is_in_progress(desk: Desk, watched: bool) -> None:
    record = desk.move() if watched else desk.open_record(*RUNNING)
    if not watched:
        desk.begin()
    with pytest.raises(e.InvalidState, match="still in progress"):
        settle(desk, record, "failed")
    assert (desk.ended(), desk.acts, "start" in desk.phases) == ((s.RUNNING, None), [], False)


def test_settle_in_check_mode_and_from_another_host_changes_nothing(desk: Desk) -> None:
    record = desk.open_record(*RUNNING)
    predicted = settle(desk, record, "failed", check=True)
    assert (predicted["changed"], desk.ended()) == (True, (s.RUNNING, None))
    with pytest.raises(e.InvalidState, match=r"settle the record with kvmfleet\.migration\.host on kvm1: both ask the hosts"):
        settle(desk, record, "failed", on="localhost", name="kvm1")
    assert desk.ended() == (s.RUNNING, None)
