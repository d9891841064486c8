# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The process that a state file names as its watcher, and whether it still runs."""

from __future__ import annotations

import os
import typing as t

from ._model.codec import ABSENT
from ._model.errors import Internal
from ._model.watched_moves import StateFile, Watcher, read_state
from ._proc_files import read_start_ticks
from ._run_folder import RUN_FOLDER, read_json, state_path

_HIGHEST_PID = 2**22


def read_state_file(domain_uuid: str, folder: str = RUN_FOLDER) -> t.Optional[StateFile]:
    """Return the state file of that domain; null if it does not exist or is invalid."""
    try:
        return read_state(read_json(state_path(domain_uuid, folder)))
    except Internal:
        return None


def identify_watcher(run_id: str) -> Watcher:
    """Return this process as a state file names it: pid, start time, and the run it works for."""
    pid = os.getpid()
    return Watcher(pid, read_start_ticks(pid), run_id)


def is_alive(watcher: t.Optional[Watcher]) -> bool:
    """Whether the process that a state file names still runs."""
    if watcher is None or not 0 < watcher.pid <= _HIGHEST_PID:
        return False
    return watcher.start_ticks not in (None, ABSENT) and read_start_ticks(watcher.pid) == watcher.start_ticks
