# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which process a watcher is, so that a recycled process id is not taken for it."""

from __future__ import annotations

import os
import re
import typing as t

_NUMBER = re.compile(r"[0-9]{1,20}", re.ASCII)
_HIGHEST_PID = 2**22


def start_ticks(pid: int) -> t.Optional[int]:
    """Return when that process started, in clock ticks since boot; null where there is none (proc(5), field 22)."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
            return parse_start_ticks(stream.read())
    except (FileNotFoundError, ProcessLookupError):
        return None


def parse_start_ticks(stat_line: str) -> t.Optional[int]:
    """Return the start time from a line of /proc/PID/stat; the name in it may hold blanks and brackets."""
    fields = stat_line.rpartition(")")[2].split()
    return number_of(fields[19]) if len(fields) > 19 else None


def number_of(text: str) -> t.Optional[int]:
    """Return a number as the kernel writes it; null for what is none."""
    return int(text) if _NUMBER.fullmatch(text) else None


def identity(run_id: str) -> t.Dict[str, t.Any]:
    """Return this process as a state file names it: pid, start time, and the run it works for."""
    pid = os.getpid()
    return {"pid": pid, "start_ticks": start_ticks(pid), "run_id": run_id}


def is_alive(watcher: t.Optional[t.Mapping[str, t.Any]]) -> bool:
    """Whether the process that a state file names still runs."""
    if not isinstance(watcher, dict) or not isinstance(watcher.get("pid"), int) or not 0 < watcher["pid"] <= _HIGHEST_PID:
        return False
    return watcher.get("start_ticks") is not None and start_ticks(watcher["pid"]) == watcher["start_ticks"]
