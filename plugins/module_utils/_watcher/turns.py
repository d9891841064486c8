# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What the run that owns queued moves says of those that wait for their turn: the ledger gives turns, and only the control node reads it."""

from __future__ import annotations

import contextlib
import os
import typing as t

from .files import RUN_FOLDER, read_json, turns_path

GIVEN = "given"
ENDED = "ended"


class Turns:
    """Reads one run's file, C({given, ended}): id of a record to a sentence for the move's history."""

    def __init__(self, run_id: str, folder: str = RUN_FOLDER) -> None:
        self._path = turns_path(run_id, folder)
        self._told: t.Dict[str, t.Any] = {}

    def read(self) -> None:
        """Hear what was said last. A file that is torn says nothing new."""
        told = read_json(self._path)
        if isinstance(told, dict):
            self._told = told

    def given(self, record_id: str) -> t.Optional[str]:
        """Return why that record's move may begin now; None where it has to wait."""
        return self._of(GIVEN, record_id)

    def ended(self, record_id: str) -> t.Optional[str]:
        """Return why that record's move waits no longer and is given up; None where it is not."""
        return self._of(ENDED, record_id)

    def remove(self) -> None:
        """Remove the file at the end of the run."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)

    def _of(self, key: str, record_id: str) -> t.Optional[str]:
        said = self._told.get(key)
        sentence = said.get(record_id) if isinstance(said, dict) else None
        return sentence if isinstance(sentence, str) else None
