# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moves of one run that wait for their turn in a ledger, in both stores; the clock is a test's own."""

from __future__ import annotations

import datetime
import pathlib
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.mirror import Mirror
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.turns import Turns
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

    def run(self, parallel: int = 4) -> Turns:
        return Turns(self.ledger, "root@control pid 1", parallel, self.clock, self.now)

    def queued(self, name: str, source: str = "kvm1", destination: str = "kvm2", status: str = s.QUEUED) -> Mirror:
        """Open the record of a move and lead it to a status; each a second after the one before."""
        self.clock.sleep(1)
        ends = (schema.place(host, None, uuid_of(host)) for host in (source, destination))
        record = schema.new_record(s.LIVE_MIGRATION, {"uuid": uuid_of(name), "name": name}, *ends, {}, "root@control pid 1")
        record["created_at"] = self.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        mirror = Mirror(self.ledger, self.ledger.open_record(record), owner=True)
        for step in (s.SCHEDULED, s.QUEUED, s.PREPARING, s.RUNNING):
            self.lead(mirror, step)
            if step == status:
                break
        return mirror

    def lead(self, mirror: Mirror, status: str) -> None:
        record = schema.copied(mirror.record)
        schema.advance(record, status, "root@control pid 1")
        mirror.write(record)

    def ask(self, *runs: Turns, seconds: float = 2) -> None:
        """Let time pass, and let each of these runs ask."""
        self.clock.sleep(seconds)
        for run in runs:
            run.ask()


@pytest.fixture
def site(ledger: Ledger) -> Site:
    return Site(ledger)


def statuses(*mirrors: Mirror) -> list[str]:
    for mirror in mirrors:
        mirror.refresh()
    return [str(mirror.record["status"]) for mirror in mirrors]


def gone(*_given: t.Any, **_options: t.Any) -> t.Any:
    raise Unreachable("The ledger could not be reached.")


def test_a_move_under_no_limit_needs_no_turn(site: Site) -> None:
    run, move = site.run(), site.queued("a")
    run.enter(move, {}, 10)
    site.ask(run)
    assert not run.waits(move)
    assert (run.told, statuses(move)) == (None, [s.QUEUED])


def test_turns_are_given_in_order_as_far_as_the_limit_goes(site: Site) -> None:
    run, moves = site.run(), [site.queued(name) for name in "abc"]
    for move in moves:
        run.enter(move, {"moves_in": 2}, 0)
    site.ask(run)
    assert statuses(*moves) == [s.PREPARING, s.PREPARING, s.QUEUED]
    assert [run.waits(move) for move in moves] == [False, False, True]
    turn = moves[2].record["turn"]
    assert (turn["limits"], turn["until"]) == ({"moves_in": 2}, None)
    assert turn["waits_for"] == "2 are moving to kvm2 (a, b); the limit is 2 (kvmfleet_scheduler.limits.moves_in)"
    site.lead(moves[0], s.COMPLETED)
    site.ask(run, seconds=20)
    assert statuses(moves[2]) == [s.PREPARING]
    assert "turn" not in moves[2].record
    assert moves[2].record["history"][-1]["detail"] == "It had waited 20 s for its turn."
    assert run.told == {"given": {moves[0].record["id"]: "", moves[1].record["id"]: "", moves[2].record["id"]: "It had waited 20 s for its turn."}, "ended": {}}


def test_a_run_asks_for_no_more_turns_than_it_can_use(site: Site) -> None:
    run, moves = site.run(parallel=2), [site.queued(name, destination=f"to-{name}") for name in "abc"]
    for move in moves:
        run.enter(move, {"moves_total": 9}, 10)
    site.ask(run)
    site.ask(run, seconds=60)
    assert statuses(*moves) == [s.PREPARING, s.PREPARING, s.QUEUED]
    assert "turn" not in moves[2].record, "it waits for its own run, and not in the queue of the fleet"
    site.lead(moves[1], s.FAILED)
    site.ask(run)
    assert statuses(moves[2]) == [s.PREPARING], "the time for which it waits began with the room for it"


def test_of_two_runs_the_move_that_was_opened_first_goes_first(site: Site) -> None:
    busy = site.queued("busy", "kvm5", status=s.RUNNING)
    early, late = site.queued("early", "kvm3"), site.queued("late", "kvm4")
    runs = [site.run(), site.run()]
    for run, move in zip(runs, (early, late), strict=True):
        run.enter(move, ONE_IN, 0)
    site.ask(*runs)
    site.lead(busy, s.COMPLETED)
    site.ask(*reversed(runs))
    assert statuses(early, late) == [s.PREPARING, s.QUEUED]
    site.ask(runs[1], seconds=15)
    assert late.record["turn"]["waits_for"] == "1 is moving to kvm2 (early); the limit is 1 (kvmfleet_scheduler.limits.moves_in)"


def test_a_run_that_has_died_is_passed_over_when_it_was_silent_for_long_enough(site: Site) -> None:
    busy = site.queued("busy", "kvm5", status=s.RUNNING)
    early, late = site.queued("early", "kvm3"), site.queued("late", "kvm4")
    dead, alive = site.run(), site.run()
    dead.enter(early, ONE_IN, 0)
    alive.enter(late, ONE_IN, 0)
    site.ask(dead, alive)
    site.lead(busy, s.COMPLETED)
    site.ask(alive, seconds=20)
    assert statuses(early, late) == [s.QUEUED, s.QUEUED]
    assert "1 has come before (early)" in late.record["turn"]["waits_for"]
    site.ask(alive, seconds=11)
    assert statuses(early, late) == [s.QUEUED, s.PREPARING]


def test_a_run_that_waits_long_is_heard_of_all_the_time(site: Site) -> None:
    site.queued("busy", "kvm5", status=s.RUNNING)
    move, run = site.queued("a"), site.run()
    run.enter(move, ONE_IN, 0)
    seen = []
    for _second in range(60):
        site.ask(run, seconds=1)
        move.refresh()
        seen.append((site.now() - datetime.datetime.fromisoformat(move.record["turn"]["seen_at"])).total_seconds())
    assert max(seen) < 12
    assert move.stored.version < 12, "and no more is written for that than has to be"


def test_the_end_of_patience_is_told_to_the_watcher_and_no_turn_is_given_then(site: Site) -> None:
    busy = site.queued("busy", "kvm5", status=s.RUNNING)
    move, run = site.queued("a"), site.run()
    run.enter(move, ONE_IN, 30)
    site.ask(run)
    turn = move.record["turn"]
    assert datetime.datetime.fromisoformat(turn["until"]) - datetime.datetime.fromisoformat(turn["since"]) == datetime.timedelta(seconds=30)
    site.ask(run, seconds=29)
    assert run.told is None
    site.ask(run, seconds=2)
    why = "It waited 30 s for its turn, and nothing was started: 1 is moving to kvm2 (busy); the limit is 1 (kvmfleet_scheduler.limits.moves_in)."
    assert run.told == {"given": {}, "ended": {move.record["id"]: why}}
    site.lead(busy, s.COMPLETED)
    site.ask(run, seconds=2)
    assert statuses(move) == [s.QUEUED]


def test_without_the_ledger_nothing_begins_and_nobody_is_lost(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    move, run = site.queued("a"), site.run()
    run.enter(move, ONE_IN, 30)

    with monkeypatch.context() as patched:
        patched.setattr(site.ledger, "records", gone)
        site.ask(run)
        assert run.waits(move)
    site.ask(run)
    assert statuses(move) == [s.PREPARING]


def test_without_the_ledger_patience_ends_with_its_reason(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    move, run = site.queued("a"), site.run()
    run.enter(move, ONE_IN, 30)
    monkeypatch.setattr(site.ledger, "records", gone)
    site.ask(run)
    site.ask(run, seconds=40)
    assert run.told is not None
    assert run.told["ended"][move.record["id"]].endswith("nothing was started: the ledger gives no turns. The ledger could not be reached.")


def test_a_move_that_was_cancelled_meanwhile_gets_no_turn(site: Site) -> None:
    move, run = site.queued("a"), site.run()
    run.enter(move, ONE_IN, 30)
    site.lead(Mirror(site.ledger, site.ledger.get(move.record["id"]), owner=True), s.CANCELLED)
    site.ask(run)
    assert run.told is None
    assert statuses(move) == [s.CANCELLED]


def test_a_move_that_left_the_queue_gets_no_turn(site: Site) -> None:
    move, run = site.queued("a"), site.run()
    run.enter(move, ONE_IN, 30)
    run.leave(move)
    site.ask(run)
    assert statuses(move) == [s.QUEUED]
