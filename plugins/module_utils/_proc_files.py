# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Numbers and start times of processes as the kernel writes them in /proc."""

from __future__ import annotations

import re
import typing as t

_NUMBER = re.compile(r"[0-9]{1,20}", re.ASCII)


def read_start_ticks(pid: int) -> t.Optional[int]:
    """Return the start time of that process in clock ticks since boot (proc(5), field 22); null if it does not exist."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
            return parse_start_ticks(stream.read())
    except (FileNotFoundError, ProcessLookupError):
        return None


def parse_start_ticks(stat_line: str) -> t.Optional[int]:
    """Return the start time from a line of /proc/PID/stat; the name in it may hold blanks and brackets."""
    fields = stat_line.rpartition(")")[2].split()
    return parse_number(fields[19]) if len(fields) > 19 else None


def parse_number(text: str) -> t.Optional[int]:
    """Return a number as the kernel writes it; null if the text is not a number."""
    return int(text) if _NUMBER.fullmatch(text) else None
