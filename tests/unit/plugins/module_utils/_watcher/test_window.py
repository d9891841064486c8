# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How many moves run at once, and what happens to those that wait when their run has gone."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import types
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.link_share import MIB
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import NO_PROGRESS
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import AUTO_PARALLEL
from ansible_collections.kvmfleet.migration.plugins.module_utils._run_folder import admissions_path, heartbeat_path
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.control_files import Admissions, Heartbeat
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.dirty_rates import DirtyRates
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.window import MAX_CALLS, FixedPace, LinkPace, Window, describe_job, make_pace
from ansible_collections.kvmfleet.migration.tests.unit.fakes.clock import FakeClock
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._watcher.moves import RUN


class TimedMove:
    """A move that takes so many seconds of a fake clock."""

    def __init__(self, name: str, clock: FakeClock, seconds: float, log: t.List[str]) -> None:
        self.name, self._clock, self._seconds, self._log = name, clock, seconds, log
        self.started_at: t.Optional[float] = None
        self.abort_at: t.Optional[float] = None
        self.is_adopted = False
        self.waits = False
        self.is_held_up = False
        self.order = types.SimpleNamespace(record=types.SimpleNamespace(id=name))
        self.arrives_after: t.Optional[float] = None

    def start(self) -> None:
        self.started_at = self._clock()
        self._log.append(f"start {self.name}")

    def is_alive(self) -> bool:
        return self.started_at is not None and self._clock() < self.started_at + self._seconds

    @property
    def has_arrived(self) -> bool:
        return self.started_at is not None and self.arrives_after is not None and self._clock() >= self.started_at + self.arrives_after

    def attend_while_waiting(self) -> bool:
        assert self.started_at is None, "only what waits is asked"
        if self.abort_at is None or self._clock() < self.abort_at:
            return False
        self._log.append(f"abort {self.name}")
        return True

    def admit_move(self, why: str) -> None:
        self.waits = False
        self._log.append(f"let {self.name} {why}")

    def cancel_move(self, reason: str, detail: str) -> None:
        assert self.started_at is None, "only what waits is cancelled"
        self._log.append(f"cancel {self.name} {reason}")


class Running:
    """A window over moves named a, b, c …, with a run that beats until a given second."""

    def __init__(
        self,
        folder: pathlib.Path,
        parallel: int,
        *seconds: float,
        beats_until: float = 10**6,
        aborts: t.Optional[t.Dict[int, float]] = None,
        adopted: t.Sequence[int] = (),
        arrives_after: t.Optional[float] = None,
        waits: t.Sequence[int] = (),
        held_up: t.Optional[t.Dict[int, float]] = None,
        told: t.Optional[t.Dict[float, t.Dict[str, t.Dict[str, str]]]] = None,
    ) -> None:
        self.clock = FakeClock()
        self.log: t.List[str] = []
        self.most = self.most_under_way = 0
        self.beats_until = beats_until
        self.path = pathlib.Path(heartbeat_path(RUN, str(folder)))
        self.moves = [TimedMove(chr(ord("a") + index), self.clock, length, self.log) for index, length in enumerate(seconds)]
        for index, at in (aborts or {}).items():
            self.moves[index].abort_at = at
        for index in adopted:
            self.moves[index].is_adopted = True
        for index in waits:
            self.moves[index].waits = True
        for index in held_up or ():
            self.moves[index].is_held_up = True
        self.held_up = held_up or {}
        self.told = told or {}
        self.turns = pathlib.Path(admissions_path(RUN, str(folder)))
        for move in self.moves:
            move.arrives_after = arrives_after
        self.clock.every_step(self._step)
        Window(
            t.cast(t.Any, self.moves), FixedPace(parallel), Heartbeat(RUN, self.clock, str(folder)), Admissions(RUN, str(folder)), self.clock.sleep
        ).run_moves()

    def _step(self, seconds: float) -> None:
        for index in [index for index, until in self.held_up.items() if until <= self.clock()]:
            self.moves[index].is_held_up = False
        alive = [move for move in self.moves if move.is_alive()]
        self.most = max(self.most, len(alive))
        self.most_under_way = max(self.most_under_way, sum(not move.has_arrived for move in alive))
        if self.clock() <= self.beats_until:
            self.path.write_text(str(int(self.clock())), encoding="ascii")
        for at in [at for at in self.told if at <= self.clock()]:
            self.turns.write_text(json.dumps(self.told.pop(at)), encoding="ascii")


@pytest.mark.parametrize("parallel", [1, 2, 4, 64])
def test_at_most_parallel_moves_run_at_once_and_in_order(tmp_path: pathlib.Path, parallel: int) -> None:
    running = Running(tmp_path, parallel, *[5.0] * 8)
    assert running.log == [f"start {name}" for name in "abcdefgh"]
    assert running.most == min(parallel, 8)


def test_a_free_slot_is_used_at_once(tmp_path: pathlib.Path) -> None:
    running = Running(tmp_path, 2, 100, 5, 5, 5)
    started = [move.started_at for move in running.moves]
    assert started[:2] == [0, 0]
    assert 5 <= (started[2] or 0) < 5.3
    assert 10 <= (started[3] or 0) < 10.6
    assert 100 <= running.clock() < 101


def test_an_arrived_guest_frees_its_slot_before_the_move_ends(tmp_path: pathlib.Path) -> None:
    running = Running(tmp_path, 2, *[4.0] * 6, arrives_after=1)
    started = [move.started_at or 0 for move in running.moves]
    assert running.most_under_way == 2
    assert running.most == 6
    assert [round(at) for at in started] == [0, 0, 1, 1, 2, 2]
    assert 6 <= running.clock() < 7, "the window is over when the last one has ended, not when it has arrived"


def test_a_move_that_waits_for_another_job_of_its_guest_holds_up_no_other(tmp_path: pathlib.Path) -> None:
    running = Running(tmp_path, 1, 5, 5, 5, held_up={0: 7})
    assert running.log == ["start b", "start c", "start a"]
    started = [move.started_at or 0 for move in running.moves]
    assert started[1] == 0
    assert started[2] < 6
    assert started[0] >= 10


def test_a_move_that_waits_for_another_job_is_cancelled_when_its_run_is_gone(tmp_path: pathlib.Path) -> None:
    assert Running(tmp_path, 1, 5, beats_until=3, held_up={0: 1000}).log == ["cancel a controller_lost"]


@pytest.mark.parametrize(("parallel", "most"), [(4, MAX_CALLS), (MAX_CALLS + 4, MAX_CALLS + 4)])
def test_the_number_of_moves_that_finish_is_limited(tmp_path: pathlib.Path, parallel: int, most: int) -> None:
    running = Running(tmp_path, parallel, *[40.0] * 30, arrives_after=1)
    assert running.most == most
    assert running.most_under_way == parallel


def test_a_lost_run_cancels_queued_moves_and_follows_running_ones(tmp_path: pathlib.Path) -> None:
    running = Running(tmp_path, 2, 300, 80, 5, 5, beats_until=10)
    assert running.log == ["start a", "start b", "cancel c controller_lost", "cancel d controller_lost"]
    assert 300 <= running.clock() < 301


def test_a_run_that_is_silent_for_less_than_60_seconds_is_not_lost(tmp_path: pathlib.Path) -> None:
    running = Running(tmp_path, 1, 50, 5, beats_until=10)
    assert running.log == ["start a", "start b"]


def test_a_run_without_a_heartbeat_starts_moves_only_in_the_first_minute(tmp_path: pathlib.Path) -> None:
    running = Running(tmp_path, 1, 50, 50, 50, beats_until=-1)
    assert running.log == ["start a", "start b", "cancel c controller_lost"]


def test_the_heartbeat_file_is_removed_at_the_end_of_the_window(tmp_path: pathlib.Path) -> None:
    assert not Running(tmp_path, 4, 5, 5).path.exists()


def test_a_window_without_moves_ends_at_once(tmp_path: pathlib.Path) -> None:
    assert Running(tmp_path, 4).clock() == 0


def test_the_abort_of_a_queued_move_does_not_affect_the_others(tmp_path: pathlib.Path) -> None:
    running = Running(tmp_path, 1, 20, 5, 5, aborts={1: 3})
    assert running.log == ["start a", "abort b", "start c"]
    assert 20 <= (running.moves[2].started_at or 0) < 20.5


def test_the_window_ends_with_the_running_move_when_all_others_are_aborted(tmp_path: pathlib.Path) -> None:
    running = Running(tmp_path, 1, 20, 5, 5, aborts={1: 3, 2: 4})
    assert running.log == ["start a", "abort b", "abort c"]
    assert 20 <= running.clock() < 21


def test_an_adopted_move_is_followed_although_the_run_is_lost(tmp_path: pathlib.Path) -> None:
    running = Running(tmp_path, 1, 100, 5, 5, beats_until=10, adopted=[2])
    assert running.log == ["start a", "cancel b controller_lost", "start c"]


def given(*names: str) -> t.Dict[str, t.Dict[str, str]]:
    return {"given": dict.fromkeys(names, "its turn"), "ended": {}}


def test_a_move_without_admission_is_overtaken_and_starts_first_once_admitted(tmp_path: pathlib.Path) -> None:
    running = Running(tmp_path, 1, 5, 5, 5, 5, waits=[0], told={7: given("a")})
    assert running.log == ["start b", "start c", "let a its turn", "start a", "start d"]


def test_a_move_without_admission_never_starts_and_is_cancelled_at_its_deadline(tmp_path: pathlib.Path) -> None:
    running = Running(tmp_path, 4, 5, 5, waits=[0, 1], told={20: given("b"), 30: {"given": {"b": "its turn"}, "ended": {"a": "It waited 30 s."}}})
    assert running.log == ["let b its turn", "start b", "cancel a queue_timeout"]
    assert 20 <= (running.moves[1].started_at or 0) < 20.5
    assert not running.turns.exists()


@pytest.mark.parametrize("said", ["{", "[]", "{}", '{"given": ["a"]}', '{"given": {"a": 1}, "ended": null}'])
def test_an_invalid_admission_file_admits_no_move(tmp_path: pathlib.Path, said: str) -> None:
    pathlib.Path(admissions_path(RUN, str(tmp_path))).write_text(said, encoding="ascii")
    running = Running(tmp_path, 4, 5, 5, waits=[0], beats_until=10)
    assert running.log == ["start b", "cancel a controller_lost"]


def test_a_move_that_waits_for_admission_can_be_aborted_or_cancelled(tmp_path: pathlib.Path) -> None:
    running = Running(tmp_path, 4, 5, 5, waits=[0, 1], aborts={0: 3}, beats_until=10)
    assert running.log == ["abort a", "cancel b controller_lost"]


# -- the pace of a shared link -----------------------------------------------------------------------------------


class SharedMove:
    """A move as L(LinkPace) sees it."""

    def __init__(self, uuid: str, sends: bool = False, flags: t.Sequence[str] = (), copies: bool = False, iteration: int = 1, dirty_mib: int = 0) -> None:
        progress = dataclasses.replace(NO_PROGRESS, iteration=iteration, dirty_rate_bytes=dirty_mib * MIB)
        if sends:
            progress = dataclasses.replace(progress, memory_total_bytes=1024 * MIB, memory_remaining_bytes=200 * MIB)
        self.journal = types.SimpleNamespace(
            record=types.SimpleNamespace(progress=progress, connection=None, memory_bytes=1024 * MIB, disk_copies=["vda"] if copies else [])
        )
        self.order = types.SimpleNamespace(uuid=uuid, flags=flags, destination_uri="qemu+tcp://kvm2/system")
        self.is_adopted = self.is_foreign = self.is_free = self.has_arrived = self.is_settling = False
        self.shares: t.List[int] = []

    def give_share(self, mib: int) -> None:
        self.shares.append(mib)


class KnownRates(DirtyRates):
    """Rates that are known from the beginning; null is one that is being measured."""

    def __init__(self, rates: t.Mapping[str, t.Optional[int]]) -> None:
        self._given = rates

    def read_new(self) -> None:
        pass

    def rate_of(self, uuid: str) -> t.Optional[int]:
        return self._given.get(uuid, 0)


def pace_of(*moves: SharedMove, rates: t.Optional[t.Mapping[str, t.Optional[int]]] = None, sources: int = 1) -> LinkPace:
    return LinkPace([move.order.uuid for move in moves], 64 * MIB, KnownRates(rates or {}), lambda: {"qemu+tcp://kvm2/system": sources}, FakeClock())


def choose(pace: LinkPace, waiting: t.Sequence[SharedMove], running: t.Sequence[SharedMove]) -> t.Optional[str]:
    chosen = pace.choose_next(t.cast(t.Any, waiting), t.cast(t.Any, running))
    return None if chosen is None else chosen.order.uuid


def test_a_job_that_exists_gets_a_watcher_before_new_ones_are_started() -> None:
    first, second = SharedMove("a"), SharedMove("b")
    second.is_adopted = True
    assert choose(pace_of(first, second), [first, second], []) == "b"


def test_the_shares_of_a_decision_reach_the_moves() -> None:
    sends, waits, queued = SharedMove("a", sends=True), SharedMove("b", sends=True), SharedMove("c")
    assert choose(pace_of(sends, waits, queued), [queued], [sends, waits]) == "c"
    assert (sends.shares, waits.shares, queued.shares) == ([0], [1], [1])


def test_the_order_of_the_run_holds_also_after_an_admission() -> None:
    first, second = SharedMove("a", sends=True), SharedMove("b", sends=True)
    choose(pace_of(first, second), [], [second, first])
    assert (first.shares, second.shares) == ([0], [1])


def test_a_rate_that_was_measured_before_the_move_makes_a_guest_busy() -> None:
    first, second = SharedMove("a", sends=True), SharedMove("b", sends=True)
    choose(pace_of(first, second, rates={"b": 28 * MIB}), [], [first, second])
    assert (first.shares, second.shares) == ([1], [0])


def test_the_figure_of_the_job_replaces_a_rate_that_was_measured_before() -> None:
    first, second = SharedMove("a", sends=True), SharedMove("b", sends=True, dirty_mib=1)
    choose(pace_of(first, second, rates={"b": 28 * MIB}), [], [first, second])
    assert (first.shares, second.shares) == ([0], [1])


def test_a_guest_that_is_still_measured_is_not_prepared_behind_one_that_takes_long() -> None:
    first, second, third = SharedMove("a", sends=True), SharedMove("b"), SharedMove("c")
    rates = {"a": None, "b": None}
    assert choose(pace_of(first, second, rates=rates), [second], [first]) is None
    assert choose(pace_of(first, second, third, rates=rates), [second, third], [first]) == "c"
    assert choose(pace_of(first, second, rates={"b": None}), [second], [first]) == "b"


@pytest.mark.parametrize(("name", "value"), [("has_arrived", True), ("is_settling", True)])
def test_a_guest_that_has_left_the_link_takes_no_part_in_it(name: str, value: bool) -> None:
    gone, next_one = SharedMove("a", sends=True), SharedMove("b", sends=True)
    setattr(gone, name, value)
    choose(pace_of(gone, next_one), [], [gone, next_one])
    assert (gone.shares, next_one.shares) == ([], [0])


@pytest.mark.parametrize(
    ("move", "may_wait"),
    [
        (SharedMove("b", sends=True), True),
        (SharedMove("b", sends=True, copies=True), False),
        (SharedMove("b", sends=True, flags=["AUTO_CONVERGE"]), True),
        (SharedMove("b", sends=True, flags=["AUTO_CONVERGE"], iteration=2), False),
    ],
)
def test_jobs_that_may_not_wait_keep_their_bandwidth(move: SharedMove, may_wait: bool) -> None:
    first = SharedMove("a", sends=True)
    choose(pace_of(first, move), [], [first, move])
    assert move.shares == [1 if may_wait else 0]


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_the_job_of_another_tool_uses_the_link_and_never_waits(order: str) -> None:
    moves = {"a": SharedMove("a", sends=True), "b": SharedMove("b", sends=True)}
    moves["a"].is_foreign = True
    listed = [moves[uuid] for uuid in order]
    choose(pace_of(*listed), [], listed)
    assert not describe_job(t.cast(t.Any, moves["a"]), True, 0).may_wait
    assert moves["b"].shares == [1 if order == "ab" else 0]


def test_other_sources_of_the_destination_have_their_part() -> None:
    move = SharedMove("a", sends=True)
    choose(pace_of(move, sources=4), [], [move])
    assert move.shares == [16]


def test_no_more_calls_than_libvirt_can_take_are_started() -> None:
    arrived = [SharedMove(str(number)) for number in range(MAX_CALLS)]
    for move in arrived:
        move.has_arrived = True
    queued = SharedMove("q")
    assert choose(pace_of(queued), [queued], arrived) is None
    assert choose(pace_of(queued), [queued], arrived[1:]) == "q"


def test_a_number_of_moves_shares_nothing() -> None:
    assert isinstance(make_pace(4, [], KnownRates({}), dict), FixedPace)
    assert isinstance(make_pace(AUTO_PARALLEL, [], KnownRates({}), dict), LinkPace)


def test_a_move_for_which_the_host_has_no_thread_begins_later(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The moves that run are watched meanwhile."""
    start = TimedMove.start

    def start_late(move: TimedMove) -> None:
        if move.name == "b" and move._clock() < 2:
            raise RuntimeError("can't start new thread")
        start(move)

    monkeypatch.setattr(TimedMove, "start", start_late)
    running = Running(tmp_path, 2, 5.0, 5.0, 5.0)
    assert running.log == ["start a", "start b", "start c"]
    assert 2 <= (running.moves[1].started_at or 0) < 2.3
