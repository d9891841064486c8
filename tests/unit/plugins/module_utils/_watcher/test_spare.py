# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A spare watcher, in its own process: it takes the orders of its run once, and ends without them."""

from __future__ import annotations

import os
import pathlib
import time
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import survey_phases
from ansible_collections.kvmfleet.migration.plugins.module_utils._live_watchers import is_alive
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden, Internal
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import Watcher, read_watcher
from ansible_collections.kvmfleet.migration.plugins.module_utils._run_folder import Ownership, orders_path, read_json, started_path, write_json
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher import spare
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._watcher.moves import RUN, order_of, record_of, state_in


def wait_for(condition: t.Callable[[], t.Any]) -> t.Any:
    limit = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < limit
        time.sleep(0.02)
    return found


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    tmp_path.chmod(0o700)
    return tmp_path


def start(folder: pathlib.Path) -> Watcher:
    fleet = FakeFleet()
    fleet.guest(on="kvm2")
    watcher = read_watcher(spare.fork_spare_watcher(RUN, fleet.open, str(folder))()["watcher"])
    assert watcher is not None
    assert is_alive(watcher)
    return watcher


def work() -> dict[str, t.Any]:
    """A move that ended unseen: to be settled, which is soon done."""
    return {"orders": [encode(order_of(record_of(status=s.RUNNING), adopt=True))], "run_id": RUN, "parallel": 1}


def test_orders_are_taken_reported_and_carried_out(folder: pathlib.Path) -> None:
    watcher = start(folder)
    write_json(orders_path(RUN, watcher.pid, str(folder)), work())
    report = wait_for(lambda: read_json(started_path(RUN, watcher.pid, str(folder))))
    assert (list(report["taken"]), report["refused"], report["watcher"]["pid"]) == ([UUID], {}, watcher.pid)
    wait_for(lambda: state_in(folder)["status"] == s.COMPLETED)
    wait_for(lambda: not is_alive(watcher))
    assert [name for name in os.listdir(folder) if name.endswith((".orders", ".taken"))] == []


def test_the_report_outlives_a_process_that_has_nothing_to_do(folder: pathlib.Path) -> None:
    watcher, held = start(folder), Ownership(UUID, str(folder))
    write_json(orders_path(RUN, watcher.pid, str(folder)), work())
    wait_for(lambda: not is_alive(watcher))
    report = t.cast("dict[str, t.Any]", read_json(started_path(RUN, watcher.pid, str(folder))))
    assert (report["taken"], report["refused"][UUID]["error_code"]) == ({}, "conflict")
    held.release_lock()


def test_orders_of_another_process_are_left_alone(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spare, "SPARE_SECONDS", 0.5)
    watcher = start(folder)
    other = orders_path(RUN, watcher.pid + 1, str(folder))
    write_json(other, given := work())
    wait_for(lambda: not is_alive(watcher))
    assert read_json(other) == given


def test_without_orders_it_ends(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spare, "SPARE_SECONDS", 0.2)
    watcher = start(folder)
    wait_for(lambda: not is_alive(watcher))
    write_json(orders_path(RUN, watcher.pid, str(folder)), work())
    time.sleep(0.2)
    assert not os.path.exists(started_path(RUN, watcher.pid, str(folder)))


def test_damaged_orders_start_nothing(folder: pathlib.Path) -> None:
    watcher = start(folder)
    pathlib.Path(orders_path(RUN, watcher.pid, str(folder))).write_text("{torn", encoding="ascii")
    wait_for(lambda: not is_alive(watcher))
    assert not os.path.exists(started_path(RUN, watcher.pid, str(folder)))


SURVEYED = {"changed": False, "survey": [], "at": {"boot_id": "boot-1", "seconds": 5.0}}


class Prepared:
    """The phase, with what it calls replaced; C(calls) has the calls in their order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self.errors: dict[str, list[Exception]] = {}
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        monkeypatch.setattr(spare, "boot_moment", lambda: BootMoment("boot-1", 5.0))
        monkeypatch.setattr(spare, "fork_spare_watcher", self._fork)
        monkeypatch.setattr(survey_phases, "prepare_moves", self._survey)

    def _fork(self, run_id: str, open_host: t.Any) -> t.Any:
        self.calls.append(run_id)
        self._fail_in("fork")
        return self._report

    def _report(self) -> t.Any:
        self.calls.append("report")
        self._fail_in("report")
        return {"watcher": {"pid": 5}}

    def _fail_in(self, step: str) -> None:
        for error in self.errors.get(step, ()):
            raise error

    def _survey(self, uri: str, work: t.Any) -> t.Any:
        self.calls.append("survey")
        return {"changed": False, "survey": work["wanted"]}


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> Prepared:
    return Prepared(monkeypatch)


def test_a_run_that_will_move_gets_a_spare_watcher_before_libvirt_is_used(prepared: Prepared) -> None:
    assert spare.prepare_moves(LOCAL_URI, {"wanted": [], "run_id": RUN}) == {**SURVEYED, "spare": {"watcher": {"pid": 5}}}
    assert prepared.calls == [RUN, "survey", "report"]


def test_a_survey_alone_starts_nothing(prepared: Prepared) -> None:
    assert spare.prepare_moves(LOCAL_URI, {"wanted": []}) == SURVEYED
    assert prepared.calls == ["survey"]


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("fork", Forbidden("/run/kvmfleet cannot be used.")),
        ("fork", OSError(11, "Resource temporarily unavailable")),
        ("report", Internal("The watcher exited before it started its work.")),
    ],
)
def test_a_spare_watcher_that_cannot_be_started_does_not_fail_the_survey(prepared: Prepared, step: str, error: Exception) -> None:
    prepared.errors = {step: [error]}
    assert spare.prepare_moves(LOCAL_URI, {"wanted": [], "run_id": RUN}) == SURVEYED
