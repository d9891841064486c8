# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lab of three hosts for all guides, and a reader for each."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.guides.support.reader import LabReader
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, end_what_moves, forget_collection, fresh_lab

PREFIX = f"{os.environ.get('KVMFLEET_LAB_PREFIX', '')}gui"


@pytest.fixture(scope="session")
def lab() -> t.Iterator[Lab]:
    with fresh_lab(PREFIX, 3) as lab:
        yield lab


@pytest.fixture
def reader(lab: Lab, tmp_path: pathlib.Path) -> t.Iterator[LabReader]:
    """Somebody who has done what the first guide says to write; afterwards the hosts are as if nobody had ever been there."""
    reader = LabReader(lab, tmp_path)
    reader.files_of("first-drain.md")
    yield reader
    reader.close()
    forget_collection(lab, 3)
    for name in reader.guests:
        end_what_moves(lab, name)
        lab("rmguest", name)
    reader.verify_audit()
