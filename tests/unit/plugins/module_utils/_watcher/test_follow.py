# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One poll of a running job after another."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.downtime import AdaptiveSchedule, SteppedSchedule
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.force import ForcingTerms
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.monitor import Limits
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states as ds
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import (
    Internal,
    InvalidState,
    KvmfleetError,
    NotSupported,
    TimedOut,
    Unreachable,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Before, Connection
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import ForcingProgress, read_state
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.control_files import (
    ABORT,
    BANDWIDTH,
    FORCE_COMPLETE,
    Intent,
    leave_intent,
    new_intent,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.follow import POLL_SECONDS, Follower
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.journal import NO_REACTION, Journal
from ansible_collections.kvmfleet.migration.tests.unit.fakes.domain import MIB
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._watcher.moves import Document, acts, journal_of, record_of, state_in

TERMS = ForcingTerms(post_copy=False, capped=False, suspend_seconds=10, pause_max_seconds=30, downtime_ms=200)
RAMP = ((0.0, 50), (10.0, 100), (20.0, 200))


class Following:
    """A job that does not converge, and what follows it."""

    def __init__(
        self,
        folder: pathlib.Path,
        timeout: float = 0,
        stall: float = 0,
        force: bool = False,
        flags: t.Sequence[str] = (),
        before: t.Sequence[str] = (),
        note: str = "",
        cap_mib: int = 0,
        record: t.Optional[MoveRecord] = None,
        check_resume: t.Callable[[], None] = lambda: None,
        has_destination: bool = True,
        **terms: t.Any,
    ) -> None:
        self.fleet = FakeFleet(link_mib=100)
        self.folder = folder
        self.guest = self.fleet.guest(dirty_bytes=512 * MIB, dirty_rate_bytes=500 * MIB)
        self.migration = self.fleet.begin_elsewhere(UUID, *flags, bandwidth_mib=cap_mib)
        limits = Limits(SteppedSchedule(RAMP), timeout, stall, force_on_timeout=force)
        self.journal = journal_of(record or record_of(), folder)
        for act in before:
            self.journal.intend_act(act)
        if note:
            self.journal.note_event(note)
        terms_now = dataclasses.replace(TERMS, **terms)
        destination = (lambda: self.fleet.open(f"qemu+tcp://{self.fleet.destination.name}/system")) if has_destination else None
        self.follower = Follower(lambda: self.fleet.open(LOCAL_URI), UUID, self.journal, limits, terms_now, self.fleet.clock, check_resume, destination)

    def poll_for(self, seconds: float) -> t.List[bool]:
        seen = []
        for _poll in range(int(seconds)):
            self.fleet.clock.sleep(1)
            seen.append(self.follower.poll_job())
        return seen

    def ask(self, act: str, bandwidth_mib: t.Optional[int] = None, generation: int = 1) -> Intent:
        """Leave an intent, as a module of another session would."""
        intent = new_intent(act, str(self.journal.record.id), generation, "ann@control", bandwidth_mib)
        leave_intent(UUID, intent, str(self.folder))
        return intent

    def answer_to(self, intent: Intent) -> t.Optional[t.Dict[str, t.Any]]:
        return t.cast(t.Optional[t.Dict[str, t.Any]], self.record["answers"].get(intent.id))

    def events(self) -> t.List[str]:
        return [line["status"] for line in self.record["history"]]

    @property
    def record(self) -> Document:
        return state_in(self.folder)

    def calls_of(self, call: str) -> t.List[str]:
        return [one for one in self.fleet.source.calls if one.startswith(call)]


def test_steps_of_the_ramp_are_set_in_libvirt(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path)
    assert following.poll_for(25) == [True] * 25
    assert following.calls_of("set_max") == [f"set_max_downtime_ms {UUID} {ms}" for ms in (50, 100, 200)]
    assert following.record["status"] == s.RUNNING
    assert following.guest.max_downtime_ms == 200


@pytest.mark.parametrize("error", [InvalidState("no"), TimedOut("job lock"), NotSupported("no")])
def test_a_downtime_that_libvirt_refuses_is_noted_once_and_tried_again(tmp_path: pathlib.Path, error: KvmfleetError) -> None:
    following = Following(tmp_path)
    following.fleet.source.refuse["set_max_downtime_ms"] = error
    asked: t.List[str] = []
    following.fleet.before_call = lambda machine, call: asked.append(call)
    assert following.poll_for(3) == [True] * 3
    assert asked.count("set_max_downtime_ms") == 3
    assert [line["status"] for line in following.record["history"]].count("downtime refused") == 1
    del following.fleet.source.refuse["set_max_downtime_ms"]
    following.poll_for(1)
    assert following.guest.max_downtime_ms == 50


def test_following_ends_with_the_job(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path)
    following.poll_for(2)
    following.migration.cancel()
    assert following.poll_for(1) == [False]


def test_a_job_that_was_never_seen_has_no_elapsed_time(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path)
    following.migration.cancel()
    assert following.poll_for(1) == [False]
    assert following.follower.elapsed_ms is None


def test_the_elapsed_time_is_taken_from_the_job(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path)
    following.fleet.clock.sleep(30)
    following.poll_for(1)
    assert following.follower.elapsed_ms == pytest.approx(31000, abs=100)


def test_an_abort_is_recorded_once_before_it_is_requested(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path, timeout=5)
    seen: t.List[t.List[str]] = []
    following.fleet.before_call = lambda machine, call: seen.append(acts(following.record)) if call == "abort" else None
    following.poll_for(8)
    assert seen == [["abort: timeout"]]
    assert following.migration.ended.is_set()


@pytest.mark.parametrize("error", [InvalidState("no job is active"), NotSupported("in post-copy")])
def test_an_abort_that_comes_too_late_is_noted(tmp_path: pathlib.Path, error: KvmfleetError) -> None:
    following = Following(tmp_path, timeout=5)
    following.fleet.source.refuse["abort"] = error
    assert following.poll_for(8) == [True] * 8
    assert [line["status"] for line in following.record["history"]].count("abort: timeout refused") == 1


def test_in_post_copy_only_samples_are_kept(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path, timeout=5, stall=2)
    following.fleet.clock.sleep(1)
    following.migration.start_post_copy()
    following.migration.link_bytes = 10 * MIB
    assert following.poll_for(20) == [True] * 20
    assert (following.record["status"], following.fleet.source.calls) == (s.RUNNING_POST_COPY, [])
    assert len(following.record["samples"]) == 20


def stick(following: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the job send nothing and ignore its abort, as QEMU 11.1 does with several connections, post-copy and an old machine type."""
    following.poll_for(2)
    following.migration.link_bytes = 0
    monkeypatch.setattr(following.migration, "cancel", lambda: None)


def test_a_job_that_ignores_its_abort_ends_with_its_incoming_domain(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    following = Following(tmp_path, stall=5)
    stick(following, monkeypatch)
    assert following.poll_for(60) == [True] * 60
    assert f"destroy {UUID}" not in following.fleet.destination.calls
    following.poll_for(15)
    assert following.fleet.destination.calls.count(f"destroy {UUID}") == 1
    assert (following.guest.state, acts(following.record)) == (ds.RUNNING, ["abort: stalled", "end_incoming"])
    assert [line["detail"] for line in following.record["history"] if line["status"] == "end_incoming"] == [NO_REACTION]
    assert f"destroy {UUID}" not in following.fleet.source.calls


@pytest.mark.parametrize(
    ("source", "destination"),
    [((ds.PAUSED, ds.MIGRATION), (ds.PAUSED, ds.MIGRATION)), ((ds.RUNNING, ""), (ds.RUNNING, "")), ((ds.RUNNING, ""), (ds.PAUSED, "user"))],
    ids=["does not run on the source", "runs at the destination", "is not an incoming domain"],
)
def test_a_domain_at_the_destination_that_may_be_needed_is_not_ended(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, source: t.Tuple[str, str], destination: t.Tuple[str, str]
) -> None:
    following = Following(tmp_path, stall=5)
    stick(following, monkeypatch)
    following.poll_for(30)
    monkeypatch.setattr(following.migration, "_arrive", lambda reason: None)
    following.guest.enter(*source)
    following.fleet.destination.domain(UUID).enter(*destination)
    following.poll_for(200)
    assert acts(following.record) == ["abort: stalled"]
    assert f"destroy {UUID}" not in following.fleet.destination.calls


def test_a_destination_that_does_not_answer_is_asked_again_to_end_the_incoming_domain(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    following = Following(tmp_path, stall=5)
    stick(following, monkeypatch)
    following.fleet.destination.answers = False
    assert all(following.poll_for(250))
    assert following.events().count("end_incoming failed") > 1
    assert acts(following.record) == ["abort: stalled"]


def test_the_incoming_domain_of_another_tool_is_left_alone(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    following = Following(tmp_path, stall=5, has_destination=False)
    stick(following, monkeypatch)
    assert all(following.poll_for(200))
    assert acts(following.record) == ["abort: stalled"]


def test_a_stalled_post_copy_stream_is_paused_and_never_aborted(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path, timeout=5, stall=10)
    following.fleet.clock.sleep(1)
    following.migration.start_post_copy()
    following.poll_for(3)
    following.migration.link_bytes = 0
    following.poll_for(8)
    assert (following.follower.is_broken, following.fleet.source.calls) == (False, [])
    following.poll_for(4)
    assert following.follower.is_broken
    assert acts(following.record) == ["recover: pause"]
    assert following.fleet.source.calls == [f"pause_post_copy {UUID}"]


@pytest.mark.parametrize("error", [NotSupported("It crashes."), Unreachable("no answer")])
def test_a_stalled_post_copy_stream_that_cannot_be_resumed_is_awaited(tmp_path: pathlib.Path, error: KvmfleetError) -> None:
    checks: t.List[KvmfleetError] = [error]

    def check_resume() -> None:
        for one in checks:
            raise one

    following = Following(tmp_path, stall=10, check_resume=check_resume)
    following.fleet.clock.sleep(1)
    following.migration.start_post_copy()
    following.poll_for(3)
    following.migration.link_bytes = 0
    following.poll_for(35)
    assert (following.follower.is_broken, following.follower.is_answering, following.fleet.source.calls) == (False, True, [])
    assert [line["detail"] for line in following.record["history"] if line["status"] == "not_paused"] == [str(error)]
    checks.clear()
    following.poll_for(11)
    assert following.follower.is_broken, "the destination can resume it by now"


def test_a_silent_source_does_not_end_the_follower(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path)
    following.poll_for(2)
    following.fleet.source.go_dark()
    assert following.poll_for(3) == [True] * 3
    assert following.follower.is_answering is False
    assert [line["status"] for line in following.record["history"]].count("source_lost") == 1
    following.fleet.source.come_back()
    assert following.poll_for(1) == [True]
    assert following.follower.is_answering is True


def test_a_timeout_during_the_silence_of_the_source_acts_when_it_returns(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path, timeout=10)
    following.poll_for(2)
    following.fleet.source.go_dark()
    following.poll_for(30)
    following.fleet.source.come_back()
    following.poll_for(1)
    assert following.record["acts"][-1]["act"] == "abort: timeout"


def test_an_abort_that_loses_its_connection_is_requested_again(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path, timeout=5)

    def cut(machine: t.Any, call: str) -> None:
        if call == "abort" and not machine.outages:
            machine.go_dark()

    following.fleet.before_call = cut
    following.poll_for(8)
    following.fleet.source.come_back()
    following.poll_for(3)
    assert following.migration.ended.is_set(), "the job that should have been aborted still runs"
    assert acts(following.record) == ["abort: timeout"]


@pytest.mark.parametrize("error", [TimedOut("job lock"), Internal("QEMU command failed")])
def test_a_failed_abort_is_tried_again(tmp_path: pathlib.Path, error: KvmfleetError) -> None:
    following = Following(tmp_path, timeout=5)
    following.fleet.source.refuse["abort"] = error
    assert following.poll_for(8) == [True] * 8
    del following.fleet.source.refuse["abort"]
    following.poll_for(1)
    assert following.migration.ended.is_set()


@pytest.mark.parametrize("call", ["job", "state"])
def test_an_error_while_polling_is_noted_once_and_does_not_end_the_follower(tmp_path: pathlib.Path, call: str) -> None:
    following = Following(tmp_path)
    following.poll_for(1)
    following.fleet.source.refuse[call] = Internal("migration was active, but no RAM info was set")
    assert following.poll_for(5) == [True] * 5
    assert [line["status"] for line in following.record["history"]].count("source_lost") == 1
    del following.fleet.source.refuse[call]
    assert following.poll_for(1) == [True]
    assert following.follower.is_answering is True


# -- what others ask for -------------------------------------------------------------------------------------------


def test_an_abort_intent_is_recorded_executed_and_answered(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path)
    following.poll_for(2)
    intent = following.ask(ABORT)
    seen: t.List[t.List[str]] = []
    following.fleet.before_call = lambda machine, call: seen.append(acts(following.record)) if call == "abort" else None
    following.poll_for(1)
    assert seen == [["abort: operator"]]
    assert following.migration.ended.is_set()
    assert following.answer_to(intent) == {}
    assert list(tmp_path.glob("*.intent")) == []
    assert [(line["by"], line["detail"]) for line in following.record["history"] if line["status"] == "abort_start"] == [("ann@control", "operator")]


def test_an_abort_intent_in_post_copy_is_refused(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path)
    following.fleet.clock.sleep(1)
    following.migration.start_post_copy()
    intent = following.ask(ABORT)
    following.poll_for(3)
    assert (following.answer_to(intent) or {})["error_code"] == "not_supported"
    assert (acts(following.record), following.fleet.source.calls) == ([], [])


class Switching(Following):
    """A forced job whose switch to post-copy libvirt has accepted, and whose state it still reports as pre-copy."""

    def __init__(self, folder: pathlib.Path, **given: t.Any) -> None:
        super().__init__(folder, flags=["POSTCOPY"], post_copy=True, **given)
        self.migration.switch = lambda: None  # type: ignore[method-assign]
        self.poll_for(1)
        self.ask(FORCE_COMPLETE)
        self.poll_after(0.1)

    def poll_after(self, seconds: float) -> None:
        self.fleet.clock.sleep(seconds)
        self.follower.poll_job()


def test_an_abort_right_after_an_accepted_switch_to_post_copy_waits_for_the_state(tmp_path: pathlib.Path) -> None:
    switching = Switching(tmp_path)
    intent = switching.ask(ABORT)
    switching.poll_after(0.3)
    switching.follower.abort_adopted_job("ann@control")
    switching.poll_after(0.3)
    assert (switching.answer_to(intent), switching.calls_of("abort")) == (None, [])
    switching.migration.start_post_copy()
    switching.poll_after(0.1)
    assert (switching.answer_to(intent) or {})["error_code"] == "not_supported"
    assert (switching.calls_of("abort"), switching.migration.ended.is_set()) == ([], False)


def test_an_abort_is_carried_out_if_an_accepted_switch_to_post_copy_has_no_effect(tmp_path: pathlib.Path) -> None:
    switching = Switching(tmp_path)
    intent = switching.ask(ABORT)
    for _poll in range(4):
        switching.poll_after(0.3)
    assert switching.answer_to(intent) == {}
    assert switching.migration.ended.is_set()


def test_no_limit_aborts_right_after_an_accepted_switch_to_post_copy(tmp_path: pathlib.Path) -> None:
    switching = Switching(tmp_path, stall=0.5)
    switching.migration.link_bytes = 0
    switching.poll_after(0.9)
    assert switching.calls_of("abort") == []
    switching.poll_after(0.9)
    assert len(switching.calls_of("abort")) == 1


def test_an_abort_intent_while_the_job_finishes_gets_the_refusal_of_libvirt(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path)
    following.fleet.source.refuse["abort"] = InvalidState("no job is active")
    intent = following.ask(ABORT)
    following.poll_for(1)
    assert (following.answer_to(intent) or {})["error_code"] == "invalid_state"


@pytest.mark.parametrize("error", [TimedOut("job lock"), Internal("QEMU command failed")])
def test_a_failed_abort_of_an_operator_is_tried_again(tmp_path: pathlib.Path, error: KvmfleetError) -> None:
    following = Following(tmp_path)
    following.fleet.source.refuse["abort"] = error
    intent = following.ask(ABORT)
    following.poll_for(3)
    assert following.answer_to(intent) == {}
    del following.fleet.source.refuse["abort"]
    following.poll_for(1)
    assert following.migration.ended.is_set()
    assert set(acts(following.record)) == {"abort: operator"}


def test_an_operator_s_abort_survives_a_lost_connection(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path)
    following.poll_for(1)
    following.ask(ABORT)

    def cut(machine: t.Any, call: str) -> None:
        if call == "abort" and not machine.outages:
            machine.go_dark()

    following.fleet.before_call = cut
    following.poll_for(3)
    following.fleet.source.come_back()
    following.poll_for(2)
    assert following.migration.ended.is_set()


def test_an_abort_intent_of_another_generation_is_ignored(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path)
    intent = following.ask(ABORT, generation=7)
    assert following.poll_for(2) == [True, True]
    assert (following.answer_to(intent), following.calls_of("abort")) == (None, [])


def test_a_move_is_not_forced_after_an_abort(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path, suspend_seconds=3)
    following.fleet.source.refuse["set_max_downtime_ms"] = TimedOut("job lock")
    following.ask(FORCE_COMPLETE)
    following.migration.cancel = lambda: None  # type: ignore[method-assign]  # libvirt takes its time
    following.poll_for(1)
    following.ask(ABORT)
    following.poll_for(10)
    assert (following.calls_of("suspend"), following.guest.state) == ([], "running")
    assert not following.migration.ended.is_set(), "the job was still there to be forced"


@pytest.mark.parametrize("mib", [0, 7])
def test_the_bandwidth_of_a_running_job_can_be_changed(tmp_path: pathlib.Path, mib: int) -> None:
    following = Following(tmp_path, cap_mib=50)
    intent = following.ask(BANDWIDTH, bandwidth_mib=mib)
    following.poll_for(1)
    assert following.migration.cap_bytes == mib * MIB
    assert following.answer_to(intent) == {}
    assert "force_complete" not in following.events()
    line = following.record["history"][-1]
    assert (line["status"], line["by"], line["detail"]) == ("bandwidth", "ann@control", f"operator; {'7 MiB/s' if mib else 'no cap'}")


def test_a_watcher_that_takes_over_does_not_force_a_move_whose_bandwidth_was_changed(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path, cap_mib=50)
    following.ask(BANDWIDTH, bandwidth_mib=7)
    following.poll_for(1)
    again = Following(tmp_path, cap_mib=50, record=following.journal.record)
    again.poll_for(5)
    assert "force_complete" not in again.events()
    assert [act for act in acts(again.record) if act.startswith("force")] == []


def test_a_bandwidth_that_libvirt_refuses_is_answered_with_an_error(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path)
    following.fleet.source.refuse["set_bandwidth_mib"] = InvalidState("not now")
    intent = following.ask(BANDWIDTH, bandwidth_mib=7)
    following.poll_for(1)
    assert (following.answer_to(intent) or {})["error_code"] == "invalid_state"


def test_a_bandwidth_intent_that_loses_its_connection_is_answered(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path)
    following.poll_for(1)
    first, second = following.ask(BANDWIDTH, bandwidth_mib=7), following.ask(BANDWIDTH, bandwidth_mib=7)

    def cut(machine: t.Any, call: str) -> None:
        if call == "set_bandwidth_mib" and not machine.outages:
            machine.go_dark()

    following.fleet.before_call = cut
    following.poll_for(1)
    following.fleet.source.come_back()
    following.poll_for(1)
    answers = [following.answer_to(intent) or {} for intent in (first, second)]
    assert sorted(answer.get("error_code", "") for answer in answers) == ["", "unreachable"], "one was lost, and the other had its turn later"


def test_an_intent_that_is_open_at_the_end_is_answered(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path)
    following.poll_for(1)
    following.migration.cancel()
    intent = following.ask(ABORT)
    following.poll_for(1)
    following.follower.close()
    assert (following.answer_to(intent) or {})["error_code"] == "invalid_state"


# -- forcing -------------------------------------------------------------------------------------------------------


def test_a_timeout_with_force_complete_does_not_abort(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path, timeout=5, force=True, suspend_seconds=4)
    following.poll_for(30)
    assert following.migration.ended.is_set()
    assert following.migration.error is None
    assert [act for act in acts(following.record) if act.startswith("abort")] == []
    assert following.events().count("force_complete") == 1
    assert following.record["result"]["rung"] in ("downtime", "suspend")
    assert following.record["result"]["predicted_downtime_ms"] > 0


def test_forcing_by_hand_replaces_the_timeout(tmp_path: pathlib.Path) -> None:
    """The guest is suspended, and the rest is nearly sent, when the timeout of the move is over."""
    following = Following(tmp_path, timeout=8, suspend_seconds=4)
    following.fleet.source.refuse["set_max_downtime_ms"] = Internal("not now")
    following.poll_for(2)
    following.ask(FORCE_COMPLETE)
    following.poll_for(6)
    assert len(following.calls_of("suspend")) == 1
    following.poll_for(14)
    assert [act for act in acts(following.record) if act.startswith("abort")] == []
    assert (following.migration.ended.is_set(), following.migration.error) == (True, None)
    noted = next(line for line in following.record["history"] if line["status"] == "force_complete")
    assert (noted["by"], noted["detail"]) == ("ann@control", "operator; the timeout of 8 s no longer applies")


def test_a_watcher_that_takes_over_a_forced_move_has_no_timeout_either(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path, timeout=3, suspend_seconds=100, note="force_complete")
    following.poll_for(10)
    assert [act for act in acts(following.record) if act.startswith("abort")] == []


def test_a_forced_pause_that_is_too_long_ends_without_a_timeout_too(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path, timeout=8, suspend_seconds=1, pause_max_seconds=2)
    following.fleet.source.refuse["set_max_downtime_ms"] = Internal("not now")
    following.ask(FORCE_COMPLETE)
    following.poll_for(4)
    following.migration.link_bytes = 1
    following.poll_for(40)
    assert [act for act in acts(following.record) if act.startswith("abort")] == ["abort: pause_overrun"]


def test_polls_are_more_frequent_while_forcing(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path)
    before = following.follower.pause_seconds
    following.follower.begin_forcing("ann")
    assert following.follower.pause_seconds < before


def test_a_stalled_stream_is_aborted_while_it_is_being_forced(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path, timeout=3, stall=5, force=True, suspend_seconds=100)
    following.poll_for(2)
    following.migration.link_bytes = 0
    following.poll_for(8)
    assert "abort: stalled" in acts(following.record)
    assert following.migration.ended.is_set()
    assert following.calls_of("suspend") == []


def test_a_job_with_the_post_copy_flag_is_switched_to_post_copy(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path, flags=["POSTCOPY"], post_copy=True)
    following.poll_for(1)
    following.ask(FORCE_COMPLETE)
    following.poll_for(1)
    assert following.migration.is_post_copy
    following.poll_for(1)
    assert (following.record["status"], acts(following.record)) == (s.RUNNING_POST_COPY, ["force: post_copy"])
    assert following.calls_of("suspend") == following.calls_of("set_bandwidth") == []


def test_a_switch_to_post_copy_that_is_refused_is_tried_again_and_noted_once(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path, flags=["POSTCOPY"], post_copy=True)
    following.fleet.source.refuse["start_post_copy"] = Internal("too early")
    following.follower.begin_forcing("ann")
    following.poll_for(4)
    del following.fleet.source.refuse["start_post_copy"]
    following.poll_for(1)
    assert following.migration.is_post_copy
    assert following.events().count("force: post_copy refused") == 1
    assert acts(following.record) == ["force: post_copy"]


def test_a_job_without_the_post_copy_flag_is_forced_by_the_other_rungs(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path, post_copy=True, suspend_seconds=3)
    following.fleet.clock.sleep(1)
    following.follower.begin_forcing("ann")
    following.poll_for(12)
    assert acts(following.record)[:2] == ["force: post_copy", "force: downtime"]
    assert following.migration.ended.is_set()


@pytest.mark.parametrize("call", ["set_max_downtime_ms", "suspend"])
def test_a_refused_act_is_requested_again(tmp_path: pathlib.Path, call: str) -> None:
    following = Following(tmp_path, suspend_seconds=6)
    # So much is written that no pause is long enough, but that of a stopped guest.
    following.fleet.source.refuse[call] = TimedOut("job lock")
    if call == "suspend":
        following.fleet.source.refuse["set_max_downtime_ms"] = TimedOut("job lock")
    following.poll_for(2)
    following.follower.begin_forcing("ann")
    following.poll_for(3 if call == "set_max_downtime_ms" else 9)
    assert not following.migration.ended.is_set()
    following.fleet.source.refuse.clear()
    following.poll_for(2)
    assert [one.split()[0] for one in following.fleet.source.calls].count(call) == 1


def test_an_act_that_loses_its_connection_is_requested_again(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path, suspend_seconds=100)
    following.poll_for(1)

    def cut(machine: t.Any, call: str) -> None:
        if call == "set_max_downtime_ms" and not machine.outages:
            machine.go_dark()

    following.fleet.before_call = cut
    following.follower.begin_forcing("ann")
    following.poll_for(2)
    following.fleet.source.come_back()
    following.poll_for(2)
    assert following.migration.ended.is_set() or following.guest.max_downtime_ms > 200


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (["force: downtime"], "force: downtime"),
        (["force: downtime", "force: suspend"], "force: suspend"),
    ],
)
def test_a_watcher_that_takes_over_repeats_the_last_rung(tmp_path: pathlib.Path, before: t.List[str], expected: str) -> None:
    following = Following(tmp_path, before=before, suspend_seconds=2)
    following.fleet.source.refuse["set_max_downtime_ms"] = TimedOut("job lock")
    assert following.follower.pause_seconds < 0.1, "forcing goes on"
    following.poll_for(8)
    done = acts(following.record)[len(before) :]
    assert done[0] == expected
    assert "force: suspend" in done


def suspend_guest(following: Following, link_mib: int) -> t.Tuple[int, float]:
    """Poll until forcing has suspended the guest, with a link of that bandwidth. Return the predicted pause in ms, and the time."""
    following.fleet.source.refuse["set_max_downtime_ms"] = TimedOut("job lock")
    following.migration.link_bytes = link_mib * MIB
    following.poll_for(1)
    following.follower.begin_forcing("ann")
    while following.guest.state != "paused":
        following.poll_for(1)
    return following.record["result"]["predicted_downtime_ms"], following.fleet.clock()


def test_a_watcher_that_takes_over_a_suspended_guest_grants_it_the_predicted_pause(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path, suspend_seconds=3)
    predicted_ms, _began = suspend_guest(following, link_mib=8)
    assert predicted_ms > 60_000
    adopt(following)
    following.poll_for(1)
    assert (following.record["result"]["rung"], following.record["result"]["predicted_downtime_ms"]) == ("suspend", predicted_ms)
    following.poll_for(200)
    assert (following.migration.ended.is_set(), following.migration.error) == (True, None)
    assert acts(following.record) == ["force: downtime", "force: suspend"], "nothing was repeated, or aborted"


@pytest.mark.parametrize("silent_seconds", [0, 20, 300])
def test_a_pause_that_began_under_an_earlier_watcher_counts(tmp_path: pathlib.Path, silent_seconds: int) -> None:
    following = Following(tmp_path, suspend_seconds=3)
    predicted_ms, began = suspend_guest(following, link_mib=50)
    following.migration.link_bytes = 0
    following.poll_for(10)
    following.fleet.clock.sleep(silent_seconds)
    adopt(following)
    while not following.migration.ended.is_set():
        following.poll_for(1)
    assert acts(following.record)[-1] == "abort: pause_overrun"
    assert following.fleet.clock() - began == pytest.approx(max(3 * predicted_ms / 1000, 30, silent_seconds + 10), abs=2.5)


def test_a_pause_that_cannot_be_of_this_job_does_not_count(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path, suspend_seconds=3)
    suspend_guest(following, link_mib=50)
    following.migration.link_bytes = 0
    following.journal.forcing = ForcingProgress(paused_at=1e9)
    following.journal.write_state()
    adopt(following)
    following.poll_for(29)
    assert not following.migration.ended.is_set()
    following.poll_for(60)
    assert acts(following.record)[-1] == "abort: pause_overrun"


def test_a_guest_that_ran_between_two_pauses_was_not_paused_since_the_first(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path, suspend_seconds=3)
    suspend_guest(following, link_mib=50)
    following.migration.link_bytes = 0
    following.guest.enter("running", "unpaused")
    following.poll_for(40)
    assert not following.migration.ended.is_set()
    following.guest.enter("paused", "migration")
    following.poll_for(20)
    assert not following.migration.ended.is_set()


def test_a_watcher_that_takes_over_keeps_the_rung_of_a_move_that_ends_before_it_has_measured_the_link(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path, cap_mib=50, capped=True)
    following.poll_for(1)
    following.ask(FORCE_COMPLETE)
    following.poll_for(1)
    following.migration.link_bytes = MIB
    following.poll_for(2)
    before = following.record["result"]
    assert before["rung"] == "downtime"
    adopt(following, capped=True)
    following.follower.poll_job()
    assert (following.record["result"]["rung"], following.record["result"]["predicted_downtime_ms"] is None) == ("downtime", False)
    following.journal.write_completed(None, 1, "arrived", None)
    assert following.record["result"]["mode"] == "paused"


@pytest.mark.parametrize("connects", [False, True])
@pytest.mark.parametrize("capped", [False, True])
def test_a_watcher_that_takes_over_keeps_the_bandwidth_that_a_person_has_set_for_a_forced_move(tmp_path: pathlib.Path, capped: bool, connects: bool) -> None:
    following = Following(tmp_path, cap_mib=1)
    following.migration.is_connecting, following.migration.is_streaming = connects, not connects
    following.ask(FORCE_COMPLETE, 7)
    following.follower.poll_job()
    adopt(following, capped=capped)
    begin_to_send(following, cap_mib=1)
    following.poll_for(1)
    assert following.migration.cap_bytes == 7 * MIB
    assert set(bandwidths(following)) == {7}


def test_a_watcher_that_takes_over_keeps_the_bandwidth_that_a_person_has_set_while_the_move_was_forced(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path, cap_mib=1, capped=True)
    following.poll_for(1)
    following.ask(FORCE_COMPLETE)
    following.follower.poll_job()
    following.ask(BANDWIDTH, 9)
    following.follower.poll_job()
    adopt(following, capped=True)
    following.poll_for(1)
    assert bandwidths(following)[-1] == 9


def test_a_bandwidth_that_libvirt_refuses_to_a_forced_move_is_not_kept(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path, cap_mib=1)
    following.poll_for(1)
    following.fleet.source.refuse["set_bandwidth_mib"] = InvalidState("not now")
    following.ask(FORCE_COMPLETE, 7)
    following.follower.poll_job()
    assert "forcing" not in following.record


def test_a_watcher_that_takes_over_starts_a_requested_force(tmp_path: pathlib.Path) -> None:
    first = Following(tmp_path)
    first.follower.begin_forcing("ann")
    second = Follower(lambda: first.fleet.open(LOCAL_URI), UUID, first.journal, Limits(SteppedSchedule(RAMP), 0, 0), TERMS, first.fleet.clock)
    assert second.pause_seconds == first.follower.pause_seconds


def test_the_abort_of_a_dead_watcher_is_executed(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path, before=["abort: operator"])
    following.poll_for(1)
    assert following.migration.ended.is_set()
    assert acts(following.record).count("abort: operator") == 2


def test_a_move_in_post_copy_is_not_forced(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path, suspend_seconds=2, before=["force: bandwidth"])
    following.fleet.clock.sleep(1)
    following.migration.start_post_copy()
    following.migration.link_bytes = MIB
    following.ask(FORCE_COMPLETE)
    following.poll_for(10)
    assert following.fleet.source.calls == []


def test_a_guest_that_was_paused_before_has_no_pause_limit(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path, pause_max_seconds=2, suspend_seconds=1)
    following.journal.record = dataclasses.replace(following.journal.record, before=Before(state="paused"))
    following.guest.enter("paused", "user")
    following.migration.link_bytes = 10 * MIB
    following.follower.begin_forcing("ann")
    following.poll_for(30)
    assert [act for act in acts(following.record) if act.startswith("abort")] == []


# -- the adaptive downtime -------------------------------------------------------------------------------------------


class Adapting(Following):
    """A guest of 32 MiB that are written five times as fast as they are sent."""

    def __init__(self, folder: pathlib.Path, **schedule: t.Any) -> None:
        self.fleet = FakeFleet(link_mib=100)
        self.folder = folder
        self.guest = self.fleet.guest(memory_bytes=320 * MIB, dirty_bytes=32 * MIB, dirty_rate_bytes=500 * MIB)
        self.migration = self.fleet.begin_elsewhere(UUID)
        self.journal = journal_of(record_of(), folder)
        limits = Limits(AdaptiveSchedule(50, 500, **schedule), 0, 0)
        self.follower = Follower(lambda: self.fleet.open(LOCAL_URI), UUID, self.journal, limits, TERMS, self.fleet.clock)

    def to_its_end(self, seconds: float) -> bool:
        """Poll as the follower wants it; return whether the job has ended in time."""
        for _poll in range(int(seconds / 0.05)):
            if not self.follower.poll_job():
                return True
            self.fleet.clock.sleep(self.follower.pause_seconds)
        return False


def test_a_guest_that_does_not_converge_gets_the_needed_downtime(tmp_path: pathlib.Path) -> None:
    following = Adapting(tmp_path)
    assert following.to_its_end(20)
    first, second = (int(call.split()[-1]) for call in following.calls_of("set_max"))
    assert (first, second > 320) == (50, True)
    assert following.events().count("downtime_allowed") == 1
    assert 300 < following.record["result"]["predicted_downtime_ms"] <= 500
    assert following.record["samples"][-1]["allowed_downtime_ms"] == second


def test_a_converging_guest_gets_no_more_downtime(tmp_path: pathlib.Path) -> None:
    following = Adapting(tmp_path)
    following.guest.dirty_rate_bytes = 50 * MIB
    assert following.to_its_end(20)
    assert following.calls_of("set_max") == [f"set_max_downtime_ms {UUID} 50"]
    assert "downtime_allowed" not in following.events()


def test_a_watcher_that_takes_over_keeps_the_allowed_downtime(tmp_path: pathlib.Path) -> None:
    following = Adapting(tmp_path, full_from_seconds=2)
    following.guest.dirty_rate_bytes = 0
    following.migration.link_bytes = MIB
    following.to_its_end(3)
    assert following.guest.max_downtime_ms == 500
    second = Follower(lambda: following.fleet.open(LOCAL_URI), UUID, following.journal, Limits(AdaptiveSchedule(50, 500), 0, 0), TERMS, following.fleet.clock)
    second.poll_job()
    assert following.guest.max_downtime_ms == 500
    assert following.record["samples"][-1]["allowed_downtime_ms"] == 500


def test_polls_are_more_frequent_near_the_end_of_an_iteration(tmp_path: pathlib.Path) -> None:
    following = Adapting(tmp_path)
    pauses = []
    for _poll in range(40):
        following.fleet.clock.sleep(following.follower.pause_seconds)
        following.follower.poll_job()
        pauses.append(following.follower.pause_seconds)
    assert all(0.05 <= pause <= POLL_SECONDS for pause in pauses)
    assert POLL_SECONDS in pauses
    assert len(set(pauses)) > 2


class Capped(Adapting):
    """A guest of 80 MiB that are written twice as fast as they are sent at 10 MiB/s, on a link that is known to carry ten times as much."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder, link_rate_bytes=100 * MIB)
        self.journal.keep_connection(bandwidth_mib=10)
        self.guest.dirty_bytes, self.guest.dirty_rate_bytes = 80 * MIB, 20 * MIB
        self.migration.cap_bytes = 10 * MIB

    def poll_until_allowed(self, milliseconds: int) -> None:
        """Poll until that downtime is allowed, and a second more, in the middle of an iteration."""
        while self.guest.max_downtime_ms != milliseconds:
            assert not self.to_its_end(1)
        assert not self.to_its_end(1)

    def last_calls(self, number: int) -> t.List[str]:
        return [call.replace(f" {UUID}", "") for call in self.fleet.source.calls[-number:]]


@pytest.mark.parametrize("share", [None, 10])
def test_a_cap_below_the_share_of_the_link_allows_what_the_link_can_send_without_it(tmp_path: pathlib.Path, share: t.Optional[int]) -> None:
    following = Capped(tmp_path)
    if share:
        following.follower.share_link(share)
    following.poll_until_allowed(5000)
    assert following.record["result"]["predicted_downtime_ms"] < 1000


@pytest.mark.parametrize(("cap", "share"), [(0, None), (0, 10), (20, 10)])
def test_a_share_of_the_link_or_a_slow_link_allows_no_more_than_the_longest_downtime(tmp_path: pathlib.Path, cap: int, share: t.Optional[int]) -> None:
    """What others send, or what slows the link, stays when the hypervisor lifts the cap for the last pages."""
    following = Capped(tmp_path)
    following.journal.keep_connection(bandwidth_mib=cap)
    following.migration.cap_bytes, following.migration.link_bytes = 0, 10 * MIB
    if share:
        following.follower.share_link(share)
    assert not following.to_its_end(60)
    assert max(int(call.split()[-1]) for call in following.calls_of("set_max")) == 500


@pytest.mark.parametrize(("share", "longest"), [(None, 5000), (10, 500)])
def test_a_watcher_that_takes_over_a_shared_job_counts_on_no_cap_before_it_has_set_one(tmp_path: pathlib.Path, share: t.Optional[int], longest: int) -> None:
    following = Capped(tmp_path)
    following.journal.keep_connection(bandwidth_mib=10 if share is None else 20, is_shared=True)
    following.fleet.source.refuse["set_bandwidth_mib"] = InvalidState("not now")
    if share:
        following.follower.share_link(share)
    assert not following.to_its_end(60)
    assert max(int(call.split()[-1]) for call in following.calls_of("set_max")) == 500
    del following.fleet.source.refuse["set_bandwidth_mib"]
    assert not following.to_its_end(60)
    assert max(int(call.split()[-1]) for call in following.calls_of("set_max")) == longest


def share_again(following: Capped) -> None:
    following.follower.share_link(0)


def lift_cap(following: Capped) -> None:
    following.ask(BANDWIDTH, 0)


@pytest.mark.parametrize("act", [share_again, lift_cap])
def test_no_more_than_the_longest_downtime_is_allowed_when_the_bandwidth_rises(tmp_path: pathlib.Path, act: t.Callable[[Capped], None]) -> None:
    following = Capped(tmp_path)
    following.poll_until_allowed(5000)
    act(following)
    following.follower.poll_job()
    assert following.last_calls(2) == ["set_max_downtime_ms 500", "set_bandwidth_mib 0"]
    following.fleet.clock.sleep(0.2)
    assert not following.migration.ended.is_set()
    assert following.to_its_end(10)


def test_forcing_allows_no_more_than_the_longest_downtime_before_it_lifts_the_cap(tmp_path: pathlib.Path) -> None:
    following = Capped(tmp_path)
    following.poll_until_allowed(5000)
    following.follower._terms = dataclasses.replace(TERMS, capped=True)
    following.ask(FORCE_COMPLETE)
    following.follower.poll_job()
    assert following.last_calls(2) == ["set_max_downtime_ms 500", "set_bandwidth_mib 0"]


def test_a_watcher_that_takes_over_limits_a_downtime_that_no_sample_shows(tmp_path: pathlib.Path) -> None:
    following = Capped(tmp_path)
    following.poll_until_allowed(5000)
    record = following.journal.record
    journal = journal_of(dataclasses.replace(record, samples=(dataclasses.replace(record.samples[-1], allowed_downtime_ms=50),)), tmp_path)
    limits = Limits(AdaptiveSchedule(50, 500, link_rate_bytes=100 * MIB), 0, 0)
    following.follower = Follower(lambda: following.fleet.open(LOCAL_URI), UUID, journal, limits, TERMS, following.fleet.clock)
    following.follower.share_link(0)
    following.follower.poll_job()
    assert following.last_calls(2) == ["set_max_downtime_ms 50", "set_bandwidth_mib 0"]


def test_a_bandwidth_is_not_raised_if_libvirt_does_not_limit_the_downtime_first(tmp_path: pathlib.Path) -> None:
    following = Capped(tmp_path)
    following.poll_until_allowed(5000)
    following.fleet.source.refuse["set_max_downtime_ms"] = InvalidState("not now")
    following.follower.share_link(0)
    following.follower.poll_job()
    assert bandwidths(following) == []
    del following.fleet.source.refuse["set_max_downtime_ms"]
    following.follower.poll_job()
    assert following.last_calls(2) == ["set_max_downtime_ms 500", "set_bandwidth_mib 0"]


# -- shares of the link ------------------------------------------------------------------------------------------


def bandwidths(following: Following) -> t.List[int]:
    return [int(call.split()[-1]) for call in following.calls_of("set_bandwidth_mib")]


def test_a_job_that_gets_the_link_back_has_no_longer_downtime_than_permitted(tmp_path: pathlib.Path) -> None:
    following = Capped(tmp_path)
    following.guest.dirty_rate_bytes = 105 * MIB
    following.migration.cap_bytes = 0
    following.poll_until_allowed(500)
    following.follower.share_link(1)
    assert not following.to_its_end(10)
    following.follower.share_link(0)
    assert not following.to_its_end(20)
    assert [call for call in following.calls_of("set_max") if int(call.split()[-1]) > 500] == []


def test_a_share_is_set_once_and_a_waiting_job_reports_what_it_waits_for(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path)
    following.follower.share_link(1)
    following.poll_for(3)
    assert bandwidths(following) == [1]
    assert following.record["waits_for"] == "waits for the link"
    following.follower.share_link(40)
    following.poll_for(2)
    assert bandwidths(following) == [1, 40]
    assert "waits_for" not in following.record


def test_a_share_is_not_set_before_memory_is_sent_because_libvirt_would_replace_it(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path)
    following.follower.note_start_share(1)
    following.migration.is_connecting = True
    following.follower.share_link(0)
    following.poll_for(2)
    assert bandwidths(following) == []
    following.migration.is_connecting = False
    following.poll_for(1)
    assert bandwidths(following) == [0]


def test_no_limit_of_a_move_acts_while_its_job_waits_for_the_link(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path, timeout=30, stall=10)
    following.follower.share_link(1)
    assert following.poll_for(60) == [True] * 60
    assert following.calls_of("set_max") == []
    following.follower.share_link(0)
    assert following.poll_for(25) == [True] * 25
    assert following.calls_of("abort") == []
    following.poll_for(10)
    assert len(following.calls_of("abort")) == 1, "the time that it waited does not count"


def adopt(following: Following, timeout: float = 30, open_destination: t.Optional[t.Callable[[], t.Any]] = None, **terms: t.Any) -> Follower:
    """Return what follows the job after the death of its watcher, with what that one has written."""
    state = read_state(following.record)
    following.journal = Journal(
        state.record, state.watcher, str(following.folder), link_wait=state.link_wait, forcing=state.forcing, job_started_at=state.job_started_at
    )
    limits, terms_now = Limits(SteppedSchedule(RAMP), timeout, 0), dataclasses.replace(TERMS, **terms)
    following.follower = Follower(
        lambda: following.fleet.open(LOCAL_URI), UUID, following.journal, limits, terms_now, following.fleet.clock, open_destination=open_destination
    )
    return following.follower


def test_an_adopted_job_that_ignores_its_abort_ends_with_its_incoming_domain(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watcher before has died between writing the act and doing it."""
    following = Following(tmp_path, stall=5)
    stick(following, monkeypatch)
    following.poll_for(20)
    following.journal.intend_act("end_incoming")
    destination = f"qemu+tcp://{following.fleet.destination.name}/system"
    adopt(following, open_destination=lambda: following.fleet.open(destination))
    following.poll_for(80)
    assert following.fleet.destination.calls.count(f"destroy {UUID}") == 1
    assert following.guest.state == ds.RUNNING


@pytest.mark.parametrize("step", [3600, -3600])
def test_a_step_of_the_wall_clock_changes_no_limit_of_an_adopted_move(tmp_path: pathlib.Path, step: int) -> None:
    following = Following(tmp_path)
    following.poll_for(10)
    following.migration.clock_step_seconds = step
    follower = adopt(following, timeout=30)
    following.poll_for(15)
    assert follower.elapsed_ms == pytest.approx(25_000, abs=1000)
    assert following.calls_of("abort") == []
    following.poll_for(10)
    assert len(following.calls_of("abort")) == 1


@pytest.mark.parametrize("started_at", [None, 1e9])
def test_without_a_valid_start_of_the_job_its_age_is_taken_from_libvirt(tmp_path: pathlib.Path, started_at: t.Optional[float]) -> None:
    following = Following(tmp_path)
    following.poll_for(10)
    adopt(following)
    following.journal.job_started_at = started_at
    following.poll_for(5)
    assert following.follower.elapsed_ms == pytest.approx(15_000, abs=1000)


def test_the_start_of_a_job_is_forgotten_with_its_job(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path)
    following.poll_for(3)
    assert following.record["job_started_at"] == pytest.approx(following.fleet.clock() - 3, abs=0.5)
    following.migration.cancel()
    following.poll_for(1)
    following.journal.write_state()
    assert "job_started_at" not in following.record


@pytest.mark.parametrize("share", [0, 1, None])
def test_the_time_that_a_job_waited_does_not_count_for_the_next_watcher(tmp_path: pathlib.Path, share: t.Optional[int]) -> None:
    following = Following(tmp_path)
    following.poll_for(10)
    following.follower.share_link(1)
    following.poll_for(60)
    following.fleet.clock.sleep(60)
    follower = adopt(following)
    if share is not None:
        follower.share_link(share)
    following.poll_for(15)
    assert following.calls_of("abort") == []
    follower.share_link(0)
    following.poll_for(25)
    assert len(following.calls_of("abort")) == 1


@pytest.mark.parametrize("share", [0, 1])
def test_the_time_that_a_job_was_sent_counts_for_the_next_watcher(tmp_path: pathlib.Path, share: int) -> None:
    following = Following(tmp_path)
    following.follower.share_link(1)
    following.poll_for(20)
    following.follower.share_link(0)
    following.poll_for(40)
    follower = adopt(following)
    follower.share_link(share)
    following.poll_for(10)
    follower.share_link(0)
    following.poll_for(1)
    assert len(following.calls_of("abort")) == 1


def test_an_abort_is_carried_out_while_a_job_waits_for_the_link(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path)
    following.follower.share_link(1)
    following.poll_for(1)
    intent = following.ask(ABORT)
    following.poll_for(1)
    assert following.answer_to(intent) == {}
    assert len(following.calls_of("abort")) == 1


def test_forcing_lifts_the_share_of_a_waiting_job(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path)
    following.follower.share_link(1)
    following.poll_for(1)
    following.ask(FORCE_COMPLETE)
    following.poll_for(2)
    assert bandwidths(following)[:2] == [1, 0]
    assert following.follower.is_free
    following.follower.share_link(1)
    following.poll_for(2)
    assert bandwidths(following)[2:] == []


@pytest.mark.parametrize(("shared", "cap", "expected"), [(True, 7, [7]), (True, 0, [0]), (False, 7, [])])
def test_an_adopted_job_gets_back_the_bandwidth_of_its_task(tmp_path: pathlib.Path, shared: bool, cap: int, expected: t.List[int]) -> None:
    record = dataclasses.replace(record_of(), connection=Connection(bandwidth_mib=cap, is_shared=shared or ABSENT))
    following = Following(tmp_path, record=record, cap_mib=1)
    following.poll_for(3)
    assert bandwidths(following) == expected


def test_a_bandwidth_that_a_person_sets_becomes_the_cap_of_the_move(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path)
    following.ask(BANDWIDTH, 20)
    following.poll_for(1)
    assert following.record["connection"]["bandwidth_mib"] == 20


def test_a_share_that_libvirt_refuses_is_tried_again_and_not_noted(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path)
    following.fleet.source.refuse["set_bandwidth_mib"] = InvalidState("not now")
    following.follower.share_link(5)
    following.poll_for(2)
    assert [event for event in following.events() if "refused" in event] == []
    del following.fleet.source.refuse["set_bandwidth_mib"]
    following.poll_for(1)
    assert bandwidths(following) == [5]


def test_a_job_whose_cap_is_the_share_of_a_waiting_one_never_waits(tmp_path: pathlib.Path) -> None:
    record = dataclasses.replace(record_of(), connection=Connection(bandwidth_mib=1))
    following = Following(tmp_path, timeout=30, record=record, cap_mib=1)
    following.follower.share_link(1)
    following.poll_for(40)
    assert "waits_for" not in following.record
    assert len(following.calls_of("abort")) == 1


def begin_to_send(following: Following, cap_mib: int) -> None:
    """Let the job send memory, with the bandwidth of the migrate call whatever was set before."""
    following.migration.is_connecting, following.migration.is_streaming = False, True
    following.migration.cap_bytes = cap_mib * MIB


@pytest.mark.parametrize(("mib", "expected"), [(None, 0), (7, 7)])
def test_a_move_that_is_forced_while_its_job_connects_is_forced_when_memory_is_sent(tmp_path: pathlib.Path, mib: t.Optional[int], expected: int) -> None:
    following = Following(tmp_path, cap_mib=1)
    following.follower.note_start_share(1)
    following.migration.is_connecting, following.migration.is_streaming = True, False
    intent = following.ask(FORCE_COMPLETE, mib)
    following.poll_for(15)
    assert following.answer_to(intent) == {}
    assert following.fleet.source.calls == []
    begin_to_send(following, cap_mib=1)
    following.poll_for(9)
    assert bandwidths(following) == [expected]
    assert following.calls_of("suspend") == [], "the rungs count from the time when memory is sent"


def test_a_bandwidth_that_a_person_sets_while_the_job_connects_is_set_when_memory_is_sent(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path)
    following.migration.is_connecting, following.migration.is_streaming = True, False
    following.ask(BANDWIDTH, 7)
    following.poll_for(2)
    begin_to_send(following, cap_mib=0)
    following.poll_for(2)
    assert bandwidths(following) == [7, 7]


@pytest.mark.parametrize(("connects", "mib"), [(False, 10), (True, 10), (True, 0)])
def test_forcing_lifts_a_cap_that_a_person_has_set_during_the_move(tmp_path: pathlib.Path, connects: bool, mib: int) -> None:
    following = Following(tmp_path)
    following.migration.is_connecting, following.migration.is_streaming = connects, not connects
    following.poll_for(1)
    following.ask(BANDWIDTH, mib)
    following.poll_for(1)
    following.ask(FORCE_COMPLETE)
    following.poll_for(1)
    begin_to_send(following, cap_mib=10)
    following.poll_for(2)
    assert bandwidths(following) == [mib, 0]


def test_forcing_lifts_no_cap_that_a_person_has_lifted_before(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path, cap_mib=10, capped=True)
    following.poll_for(1)
    following.ask(BANDWIDTH, 0)
    following.poll_for(1)
    following.ask(FORCE_COMPLETE)
    following.poll_for(1)
    assert bandwidths(following) == [0]
    assert following.record["result"]["rung"] == "downtime"


def test_the_rate_under_the_bandwidth_of_a_force_task_is_measured_before_a_downtime_is_allowed(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path, cap_mib=1)
    following.poll_for(1)
    following.ask(FORCE_COMPLETE, 50)
    following.poll_for(1)
    assert (bandwidths(following), following.guest.max_downtime_ms) == ([50], 50)
    following.poll_for(2)
    (allowed,) = [int(call.split()[-1]) for call in following.calls_of("set_max")[1:]]
    assert 200 < allowed < 50_000, "at the rate before, it was half an hour"


def test_the_bandwidth_of_a_force_task_is_kept_although_the_job_had_a_share(tmp_path: pathlib.Path) -> None:
    following = Following(tmp_path)
    following.follower.share_link(40)
    following.poll_for(1)
    following.ask(FORCE_COMPLETE, 7)
    following.poll_for(3)
    assert bandwidths(following) == [40, 7]
