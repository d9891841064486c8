# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The state file of a cold move: its record with every act, which is written before the act.

It is lost when the host boots, or when there is no space for it, unlike what the acts have done. Without it, every act may have been begun.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import typing as t

from .._live_watchers import read_state_file
from .._model import statuses as s
from .._model.codec import JsonObject
from .._model.errors import Internal
from .._model.record_parts import ColdMove, Result
from .._model.records import MoveRecord
from .._model.watched_moves import StateFile, Watcher
from .._run_folder import RUN_FOLDER, state_path, write_json
from .steps import ARRIVED, STAYED

# Stands among the acts for those that were lost with the state file: any act may have been begun.
STATE_LOST = "state_lost"
_STATUSES = {ARRIVED: s.COMPLETED, STAYED: s.FAILED}


class ColdJournal:
    """:arg record: as the control node sent it, with the generation that this host gave it.

    :arg adopted: an earlier process may have begun the move: what it has written down is continued.
    """

    def __init__(self, record: MoveRecord, watcher: Watcher, adopted: bool, folder: str = RUN_FOLDER) -> None:
        self._watcher = watcher
        self._folder = folder
        self.record = self._continue(record) if adopted else record

    def _continue(self, record: MoveRecord) -> MoveRecord:
        """Return the record with what an earlier process has written down."""
        state = read_state_file(record.domain.uuid, self._folder)
        known = state.record if state and state.record.id == record.id else None
        # An error without acts may be all that was written after an earlier state file had been lost.
        if known and (known.acts or known.status != s.ERROR):
            return dataclasses.replace(record, acts=known.acts, cold=known.cold)
        return record if record.has_begun(STATE_LOST) else record.intend(STATE_LOST)

    def may_have_begun(self, act: str) -> bool:
        """Whether that act was begun in this move, as far as this host knows: once the state file of an earlier process is lost, it may have been."""
        return self.record.has_begun(STATE_LOST) or self.record.has_begun(act)

    def begin(self) -> None:
        """Write the record before the first act. Raises L(Internal) if there is no space: then nothing may be started."""
        try:
            write_json(self._path, self._describe())
        except OSError as error:
            raise Internal(
                f"The state of the move of domain {self.record.domain.name} cannot be written under {self._folder}: {error.strerror}.",
                "Nothing was started. Free space there, on the source host, then run the task again.",
            ) from error

    def intend(self, act: str) -> None:
        """Write down an act that is about to be done. Raises C(OSError) if a state file stays that does not have it."""
        self._write(self.record.intend(act))

    def note_cold(self, **changes: t.Any) -> None:
        """Write down what the move has done."""
        self._write(dataclasses.replace(self.record, cold=dataclasses.replace(self.record.cold or ColdMove(False), **changes)))

    def finish(self, end: str, detail: str, result: t.Optional[Result]) -> MoveRecord:
        """Write the last status if there is space, and return the record."""
        status = _STATUSES.get(end, s.ERROR)
        by = f"cold mover pid {self._watcher.pid}"
        ended = self.record.note(status, by, detail) if status == self.record.status else self.record.advance(status, by, detail)
        with contextlib.suppress(OSError):
            self._write(dataclasses.replace(ended, result=result) if result else ended)
        return self.record

    def _write(self, record: MoveRecord) -> None:
        """Write the record. Without space, the move goes on without a state file: an old one would prove that what it lacks was never begun."""
        self.record = record
        try:
            write_json(self._path, self._describe())
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)

    @property
    def _path(self) -> str:
        return state_path(self.record.domain.uuid, self._folder)

    def _describe(self) -> JsonObject:
        return StateFile(self.record, self._watcher).as_json()
