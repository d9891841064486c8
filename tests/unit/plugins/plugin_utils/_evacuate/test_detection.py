# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the death of a host was detected is recorded as it was stated, and refused before anything is done if it is not a detection."""

from __future__ import annotations

import datetime
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Detection
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.detection import read_detection
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.sites import Site

NOW = datetime.datetime(2026, 11, 21, 3, 1, tzinfo=datetime.UTC)
GIVEN = {"silent_since": "2026-11-21T03:00:00Z", "detected_at": "2026-11-21T04:00:20.5+01:00", "by": "event source\non control2"}


def test_times_are_kept_in_utc_and_the_name_on_one_line() -> None:
    assert read_detection(GIVEN, NOW) == Detection("2026-11-21T03:00:00.000Z", "2026-11-21T03:00:20.500Z", "event source on control2")
    assert read_detection(None) is read_detection({}) is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"silent_since": "yesterday"}, "silent_since is 'yesterday', which is not a time with a time zone"),
        ({"silent_since": "2026-11-21T03:00:00"}, "which is not a time with a time zone"),
        ({"detected_at": None}, "detected_at is 'None', which is not a time"),
        ({"detected_at": "9999-12-31T23:59:59-23:00"}, "detected_at is '9999-12-31T23:59:59-23:00', which is not a time"),
        ({"by": " "}, "'by' must be a non-empty line of text"),
        ({"by": "a\x1b[2Jb"}, "'by' must be a non-empty line of text"),
    ],
)
def test_what_is_not_a_detection_is_refused(changed: dict[str, t.Any], said: str) -> None:
    with pytest.raises(InvalidArgument, match=f"The detection is invalid: .*{said}") as refused:
        read_detection({**GIVEN, **changed}, NOW)
    assert "Nothing was started." in str(refused.value)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"detected_at": "2026-11-21T03:01:06Z"}, "detected_at (2026-11-21T03:01:06.000Z) is in the future"),
        ({"silent_since": "2026-11-21T03:01:06Z", "detected_at": "2026-11-21T03:01:07Z"}, "silent_since (2026-11-21T03:01:06.000Z) is in the future"),
        ({"silent_since": "2026-11-21T03:00:21Z"}, "silent_since (2026-11-21T03:00:21.000Z) is after detected_at (2026-11-21T03:00:20.500Z)"),
    ],
)
def test_times_before_a_step_of_the_clock_are_not_recorded_and_stop_nothing(changed: dict[str, t.Any], said: str) -> None:
    warnings: list[str] = []
    assert read_detection({**GIVEN, **changed}, NOW, warnings) is None
    (warning,) = warnings
    assert said in warning
    assert "not recorded" in warning


def test_a_clock_that_is_a_little_ahead_is_accepted() -> None:
    warnings: list[str] = []
    assert read_detection({**GIVEN, "detected_at": "2026-11-21T03:01:05Z"}, NOW, warnings)
    assert warnings == []


def test_every_record_of_the_evacuation_has_it_from_its_beginning(site: Site) -> None:
    site.save("web")
    site.save("app")
    detection = read_detection(GIVEN)
    site.evacuate(detection=detection)
    records = list(site.ledger.list_records())
    assert [record.detection for record in records] == [detection, detection]
    assert encode(records[0])["detection"] == {
        "silent_since": "2026-11-21T03:00:00.000Z",
        "detected_at": "2026-11-21T03:00:20.500Z",
        "by": detection and detection.by,
    }
    assert decode(MoveRecord, encode(records[0])) == records[0]


def test_without_one_the_record_says_nothing_of_it(site: Site) -> None:
    site.save("web")
    site.evacuate()
    (record,) = site.ledger.list_records()
    assert "detection" not in encode(record)
