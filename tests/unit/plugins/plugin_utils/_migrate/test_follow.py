# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Following state files on the source host."""

from __future__ import annotations

import dataclasses
import os
import types
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, KvmfleetError, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import StateFile, Watcher
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate import follow
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.admission import AdmissionQueue
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.follow import Follower
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.source_host import PolledState
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._run_process import ControllerGone
from ansible_collections.kvmfleet.migration.tests.unit.fakes.clock import FakeClock

WATCHER = Watcher(7, 1)
RECORD = new_record(s.LIVE_MIGRATION, DomainRef("a", "web"), HostRef("kvm1", None, None), HostRef("kvm2", None, None), {}, "x")
NOBODY_WAITS = AdmissionQueue(t.cast(t.Any, None), "root@control pid 1", 4)


class ListedSource:
    """Answers polls with what was listed; an error in the list is raised."""

    name = "kvm1"
    seen = None

    def __init__(self, *answers: t.Any) -> None:
        self.answers = list(answers)
        self.polls: t.List[t.Tuple[int, t.List[str]]] = []
        self.news: t.List[t.Any] = []

    def poll_states(self, run_id: str, counter: int, watchers: t.Dict[str, t.Any], news: t.Any) -> t.Dict[str, PolledState]:
        self.polls.append((counter, sorted(watchers)))
        self.news.append(news)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {uuid: state for uuid, state in answer.items() if uuid in watchers}


class ListeningMirror:
    """A mirror that only remembers."""

    def __init__(self, record_id: str) -> None:
        self.record = dataclasses.replace(RECORD, id=record_id, status=s.QUEUED)
        self.refreshed: t.Optional[str] = None

    @property
    def is_settled(self) -> bool:
        return self.record.status in s.FINAL

    def follow_state(self, record: MoveRecord) -> None:
        self.record = dataclasses.replace(self.record, status=record.status)

    def read_again(self) -> None:
        if self.refreshed:
            self.record = dataclasses.replace(self.record, status=self.refreshed)

    def adopt_end(self) -> None:
        if self.refreshed in s.FINAL:
            self.read_again()


class RecordlessMirror(ListeningMirror):
    """A mirror whose record the ledger has lost."""

    def follow_state(self, record: MoveRecord) -> None:
        raise Conflict("The record is not there.", "Look for it.")


Mirrors = t.Dict[str, ListeningMirror]


def state(status: str, record_id: str = "r-a", alive: bool = True) -> PolledState:
    return PolledState(StateFile(dataclasses.replace(RECORD, id=record_id, status=status), WATCHER), WATCHER, alive)


class Followed:
    """What came of following moves named by their domain."""

    def __init__(self, *answers: t.Any, domains: str = "a", refreshed: t.Optional[str] = None, mirrors: t.Optional[Mirrors] = None) -> None:
        self.source = ListedSource(*answers)
        self.mirrors = {name: ListeningMirror(f"r-{name}") for name in domains}
        self.shown: t.List[str] = []
        self.slept: t.List[float] = []
        for mirror in self.mirrors.values():
            mirror.refreshed = refreshed
        follower = Follower(t.cast(t.Any, self.source), NOBODY_WAITS, "run", lambda record, waits_for: self.shown.append(record.status), self.slept.append)
        self.lost: t.Dict[str, KvmfleetError] = {}
        self.mirrors.update(mirrors or {})
        self.orphans = follower.follow_moves(t.cast(t.Any, self.mirrors), dict.fromkeys(domains, WATCHER), self.lost)


def test_each_move_is_followed_to_its_end() -> None:
    first = {"a": state(s.RUNNING), "b": state(s.COMPLETED, "r-b")}
    followed = Followed(first, {"a": state(s.RUNNING)}, {"a": state(s.FAILED)}, domains="ab")
    assert followed.orphans == []
    assert followed.source.polls == [(1, ["a", "b"]), (2, ["a"]), (3, ["a"])]
    assert [mirror.record.status for mirror in followed.mirrors.values()] == [s.FAILED, s.COMPLETED]
    assert followed.shown == [s.RUNNING, s.COMPLETED, s.RUNNING, s.FAILED]


def test_a_source_that_answers_at_once_is_polled_five_times_a_second() -> None:
    followed = Followed(*[{"a": state(s.RUNNING)}] * 20, {"a": state(s.COMPLETED)})
    assert len(followed.slept) == 20
    assert all(0.0 < slept <= follow.POLL_SECONDS == 0.2 for slept in followed.slept)


def test_a_watcher_that_died_before_the_end_leaves_an_orphan() -> None:
    assert Followed({"a": state(s.RUNNING, alive=False)}).orphans == ["a"]


@pytest.mark.parametrize("status", [s.COMPLETED, s.ERROR])
def test_a_watcher_that_died_after_its_final_status_leaves_no_orphan(status: str) -> None:
    assert Followed({"a": state(status, alive=False)}).orphans == []


@pytest.mark.parametrize("answer", [{}, {"a": state(s.RUNNING, "another record")}])
def test_a_missing_or_foreign_state_file_is_checked_in_the_ledger(answer: t.Dict[str, PolledState]) -> None:
    assert Followed(answer).orphans == ["a"]
    settled = Followed(answer, refreshed=s.COMPLETED)
    assert (settled.orphans, settled.mirrors["a"].record.status) == ([], s.COMPLETED)


def test_a_record_missing_from_the_ledger_ends_only_its_own_move() -> None:
    first = {"a": state(s.RUNNING), "b": state(s.RUNNING, "r-b")}
    followed = Followed(first, {"b": state(s.COMPLETED, "r-b")}, domains="ab", mirrors={"a": RecordlessMirror("r-a")})
    assert followed.orphans == []
    assert followed.mirrors["b"].record.status == s.COMPLETED
    error = followed.lost.pop("a")
    assert followed.lost == {}
    assert isinstance(error, Conflict)
    assert "web from kvm1 to kvm2" in error.message
    assert "on kvm1 continues without it and reports 'running'. The record is not there." in error.message
    assert error.next_step == "Look for it. Then run the same task again."
    assert error.result["migrations"] == [encode(first["a"].record)]


def test_a_source_that_is_silent_for_a_while_is_polled_again() -> None:
    followed = Followed(Unreachable("x"), {"a": state(s.RUNNING)}, Unreachable("x"), Unreachable("x"), {"a": state(s.COMPLETED)})
    assert followed.orphans == []
    assert [counter for counter, _uuids in followed.source.polls] == [1, 2, 3, 4, 5], "each poll is a heartbeat of its own"


def test_a_source_that_stays_silent_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "UNREACHABLE_SECONDS", -1.0)
    with pytest.raises(Unreachable, match=r"kvm1 has not answered.*2 moves.*the cause.*again"):
        Followed(Unreachable("the cause"), domains="ab")


def test_a_source_that_is_silent_after_its_moves_does_not_hide_their_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "UNREACHABLE_SECONDS", -1.0)
    source = ListedSource(Unreachable("the cause"))
    follower = Follower(t.cast(t.Any, source), NOBODY_WAITS, "run", lambda record, waits_for: None)
    assert follower.read_seen_facts({"a": dataclasses.replace(WATCHER, run_id="run")}) is None
    assert len(source.polls) == 1


def test_a_source_that_is_silent_for_long_is_named_on_the_progress_line(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    monkeypatch.setattr(follow, "time", types.SimpleNamespace(monotonic=clock, sleep=clock.sleep))
    lines: list[tuple[str, str | None]] = []
    source = ListedSource(*[Unreachable("x")] * 3, {"a": state(s.COMPLETED)})
    follower = Follower(
        t.cast(t.Any, source), NOBODY_WAITS, "run", lambda record, waits_for: lines.append((record.status, waits_for)), lambda _s: clock.sleep(4)
    )
    follower.follow_moves(t.cast(t.Any, {"a": ListeningMirror("r-a")}), {"a": WATCHER}, {})
    assert lines == [(s.QUEUED, "kvm1 has not answered for 8 s"), (s.COMPLETED, None)]


@pytest.mark.parametrize(("refreshed", "polls"), [(s.CANCELLED, 4), (s.RUNNING, 5)])
def test_a_move_of_a_silent_source_ends_once_an_evacuation_has_closed_its_record(monkeypatch: pytest.MonkeyPatch, refreshed: str, polls: int) -> None:
    clock = FakeClock()
    monkeypatch.setattr(follow, "time", types.SimpleNamespace(monotonic=clock, sleep=clock.sleep))
    shown: list[tuple[str, str | None]] = []
    source, mirror = ListedSource(*[Unreachable("x")] * 4, {"a": state(s.COMPLETED)}), ListeningMirror("r-a")
    mirror.refreshed = refreshed
    follower = Follower(
        t.cast(t.Any, source), NOBODY_WAITS, "run", lambda record, waits_for: shown.append((record.status, waits_for)), lambda _s: clock.sleep(4)
    )
    assert follower.follow_moves(t.cast(t.Any, {"a": mirror}), {"a": WATCHER}, {}) == []
    assert (len(source.polls), shown[-1]) == (polls, (mirror.record.status, None))


def test_only_polls_without_an_answer_count_as_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first poll, and between two of them, the hosts are surveyed, records are written, or the ledger is waited for."""
    clock = FakeClock()
    monkeypatch.setattr(follow, "time", types.SimpleNamespace(monotonic=clock, sleep=clock.sleep))
    source = ListedSource(Unreachable("x"), {"a": state(s.RUNNING)}, Unreachable("x"), {"a": state(s.COMPLETED)})
    queue = AdmissionQueue(t.cast(t.Any, None), "root@control pid 1", 4)
    monkeypatch.setattr(queue, "admit_moves", lambda: clock.sleep(follow.UNREACHABLE_SECONDS + 1))
    follower = Follower(t.cast(t.Any, source), queue, "run", lambda record, waits_for: None, clock.sleep)
    assert follower.follow_moves(t.cast(t.Any, {"a": ListeningMirror("r-a")}), {"a": WATCHER}, {}) == []


def test_a_worker_without_its_parent_stops_before_a_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    source = ListedSource()
    follower = Follower(t.cast(t.Any, source), NOBODY_WAITS, "run", lambda record, waits_for: None, lambda seconds: None)
    monkeypatch.setattr(os, "getppid", lambda: 1)
    with pytest.raises(ControllerGone):
        follower.follow_moves(t.cast(t.Any, {"a": ListeningMirror("r-a")}), {"a": WATCHER}, {})
    assert source.polls == []


def test_the_watcher_is_told_how_many_sources_send_to_its_destinations() -> None:
    class FoundLinks:
        found: t.ClassVar[t.List[t.Dict[str, int]]] = [{}, {"qemu+tcp://kvm2/system": 2}, {"qemu+tcp://kvm2/system": 1}]

        def count_sources(self, moves: t.Sequence[MoveRecord]) -> t.Dict[str, int]:
            assert [move.id for move in moves] == ["r-a"]
            return self.found.pop(0)

    source, links = ListedSource({"a": state(s.RUNNING)}, {"a": state(s.RUNNING)}, {"a": state(s.COMPLETED)}), t.cast(t.Any, FoundLinks())
    follower = Follower(t.cast(t.Any, source), NOBODY_WAITS, "run", lambda record, waits_for: None, lambda seconds: None, links=links)
    assert follower.follow_moves(t.cast(t.Any, {"a": ListeningMirror("r-a")}), {"a": WATCHER}, {}) == []
    assert source.news == [None, {"sources": {"qemu+tcp://kvm2/system": 2}}, {"sources": {"qemu+tcp://kvm2/system": 1}}]


def test_following_no_move_polls_no_host() -> None:
    assert Followed(domains="").source.polls == []
