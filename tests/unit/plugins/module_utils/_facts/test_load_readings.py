# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files with counters that readings leave on a host."""

from __future__ import annotations

import os
import pathlib
import time

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._facts import load_readings as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.load_signals import DomainCounters, HostCounters, LoadReading

BOOT = "7d4d5b8e-e2f3-46d4-a53e-8ff89d6c581e"
UUID = "5f5a9c7e-5b0c-4c7a-9f0f-0d8f6f1f2a11"


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "kvmfleet" / "load"


@pytest.fixture
def readings(folder: pathlib.Path) -> m.ReadingStore:
    return m.ReadingStore(str(folder))


def reading(seconds: float, boot_id: str = BOOT) -> LoadReading:
    return LoadReading(BootMoment(boot_id, seconds), HostCounters(cpu_used_ticks=5), {UUID: DomainCounters("1-2", cpu_ns=3)})


def found_at(readings: m.ReadingStore, now: float, seconds: int, boot_id: str = BOOT) -> float | None:
    earlier = readings.find_earlier(BootMoment(boot_id, now), seconds)
    return earlier.at.seconds if earlier else None


def test_a_reading_is_found_again_as_it_was_stored(readings: m.ReadingStore, folder: pathlib.Path) -> None:
    readings.keep(reading(100.5))
    assert readings.find_earlier(BootMoment(BOOT, 200), 300) == reading(100.5)
    (stored,) = folder.iterdir()
    assert (stored.name, stored.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == ("100.json", 0o600, 0o700)


def test_the_reading_closest_to_the_wanted_time_is_used(readings: m.ReadingStore) -> None:
    for seconds in (100, 400, 700):
        readings.keep(reading(seconds))
    assert [found_at(readings, 1000, wanted) for wanted in (1, 310, 590, 86400)] == [700, 700, 400, 100]


def test_a_reading_that_is_too_recent_is_not_used(readings: m.ReadingStore) -> None:
    readings.keep(reading(100))
    assert found_at(readings, 104.9, 300) is None
    assert found_at(readings, 105, 300) == 100


def test_readings_of_another_boot_are_not_used(readings: m.ReadingStore) -> None:
    readings.keep(reading(100))
    assert found_at(readings, 200, 300, boot_id="0ddba11e-e2f3-46d4-a53e-8ff89d6c581e") is None


def test_the_first_reading_of_a_boot_is_stored_where_files_of_another_boot_remain(readings: m.ReadingStore, folder: pathlib.Path) -> None:
    other = "0ddba11e-e2f3-46d4-a53e-8ff89d6c581e"
    readings.keep(reading(90, other))
    readings.keep(reading(5000, other))
    readings.keep(reading(100))
    assert sorted(path.name for path in folder.iterdir()) == ["100.json", "90.json"]
    assert found_at(readings, 200, 300) == 100


def test_frequent_readings_leave_one_reading(readings: m.ReadingStore, folder: pathlib.Path) -> None:
    for seconds in (100, 101, 129.9, 130):
        readings.keep(reading(seconds))
    assert sorted(path.name for path in folder.iterdir()) == ["100.json", "130.json"]


def test_the_number_of_readings_is_limited(readings: m.ReadingStore, folder: pathlib.Path) -> None:
    for number in range(m.MOST_READINGS + 5):
        readings.keep(reading(1000 + 60 * number))
    assert len(list(folder.iterdir())) == m.MOST_READINGS
    assert found_at(readings, 4000, 86400) == 1000 + 60 * 5


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b'{"at": 5}', b"[" * 100000, b"null"])
def test_a_damaged_file_is_skipped_and_replaced(readings: m.ReadingStore, folder: pathlib.Path, content: bytes) -> None:
    readings.keep(reading(100))
    (folder / "400.json").write_bytes(content)
    assert found_at(readings, 410, 10) == 100
    readings.keep(reading(400))
    assert found_at(readings, 410, 10) == 400


def test_a_file_that_is_too_large_and_a_folder_are_skipped(readings: m.ReadingStore, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readings.keep(reading(100))
    (folder / "300.json").mkdir()
    readings.keep(reading(350))
    monkeypatch.setattr(m, "_LARGEST_BYTES", (folder / "350.json").stat().st_size - 1)
    (folder / "100.json").write_text("{}")
    assert found_at(readings, 400, 50) is None


def test_only_files_that_nobody_is_writing_are_removed(readings: m.ReadingStore, folder: pathlib.Path) -> None:
    readings.keep(reading(100))
    for name, age in (("400.json.a.new", 0), ("300.json.b.new", 3600), ("readme", 3600)):
        (folder / name).write_text("{")
        os.utime(folder / name, (time.time() - age,) * 2)
    readings.keep(reading(200))
    assert sorted(path.name for path in folder.iterdir()) == ["100.json", "200.json", "400.json.a.new"]


def test_a_folder_that_others_can_write_to_is_refused(readings: m.ReadingStore, folder: pathlib.Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with pytest.raises(Forbidden, match="only this user can write"):
        readings.keep(reading(100))
    assert list(folder.iterdir()) == []
