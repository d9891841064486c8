# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._live_watchers import identify_watcher, is_alive
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import Watcher, read_watcher
from ansible_collections.kvmfleet.migration.plugins.module_utils._proc_files import read_start_ticks
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._watcher.moves import RUN


def test_a_process_is_alive_only_with_its_own_start_ticks() -> None:
    mine = identify_watcher(RUN)
    assert (mine.pid, mine.run_id) == (os.getpid(), RUN)
    assert is_alive(mine)
    assert not is_alive(dataclasses.replace(mine, start_ticks=int(mine.start_ticks or 0) + 1))
    assert not is_alive(dataclasses.replace(mine, start_ticks=None))


def test_a_process_that_ended_is_not_alive() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    watcher = Watcher(child.pid, read_start_ticks(child.pid))
    assert is_alive(watcher)
    child.communicate(b"\n", timeout=300)
    assert not is_alive(watcher)


@pytest.mark.parametrize(
    "watcher",
    [None, {}, {"pid": "1"}, {"pid": None}, {"pid": 2**22 + 1, "start_ticks": 5}, {"pid": 10**300, "start_ticks": 5}, {"pid": -1, "start_ticks": 5}, 7, [1]],
)
def test_a_missing_or_invalid_watcher_is_not_alive(watcher: object) -> None:
    assert not is_alive(read_watcher(watcher))
