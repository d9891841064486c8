# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A watcher from its orders to its final state, in its own process, between fake hosts."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import time
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.interface import Host
from ansible_collections.kvmfleet.migration.plugins.module_utils._live_watchers import identify_watcher, is_alive
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment, boot_moment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import StartOrder, read_watcher
from ansible_collections.kvmfleet.migration.plugins.module_utils._run_folder import Ownership
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher import run
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.run import start_watcher, sweep_folder
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import UUID, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._watcher.moves import RUN, Document, order_of, record_of, state_in

OTHER = "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c02"
DAY = 24 * 3600


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "run").mkdir(mode=0o700)
    return tmp_path / "run"


def start(orders: t.List[StartOrder], folder: pathlib.Path, fleet: t.Optional[FakeFleet] = None) -> t.Dict[str, t.Any]:
    return start_watcher(orders, RUN, 4, (fleet or FakeFleet()).open, str(folder))


def wait_until_ended(folder: pathlib.Path, uuid: str = UUID) -> Document:
    limit = time.monotonic() + 300
    while state_in(folder, uuid)["status"] not in s.FINAL:
        assert time.monotonic() < limit, state_in(folder, uuid)
        time.sleep(0.05)
    return state_in(folder, uuid)


def adopting_order(uuid: str = UUID, generation: int = 3) -> StartOrder:
    """A move that ended unseen: to be settled, which is soon done."""
    return order_of(record_of(uuid, status=s.RUNNING, generation=generation), adopt=True)


def fleet_after_moves() -> FakeFleet:
    fleet = FakeFleet()
    for uuid in (UUID, OTHER):
        fleet.guest(uuid=uuid, on="kvm2")
    return fleet


def test_accepted_orders_are_reported_by_domain_and_completed(folder: pathlib.Path) -> None:
    report = start([adopting_order(), adopting_order(OTHER)], folder, fleet_after_moves())
    assert (sorted(report["taken"]), report["refused"]) == (sorted([UUID, OTHER]), {})
    assert report["watcher"]["pid"] != os.getpid()
    assert [wait_until_ended(folder, uuid)["status"] for uuid in (UUID, OTHER)] == [s.COMPLETED, s.COMPLETED]


def test_a_watcher_asks_again_while_the_host_has_no_thread_for_a_connection(folder: pathlib.Path) -> None:
    fleet, refusals = fleet_after_moves(), ["can't start new thread"] * 3

    def open_one(uri: str, timeout_seconds: t.Optional[float] = None) -> Host:
        if refusals:
            raise RuntimeError(refusals.pop())
        return fleet.open(uri, timeout_seconds)

    start_watcher([adopting_order()], RUN, 4, open_one, str(folder))
    assert wait_until_ended(folder)["status"] == s.COMPLETED


def test_an_adopted_record_gets_a_higher_generation(folder: pathlib.Path) -> None:
    earlier = Ownership(UUID, str(folder))
    earlier.begin_record("another record", 7)
    earlier.release_lock()
    assert start([adopting_order(generation=3)], folder, fleet_after_moves())["taken"] == {UUID: 8}
    assert wait_until_ended(folder)["generation"] == 8


BEFORE = {"state": "running", "persistent": True, "autostart": True, "at_destination": False}


def begun_and_died(folder: pathlib.Path, order: StartOrder, **changes: t.Any) -> None:
    """Leave the state file of a watcher that has begun the move since the control node read the ledger, and that lives no more."""
    state = {**encode(order.record), "status": s.RUNNING, "before": BEFORE, "acts": [{"at": "2026-01-01T00:00:00.000Z", "act": "migrate"}], **changes}
    (folder / f"{UUID}.json").write_text(json.dumps({**state, "watcher": {"pid": 1}, "answers": {}}))


@pytest.mark.parametrize("status", [s.RUNNING, s.CANCELLED])
def test_an_adopted_record_includes_what_a_dead_watcher_wrote(folder: pathlib.Path, status: str) -> None:
    order = order_of(record_of(generation=4), adopt=True)
    begun_and_died(folder, order, status=status)
    assert start([order], folder, fleet_after_moves())["taken"] == {UUID: 5}
    record = wait_until_ended(folder)
    assert (record["status"], record["before"], record["generation"]) == (s.COMPLETED, BEFORE, 5)
    assert "migrate" in [one["act"] for one in record["acts"]]


@pytest.mark.parametrize(("written", "kept"), [({"seconds": 190, "since": 200}, True), ({"seconds": 190.5}, True), ("long", False)])
def test_an_adopted_move_keeps_the_time_that_its_job_waited_for_the_link(folder: pathlib.Path, written: t.Any, kept: bool) -> None:
    order = order_of(record_of(generation=4), adopt=True)
    begun_and_died(folder, order, link_wait=written)
    start([order], folder, fleet_after_moves())
    assert wait_until_ended(folder).get("link_wait") == (written if kept else None)


@pytest.mark.parametrize(("written", "kept"), [({"paused_at": 31.5}, True), ({"paused_at": 7, "bandwidth_mib": 50}, True), ({"paused_at": "long"}, False)])
def test_an_adopted_move_keeps_the_progress_of_forcing(folder: pathlib.Path, written: t.Any, kept: bool) -> None:
    order = order_of(record_of(generation=4), adopt=True)
    begun_and_died(folder, order, forcing=written)
    start([order], folder, fleet_after_moves())
    assert wait_until_ended(folder).get("forcing") == (written if kept else None)


@pytest.mark.parametrize(("changes", "expected"), [({}, 812.5), ({"id": OTHER}, None)])
def test_an_adopted_move_keeps_the_start_of_its_job(folder: pathlib.Path, changes: Document, expected: t.Optional[float]) -> None:
    order = order_of(record_of(generation=4), adopt=True)
    begun_and_died(folder, order, job_started_at=812.5, **changes)
    ownership = Ownership(UUID, str(folder))
    assert run._open_journal(order, identify_watcher(RUN), ownership, str(folder)).job_started_at == expected
    ownership.release_lock()


def test_the_time_that_the_job_of_another_record_waited_is_not_kept(folder: pathlib.Path) -> None:
    order = order_of(record_of(generation=4), adopt=True)
    begun_and_died(folder, order, id=OTHER, link_wait={"seconds": 190}, forcing={"paused_at": 7})
    start([order], folder, fleet_after_moves())
    assert {"link_wait", "forcing"}.isdisjoint(wait_until_ended(folder))


@pytest.mark.parametrize("changes", [{"id": OTHER}, {"generation": 3}, {"acts": "none"}])
def test_state_files_of_other_older_or_damaged_records_are_not_adopted(folder: pathlib.Path, changes: t.Dict[str, t.Any]) -> None:
    order = order_of(record_of(generation=4), adopt=True)
    begun_and_died(folder, order, **changes)
    start([order], folder, fleet_after_moves())
    assert wait_until_ended(folder)["before"] == {}


def test_a_refused_order_does_not_stop_the_others(folder: pathlib.Path) -> None:
    late = Ownership(UUID, str(folder))
    late.begin_record("a newer record", 9)
    late.release_lock()
    report = start([order_of(record_of(generation=9)), adopting_order(OTHER)], folder, fleet_after_moves())
    assert list(report["taken"]) == [OTHER]
    assert report["refused"][UUID]["error_code"] == "conflict"
    assert "came too late" in report["refused"][UUID]["msg"]
    assert wait_until_ended(folder, OTHER)["status"] == s.COMPLETED
    assert not (folder / f"{UUID}.json").exists(), "what was refused has no state file of ours"


def test_a_domain_that_is_watched_already_is_refused(folder: pathlib.Path) -> None:
    watching = Ownership(UUID, str(folder))
    try:
        report = start([adopting_order()], folder)
    finally:
        watching.release_lock()
    assert (report["taken"], report["refused"][UUID]["error_code"]) == ({}, "conflict")


def test_the_watcher_ends_after_its_last_move_and_releases_the_lock(folder: pathlib.Path) -> None:
    watcher = start([adopting_order()], folder, fleet_after_moves())["watcher"]
    wait_until_ended(folder)
    limit = time.monotonic() + 300
    while is_alive(read_watcher(watcher)):
        assert time.monotonic() < limit
        time.sleep(0.05)
    Ownership(UUID, str(folder)).release_lock()
    assert not list(folder.glob("*.heartbeat"))
    assert (folder / f"{RUN}.log").read_text(encoding="utf-8") == ""


def test_old_files_of_other_runs_are_removed_except_state_files_and_locks(folder: pathlib.Path) -> None:
    old = time.time() - 2 * DAY
    for name in ("a.log", "b.heartbeat", "c.json.77.new", f"{OTHER}.json", f"{OTHER}.lock", "young.log"):
        (folder / name).write_text("{}", encoding="ascii")
        if name != "young.log":
            os.utime(folder / name, (old, old))
    start([], folder)
    left = {path.name for path in folder.iterdir()}
    assert left - {f"{RUN}.log"} == {f"{OTHER}.json", f"{OTHER}.lock", "young.log"}


def test_a_run_folder_that_others_can_write_prevents_the_start(folder: pathlib.Path) -> None:
    folder.chmod(0o777)
    with pytest.raises(Forbidden):
        start([adopting_order()], folder)
    assert list(folder.iterdir()) == []


class Rival:
    """Another start on the same host, which removes each old file first: before it is looked at, or between look and removal."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, comes_before: str) -> None:
        self._unlink, self._scandir = os.unlink, os.scandir
        if comes_before == "the look":
            monkeypatch.setattr(os, "scandir", self._scanned)
        else:
            monkeypatch.setattr(os, "unlink", self._too_late)

    def _scanned(self, folder: str) -> t.List[os.DirEntry[str]]:
        with self._scandir(folder) as entries:
            found = list(entries)
        for entry in found:
            self._unlink(entry.path)
        return found

    def _too_late(self, path: str) -> None:
        self._unlink(path)
        self._unlink(path)


@pytest.mark.parametrize("comes_before", ["the look", "the removal"])
def test_concurrent_removals_of_old_files_do_not_fail(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, comes_before: str) -> None:
    old = time.time() - 2 * DAY
    for name in ("a.log", "b.heartbeat"):
        (folder / name).write_text("", encoding="ascii")
        os.utime(folder / name, (old, old))
    with monkeypatch.context() as patched:
        Rival(patched, comes_before)
        sweep_folder(str(folder))
    assert list(folder.iterdir()) == []


def order_until(record: MoveRecord, seconds: float) -> StartOrder:
    """A move that may begin for that many seconds from now."""
    now = boot_moment()
    return dataclasses.replace(order_of(record), begin_until=dataclasses.replace(now, seconds=now.seconds + seconds))


def test_an_order_that_was_under_way_for_too_long_begins_nothing(folder: pathlib.Path) -> None:
    record = record_of()
    report = start([order_until(record, -1)], folder)
    assert (report["taken"], report["refused"][UUID]["error_code"]) == ({}, "conflict")
    assert "came too late: it was under way for too long. Nothing was started." in report["refused"][UUID]["msg"]
    assert list(start([order_until(record, 60)], folder)["taken"]) == [UUID]
    wait_until_ended(folder)
    # The command was repeated: the move has begun, which this answer may not deny.
    assert "under way" not in start([order_until(record, -1)], folder)["refused"][UUID]["msg"]


def test_an_order_of_an_earlier_boot_is_not_late(folder: pathlib.Path) -> None:
    order = dataclasses.replace(order_until(record_of(), -1), begin_until=BootMoment("earlier", 1.0))
    assert list(start([order], folder)["taken"]) == [UUID]
    wait_until_ended(folder)
