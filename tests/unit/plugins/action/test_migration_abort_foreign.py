# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Jobs of other tools that a person aborts or forces: a record is opened before, and closed with the outcome, also by a later task."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import errors as e
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import describe_actor
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.integration.support.receiver import Receiver
from ansible_collections.kvmfleet.migration.tests.unit.fakes.domain import MIB
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import UUID
from ansible_collections.kvmfleet.migration.tests.unit.plugins.action.interventions import LOST, Desk


@pytest.fixture
def desk(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(tmp_path, monkeypatch)


class Killed(BaseException):
    """The task is killed: no code of it runs any more."""


def kill_at(desk: Desk, phase: str, after: t.Callable[[], object] = lambda: None) -> None:
    def kill(now: str) -> None:
        if now == phase:
            after()
            raise Killed

    desk.before_phase = kill


def test_a_record_is_opened_before_the_abort_and_closed_after_it(desk: Desk) -> None:
    migration = desk.begin()
    seen: t.List[MoveRecord] = []
    desk.before_phase = lambda phase: seen.append(desk.record()) if phase == "carry_out" else None
    with Receiver() as receiver:
        desk.variables = {"kvmfleet_notices": {"url": receiver.url}}
        result = desk.abort()
        assert desk.action._notices.finish() == []
        receiver.await_requests(4)
    assert [(one.status, one.is_foreign, one.is_aborting) for one in seen] == [(s.RUNNING, True, True)]
    assert (result["changed"], result["migrations"][0]["id"], migration.ended.is_set()) == (True, seen[0].id, True)
    record, person = desk.record(), describe_actor({})
    assert (record.status, record.reason, record.source.host, record.destination.host) == (s.CANCELLED, "operator", "kvm1", None)
    assert {line.writer for line in record.history} == {person}
    assert [act.act for act in record.acts] == ["abort: operator"]
    assert receiver.kinds() == ["move.started", "abort_start", "abort_end", "move.cancelled"]
    assert {event["data"]["by"] for event in receiver.events()} == {person}
    assert [(line["to"], line["by"]) for line in desk.audit()] == [("running", person), ("cancelled", person)]
    assert FileLedger(desk.where).verify_audit() == []
    document = FileLedger(desk.where).read_domain(UUID)
    assert document
    assert [host.host for host in document.domain.possible_hosts] == ["kvm1"]


def test_forcing_leaves_a_record_with_the_host_where_the_guest_arrived(desk: Desk) -> None:
    migration = desk.begin()
    result = desk.force()
    record, person = desk.record(), describe_actor({})
    assert migration.is_over
    assert (result["migrations"][0]["id"], record.status, record.destination.host) == (record.id, s.COMPLETED, "kvm2")
    assert desk.writers("force_complete") == [person]
    assert record.history[-1].writer == person
    document = FileLedger(desk.where).read_domain(UUID)
    assert document
    assert [host.host for host in document.domain.possible_hosts] == ["kvm2"]


def test_a_force_task_that_ends_while_the_guest_is_suspended_leaves_a_record_of_that(desk: Desk) -> None:
    migration = desk.begin()
    desk.fleet.source.refuse["set_max_downtime_ms"] = e.TimedOut("job lock")
    migration.link_bytes = 10 * MIB
    with pytest.raises(e.TimedOut, match="The guest is paused on kvm1 until the migration ends") as caught:
        desk.force(wait_seconds=20)
    left = desk.record()
    assert (left.status, [act.act for act in left.acts]) == (s.RUNNING, ["force: post_copy", "force: bandwidth", "force: downtime", "force: suspend"])
    assert "The guest is paused on kvm1" in left.last_detail
    assert caught.value.result["migrations"] == [encode(left)]
    desk.fleet.clock.sleep(180)
    with pytest.raises(e.NotFound):
        desk.force()
    assert desk.abort(missing_ok=True)["changed"]
    assert (desk.record().id, desk.record().status, desk.record().destination.host) == (left.id, s.COMPLETED, "kvm2")


def test_a_guest_that_arrived_on_an_unknown_host_keeps_its_possible_hosts(desk: Desk) -> None:
    desk.begin()

    def take_elsewhere(phase: str) -> None:
        if phase == "prepare":
            desk.fleet.destination.domains.pop(UUID)
            desk.fleet.guest(state="shut off", reason="migrated")

    desk.before_phase = take_elsewhere
    desk.force()
    record, document = desk.record(), FileLedger(desk.where).read_domain(UUID)
    assert (record.status, record.destination.is_known) == (s.COMPLETED, False)
    assert document
    assert [host.host for host in document.domain.possible_hosts] == ["kvm1"]


def test_an_abort_that_came_too_late_closes_the_record_as_completed(desk: Desk) -> None:
    migration = desk.begin()
    migration.cancel = migration.complete
    with pytest.raises(e.InvalidState, match="too late") as caught:
        desk.abort()
    assert caught.value.result["migrations"][0]["status"] == s.COMPLETED
    assert (desk.record().status, desk.record().destination.host) == (s.COMPLETED, "kvm2")


@pytest.mark.parametrize("error", [e.NotSupported("libvirt cannot abort this job"), e.TimedOut("the job lock is held")])
def test_a_refused_abort_leaves_a_record_that_a_later_abort_closes(desk: Desk, error: e.KvmfleetError) -> None:
    desk.begin()
    desk.fleet.source.refuse["abort"] = error
    with pytest.raises(type(error)) as caught:
        desk.abort()
    first = desk.record()
    assert (first.status, caught.value.result["migrations"][0]["id"]) == (s.RUNNING, first.id)
    assert any(line.status == "abort_failed" and error.message in str(line.detail) for line in first.history)
    desk.fleet.source.refuse.clear()
    assert desk.abort()["migrations"][0]["id"] == first.id
    assert desk.ended() == (s.CANCELLED, "operator")


# -- the task is killed between the record and its end ---------------------------------------------------------------


def test_a_record_that_was_opened_in_vain_is_used_by_the_next_abort(desk: Desk) -> None:
    migration = desk.begin()
    kill_at(desk, "carry_out")
    with pytest.raises(Killed):
        desk.abort()
    left = desk.record()
    assert (left.status, migration.ended.is_set()) == (s.RUNNING, False)
    desk.before_phase = lambda phase: None
    for how in ({"check": True}, {"id": left.id}):
        assert desk.abort(**how)["changed"]
    assert (desk.record().id, desk.ended(), migration.ended.is_set()) == (left.id, (s.CANCELLED, "operator"), True)


NEXT: t.Dict[str, t.Callable[[Desk, MoveRecord], object]] = {
    "abort": lambda desk, left: desk.abort(),
    "abort by id": lambda desk, left: desk.abort(name=None, id=left.id),
    "settle": lambda desk, left: desk.task("host", settle={"id": left.id, "status": "cancelled"}, reason="seen"),
    "live_migrate": lambda desk, left: desk.control.run(name="web1", destination="kvm3"),
}


@pytest.mark.parametrize("how", sorted(NEXT))
def test_the_next_task_settles_an_abort_whose_task_was_killed(desk: Desk, how: str) -> None:
    desk.guest.dirty_rate_bytes = 0
    migration = desk.begin()
    kill_at(desk, "carry_out", migration.cancel)
    with pytest.raises(Killed):
        desk.abort()
    left = desk.record()
    assert left.status == s.RUNNING
    desk.before_phase = lambda phase: None
    NEXT[how](desk, left)
    assert desk.ended(left.id) == (s.CANCELLED, "operator")
    moves = [record.status for record in desk.control.records() if record.id != left.id]
    assert moves == ([s.COMPLETED] if how == "live_migrate" else []), "only live_migrate moves"


def test_the_next_task_settles_a_job_that_arrived_after_its_task_was_killed(desk: Desk) -> None:
    migration = desk.begin()
    kill_at(desk, "carry_out", migration.complete)
    with pytest.raises(Killed):
        desk.abort()
    desk.before_phase = lambda phase: None
    with pytest.raises(e.InvalidState, match="too late"):
        desk.abort()
    assert (desk.record().status, desk.record().destination.host) == (s.COMPLETED, "kvm2")


def test_a_job_in_progress_under_a_left_record_is_neither_moved_nor_settled(desk: Desk) -> None:
    desk.begin()
    kill_at(desk, "carry_out")
    with pytest.raises(Killed):
        desk.abort()
    left = desk.record()
    desk.before_phase = lambda phase: None
    (job,) = desk.control.run(name="web1", destination="kvm3")
    assert isinstance(job.error, e.Conflict)
    assert "another tool" in str(job.error)
    with pytest.raises(e.Conflict, match="another tool"):
        desk.task("host", settle={"id": left.id, "status": "failed"}, reason="seen")
    assert desk.ended() == (s.RUNNING, None)


# -- without a record --------------------------------------------------------------------------------------------------


def test_a_change_of_bandwidth_leaves_no_record(desk: Desk) -> None:
    migration = desk.begin()
    assert desk.force(complete=False, bandwidth_mib=7)["changed"]
    assert (migration.cap_bytes, desk.control.records()) == (7 * MIB, [])


@pytest.mark.parametrize("module", ["migration_abort", "migration_force_complete"])
def test_a_foreign_job_is_ended_without_a_ledger_that_can_be_used(desk: Desk, module: str) -> None:
    migration = desk.begin()
    told = desk.task(module, name="web1", ledger=LOST)
    assert (told["changed"], told["migrations"][0]["id"], migration.is_over or migration.ended.is_set()) == (True, None, True)
    assert "does not record" in told["warnings"][0]


def test_a_missing_ledger_is_created_for_the_record(desk: Desk, tmp_path: pathlib.Path) -> None:
    desk.begin()
    desk.abort(ledger=str(tmp_path / "new"))
    assert [record.status for record in FileLedger(str(tmp_path / "new")).list_records()] == [s.CANCELLED]


@pytest.mark.parametrize("module", ["migration_abort", "migration_force_complete"])
def test_no_ledger_is_created_for_a_job_on_a_host_that_belongs_to_another_one(desk: Desk, module: str, tmp_path: pathlib.Path) -> None:
    """An empty one would hide that the right one was moved away, and be in its way when it is moved back."""
    migration = desk.begin()
    desk.ledger_id = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"
    done = desk.task(module, name="web1", ledger=str(tmp_path / "new"))
    assert (done["changed"], migration.is_over or migration.ended.is_set(), (tmp_path / "new").exists()) == (True, True, False)
    assert f"does not record what it does. kvm1 was protected under the ledger {desk.ledger_id}" in done["warnings"][0]


def test_a_domain_that_an_evacuation_holds_is_aborted_without_a_record_of_its_own(desk: Desk) -> None:
    evacuation = desk.open_record(s.PRE_MIGRATING, kind=s.EVACUATION)
    migration = desk.begin()
    told = desk.abort()
    assert migration.ended.is_set()
    assert str(evacuation.id) in told["warnings"][0]
    assert desk.ended() == (s.PRE_MIGRATING, None)


def test_check_mode_opens_no_record(desk: Desk) -> None:
    desk.begin()
    found = desk.abort(check=True)
    assert (found["migrations"][0]["id"], desk.control.records(), desk.phases) == (None, [], ["look"])
