# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""One request during a run, its record in the ledger, and what the parts of the run share."""

from __future__ import annotations

import time
import typing as t
import uuid as uuid_module
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.streams import StreamChoice
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Forbidden, InvalidArgument, KvmfleetError, NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import PredictedMove
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import NOT_SURVEYED, StartOrder, SurveyedDomain, Watcher
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.remembered import RememberedMove
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.decide import Decision
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.request import MoveRequest
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.source_host import SourceHost
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import Settings

# The time in which the owner of a record has to write the content of the state file; after that any process that reads it writes.
OWNER_LAG_SECONDS = 5.0


def unkept_error(error: KvmfleetError, record: MoveRecord, what: str) -> KvmfleetError:
    """Return the ledger's error about a record that it cannot store, with the move.

    :arg what: is true of the move, as the rest of a sentence about it.
    """
    ends = f"{record.source.host} to {record.destination.host}"
    return type(error)(
        f"The ledger cannot store the record of the move of domain {record.domain.name} from {ends}{what} {error.message}",
        " ".join(filter(None, [error.next_step, "Then run the same task again."])),
        migrations=[encode(record)],
    )


class RecordMirror:
    """Writes a record's changes of status, and the start of an abort, to the ledger, if this process owns the record, or its owner does not write.

    Each write names the version that was read, so that of two writers one fails.
    """

    def __init__(self, ledger: Ledger, stored: Stored, owner: bool, clock: t.Callable[[], float] = time.monotonic) -> None:
        self.stored = stored
        self.owner = owner
        self._ledger = ledger
        self._clock = clock
        self._behind_since: float | None = None

    @property
    def record(self) -> MoveRecord:
        """The record as the ledger has it."""
        return self.stored.record

    @property
    def is_settled(self) -> bool:
        """Whether the ledger has the record's final status, as far as this process can write it."""
        return self.record.status in s.FINAL

    def follow_state(self, record: MoveRecord) -> None:
        """Update the ledger from the state file."""
        if record.id != self.record.id or record.generation < self.record.generation:
            return
        if not self._is_news(record):
            self._behind_since = None
            return
        if not self.owner and not self._is_overdue():
            return
        self.write_record(record)

    def write_record(self, record: MoveRecord) -> None:
        """Write the record now. If another process was first, adopt its version and leave the writing to it.

        Raises L(Conflict) if the record is no longer in the ledger.
        """
        try:
            self.stored = self._ledger.update_record(self.stored, record)
        except Conflict as conflict:
            try:
                self.stored = self._ledger.read_record(record.record_id)
            except NotFound:
                raise conflict from None
            self.owner = False
            self._behind_since = None

    def read_again(self) -> None:
        """Read the record again."""
        self.stored = self._ledger.read_record(self.record.record_id)

    def adopt_end(self) -> None:
        """Read the record, and adopt it if another process has settled it. Of an open one, the older version stays: the next write notices the change."""
        stored = self._ledger.read_record(self.record.record_id)
        if stored.record.status in s.FINAL:
            self.stored = stored

    def _is_news(self, record: MoveRecord) -> bool:
        if record.status in s.BEFORE_JOB and self.record.status == s.PREPARING:
            # It is admitted, and its watcher does not know that yet.
            return False
        if (record.status, record.generation) != (self.record.status, self.record.generation):
            return True
        # Receivers of notices learn of an abort when it starts, not when it ends. Without a job it ends at once.
        return record.status not in s.BEFORE_JOB and record.is_aborting and not self.record.is_aborting

    def _is_overdue(self) -> bool:
        """Whether the ledger has been out of date for so long that the owner of the record must have ended."""
        now = self._clock()
        before = self.stored.version
        self.read_again()
        if self._behind_since is None or self.stored.version != before:
            self._behind_since = now
        if now - self._behind_since < OWNER_LAG_SECONDS:
            return False
        self.owner = True
        return True


@dataclass
class RunContext:
    """What all moves of one task share. C(warnings) grows, and so does C(missing): moves that hosts remember and the ledger lacks.

    :arg former_generations: see L(find_former_generations); set when the hosts have answered.
    :arg uri: of the source's own libvirt.
    :arg by: who acts, for histories.
    :arg predicted: what was predicted for the moves, by UUID of the domain.
    """

    ledger: Ledger
    settings: Settings
    source: SourceHost
    uri: str
    by: str
    run_id: str = field(default_factory=lambda: str(uuid_module.uuid4()))
    warnings: list[str] = field(default_factory=list)
    missing: list[RememberedMove] = field(default_factory=list)
    former_generations: t.Mapping[str, int] = field(default_factory=dict)
    predicted: t.Mapping[str, PredictedMove] = field(default_factory=dict)


@dataclass
class MoveJob:
    """One request, the decision about it, and its result.

    :arg streams: the decision about its connections, once its destination is chosen.
    """

    request: MoveRequest
    decision: Decision | None = None
    domain: SurveyedDomain = NOT_SURVEYED
    order: StartOrder | None = None
    mirror: RecordMirror | None = None
    watcher: Watcher | None = None
    record: MoveRecord | None = None
    error: KvmfleetError | None = None
    moved: bool = False
    streams: StreamChoice = field(default_factory=StreamChoice)

    @property
    def uuid(self) -> str:
        """The domain's UUID, once it is known."""
        return self.mirror.record.domain.uuid if self.mirror else self.domain.source_info.uuid

    @property
    def domain_uuid(self) -> str | None:
        """The domain's UUID; null for an unknown name."""
        return self.domain.at_source.uuid if self.domain.at_source else self.request.uuid

    @property
    def was_at_source(self) -> bool:
        """Whether the domain was active on the source when it was surveyed: a move that had ended before this task is not a change."""
        return bool(self.domain.at_source and self.domain.at_source.view.active)


def run_guarded(job: MoveJob, step: t.Callable[[MoveJob], None]) -> None:
    """Run a step for one of several moves, and keep its error in the job, so that the others continue. Invalid input ends the task."""
    if job.error:
        return
    try:
        step(job)
    except (InvalidArgument, Forbidden):
        raise
    except KvmfleetError as error:
        job.error = error
