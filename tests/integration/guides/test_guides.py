# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every guide, and README, from its first line to its last, as a reader follows it."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.guides.support import guide as g
from ansible_collections.kvmfleet.migration.tests.integration.guides.support.reader import LabReader

# What every change is tried on: the way of who is new, through the worst day, and what errors look like.
ALWAYS = ("README", "errors")
GUIDES = [pytest.param(path, id=path.stem, marks=() if path.stem in ALWAYS else pytest.mark.long) for path in (*g.paths(), g.README)]


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_works_step_by_step_as_it_is_written(reader: LabReader, guide: pathlib.Path) -> None:
    reader.follow(g.steps_of(guide))
    for name in reader.guests:
        places = reader.lab.places(name)
        active = [state for state in places.values() if state != "shut off"]
        assert places, f"{name} is gone"
        assert len(active) <= 1, f"{name} runs twice: {places}"
