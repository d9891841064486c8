# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lanes of the fault scenarios: no more of them than there are scenarios, because a lane without a test counts as failed."""

from __future__ import annotations

import pytest
from suites import faults
from suites.results import Results

NAMES = ["disks/full", "disks/torn", "hosts/off", "hosts/on"]


@pytest.mark.parametrize(
    ("only", "count"),
    [("", len(faults.LANES)), ("hosts/off", 1), ("hosts/off disks/torn", 2), ("disks/*", 2), ("*", len(faults.LANES)), ("disks", 0)],
)
def test_each_lane_has_a_scenario(only: str, count: int) -> None:
    assert faults.lanes_for(only, NAMES) == faults.LANES[:count]


def test_a_pattern_without_a_match_fails_the_suite_and_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONLY", "no/such-scenario")
    monkeypatch.delattr(faults, "run_together")
    results = Results("faults")
    faults.run(results)
    assert results.failed == 1
