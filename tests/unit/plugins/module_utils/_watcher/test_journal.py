# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import errno
import json
import os
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import JobStats
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import (
    LinkWait,
    StartOrder,
    read_start_order,
    read_state,
    record_in,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher import journal as journal_module
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.journal import LAST_WRITE_SECONDS, MAX_NOTES, Journal
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._watcher.moves import RUN, acts, journal_of, order_of, record_of, state_in, statuses

STATS = JobStats(elapsed_ms=2000, downtime_ms=80, setup_ms=5, memory_total_bytes=1000, memory_processed_bytes=900, memory_remaining_bytes=400, iteration=3)


@pytest.fixture
def journal(tmp_path: pathlib.Path) -> Journal:
    return journal_of(record_of(), tmp_path)


def test_every_change_is_written_to_the_state_file_at_once(journal: Journal, tmp_path: pathlib.Path) -> None:
    journal.advance_status(s.PREPARING)
    assert (state_in(tmp_path)["status"], state_in(tmp_path)["watcher"]["run_id"]) == (s.PREPARING, RUN)
    journal.intend_act("migrate")
    assert acts(state_in(tmp_path)) == ["migrate"]
    journal.write_figures(STATS, 2000, 50)
    assert state_in(tmp_path)["progress"]["percent"] == 60
    assert state_in(tmp_path)["samples"][0]["allowed_downtime_ms"] == 50


def test_the_state_file_has_the_watcher_and_the_record_has_not(journal: Journal, tmp_path: pathlib.Path) -> None:
    journal.write_state()
    assert "watcher" not in encode(journal.record)
    assert record_in(state_in(tmp_path)) == encode(journal.record)


@pytest.mark.parametrize(("written", "read"), [(812.5, 812.5), (812, 812), ("long", None), (True, None), (-1, None), (float("nan"), None), (None, None)])
def test_the_start_of_the_job_is_kept_beside_the_record(journal: Journal, tmp_path: pathlib.Path, written: t.Any, read: t.Optional[float]) -> None:
    journal.write_state()
    assert "job_started_at" not in state_in(tmp_path)
    document = {**state_in(tmp_path), "job_started_at": written}
    state = read_state(document)
    assert (state.job_started_at, state.as_json().get("job_started_at")) == (read, read)
    assert record_in(document) == encode(journal.record)


@pytest.mark.parametrize(("elapsed", "seconds"), [(150, 20), (205, 25), (0, 20)])
def test_a_wait_that_has_not_begun_lasts_for_no_time(elapsed: float, seconds: float) -> None:
    """The age of the job came from a clock that was set back since the wait began."""
    assert LinkWait(20, since=200).seconds_at(elapsed) == seconds


def test_a_status_is_entered_once(journal: Journal) -> None:
    journal.enter_status(s.PREPARING)
    journal.enter_status(s.PREPARING)
    assert statuses(journal.record) == [s.PREPARING]


def test_a_transition_that_is_not_allowed_writes_nothing(journal: Journal, tmp_path: pathlib.Path) -> None:
    journal.advance_status(s.PREPARING)
    with pytest.raises(Internal):
        journal.advance_status(s.QUEUED)
    assert state_in(tmp_path)["status"] == s.PREPARING


def test_a_completed_move_has_the_statistics_of_libvirt(journal: Journal) -> None:
    journal.enter_status(s.RUNNING)
    journal.write_completed(STATS, 9999, "arrived", None)
    result = journal.record.result
    assert (result.elapsed_ms, result.downtime_ms, result.setup_ms, result.bytes, result.iterations) == (2000, 80, 5, 900, 3)
    assert (result.mode, journal.record.progress.percent, journal.record.progress.memory_remaining_bytes) == ("pre-copy", 100, 0)


def test_a_completed_move_without_statistics_has_the_last_sample(journal: Journal) -> None:
    journal.enter_status(s.RUNNING)
    journal.write_figures(STATS, 1000, 50)
    journal.write_completed(None, 1500, "arrived", "definition_left")
    result = journal.record.result
    assert (result.elapsed_ms, result.downtime_ms, result.iterations) == (1500, None, 3)
    assert (journal.record.status, journal.record.reason) == (s.COMPLETED, "definition_left")


class FullDisk:
    """A disk on which there is no room until C(room)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.has_room = False
        self._write = journal_module.write_json
        monkeypatch.setattr(journal_module, "write_json", self._try)

    def _try(self, path: str, document: t.Any) -> None:
        if not self.has_room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        self._write(path, document)


def test_an_unwritable_state_file_prevents_a_start_but_not_a_running_move(journal: Journal, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FullDisk(monkeypatch)
    journal.advance_status(s.PREPARING)
    with pytest.raises(Internal, match=r"No space left.*Nothing was started"):
        journal.require_written()
    disk.has_room = True
    journal.note_event("source_lost")
    journal.require_written()
    assert (state_in(tmp_path)["status"], statuses(state_in(tmp_path))) == (s.PREPARING, [s.PREPARING])


def test_the_final_status_is_written_as_soon_as_there_is_free_space(journal: Journal, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, now = FullDisk(monkeypatch), [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds
        disk.has_room = now[0] > 20

    journal.advance_status(s.CANCELLED)
    journal.retry_last_write(lambda: now[0], sleep)
    assert (state_in(tmp_path)["status"], 20 < now[0] < 30) == (s.CANCELLED, True)


def test_writing_the_final_status_is_given_up_after_its_limit(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    FullDisk(monkeypatch)
    now = [0.0]
    journal.advance_status(s.CANCELLED)
    journal.retry_last_write(lambda: now[0], lambda seconds: now.__setitem__(0, now[0] + seconds))
    assert LAST_WRITE_SECONDS <= now[0] <= LAST_WRITE_SECONDS + 10


@pytest.mark.parametrize("adopt", [True, False])
def test_a_start_order_survives_json(adopt: bool) -> None:
    order = dataclasses.replace(order_of(record_of(), adopt, flags=["POSTCOPY"]), parameters={"bandwidth": 4})
    assert decode(StartOrder, json.loads(json.dumps(encode(order)))) == order


def test_a_start_order_without_a_valid_record_is_refused() -> None:
    order = read_start_order({"record": encode(record_of()), "source_uri": "qemu:///system", "destination_uri": "qemu+tcp://kvm2/system"})
    assert (order.flags, order.parameters, order.adopt) == ((), {}, False)
    for wrong in ({}, {**encode(record_of()), "schema": 99}, {**encode(record_of()), "domain": {}}):
        with pytest.raises(Internal, match="Not a record"):
            read_start_order({"record": wrong, "source_uri": "", "destination_uri": ""})


def test_the_history_of_a_move_of_days_stays_small(journal: Journal, tmp_path: pathlib.Path) -> None:
    """A connection that breaks every minute for four days would fill a record that etcd refuses to store: the end of its move could never be written."""
    for number in range(5760):
        journal.note_event("source_lost", f"The connection broke for the {number}th time.")
    journal.note_event("bandwidth", "operator; 5 MiB/s", by="ann@control")
    lines = [line for line in journal.record.history if line.status == "source_lost"]
    assert len(lines) == MAX_NOTES == 100
    assert lines[-2].detail == "The connection broke for the 98th time."
    assert lines[-1].detail == "The connection broke for the 99th time. Further events of this kind are not noted."
    journal.advance_status(s.PREPARING)
    assert [line["status"] for line in state_in(tmp_path)["history"][-2:]] == ["bandwidth", s.PREPARING]


def test_what_a_person_does_is_always_in_the_history(journal: Journal) -> None:
    for _number in range(MAX_NOTES + 1):
        journal.note_event("bandwidth", "operator; 5 MiB/s", by="ann@control")
    assert [line.detail for line in journal.record.history if line.status == "bandwidth"] == ["operator; 5 MiB/s"] * (MAX_NOTES + 1)
