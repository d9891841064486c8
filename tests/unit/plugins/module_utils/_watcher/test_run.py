# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A watcher from its orders to its last word, in a process of its own, between fake hosts."""

from __future__ import annotations

import json
import os
import pathlib
import time
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Forbidden
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.order import Order
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.ownership import Ownership
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.process import is_alive
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.run import _sweep, start_watcher
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import UUID, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._watcher.moves import RUN, order_of, record_of, state_in

OTHER = "7b7e8cf2-6f4e-4d53-b1a7-0a7d2b1f0c02"
DAY = 24 * 3600


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "run").mkdir(mode=0o700)
    return tmp_path / "run"


def start(orders: t.List[Order], folder: pathlib.Path, fleet: t.Optional[FakeFleet] = None) -> t.Dict[str, t.Any]:
    return start_watcher(orders, RUN, 4, (fleet or FakeFleet()).open, str(folder))


def ended(folder: pathlib.Path, uuid: str = UUID) -> schema.Record:
    limit = time.monotonic() + 300
    while state_in(folder, uuid)["status"] not in s.FINAL:
        assert time.monotonic() < limit, state_in(folder, uuid)
        time.sleep(0.05)
    return state_in(folder, uuid)


def adopted(uuid: str = UUID, generation: int = 3) -> Order:
    """A move that ended unseen: to be settled, which is soon done."""
    return order_of(record_of(uuid, status=s.RUNNING, generation=generation), adopt=True)


def arrived() -> FakeFleet:
    fleet = FakeFleet()
    for uuid in (UUID, OTHER):
        fleet.guest(uuid=uuid, on="kvm2")
    return fleet


def test_what_was_taken_is_reported_by_domain_and_ends(folder: pathlib.Path) -> None:
    report = start([adopted(), adopted(OTHER)], folder, arrived())
    assert (sorted(report["taken"]), report["refused"]) == (sorted([UUID, OTHER]), {})
    assert report["watcher"]["pid"] != os.getpid()
    assert [ended(folder, uuid)["status"] for uuid in (UUID, OTHER)] == [s.COMPLETED, s.COMPLETED]


def test_an_adopted_record_has_a_newer_generation_in_the_report_and_the_state_file(folder: pathlib.Path) -> None:
    earlier = Ownership(UUID, str(folder))
    earlier.begin("another record", 7)
    earlier.release()
    assert start([adopted(generation=3)], folder, arrived())["taken"] == {UUID: 8}
    assert ended(folder)["generation"] == 8


BEFORE = {"state": "running", "persistent": True, "autostart": True, "at_destination": False}


def begun_and_died(folder: pathlib.Path, order: Order, **changes: t.Any) -> None:
    """Leave the state file of a watcher that has begun the move since the control node read the ledger, and that lives no more."""
    state = {**schema.copied(order.record), "status": s.RUNNING, "before": BEFORE, "acts": [{"at": "2026-01-01T00:00:00.000Z", "act": "migrate"}], **changes}
    (folder / f"{UUID}.json").write_text(json.dumps({**state, "watcher": {"pid": 1}, "answers": {}}))


@pytest.mark.parametrize("status", [s.RUNNING, s.CANCELLED])
def test_an_adopter_knows_what_a_watcher_wrote_that_began_and_died_after_the_control_node_had_asked(folder: pathlib.Path, status: str) -> None:
    order = order_of(record_of(generation=4), adopt=True)
    begun_and_died(folder, order, status=status)
    assert start([order], folder, arrived())["taken"] == {UUID: 5}
    record = ended(folder)
    assert (record["status"], record["before"], record["generation"]) == (s.COMPLETED, BEFORE, 5)
    assert "migrate" in [one["act"] for one in record["acts"]]


@pytest.mark.parametrize("changes", [{"id": OTHER}, {"generation": 3}, {"acts": "none"}])
def test_an_adopter_takes_nothing_from_the_file_of_another_or_older_record_or_a_damaged_one(folder: pathlib.Path, changes: t.Dict[str, t.Any]) -> None:
    order = order_of(record_of(generation=4), adopt=True)
    begun_and_died(folder, order, **changes)
    start([order], folder, arrived())
    assert ended(folder)["before"] == {}


def test_one_order_that_is_refused_does_not_stop_the_others(folder: pathlib.Path) -> None:
    late = Ownership(UUID, str(folder))
    late.begin("a newer record", 9)
    late.release()
    report = start([order_of(record_of(generation=9)), adopted(OTHER)], folder, arrived())
    assert list(report["taken"]) == [OTHER]
    assert report["refused"][UUID]["error_code"] == "conflict"
    assert "came too late" in report["refused"][UUID]["msg"]
    assert ended(folder, OTHER)["status"] == s.COMPLETED
    assert not (folder / f"{UUID}.json").exists(), "what was refused has no state file of ours"


def test_a_domain_that_is_watched_already_is_refused(folder: pathlib.Path) -> None:
    watching = Ownership(UUID, str(folder))
    try:
        report = start([adopted()], folder)
    finally:
        watching.release()
    assert (report["taken"], report["refused"][UUID]["error_code"]) == ({}, "conflict")


def test_the_watcher_is_gone_after_its_last_move_and_the_lock_is_free(folder: pathlib.Path) -> None:
    watcher = start([adopted()], folder, arrived())["watcher"]
    ended(folder)
    limit = time.monotonic() + 300
    while is_alive(watcher):
        assert time.monotonic() < limit
        time.sleep(0.05)
    Ownership(UUID, str(folder)).release()
    assert not list(folder.glob("*.heartbeat"))
    assert (folder / f"{RUN}.log").read_text(encoding="utf-8") == ""


def test_what_runs_of_other_days_left_is_swept_and_states_and_locks_stay(folder: pathlib.Path) -> None:
    old = time.time() - 2 * DAY
    for name in ("a.log", "b.heartbeat", "c.json.77.new", f"{OTHER}.json", f"{OTHER}.lock", "young.log"):
        (folder / name).write_text("{}", encoding="ascii")
        if name != "young.log":
            os.utime(folder / name, (old, old))
    start([], folder)
    left = {path.name for path in folder.iterdir()}
    assert left - {f"{RUN}.log"} == {f"{OTHER}.json", f"{OTHER}.lock", "young.log"}


def test_a_folder_that_others_can_write_starts_nothing(folder: pathlib.Path) -> None:
    folder.chmod(0o777)
    with pytest.raises(Forbidden):
        start([adopted()], folder)
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
def test_two_that_sweep_at_once_do_not_end_each_other(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, comes_before: str) -> None:
    old = time.time() - 2 * DAY
    for name in ("a.log", "b.heartbeat"):
        (folder / name).write_text("", encoding="ascii")
        os.utime(folder / name, (old, old))
    with monkeypatch.context() as patched:
        Rival(patched, comes_before)
        _sweep(str(folder))
    assert list(folder.iterdir()) == []
