# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Counters that never fall, whatever becomes of records and of what was counted, and that cost only what is new."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import LedgerSettings
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe import metrics_totals
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.metrics import read_open_records
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.metrics_totals import DOWNTIME_MS, Histogram, SavedHistogram, Totals
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._observe.metrics_records import ended, further


class Fleet:
    def __init__(self, folder: Path) -> None:
        self.ledger = FileLedger(str(folder / "ledger"))
        self.state = folder / "state"

    def count(self) -> Totals | None:
        return metrics_totals.count_records(self.ledger, read_open_records(self.ledger), str(self.state))

    def totals(self) -> Totals:
        totals = self.count()
        assert totals
        return totals

    def predict(self) -> Totals:
        totals = metrics_totals.predict_totals(self.ledger, [], str(self.state))
        assert totals
        return totals

    def archive_all(self) -> None:
        """Remove the closed records, and note that they are in an archive."""
        for path in self.closed():
            path.unlink()
        note = {"id": None, "to": "/srv/archive", "until": "2026-11-21T00:00:00.000Z", "at": "2026-11-21T00:00:00.000Z", "by": "a test", "version": 1}
        self.ledger.put_settings(LedgerSettings(self.ledger.ledger_id, False, archives=(note,)), None)

    def closed(self) -> list[Path]:
        return sorted(Path(self.ledger.path, "migrations", "closed").rglob("*.json"))


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def test_every_outcome_of_a_move_is_counted(fleet: Fleet) -> None:
    ended(fleet.ledger, s.COMPLETED, elapsed_ms=1500, downtime_ms=95, bytes=1000, mode="pre-copy")
    ended(fleet.ledger, s.COMPLETED, elapsed_ms=9000, downtime_ms=None, bytes=None, mode="post-copy", forced="FORCED_MIGRATE")
    ended(fleet.ledger, s.CANCELLED, reason="timeout", bytes=500)
    ended(fleet.ledger, s.CANCELLED, reason="an odd one")
    ended(fleet.ledger, s.CONFLICT)
    ended(fleet.ledger, s.FAILED)
    ended(fleet.ledger, s.ERROR)
    ended(fleet.ledger, s.RUNNING)
    totals = fleet.totals()
    assert totals.moves == {"completed": 2, "failed": 1, "cancelled": 2, "conflict": 1}
    assert {reason: count for reason, count in totals.cancelled.items() if count} == {"timeout": 1, "other": 1}
    assert totals.modes == {"pre-copy": 1, "post-copy": 1, "paused": 0}
    assert (totals.forced, totals.transferred_bytes) == (1, 1500)
    assert (sum(totals.durations.counts), totals.durations.sum_ms) == (2, 10500)
    assert (sum(totals.downtimes.counts), totals.downtimes.sum_ms) == (1, 95)


def test_an_evacuation_counts_once_from_its_success_to_its_cleanup(fleet: Fleet) -> None:
    stored = ended(fleet.ledger, s.DONE, s.EVACUATION)
    ended(fleet.ledger, s.FAILED, s.EVACUATION)
    assert fleet.totals().evacuations == {"done": 1, "failed": 1, "conflict": 0}
    further(fleet.ledger, stored, s.COMPLETED)
    assert fleet.totals().evacuations == {"done": 1, "failed": 1, "conflict": 0}
    ended(fleet.ledger, s.COMPLETED, s.EVACUATION)
    assert fleet.totals().evacuations["done"] == 2


def test_the_stages_of_an_evacuation_are_counted(fleet: Fleet) -> None:
    ended(fleet.ledger, s.DONE, s.EVACUATION)
    ended(fleet.ledger, s.FAILED, s.EVACUATION)
    totals = fleet.totals()
    # No detection and no evidence were recorded.
    counts = {stage: sum(histogram.counts) for stage, histogram in totals.evacuation_stages.items()}
    assert (counts, sum(totals.evacuation_durations.counts)) == ({"detection": 0, "evidence": 0, "start": 0, "verification": 1}, 1)
    assert fleet.totals() == totals


def test_totals_of_a_version_without_stages_are_continued(fleet: Fleet) -> None:
    for _number in range(2):
        ended(fleet.ledger, s.COMPLETED)
    fleet.totals()
    (path,) = fleet.state.glob("*.json")
    saved = json.loads(path.read_text())
    for key in ("evacuation_stages", "evacuation_durations"):
        del saved["totals"][key]
    path.write_text(json.dumps(saved))
    # A counter must not fall when records were archived.
    fleet.closed()[0].unlink()
    ended(fleet.ledger, s.DONE, s.EVACUATION)
    totals = fleet.totals()
    assert (totals.moves["completed"], sum(totals.evacuation_durations.counts)) == (2, 1)


def test_only_new_records_are_read(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    for _number in range(3):
        ended(fleet.ledger, s.COMPLETED)
    fleet.totals()
    read: list[str] = []
    get = fleet.ledger.read_record
    monkeypatch.setattr(fleet.ledger, "read_record", lambda record_id: (read.append(record_id), get(record_id))[1])
    assert fleet.totals().moves["completed"] == 3
    assert read == []
    new = ended(fleet.ledger, s.COMPLETED).record.id
    read.clear()
    assert fleet.totals().moves["completed"] == 4
    assert read == [new]


def test_many_records_are_counted_like_few(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    for _number in range(5):
        ended(fleet.ledger, s.COMPLETED, elapsed_ms=1500)
    few = fleet.predict()
    monkeypatch.setattr(metrics_totals, "_MANY_RECORDS", 2)
    assert fleet.predict() == few
    assert few.moves["completed"] == 5


def test_a_removed_or_damaged_record_stays_counted(fleet: Fleet) -> None:
    for _number in range(3):
        ended(fleet.ledger, s.COMPLETED, bytes=10)
    before = fleet.totals()
    fleet.closed()[0].unlink()
    fleet.closed()[0].write_text("torn")
    assert fleet.totals() == before


def test_an_unreadable_record_is_counted_when_it_can_be_read(fleet: Fleet) -> None:
    ended(fleet.ledger, s.COMPLETED)
    (path,) = fleet.closed()
    text = path.read_bytes()
    path.write_text("torn")
    assert fleet.totals().moves["completed"] == 0
    assert not path.exists()
    path.write_bytes(text)
    assert fleet.totals().moves["completed"] == 1


@pytest.mark.parametrize("damage", [b"", b"{}", b"[]", b'{"schema": 1, "ledger_id": "other"}', None])
def test_a_lost_or_damaged_state_is_rebuilt(fleet: Fleet, damage: bytes | None) -> None:
    ended(fleet.ledger, s.COMPLETED, elapsed_ms=5)
    before = fleet.totals()
    (path,) = fleet.state.glob("*.json")
    path.unlink() if damage is None else path.write_bytes(damage)
    assert fleet.totals() == before
    assert fleet.ledger.problems == []


def test_a_state_with_other_histogram_bounds_is_rebuilt(fleet: Fleet) -> None:
    ended(fleet.ledger, s.COMPLETED, downtime_ms=95)
    before = fleet.totals()
    (path,) = fleet.state.glob("*.json")
    path.write_text(path.read_text().replace("[10,20,50", "[11,20,50"))
    assert fleet.totals() == before


def test_without_a_state_folder_all_records_are_counted_each_time(fleet: Fleet) -> None:
    ended(fleet.ledger, s.COMPLETED)
    fleet.state.write_text("no folder")
    assert fleet.totals().moves["completed"] == 1
    assert any("cannot be stored" in problem for problem in fleet.ledger.problems)


def test_totals_that_can_be_read_and_not_stored_do_not_fall(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    ended(fleet.ledger, s.COMPLETED)
    assert fleet.totals().moves["completed"] == 1
    fleet.archive_all()
    ended(fleet.ledger, s.COMPLETED)
    with monkeypatch.context() as patch:
        patch.setattr(metrics_totals.Folder, "write_file", no_space)
        assert fleet.totals().moves["completed"] == 2
    assert any("No space left" in problem for problem in fleet.ledger.problems)


def no_space(*_args: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_no_counter_is_better_than_one_that_falls(fleet: Fleet) -> None:
    ended(fleet.ledger, s.COMPLETED)
    assert fleet.totals().moves["completed"] == 1
    fleet.archive_all()
    kept = fleet.state.rename(fleet.state.with_name("kept"))
    fleet.state.write_text("no folder")
    assert fleet.count() is None
    assert any("They are not known without those of records that were archived" in problem for problem in fleet.ledger.problems)
    fleet.state.unlink()
    kept.rename(fleet.state)
    assert fleet.totals().moves["completed"] == 1


@pytest.mark.parametrize("is_stored", [True, False])
def test_counters_that_begin_anew_without_archived_records_say_so(fleet: Fleet, is_stored: bool) -> None:
    ended(fleet.ledger, s.COMPLETED)
    assert fleet.totals().moves["completed"] == 1
    fleet.archive_all()
    ended(fleet.ledger, s.COMPLETED)
    (path,) = fleet.state.glob("*.json")
    path.write_text("torn")
    assert (fleet.totals() if is_stored else fleet.predict()).moves["completed"] == 1
    assert any(f"The counters in {path.name} are damaged" in problem for problem in fleet.ledger.problems)


def test_a_prediction_writes_no_state(fleet: Fleet) -> None:
    ended(fleet.ledger, s.COMPLETED)
    assert fleet.predict().moves["completed"] == 1
    assert not fleet.state.exists()


@given(st.lists(st.integers(min_value=0, max_value=100_000)))
def test_a_histogram_adds_up_and_survives_being_saved(values: list[int]) -> None:
    histogram = Histogram.without_values(DOWNTIME_MS)
    for value in values:
        histogram.add(value)
    saved = decode(SavedHistogram, histogram.as_dict())
    assert Histogram.from_saved(saved, DOWNTIME_MS) == histogram
    assert (sum(histogram.counts), histogram.sum_ms) == (len(values), sum(values))
    for bound, upto in zip(DOWNTIME_MS, range(1, len(DOWNTIME_MS) + 1), strict=True):
        assert sum(histogram.counts[:upto]) == sum(value <= bound for value in values)
