# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A person at the control node aborts or forces a move of ours: who did it, and which move it was, are in the ledger."""

from __future__ import annotations

import os
import pathlib
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils import _module
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import errors as e
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher import intervene
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import describe_actor
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.integration.support.receiver import Receiver
from ansible_collections.kvmfleet.migration.tests.unit.fakes.domain import MIB
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import UUID
from ansible_collections.kvmfleet.migration.tests.unit.plugins.action.interventions import LOST, RUNNING, Desk

BOTH = pytest.mark.parametrize("module", ["migration_abort", "migration_force_complete"])
AWX = {"awx_user_name": "ann", "awx_job_id": 42}
UNKNOWN = str(uuid.UUID(int=99))


@pytest.fixture
def desk(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(tmp_path, monkeypatch)


# -- bad input: nothing is changed ---------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    "args",
    [
        {},
        {"name": "web1", "uuid": UUID},
        {"name": ""},
        {"name": "a/b"},
        {"uuid": "no-uuid"},
        {"id": "no-id"},
        {"id": ""},
        {"name": "web1", "wait_seconds": -1},
        {"name": "web1", "wait_seconds": float("inf")},
        {"name": "web1", "ledger": "redis://x"},
        {"name": "web1", "ledger": "/proc/version"},
        {"name": "web1", "nonsense": 1},
    ],
)
def test_invalid_options_are_refused_before_any_host_is_asked(desk: Desk, module: str, args: t.Dict[str, t.Any]) -> None:
    migration = desk.begin()
    with pytest.raises(e.InvalidArgument):
        desk.task(module, **args)
    assert (desk.phases, migration.ended.is_set(), desk.control.records()) == ([], False, [])


@pytest.mark.parametrize("args", [{"bandwidth_mib": -1}, {"bandwidth_mib": 10**7 + 1}, {"complete": False}])
def test_a_force_task_with_an_impossible_bandwidth_or_nothing_to_do_is_refused(desk: Desk, args: t.Dict[str, t.Any]) -> None:
    with pytest.raises(e.InvalidArgument, match=r"bandwidth_mib is|nothing to do"):
        desk.force(**args)
    assert desk.phases == []


@BOTH
def test_a_task_without_root_is_forbidden_before_it_connects(desk: Desk, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setattr(intervene, "require_root", _module.require_root)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(e.Forbidden, match="become"):
        desk.task(module, name="web1")
    assert desk.fleet.connections == []


@BOTH
@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"name": "nobody"}, e.NotFound),
        ({"name": "nobody", "id": UNKNOWN}, e.NotFound),
        ({"uuid": UNKNOWN}, e.NotFound),
        ({"name": "web1", "uri": "qemu+ssh://kvm2/system"}, e.NotSupported),
    ],
)
def test_an_unknown_domain_and_a_remote_uri_are_refused(desk: Desk, module: str, args: t.Dict[str, t.Any], expected: t.Type[e.KvmfleetError]) -> None:
    with pytest.raises(expected):
        desk.task(module, **args)


@BOTH
@pytest.mark.parametrize("check", [False, True])
def test_a_domain_that_does_not_move_is_not_found(desk: Desk, module: str, check: bool) -> None:
    with pytest.raises(e.NotFound, match=r"web1 is not being migrated: it is running \(booted\)") as caught:
        desk.task(module, check, name="web1")
    assert caught.value.result == {"migrations": []}
    assert not pathlib.Path(desk.where, "migrations", "open").exists() or desk.control.records() == []


@pytest.mark.parametrize("check", [False, True])
def test_an_abort_without_a_move_is_no_change_with_missing_ok(desk: Desk, check: bool) -> None:
    assert desk.abort(check=check, missing_ok=True) == {"changed": False, "migrations": []}
    assert desk.phases == ["look"]


def test_an_unknown_domain_is_not_found_even_with_missing_ok(desk: Desk) -> None:
    with pytest.raises(e.NotFound, match=r"There is no domain nobody on kvm1\. Check the name and the host"):
        desk.abort(name="nobody", missing_ok=True)


# -- who did it ----------------------------------------------------------------------------------------------------


def test_the_person_and_awx_are_in_history_audit_and_notices(desk: Desk) -> None:
    desk.move()
    desk.variables = AWX
    with Receiver() as receiver:
        desk.variables = {**AWX, "kvmfleet_notices": {"url": receiver.url}}
        aborted = desk.abort()
        assert desk.action._notices.finish() == []
        receiver.await_requests(3)
    person = describe_actor(AWX)
    assert person.endswith(", AWX user ann, job 42")
    assert (aborted["changed"], aborted["migrations"][0]["status"], aborted["migrations"][0]["reason"]) == (True, "cancelled", "operator")
    assert desk.writers("abort_start") == [person]
    (cancelled,) = desk.writers("cancelled")
    assert str(cancelled).startswith("watcher pid ")
    assert str(cancelled).endswith(f" for {person}")
    assert desk.audit()[-1]["by"] == cancelled
    told = {kind: event["data"]["by"] for kind, event in zip(receiver.kinds(), receiver.events(), strict=True)}
    assert told == {"abort_start": person, "abort_end": cancelled, "move.cancelled": cancelled}
    assert FileLedger(desk.where).verify_audit() == []


def test_forcing_names_the_person_in_history_and_audit(desk: Desk) -> None:
    desk.move("POSTCOPY", post_copy=True)
    desk.variables = {"tower_user_name": "ann"}
    forced = desk.force()
    person = describe_actor(desk.variables)
    assert person.endswith(", AWX user ann")
    assert forced["migrations"][0]["status"] == s.COMPLETED
    assert desk.ended() == (s.COMPLETED, None)
    assert desk.writers("force_complete") == [person]
    assert str(desk.writers(s.COMPLETED)[0]).endswith(f" for {person}")
    assert desk.audit()[-1]["by"].endswith(f" for {person}")


@pytest.mark.parametrize("option", ["bandwidth_mib", "bandwidth"])
def test_a_change_of_bandwidth_names_the_person_and_does_not_close_the_record(desk: Desk, option: str) -> None:
    record = desk.move()
    changed = desk.force(complete=False, **{option: 7})
    lines = [(line["status"], line["by"], line["detail"]) for line in changed["migrations"][0]["history"]]
    assert ("bandwidth", describe_actor({}), "operator; 7 MiB/s") in lines
    assert (desk.ended(record.id), desk.fleet.migrations[0].cap_bytes) == ((s.RUNNING, None), 7 * MIB)


def test_a_queued_move_is_aborted_through_its_watcher(desk: Desk) -> None:
    record = desk.open_record(s.SCHEDULED, s.QUEUED)
    journal = desk.watch(record)
    mover_acts: t.List[str] = []

    def cancel() -> None:
        for intent in intervene.control_files.take_intents(UUID, record.record_id, record.generation, str(desk.folder)):
            mover_acts.append(intent.by)
            journal.note_event(s.ABORT_START, s.REASON_OPERATOR, by=intent.by)
            journal.answer_intent(intent)
            journal.advance_status(s.CANCELLED, "It had not started.", s.REASON_OPERATOR)

    desk.fleet.clock.after(1, cancel)
    assert desk.abort()["migrations"][0]["status"] == s.CANCELLED
    assert (mover_acts, desk.ended()) == ([describe_actor({})], (s.CANCELLED, "operator"))


# -- the record ------------------------------------------------------------------------------------------------------


def test_a_task_that_follows_the_move_closes_the_record_first(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The abort leaves the owner of the record its time, and finds it closed."""
    monkeypatch.setattr("ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.job.OWNER_LAG_SECONDS", 60.0)
    record = desk.move()
    ledger, turns = desk.control.ledger, []

    def follow(seconds: float) -> None:
        turns.append(seconds)
        stored = ledger.read_record(record.record_id)
        ledger.update_record(stored, stored.record.advance(s.CANCELLED, "bob@control pid 1", "followed", s.REASON_OPERATOR))

    monkeypatch.setattr("ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.interventions.time.sleep", follow)
    assert desk.abort()["changed"]
    assert len(turns) == 1
    assert desk.writers(s.CANCELLED) == ["bob@control pid 1"]


def test_a_move_that_had_ended_closes_its_record_although_the_abort_fails(desk: Desk) -> None:
    desk.move()
    desk.fleet.migrations[0].cancel = desk.fleet.migrations[0].complete  # type: ignore[method-assign]
    with pytest.raises(e.InvalidState, match="too late") as caught:
        desk.abort()
    assert caught.value.result["migrations"][0]["status"] == s.COMPLETED
    assert desk.ended() == (s.COMPLETED, None)


def test_a_move_of_another_ledger_is_aborted_with_a_warning(desk: Desk, tmp_path: pathlib.Path) -> None:
    record = desk.move()
    told = desk.abort(ledger=str(tmp_path / "other"))
    assert told["changed"]
    assert f"no record {record.id}" in told["warnings"][0]
    assert str(record.ledger_id) in told["warnings"][0]
    assert desk.ended() == (s.RUNNING, None), "that ledger was not named"
    assert not (tmp_path / "other").exists()


@BOTH
def test_a_ledger_that_cannot_be_used_does_not_prevent_the_act(desk: Desk, module: str) -> None:
    desk.move("POSTCOPY", post_copy=True)
    told = desk.task(module, name="web1", ledger=LOST)
    assert (told["changed"], told["migrations"][0]["status"] in s.CLOSED) == (True, True)
    assert "The ledger cannot be used, so this task does not record what it does." in told["warnings"][0]


def test_a_ledger_that_is_lost_after_the_abort_is_a_warning(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.move()
    desk.before_phase = lambda phase: monkeypatch.setattr(FileLedger, "_run_reading", _refuse) if phase == "carry_out" else None
    told = desk.abort()
    assert (told["changed"], "not record what it does" in told["warnings"][0]) == (True, True)


def _refuse(*given: t.Any) -> t.Any:
    raise e.Internal("The disk of the ledger is broken.")


def test_post_copy_cannot_be_aborted_and_a_move_without_a_job_not_be_forced(desk: Desk) -> None:
    desk.move("POSTCOPY", post_copy=True)
    desk.fleet.migrations[0].start_post_copy()
    with pytest.raises(e.NotSupported, match="post-copy") as caught:
        desk.abort()
    assert caught.value.result["migrations"][0]["status"] == s.RUNNING_POST_COPY
    assert desk.phases == ["look"]


@pytest.mark.parametrize("status", [s.QUEUED, s.PREPARING])
def test_a_move_without_a_job_cannot_be_forced(desk: Desk, status: str) -> None:
    desk.watch(desk.open_record(*RUNNING[: RUNNING.index(status) + 1]))
    with pytest.raises(e.InvalidState, match=f"is {status}: there is no job"):
        desk.force()
    assert desk.phases == ["look"]


@BOTH
def test_check_mode_only_looks(desk: Desk, module: str) -> None:
    record = desk.move()
    found = desk.task(module, check=True, name="web1")
    assert (found["changed"], [one["id"] for one in found["migrations"]]) == (True, [record.id])
    assert (desk.phases, desk.acts, desk.ended()) == (["look"], [], (s.RUNNING, None))


# -- by id -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", [{"name": None}, {"name": "web1"}, {"name": None, "uuid": UUID.upper()}])
def test_exactly_the_move_of_the_id_is_aborted(desk: Desk, named: t.Dict[str, t.Any]) -> None:
    record = desk.move()
    aborted = desk.abort(**named, id=str(record.id).upper())
    assert (aborted["migrations"][0]["id"], desk.ended()) == (record.id, (s.CANCELLED, "operator"))


@BOTH
@pytest.mark.parametrize("missing_ok", [False, True])
def test_a_newer_move_is_never_hit_and_is_named(desk: Desk, module: str, missing_ok: bool) -> None:
    looked_at = desk.open_record(s.SCHEDULED)
    ledger = desk.control.ledger
    ledger.update_record(ledger.read_record(looked_at.record_id), looked_at.advance(s.CANCELLED, "bob"))
    newer = desk.move()
    more = {"missing_ok": True} if missing_ok and module == "migration_abort" else {}
    with pytest.raises(e.Conflict, match=str(newer.id)) as caught:
        desk.task(module, name="web1", id=looked_at.id, **more)
    assert caught.value.result["migrations"][0]["id"] == newer.id
    assert (desk.phases, desk.acts, desk.ended(newer.id)) == (["look"], [], (s.RUNNING, None))


def test_a_move_that_began_after_the_look_is_not_hit(desk: Desk) -> None:
    """Between the look of the task and its act, the move ends and another one begins."""
    first = desk.move()
    second: t.List[t.Any] = []

    def swap(phase: str) -> None:
        if phase == "carry_out":
            desk.fleet.migrations[0].cancel()
            desk.fleet.clock.sleep(3)
            ledger = desk.control.ledger
            stored = ledger.read_record(first.record_id)
            ledger.update_record(stored, stored.record.advance(s.CANCELLED, "bob"))
            second.append(desk.move())

    desk.before_phase = swap
    with pytest.raises(e.Conflict, match="another task has begun") as caught:
        desk.abort()
    assert str(second[0].id) in str(caught.value)
    assert desk.ended(second[0].id) == (s.RUNNING, None)
    assert not desk.fleet.migrations[1].ended.is_set()


def test_a_foreign_job_is_not_the_move_of_an_id(desk: Desk) -> None:
    closed = desk.open_record(s.SCHEDULED)
    ledger = desk.control.ledger
    ledger.update_record(ledger.read_record(closed.record_id), closed.advance(s.CANCELLED, "bob"))
    migration = desk.begin()
    with pytest.raises(e.Conflict, match="a tool that is not of this collection"):
        desk.abort(id=closed.id)
    assert not migration.ended.is_set()


@BOTH
def test_the_id_of_a_closed_record_is_an_invalid_state(desk: Desk, module: str) -> None:
    record = desk.open_record(s.SCHEDULED)
    ledger = desk.control.ledger
    ledger.update_record(ledger.read_record(record.record_id), record.advance(s.FAILED, "bob", "The cable was cut."))
    with pytest.raises(e.InvalidState, match=r"has ended: failed\. The cable was cut\."):
        desk.task(module, id=record.id)
    if module == "migration_abort":
        assert desk.task(module, id=record.id, missing_ok=True) == {"changed": False, "migrations": []}


@BOTH
def test_an_unknown_id_and_one_of_another_ledger_are_not_found(desk: Desk, module: str, tmp_path: pathlib.Path) -> None:
    record = desk.move()
    other = str(FileLedger(str(tmp_path / "other")).name)
    for args in ({"id": UNKNOWN}, {"name": "web1", "id": UNKNOWN}, {"id": record.id, "ledger": other}, {"id": record.id, "ledger": str(tmp_path / "none")}):
        with pytest.raises(e.NotFound, match=r"has no record|no ledger"):
            desk.task(module, **args)
    assert (desk.acts, desk.ended()) == ([], (s.RUNNING, None))
    assert not (tmp_path / "none").exists()


def test_an_id_from_another_source_names_the_host_to_run_on(desk: Desk) -> None:
    record = desk.open_record(*RUNNING, to="kvm3", source=HostRef("kvm2", None, desk.fleet.machines["kvm2"].host_uuid))
    with pytest.raises(e.InvalidArgument, match="Run the task on kvm2"):
        desk.abort(name=None, id=record.id)
    assert desk.ended() == (s.RUNNING, None)


def test_an_id_of_another_domain_or_of_an_evacuation_is_refused(desk: Desk) -> None:
    desk.fleet.guest("db1", UNKNOWN)
    record = desk.open_record(*RUNNING)
    for args in ({"name": "db1"}, {"name": None, "uuid": UNKNOWN}):
        with pytest.raises(e.InvalidArgument, match="is about domain web1"):
            desk.abort(id=record.id, **args)
    ledger = desk.control.ledger
    ledger.update_record(ledger.read_record(record.record_id), ledger.read_record(record.record_id).record.advance(s.FAILED, "bob"))
    evacuation = desk.open_record(kind=s.EVACUATION)
    with pytest.raises(e.InvalidArgument, match="is of the type evacuation"):
        desk.abort(name=None, id=evacuation.id)


def test_an_id_alone_needs_the_ledger_and_with_a_name_the_host_knows_it(desk: Desk) -> None:
    record = desk.move()
    with pytest.raises(e.Unreachable, match="lost:2379"):
        desk.abort(name=None, id=record.id, ledger=LOST)
    assert desk.phases == []
    with pytest.raises(e.Conflict, match=str(record.id)) as refused:
        desk.abort(id=UNKNOWN, ledger=LOST)
    assert "cannot be used" in refused.value.result["warnings"][0]
    assert desk.abort(id=record.id, ledger=LOST)["changed"]
