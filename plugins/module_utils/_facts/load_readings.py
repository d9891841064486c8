# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Stores readings of the counters of this host under C(/run/kvmfleet), so that a later task can report the mean since then.

Each reading has a file of its own, named by the seconds since the boot. The number of files is limited.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
import typing as t

from .._model.clock import BootMoment
from .._model.codec import ShapeError, decode, encode
from .._model.load_signals import LoadReading
from .._run_folder import RUN_FOLDER, prepare_run_folder, read_json, write_json

READINGS_FOLDER = f"{RUN_FOLDER}/load"
# How many readings are kept: with one every five minutes, those of more than two hours.
MOST_READINGS = 32
# A mean over less time is noise.
LEAST_SECONDS = 5.0
# A reading that follows another one within this time is not stored, so that frequent ones do not displace older ones.
SPACING_SECONDS = 30.0
_LARGEST_BYTES = 4 * 1024**2
_NAME = re.compile(r"([0-9]{1,12})\.json", re.ASCII)
# A file under its temporary name that is older than this was left by a process that was killed.
_ABANDONED_SECONDS = 60.0


class ReadingStore:
    """The stored readings of this host.

    :arg folder: belongs to this user, and is created if it is missing.
    """

    def __init__(self, folder: str = READINGS_FOLDER) -> None:
        self._folder = folder

    def find_earlier(self, now: BootMoment, seconds: int) -> t.Optional[LoadReading]:
        """Return the reading of this boot that is closest to C(seconds) ago; null if none is old enough. Damaged files are skipped.

        Raises PermissionError if this user may not read the readings.
        """
        ages = {number: now.seconds - number for number in self._list_numbers()}
        for number in sorted(ages, key=lambda number: abs(ages[number] - seconds)):
            found = self._read_reading(number)
            age = now.seconds_since(found.at) if found else None
            if age is not None and age >= LEAST_SECONDS:
                return found
        return None

    def keep(self, reading: LoadReading) -> None:
        """Store a reading, unless there is a recent one, and remove those that are too many. Raises OSError or L(Forbidden) if it cannot be stored."""
        prepare_run_folder(os.path.dirname(self._folder))
        prepare_run_folder(self._folder)
        now, numbers = int(reading.at.seconds), self._list_numbers()
        if not any(self._is_recent(number, reading.at) for number in numbers if 0 <= now - number <= SPACING_SECONDS):
            write_json(self._path(now), encode(reading))
            numbers = [*numbers, now]
        # A file of the future is of another boot, where the folder has outlived it.
        kept = sorted({number for number in numbers if number <= now})[-MOST_READINGS:]
        self._remove_except({f"{number}.json" for number in kept})

    def _is_recent(self, number: int, now: BootMoment) -> bool:
        found = self._read_reading(number)
        age = now.seconds_since(found.at) if found else None
        return age is not None and 0 <= age < SPACING_SECONDS

    def _read_reading(self, number: int) -> t.Optional[LoadReading]:
        """Return the reading; null if the file is damaged, or has been removed in the meantime."""
        path = self._path(number)
        with contextlib.suppress(OSError, ShapeError):
            return decode(LoadReading, read_json(path)) if os.stat(path).st_size <= _LARGEST_BYTES else None
        return None

    def _list_numbers(self) -> t.List[int]:
        try:
            names = [_NAME.fullmatch(name) for name in os.listdir(self._folder)]
        except FileNotFoundError:
            return []
        return [int(name[1]) for name in names if name]

    def _remove_except(self, kept: t.Set[str]) -> None:
        """Remove all other files. One that another process is writing is left."""
        for name in set(os.listdir(self._folder)) - kept:
            path = os.path.join(self._folder, name)
            with contextlib.suppress(OSError):
                if _NAME.fullmatch(name) or time.time() - os.lstat(path).st_mtime > _ABANDONED_SECONDS:
                    os.unlink(path)

    def _path(self, number: int) -> str:
        return os.path.join(self._folder, f"{number}.json")
