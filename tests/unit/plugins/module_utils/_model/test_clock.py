# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moments of one start of a machine can be compared, and no others; wall clocks are written in UTC."""

from __future__ import annotations

import datetime
import re
import time
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import clock
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment, boot_moment, format_time, parse_timestamp, read_moment, utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode


def test_moments_of_one_boot_can_be_subtracted() -> None:
    assert BootMoment("one", 12.5).seconds_since(BootMoment("one", 10)) == 2.5
    assert BootMoment("one", 10).seconds_since(BootMoment("one", 12.5)) == -2.5


@pytest.mark.parametrize("boot_ids", [("one", "two"), ("", ""), ("", "one")])
def test_moments_of_different_or_unknown_boots_cannot_be_subtracted(boot_ids: t.Tuple[str, str]) -> None:
    assert BootMoment(boot_ids[0], 2).seconds_since(BootMoment(boot_ids[1], 1)) is None


@pytest.mark.parametrize(("boot_id", "seconds", "expected"), [("one", 10, False), ("one", 12.5, True), ("one", 13, True), ("two", 10, True)])
def test_a_moment_has_passed_if_it_is_over_or_of_another_boot(boot_id: str, seconds: float, expected: bool) -> None:
    assert BootMoment("one", 12.5).has_passed(BootMoment(boot_id, seconds)) is expected


def test_a_moment_counts_the_time_in_suspend(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = {time.CLOCK_BOOTTIME: 7000.0, time.CLOCK_MONOTONIC: 5.0}
    monkeypatch.setattr(time, "clock_gettime", clocks.__getitem__)
    assert boot_moment().seconds == 7000.0


def test_this_machine_has_a_boot_id() -> None:
    assert len(boot_moment().boot_id) > 8
    assert read_moment(encode(boot_moment())) is not None


def test_moments_without_a_boot_id_cannot_be_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "_BOOT_ID", "/nowhere")
    monkeypatch.setattr(clock, "_BOOT_ID_COMMAND", ("false",))
    clock._boot_id.cache_clear()
    try:
        moment = boot_moment()
    finally:
        clock._boot_id.cache_clear()
    assert (moment.boot_id, moment.seconds_since(moment)) == ("", None)


def test_the_clock_writes_utc_with_milliseconds() -> None:
    now = utc_now()
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z", now)
    written = datetime.datetime.strptime(now, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=datetime.timezone.utc)
    assert abs(datetime.datetime.now(datetime.timezone.utc) - written) < datetime.timedelta(minutes=1)


def test_a_time_that_was_written_is_read_again() -> None:
    at = datetime.datetime(2026, 11, 21, 3, 0, 0, 123_000, tzinfo=datetime.timezone.utc)
    assert format_time(at) == "2026-11-21T03:00:00.123Z"
    assert parse_timestamp(format_time(at)) == parse_timestamp("2026-11-21T04:00:00.123+01:00") == at


@pytest.mark.parametrize("stamp", [None, 7, "", "Z", "yesterday", "2026-11-21T03:00:00"])
def test_what_is_no_time_with_a_time_zone_is_not_read(stamp: t.Any) -> None:
    assert parse_timestamp(stamp) is None
