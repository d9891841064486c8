# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moves of one run that wait for their admission in a ledger, in both stores, with a simulated clock."""

from __future__ import annotations

import dataclasses
import datetime
import pathlib
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Turn
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.admission import ASK_SECONDS, AdmissionQueue
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.job import RecordMirror
from ansible_collections.kvmfleet.migration.tests.unit.fakes.clock import FakeClock
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import uuid_of

BEGINNING = datetime.datetime(2026, 11, 21, 3, tzinfo=datetime.UTC)
ONE_IN = {"moves_in": 1}


@pytest.fixture(params=["file", "etcd"])
def ledger(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Ledger:
    """A ledger in either store."""
    return open_ledger(str(tmp_path / "ledger") if request.param == "file" else request.getfixturevalue("member").location(f"/tests/{uuid.uuid4()}"))


class Site:
    """Runs of one fleet, each with a number of moves at once; all hear the same clock."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.clock = FakeClock()

    def now(self) -> datetime.datetime:
        return BEGINNING + datetime.timedelta(seconds=self.clock())

    def run(self, parallel: int = 4) -> AdmissionQueue:
        return AdmissionQueue(self.ledger, "root@control pid 1", parallel, self.clock, self.now)

    def queued(self, name: str, source: str = "kvm1", destination: str = "kvm2", status: str = s.QUEUED) -> RecordMirror:
        """Open the record of a move and lead it to a status; each a second after the one before."""
        self.clock.sleep(1)
        source_ref, destination_ref = (HostRef(host, None, uuid_of(host)) for host in (source, destination))
        opened = new_record(s.LIVE_MIGRATION, DomainRef(uuid_of(name), name), source_ref, destination_ref, {}, "root@control pid 1")
        record = dataclasses.replace(opened, created_at=self.now().isoformat(timespec="milliseconds").replace("+00:00", "Z"))
        mirror = RecordMirror(self.ledger, self.ledger.open_record(record), owner=True)
        for step in (s.SCHEDULED, s.QUEUED, s.PREPARING, s.RUNNING):
            self.lead(mirror, step)
            if step == status:
                break
        return mirror

    def lead(self, mirror: RecordMirror, status: str) -> None:
        record = mirror.record.advance(status, "root@control pid 1")
        mirror.write_record(record)

    def ask(self, *runs: AdmissionQueue, seconds: float = 2) -> None:
        """Let time pass, and let each of these runs ask."""
        self.clock.sleep(seconds)
        for run in runs:
            run.admit_moves()


@pytest.fixture
def site(ledger: Ledger) -> Site:
    return Site(ledger)


def statuses(*mirrors: RecordMirror) -> list[str]:
    for mirror in mirrors:
        mirror.read_again()
    return [str(mirror.record.status) for mirror in mirrors]


def turn_of(mirror: RecordMirror) -> Turn:
    assert mirror.record.turn
    return mirror.record.turn


def raise_unreachable(*_given: t.Any, **_options: t.Any) -> t.Any:
    raise Unreachable("The ledger could not be reached.")


def test_a_move_without_limits_needs_no_admission(site: Site) -> None:
    run, move = site.run(), site.queued("a")
    run.add_move(move, {}, 10)
    site.ask(run)
    assert not run.is_waiting(move)
    assert (run.answers, statuses(move)) == (None, [s.QUEUED])


def test_moves_are_admitted_in_order_up_to_the_limit(site: Site) -> None:
    run, moves = site.run(), [site.queued(name) for name in "abc"]
    for move in moves:
        run.add_move(move, {"moves_in": 2}, 0)
    site.ask(run)
    assert statuses(*moves) == [s.PREPARING, s.PREPARING, s.QUEUED]
    assert [run.is_waiting(move) for move in moves] == [False, False, True]
    turn = turn_of(moves[2])
    assert (turn.limits, turn.until) == ({"moves_in": 2}, None)
    assert turn.waits_for == "2 are moving to kvm2 (a, b); the limit is 2 (kvmfleet_scheduler.limits.moves_in)"
    site.lead(moves[0], s.COMPLETED)
    site.ask(run, seconds=20)
    assert statuses(moves[2]) == [s.PREPARING]
    assert not moves[2].record.turn
    assert moves[2].record.history[-1].detail == "It had waited 20 s for its turn."
    assert run.answers == {"given": {moves[0].record.id: "", moves[1].record.id: "", moves[2].record.id: "It had waited 20 s for its turn."}, "ended": {}}


def test_a_run_requests_no_more_admissions_than_its_window(site: Site) -> None:
    run, moves = site.run(parallel=2), [site.queued(name, destination=f"to-{name}") for name in "abc"]
    for move in moves:
        run.add_move(move, {"moves_total": 9}, 10)
    site.ask(run)
    site.ask(run, seconds=60)
    assert statuses(*moves) == [s.PREPARING, s.PREPARING, s.QUEUED]
    assert not moves[2].record.turn, "it waits for its own run, and not in the queue of the fleet"
    site.lead(moves[1], s.FAILED)
    site.ask(run)
    assert statuses(moves[2]) == [s.PREPARING], "the time for which it waits began with the room for it"


def test_of_two_runs_the_move_that_was_opened_first_is_admitted_first(site: Site) -> None:
    busy = site.queued("busy", "kvm5", status=s.RUNNING)
    early, late = site.queued("early", "kvm3"), site.queued("late", "kvm4")
    runs = [site.run(), site.run()]
    for run, move in zip(runs, (early, late), strict=True):
        run.add_move(move, ONE_IN, 0)
    site.ask(*runs)
    site.lead(busy, s.COMPLETED)
    site.ask(*reversed(runs))
    assert statuses(early, late) == [s.PREPARING, s.QUEUED]
    site.ask(runs[1], seconds=15)
    assert turn_of(late).waits_for == "1 is moving to kvm2 (early); the limit is 1 (kvmfleet_scheduler.limits.moves_in)"


def test_a_dead_run_is_skipped_after_it_was_silent_long_enough(site: Site) -> None:
    busy = site.queued("busy", "kvm5", status=s.RUNNING)
    early, late = site.queued("early", "kvm3"), site.queued("late", "kvm4")
    dead, alive = site.run(), site.run()
    dead.add_move(early, ONE_IN, 0)
    alive.add_move(late, ONE_IN, 0)
    site.ask(dead, alive)
    site.lead(busy, s.COMPLETED)
    site.ask(alive, seconds=20)
    assert statuses(early, late) == [s.QUEUED, s.QUEUED]
    assert "1 is queued before it (early)" in turn_of(late).waits_for
    site.ask(alive, seconds=11)
    assert statuses(early, late) == [s.QUEUED, s.PREPARING]


def test_a_waiting_run_renews_its_turn_periodically(site: Site) -> None:
    site.queued("busy", "kvm5", status=s.RUNNING)
    move, run = site.queued("a"), site.run()
    run.add_move(move, ONE_IN, 0)
    seen = []
    for _second in range(60):
        site.ask(run, seconds=1)
        move.read_again()
        seen.append((site.now() - datetime.datetime.fromisoformat(turn_of(move).seen_at)).total_seconds())
    assert max(seen) < 12
    assert move.stored.version < 12, "and no more is written for that than has to be"


def test_the_queue_timeout_is_written_for_the_watcher_and_ends_the_admission(site: Site) -> None:
    busy = site.queued("busy", "kvm5", status=s.RUNNING)
    move, run = site.queued("a"), site.run()
    run.add_move(move, ONE_IN, 30)
    site.ask(run)
    turn = turn_of(move)
    assert datetime.datetime.fromisoformat(str(turn.until)) - datetime.datetime.fromisoformat(turn.since) == datetime.timedelta(seconds=30)
    site.ask(run, seconds=29)
    assert run.answers is None
    site.ask(run, seconds=2)
    why = "It waited 30 s for its turn, and nothing was started: 1 is moving to kvm2 (busy); the limit is 1 (kvmfleet_scheduler.limits.moves_in)."
    assert run.answers == {"given": {}, "ended": {move.record.id: why}}
    site.lead(busy, s.COMPLETED)
    site.ask(run, seconds=2)
    assert statuses(move) == [s.QUEUED]


def test_moves_wait_while_the_ledger_is_unavailable(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    move, run = site.queued("a"), site.run()
    run.add_move(move, ONE_IN, 30)

    with monkeypatch.context() as patched:
        patched.setattr(site.ledger, "list_records", raise_unreachable)
        site.ask(run)
        assert run.is_waiting(move)
    site.ask(run)
    assert statuses(move) == [s.PREPARING]


def test_the_queue_timeout_names_an_unavailable_ledger(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    move, run = site.queued("a"), site.run()
    run.add_move(move, ONE_IN, 30)
    monkeypatch.setattr(site.ledger, "list_records", raise_unreachable)
    site.ask(run)
    site.ask(run, seconds=40)
    assert run.answers is not None
    assert run.answers["ended"][move.record.id].endswith(
        "nothing was started: the ledger is unavailable, so no move is admitted. The ledger could not be reached."
    )


def test_a_cancelled_move_is_not_admitted(site: Site) -> None:
    move, run = site.queued("a"), site.run()
    run.add_move(move, ONE_IN, 30)
    site.lead(RecordMirror(site.ledger, site.ledger.read_record(move.record.record_id), owner=True), s.CANCELLED)
    site.ask(run)
    assert run.answers is None
    assert statuses(move) == [s.CANCELLED]


def test_a_move_that_left_the_queue_is_not_admitted(site: Site) -> None:
    move, run = site.queued("a"), site.run()
    run.add_move(move, ONE_IN, 30)
    run.drop_move(move)
    site.ask(run)
    assert statuses(move) == [s.QUEUED]


def test_moves_that_have_waited_are_admitted_together_when_there_is_room_for_all(site: Site) -> None:
    others, moves = [site.queued(name, status=s.RUNNING) for name in "ab"], [site.queued(name) for name in "cd"]
    run = site.run()
    for move in moves:
        run.add_move(move, {"moves_in": 2}, 0)
    site.ask(run)
    assert [turn_of(move).limits for move in moves] == [{"moves_in": 2}] * 2
    for other in others:
        site.lead(other, s.COMPLETED)
    site.ask(run, seconds=20)
    assert statuses(*moves) == [s.PREPARING, s.PREPARING]


def test_a_move_that_is_admitted_when_its_patience_ends_is_not_cancelled(site: Site) -> None:
    other, move, run = site.queued("a", status=s.RUNNING), site.queued("b"), site.run()
    run.add_move(move, ONE_IN, 20)
    site.ask(run)
    site.lead(other, s.COMPLETED)
    site.ask(run, seconds=20)
    assert statuses(move) == [s.PREPARING]
    assert run.answers == {"given": {move.record.id: "It had waited 20 s for its turn."}, "ended": {}}


def test_the_patience_of_a_move_ends_with_its_last_second(site: Site) -> None:
    site.queued("a", status=s.RUNNING)
    move, run = site.queued("b"), site.run()
    run.add_move(move, ONE_IN, 20)
    site.ask(run)
    site.ask(run, seconds=19)
    assert run.is_waiting(move)
    site.ask(run, seconds=1)
    assert not run.is_waiting(move)


def test_the_ledger_is_not_asked_at_each_poll(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.queued("a", status=s.RUNNING)
    move, run, asked = site.queued("b"), site.run(), []
    run.add_move(move, ONE_IN, 0)
    site.ask(run)
    monkeypatch.setattr(run, "_open_records", lambda: asked.append(site.clock()) or [])
    for _poll in range(10):
        site.ask(run, seconds=ASK_SECONDS / 20)
    assert asked == []
