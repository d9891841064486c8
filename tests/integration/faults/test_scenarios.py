# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fault scenarios of tests/faults, one case a text."""

from __future__ import annotations

import os
import pathlib
from fnmatch import fnmatch

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.faults.engine.play import play
from ansible_collections.kvmfleet.migration.tests.integration.faults.engine.text import Scenario, files, read
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

ONLY = (os.environ.get("KVMFLEET_FAULTS_ONLY") or "*").split()
# Which of how many lanes this is: every so-manyth text is its own.
LANE, LANES = map(int, (os.environ.get("KVMFLEET_FAULTS_LANE") or "0/1").split("/"))
SCENARIOS = [scenario for scenario in map(read, files()) if any(fnmatch(scenario.name, pattern) for pattern in ONLY)][LANE::LANES]
CASES = [pytest.param(one, id=one.name, marks=[] if one.is_essential else [pytest.mark.long]) for one in SCENARIOS]


@pytest.mark.parametrize("scenario", CASES)
def test_scenario(lab: Lab, tmp_path: pathlib.Path, scenario: Scenario) -> None:
    play(lab, tmp_path, scenario)
