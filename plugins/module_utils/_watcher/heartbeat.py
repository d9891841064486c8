# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whether the run that owns queued moves is still there: a counter it keeps writing, aged by our own monotonic clock."""

from __future__ import annotations

import contextlib
import os
import typing as t

from .files import RUN_FOLDER, heartbeat_path

FRESH_SECONDS = 60.0


class Heartbeat:
    """Reads one run's counter. A clock that jumps does not matter: only a change of the counter counts."""

    def __init__(self, run_id: str, clock: t.Callable[[], float], folder: str = RUN_FOLDER) -> None:
        self._path = heartbeat_path(run_id, folder)
        self._clock = clock
        self._counter = self._read()
        self._changed_at = clock()

    def is_fresh(self) -> bool:
        """Whether the counter has changed within the last 60 s."""
        counter = self._read()
        if counter is not None and counter != self._counter:
            self._counter = counter
            self._changed_at = self._clock()
        return self._clock() - self._changed_at <= FRESH_SECONDS

    def remove(self) -> None:
        """Remove the counter's file at the end of the run."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)

    def _read(self) -> t.Optional[str]:
        try:
            with open(self._path, encoding="ascii", errors="replace") as stream:
                return stream.read(64)
        except FileNotFoundError:
            return None
