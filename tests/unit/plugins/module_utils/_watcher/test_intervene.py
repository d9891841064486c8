# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Aborting and forcing from another session: a watcher is played by the clock, and libvirt by the fake hosts."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import signal
import time
import types
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import (
    Aborted,
    Conflict,
    InvalidState,
    KvmfleetError,
    NotFound,
    NotSupported,
    TimedOut,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Connection
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import read_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import StartOrder, StateFile
from ansible_collections.kvmfleet.migration.plugins.module_utils._run_folder import state_path, write_json
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher import intervene
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.control_files import ABORT, BANDWIDTH, FORCE_COMPLETE, take_intents
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.foreign import ForcingOrder, is_being_forced, read_forcing
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.journal import Journal
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.run import start_watcher
from ansible_collections.kvmfleet.migration.tests.unit.fakes.domain import MIB
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.fakes.migration import FakeMigration
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._watcher.moves import (
    RUN,
    ForcingInStep,
    acts,
    journal_of,
    mover_of,
    order_of,
    record_of,
    state_in,
)

TO_2 = "qemu+tcp://kvm2/system"
DEAD = {"pid": 1, "start_ticks": -1, "run_id": "gone"}


class Scene:
    """A guest that does not converge, and somebody who wants something of its move."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.told: t.Dict[str, t.Any] = {}
        self.fleet = FakeFleet(link_mib=100)
        self.guest = self.fleet.guest(dirty_bytes=512 * MIB, dirty_rate_bytes=500 * MIB)

    def begin(self, *flags: str) -> FakeMigration:
        migration = self.fleet.begin_elsewhere(UUID, *flags)
        self.fleet.clock.sleep(1)
        return migration

    def intervention(self, act: str, wait_seconds: float = 10, bandwidth_mib: t.Optional[int] = None) -> intervene.Intervention:
        host = self.fleet.open(LOCAL_URI)
        info = host.find_domain(uuid=UUID)
        return intervene.Intervention(host, self.fleet.open, info, act, "ann@control", wait_seconds, self, bandwidth_mib, str(self.folder))

    def start_watcher(self, order: StartOrder) -> t.Dict[str, t.Any]:
        return {**start_watcher([order], RUN, 1, self.fleet.open, str(self.folder)), **self.told}

    def start_forcing(self, order: ForcingOrder) -> t.Dict[str, t.Any]:
        self.forcing = ForcingInStep(order, self.fleet, self.folder)
        return self.told

    def watched(self, status: str = s.RUNNING) -> Journal:
        """The move of ours, with this process as its watcher."""
        journal = journal_of(record_of(status=status), self.folder)
        journal.write_state()
        return journal

    def answer_intents(self, journal: Journal, error: t.Optional[KvmfleetError] = None) -> t.List[t.Optional[int]]:
        """Take what was left, as a watcher does, and answer it."""
        taken = take_intents(UUID, str(journal.record.id), journal.record.generation, str(self.folder))
        for intent in taken:
            journal.answer_intent(intent, error)
        return [intent.bandwidth_mib for intent in taken]

    def after(self, seconds: float, act: t.Callable[[], object]) -> None:
        self.fleet.clock.after(seconds, act)

    def list_intents(self) -> t.List[pathlib.Path]:
        return list(self.folder.glob("*.intent"))


def read_forced(scene: Scene) -> StateFile:
    state = read_forcing(UUID, str(scene.folder))
    assert state
    return state


@pytest.fixture
def scene(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    (tmp_path / "run").mkdir(mode=0o700)
    scene = Scene(tmp_path / "run")
    monkeypatch.setattr(intervene, "time", types.SimpleNamespace(monotonic=scene.fleet.clock, sleep=scene.fleet.clock.sleep))
    return scene


# -- whether there is anything to do -------------------------------------------------------------------------------


@pytest.mark.parametrize("act", [ABORT, FORCE_COMPLETE, BANDWIDTH])
def test_a_domain_that_is_not_moving_is_not_found(scene: Scene, act: str) -> None:
    intervention = scene.intervention(act)
    for ask in (intervention.find_migration, intervention.carry_out):
        with pytest.raises(NotFound, match=r"web1 is not being migrated: it is running \(booted\)"):
            ask()


def test_an_abort_in_post_copy_is_not_supported(scene: Scene) -> None:
    scene.watched(s.RUNNING_POST_COPY)
    scene.begin("POSTCOPY").start_post_copy()
    with pytest.raises(NotSupported) as caught:
        scene.intervention(ABORT).carry_out()
    assert caught.value.result["migrations"][0]["status"] == s.RUNNING_POST_COPY
    assert (scene.list_intents(), scene.fleet.source.calls) == ([], [])


@pytest.mark.parametrize("act", [FORCE_COMPLETE, BANDWIDTH])
@pytest.mark.parametrize("status", [s.QUEUED, s.PREPARING])
def test_a_move_without_a_job_cannot_be_forced(scene: Scene, act: str, status: str) -> None:
    scene.watched(status)
    with pytest.raises(InvalidState, match=f"is {status}: there is no job"):
        scene.intervention(act).carry_out()
    assert scene.list_intents() == []


@pytest.mark.parametrize("status", [s.QUEUED, s.PREPARING, s.RUNNING])
def test_a_queued_preparing_or_running_move_can_be_aborted(scene: Scene, status: str) -> None:
    scene.watched(status)
    if status == s.RUNNING:
        scene.begin()
    assert scene.intervention(ABORT).find_migration().record.status == status
    assert scene.list_intents() == [], "looking changes nothing"


def test_a_running_move_that_may_be_switched_to_post_copy_can_be_aborted(scene: Scene) -> None:
    journal_of(record_of(status=s.RUNNING, post_copy=True), scene.folder).write_state()
    scene.begin("POSTCOPY")
    assert scene.intervention(ABORT).find_migration().record.status == s.RUNNING


# -- a move of ours ------------------------------------------------------------------------------------------------


def test_an_abort_is_requested_from_the_watcher_and_awaited(scene: Scene) -> None:
    journal = scene.watched()
    scene.begin()
    began = scene.fleet.clock()
    scene.after(1, lambda: scene.answer_intents(journal))
    scene.after(3, lambda: journal.advance_status(s.CANCELLED, "back", s.REASON_OPERATOR))
    record = scene.intervention(ABORT).carry_out().record
    assert (record.status, record.reason) == (s.CANCELLED, "operator")
    assert scene.fleet.clock() - began == pytest.approx(3, abs=0.5)
    assert scene.fleet.source.calls == [], "the watcher acts, nobody else"


def test_forcing_waits_for_the_end_of_the_move(scene: Scene) -> None:
    journal = scene.watched()
    scene.begin()
    scene.after(1, lambda: scene.answer_intents(journal))
    scene.after(3, lambda: journal.advance_status(s.COMPLETED, "arrived"))
    assert scene.intervention(FORCE_COMPLETE).carry_out().record.status == s.COMPLETED


def test_a_change_of_bandwidth_waits_only_for_its_answer(scene: Scene) -> None:
    journal = scene.watched()
    scene.begin()
    given: t.List[t.Optional[int]] = []
    scene.after(1, lambda: given.extend(scene.answer_intents(journal)))
    assert scene.intervention(BANDWIDTH, bandwidth_mib=7).carry_out().record.status == s.RUNNING
    assert given == [7]


@pytest.mark.parametrize("error", [NotSupported("in post-copy by now"), InvalidState("it is finishing")])
def test_a_refusal_of_the_watcher_fails_the_task(scene: Scene, error: KvmfleetError) -> None:
    journal = scene.watched()
    scene.begin()
    scene.after(1, lambda: scene.answer_intents(journal, error))
    with pytest.raises(type(error), match=error.message):
        scene.intervention(ABORT).carry_out()


def test_an_intent_without_an_answer_is_withdrawn_at_the_timeout(scene: Scene) -> None:
    scene.watched()
    scene.begin()
    with pytest.raises(TimedOut, match="Nothing was changed") as caught:
        scene.intervention(ABORT, wait_seconds=3).carry_out()
    assert ([one["status"] for one in caught.value.result["migrations"]], scene.list_intents()) == ([s.RUNNING], [])


def test_a_watcher_gets_the_request_of_a_task_that_does_not_wait(scene: Scene) -> None:
    journal = scene.watched()
    scene.begin()
    scene.after(0.5, lambda: scene.answer_intents(journal))
    with pytest.raises(TimedOut, match="The watcher has the request and continues") as caught:
        scene.intervention(ABORT, wait_seconds=0).carry_out()
    assert caught.value.result["changed"] is True


def test_a_move_that_does_not_end_in_time_is_a_timeout_and_continues(scene: Scene) -> None:
    journal = scene.watched()
    scene.begin()
    scene.after(1, lambda: scene.answer_intents(journal))
    with pytest.raises(TimedOut, match="continues") as caught:
        scene.intervention(FORCE_COMPLETE, wait_seconds=5).carry_out()
    assert ([one["status"] for one in caught.value.result["migrations"]], caught.value.result["changed"]) == ([s.RUNNING], True)


@pytest.mark.parametrize("heeded", [False, True])
def test_an_abort_that_comes_too_late_is_refused(scene: Scene, heeded: bool) -> None:
    journal = scene.watched()
    scene.begin()
    if heeded:
        scene.after(1, lambda: scene.answer_intents(journal))
    scene.after(2, lambda: journal.advance_status(s.COMPLETED, "It arrived."))
    with pytest.raises(InvalidState, match=r"too late.*completed\. It arrived") as caught:
        scene.intervention(ABORT).carry_out()
    assert caught.value.result["migrations"][0]["status"] == s.COMPLETED
    assert scene.list_intents() == []


def test_an_abort_while_the_move_is_settled_names_the_silent_host_at_once(scene: Scene) -> None:
    journal = scene.watched()
    journal.wait_for("is being settled: no answer from the destination kvm2 since now; queries continue for up to 600 s")
    began = scene.fleet.clock()
    with pytest.raises(InvalidState, match="has ended, and the migration is being settled: no answer from the destination kvm2") as caught:
        scene.intervention(ABORT, wait_seconds=30).carry_out()
    assert caught.value.result["migrations"][0]["status"] == s.RUNNING
    assert (scene.fleet.clock() - began < 1, scene.list_intents()) == (True, [])


def test_an_intent_that_meets_a_settlement_is_withdrawn(scene: Scene) -> None:
    """The job ends, and the destination becomes silent, after the intent was left."""
    journal = scene.watched()
    scene.begin()
    scene.after(2, lambda: journal.wait_for("is being settled: no answer from the destination kvm2"))
    with pytest.raises(InvalidState, match="is being settled"):
        scene.intervention(ABORT, wait_seconds=30).carry_out()
    assert scene.list_intents() == []


def test_a_move_that_waits_for_its_next_login_still_takes_an_abort(scene: Scene) -> None:
    journal = scene.watched(s.PREPARING)
    journal.wait_for("waits for attempt 2 of 5: kvm2 dropped the login of this host's libvirt")
    scene.after(1, lambda: scene.answer_intents(journal))
    scene.after(2, lambda: journal.advance_status(s.CANCELLED, "back", s.REASON_OPERATOR))
    assert scene.intervention(ABORT).carry_out().record.status == s.CANCELLED


def test_only_the_move_that_was_looked_at_is_touched(scene: Scene) -> None:
    journal = scene.watched()
    scene.begin()
    for other in (None, "2f6d1d3e-93a4-4f6e-8f0e-4f5d0f6f9a10"):
        intervention = dataclasses.replace(scene.intervention(ABORT), record_id=other)
        with pytest.raises(Conflict, match=f"being moved for record {journal.record.id} now") as caught:
            intervention.carry_out()
        assert caught.value.result["migrations"][0]["id"] == journal.record.id
    assert (scene.list_intents(), scene.fleet.source.calls) == ([], [])


def test_a_watcher_that_dies_before_its_answer_is_reported(scene: Scene) -> None:
    journal = scene.watched()
    scene.begin()
    scene.after(1, lambda: write_json(state_path(UUID, str(scene.folder)), {**encode(journal.record), "watcher": DEAD, "answers": {}}))
    with pytest.raises(InvalidState, match="died before it answered; the migration is running"):
        scene.intervention(ABORT).carry_out()
    assert scene.list_intents() == []


def test_an_abort_of_a_move_without_a_watcher_starts_a_new_one(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervene, "time", time)
    record = {**encode(record_of(status=s.RUNNING).intend("migrate")), "connection": {"destination_uri": TO_2}}
    write_json(state_path(UUID, str(scene.folder)), {**record, "watcher": DEAD, "answers": {}})
    scene.begin()
    ended = scene.intervention(ABORT, wait_seconds=30).carry_out().record
    assert (ended.status, ended.reason, ended.generation) == (s.CANCELLED, "operator", 2)
    assert acts(ended) == ["migrate", "abort: operator"]
    assert "running (booted) on the source" in str(ended.history[-1].detail)
    assert state_in(scene.folder)["watcher"] != DEAD


def test_a_new_watcher_that_could_not_leave_the_session_is_a_warning(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervene, "time", time)
    scene.told = {"session_warning": "It stays."}
    record = {**encode(record_of(status=s.RUNNING)), "connection": {"destination_uri": TO_2}}
    write_json(state_path(UUID, str(scene.folder)), {**record, "watcher": DEAD, "answers": {}})
    scene.begin()
    intervention = scene.intervention(ABORT, wait_seconds=30)
    intervention.carry_out()
    assert intervention.notes == ["It stays."]


def test_a_new_watcher_can_recover_a_broken_post_copy(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    order = order_of(record_of(status=s.RUNNING_POST_COPY).intend("migrate"), flags=["POSTCOPY"])
    connection = Connection(order.destination_uri, flags=order.flags, parameters={"bandwidth.postcopy": 50})
    journal_of(dataclasses.replace(order.record, connection=connection), scene.folder).write_state()
    scene.begin("POSTCOPY").start_post_copy()
    given: t.List[StartOrder] = []
    monkeypatch.setattr(scene, "start_watcher", lambda order: given.append(order) or {"refused": {}})
    intervention = scene.intervention(BANDWIDTH, bandwidth_mib=7)
    intervention._give_watcher(intervention.find_migration().record)
    assert (given[0].flags, given[0].parameters) == (order.flags, {"bandwidth.postcopy": 50})
    scene.fleet.migrations[0].break_post_copy()
    mover_of(scene.fleet, given[0], scene.folder).run()
    assert state_in(scene.folder)["status"] == s.COMPLETED


# -- a foreign job -------------------------------------------------------------------------------------------------


def test_a_foreign_job_is_aborted_through_libvirt(scene: Scene) -> None:
    migration = scene.begin()
    record = scene.intervention(ABORT).carry_out().record
    assert (record.status, record.reason) == (s.CANCELLED, "operator")
    assert [(line.status, line.writer) for line in record.history[1:]] == [("abort_end", "ann@control"), (s.CANCELLED, "ann@control")]
    assert migration.ended.is_set()
    assert scene.guest.view().describe() == "running (booted)"
    assert list(scene.folder.iterdir()) == [], "it has no state file of ours"


@pytest.mark.parametrize("error", [InvalidState("no job is active"), NotSupported("in post-copy")])
def test_a_refusal_of_libvirt_fails_the_task(scene: Scene, error: KvmfleetError) -> None:
    scene.begin()
    scene.fleet.source.refuse["abort"] = error
    with pytest.raises(type(error)):
        scene.intervention(ABORT).carry_out()


def test_an_abort_of_a_foreign_job_that_arrives_is_too_late(scene: Scene) -> None:
    migration = scene.begin()
    migration.cancel = migration.complete  # type: ignore[method-assign]
    with pytest.raises(InvalidState, match="too late"):
        scene.intervention(ABORT).carry_out()


def test_an_abort_of_a_foreign_job_that_does_not_end_is_a_timeout(scene: Scene) -> None:
    migration = scene.begin()
    migration.cancel = lambda: None  # type: ignore[method-assign]
    with pytest.raises(TimedOut, match="still has its job 3 s after") as caught:
        scene.intervention(ABORT, wait_seconds=3).carry_out()
    assert ([one["status"] for one in caught.value.result["migrations"]], caught.value.result["changed"]) == ([s.RUNNING], True)


def test_the_bandwidth_of_a_foreign_job_is_changed(scene: Scene) -> None:
    migration = scene.begin()
    scene.intervention(BANDWIDTH, bandwidth_mib=7).carry_out()
    assert migration.cap_bytes == 7 * MIB
    assert not migration.ended.is_set()


def test_a_foreign_job_with_the_post_copy_flag_is_forced_by_post_copy(scene: Scene) -> None:
    migration = scene.begin("POSTCOPY")
    scene.intervention(FORCE_COMPLETE, wait_seconds=60).carry_out()
    assert migration.is_over
    assert [call.split()[0] for call in scene.fleet.source.calls] == ["start_post_copy"]


def test_a_foreign_job_without_the_post_copy_flag_is_forced_by_the_other_rungs(scene: Scene) -> None:
    migration = scene.begin()
    scene.intervention(FORCE_COMPLETE, wait_seconds=60).carry_out()
    assert migration.is_over
    asked = [call.split()[0] for call in scene.fleet.source.calls]
    assert asked[0] == "start_post_copy"
    assert asked[1:3] == ["set_bandwidth_mib", "set_max_downtime_ms"]
    assert scene.fleet.destination.domains[UUID].view().describe() == "running (migrated)"


@pytest.mark.parametrize(
    ("xml", "why"),
    [
        ("<policy><post_copy>false</post_copy></policy>", "its policy forbids post-copy"),
        ("<policy><post_copy>False</post_copy></policy>", "its policy forbids post-copy"),
        ("<policy><post_copy>maybe</post_copy></policy>", "its policy cannot be read (post_copy)"),
        ("<policy>", "its policy cannot be read (policy)"),
        ("<policy><profile>database</profile></policy>", "its profile 'database' is defined in the inventory, which this host cannot read"),
        ("<policy><auto_converge>true</auto_converge></policy>", "its policy requests auto-converge"),
    ],
)
def test_what_forbids_post_copy_or_cannot_be_read_leaves_a_foreign_job_the_other_rungs(scene: Scene, xml: str, why: str) -> None:
    migration = scene.begin("POSTCOPY")
    intervention = scene.intervention(FORCE_COMPLETE, wait_seconds=60)
    intervention.info = dataclasses.replace(intervention.info, policy_xml=xml)
    intervention.carry_out()
    assert migration.is_over
    assert [call.split()[0] for call in scene.fleet.source.calls][:2] == ["set_bandwidth_mib", "set_max_downtime_ms"]
    assert "start_post_copy" not in " ".join(scene.fleet.source.calls)
    assert intervention.notes == [f"The migration of domain web1 is not switched to post-copy: {why}."]


@pytest.mark.parametrize("xml", ["", "<policy><post_copy>yes</post_copy></policy>", "<policy><priority>high</priority></policy>"])
def test_a_policy_that_does_not_forbid_post_copy_permits_it_for_a_foreign_job(scene: Scene, xml: str) -> None:
    scene.begin("POSTCOPY")
    intervention = scene.intervention(FORCE_COMPLETE, wait_seconds=60)
    intervention.info = dataclasses.replace(intervention.info, policy_xml=xml)
    intervention.carry_out()
    assert intervention.notes == []
    assert [call.split()[0] for call in scene.fleet.source.calls] == ["start_post_copy"]


@pytest.mark.parametrize(("xml", "longest"), [("", 30), ("<policy><force_pause_max_seconds>5</force_pause_max_seconds></policy>", 5)])
def test_the_longest_forced_pause_of_the_domain_counts_for_a_foreign_job(scene: Scene, xml: str, longest: int) -> None:
    scene.begin("POSTCOPY")
    intervention = scene.intervention(FORCE_COMPLETE, wait_seconds=60)
    intervention.info = dataclasses.replace(intervention.info, policy_xml=xml)
    intervention.carry_out()
    assert scene.forcing.order.terms.pause_max_seconds == longest


@pytest.mark.parametrize(("mib", "expected"), [(None, 0), (0, 0), (7, 7)])
def test_a_foreign_job_is_forced_with_the_bandwidth_of_the_task(scene: Scene, mib: t.Optional[int], expected: int) -> None:
    migration = scene.begin()
    migration.cap_bytes = MIB
    scene.intervention(FORCE_COMPLETE, wait_seconds=120, bandwidth_mib=mib).carry_out()
    assert [call.split()[-1] for call in scene.fleet.source.calls if call.startswith("set_bandwidth_mib")] == [str(expected)]


def test_forcing_a_foreign_job_of_a_paused_guest_does_not_abort_it(scene: Scene) -> None:
    scene.guest.enter("paused", "user")
    migration = scene.begin()
    migration.link_bytes = 10 * MIB
    migration.cap_bytes = MIB
    record = scene.intervention(FORCE_COMPLETE, wait_seconds=300).carry_out().record
    assert (record.has_status("force_complete"), record.before.state, record.id) == (True, domain_states.PAUSED, None)
    assert migration.error is None
    assert "abort" not in [call.split()[0] for call in scene.fleet.source.calls]
    assert scene.fleet.destination.domains[UUID].view().describe() == "paused (user)"


def test_forcing_a_foreign_job_that_does_not_end_is_a_timeout_and_continues(scene: Scene) -> None:
    migration = scene.begin()
    for call in ("set_max_downtime_ms", "suspend"):
        scene.fleet.source.refuse[call] = TimedOut("job lock")
    with pytest.raises(TimedOut, match=r"has not ended within 20 s\. The guest is running on kvm1\. Process \d+ continues there"):
        scene.intervention(FORCE_COMPLETE, wait_seconds=20).carry_out()
    scene.fleet.source.refuse.clear()
    scene.fleet.clock.sleep(60)
    assert (migration.is_over, migration.error, scene.forcing.has_ended) == (True, None, True)


class Suspended:
    """A foreign job whose guest was suspended for its end, until the task has waited for its maximum time."""

    def __init__(self, scene: Scene, link_mib: float) -> None:
        self.migration = scene.begin()
        scene.fleet.source.refuse["set_max_downtime_ms"] = TimedOut("job lock")
        self.migration.link_bytes = int(link_mib * MIB)
        with pytest.raises(TimedOut) as caught:
            scene.intervention(FORCE_COMPLETE, wait_seconds=20).carry_out()
        self.error = str(caught.value)
        (self.document,) = caught.value.result["migrations"]
        assert scene.guest.view().describe() == "paused (migration)"


def test_a_timeout_while_the_guest_is_suspended_says_so_and_when_the_pause_ends(scene: Scene) -> None:
    suspended = Suspended(scene, link_mib=10)
    predicted, limit = (int(number) for number in re.findall(r"(\d+) s[):]", suspended.error))
    assert 60 < predicted < 120
    assert limit == pytest.approx(3 * predicted, abs=3)
    assert "The guest is paused on kvm1 until the migration ends" in suspended.error
    assert "migration_abort" in suspended.error
    assert acts(suspended.document)[-1] == "force: suspend"


def test_a_suspended_guest_of_a_foreign_job_arrives_after_the_task_has_ended(scene: Scene) -> None:
    suspended = Suspended(scene, link_mib=10)
    scene.fleet.clock.sleep(180)
    assert (suspended.migration.is_over, suspended.migration.error, scene.forcing.has_ended) == (True, None, True)
    assert scene.fleet.destination.domains[UUID].view().describe() == "running (migrated)"


def test_a_suspended_guest_of_a_foreign_job_is_not_left_suspended_by_a_link_that_dies(scene: Scene) -> None:
    suspended = Suspended(scene, link_mib=10)
    suspended.migration.link_bytes = 0
    scene.fleet.clock.sleep(300)
    assert scene.guest.view().describe() == "running (migration canceled)"
    assert isinstance(suspended.migration.error, Aborted)
    assert acts(read_forced(scene).record)[-1] == "abort: pause_overrun"


def test_an_abort_lets_a_suspended_guest_of_a_foreign_job_run(scene: Scene) -> None:
    Suspended(scene, link_mib=10)
    scene.intervention(ABORT).carry_out()
    scene.fleet.clock.sleep(1)
    assert scene.guest.view().describe() == "running (migration canceled)"
    assert scene.forcing.has_ended


def test_a_foreign_job_that_is_being_forced_is_not_forced_twice(scene: Scene) -> None:
    Suspended(scene, link_mib=10)
    calls = list(scene.fleet.source.calls)
    with pytest.raises(Conflict, match="web1 on kvm1 is being forced already"):
        scene.intervention(FORCE_COMPLETE).carry_out()
    assert scene.fleet.source.calls == calls


def test_a_process_that_dies_before_the_foreign_job_that_it_forces_is_reported(scene: Scene) -> None:
    scene.begin()
    scene.fleet.source.refuse["set_max_downtime_ms"] = TimedOut("job lock")
    scene.after(4, lambda: scene.forcing.kill())
    with pytest.raises(InvalidState, match=r"has ended, and the migration has not: the domain is running \(booted\) on kvm1") as caught:
        scene.intervention(FORCE_COMPLETE, wait_seconds=60).carry_out()
    assert "force: downtime" in acts(caught.value.result["migrations"][0])


def test_a_foreign_job_whose_post_copy_fails_is_not_forced_further(scene: Scene) -> None:
    migration = scene.begin("POSTCOPY")
    migration.link_bytes = MIB
    scene.after(3, migration.break_post_copy)
    with pytest.raises(InvalidState, match=r"the domain is paused \(post-copy failed\)") as caught:
        scene.intervention(FORCE_COMPLETE, wait_seconds=60).carry_out()
    assert caught.value.result["migrations"][0]["status"] == s.RUNNING_POST_COPY


def test_a_timeout_in_post_copy_says_where_the_guest_runs(scene: Scene) -> None:
    scene.begin("POSTCOPY").link_bytes = MIB
    with pytest.raises(TimedOut, match="The guest runs on its destination, in post-copy"):
        scene.intervention(FORCE_COMPLETE, wait_seconds=20).carry_out()


def test_a_foreign_job_is_forced_anew_whatever_earlier_tasks_have_done(scene: Scene) -> None:
    migration = scene.begin()
    intervention = scene.intervention(FORCE_COMPLETE, wait_seconds=60)
    earlier = intervention.find_migration().record.intend("abort: operator").intend("force: suspend")
    intervention = dataclasses.replace(intervention, foreign=dataclasses.replace(earlier, id=RUN))
    found = intervention.carry_out()
    assert (migration.is_over, migration.error) == (True, None)
    assert acts(found.record) == ["abort: operator", "force: suspend", "force: post_copy", "force: bandwidth", "force: downtime"]
    assert found.record.id == RUN


def test_a_process_that_could_not_leave_the_session_is_a_warning(scene: Scene) -> None:
    scene.told = {"session_warning": "It stays."}
    scene.begin("POSTCOPY")
    intervention = scene.intervention(FORCE_COMPLETE, wait_seconds=30)
    intervention.carry_out()
    assert intervention.notes == ["It stays."]


def test_a_foreign_job_is_forced_by_a_process_that_does_not_end_with_its_session(scene: Scene) -> None:
    """It is forked for real, with a fleet in which no time passes."""
    scene.begin("POSTCOPY")
    scene.fleet.source.refuse["start_post_copy"] = TimedOut("job lock")
    order = dataclasses.replace(scene.intervention(FORCE_COMPLETE))._order_forcing(record_of(status=s.RUNNING))
    intervene.EarlyProcess(scene.fleet.open, str(scene.folder)).start_forcing(order)
    state = read_forced(scene)
    assert state.watcher
    try:
        assert os.getsid(state.watcher.pid) not in (os.getsid(0), os.getsid(os.getpid()))
        with pytest.raises(Conflict, match="is being forced already"):
            intervene.EarlyProcess(scene.fleet.open, str(scene.folder)).start_forcing(order)
    finally:
        os.kill(state.watcher.pid, signal.SIGKILL)
    limit = time.monotonic() + 20
    while is_being_forced(UUID, str(scene.folder)):
        assert time.monotonic() < limit
        time.sleep(0.05)


def test_a_foreign_job_is_described_like_a_record(scene: Scene) -> None:
    scene.begin()
    found = scene.intervention(ABORT).find_migration().as_json()
    assert (found["id"], found["watched"]) == (None, False)
    assert read_record({**found, "id": "x"}).source.host == "kvm1"
