# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The control half of C(migration_abort) and C(migration_force_complete): finds the move that is meant, lets its host act, and closes the record.

What a person did is in the ledger, although the watcher or libvirt does it. A ledger that cannot be used does not prevent it.
"""

from __future__ import annotations

import time
import typing as t
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import (
    Conflict,
    InvalidState,
    KvmfleetError,
    NotFound,
    NotSupported,
    Unreachable,
    error_for_code,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import record_in
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, describe_actor
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import LedgerInEmergency, open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.follow import final_error
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.intervention_request import (
    ABORT,
    BANDWIDTH,
    InterventionOptions,
    InterventionRequest,
    read_intervention,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.job import OWNER_LAG_SECONDS, RecordMirror, RunContext
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.meant_move import MeantMove, MoveFinder, find_unsettled
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.reserve import describe_foreign_job
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.run import MoveSettlement
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.source_host import SourceHost

# Between two looks at a record that its own task is expected to close.
POLL_SECONDS = 0.5
# How long that takes at most: of two writers, one waits for the other again.
MIRROR_SECONDS = 4 * OWNER_LAG_SECONDS

Result = dict[str, Json]


@dataclass
class Intervention:
    """One request about one domain's move, on its source host.

    :arg settling: the context of a run that settles a record.
    :arg warnings: grows.
    """

    request: InterventionRequest
    source: SourceHost
    book: LedgerInEmergency
    by: str
    check: bool
    settling: t.Callable[[Ledger], RunContext]
    warnings: list[str]

    def run(self) -> Result:
        """Find the move that is meant, and act; return the task's result. Raises the errors of the task, before anything is changed or with C(migrations)."""
        meant = MoveFinder(self.request, self.source, self.book).find_move()
        looked = meant.looked
        found = looked.record
        if found is None:
            return self._end_left_record(meant)
        if found.type == s.COLD_MIGRATION:
            raise NotSupported(
                f"Domain {found.domain.name} is being moved cold on {self.source.name} (record {found.id}), which has no job of libvirt that could be "
                f"{'aborted' if self.request.act == ABORT else 'changed'}.",
                "Wait for its end. Nothing was changed.",
                migrations=[looked.migration],
            )
        if looked.refusal:
            raise error_for_code(str(looked.refusal["error_code"]))(str(looked.refusal["msg"]), migrations=[looked.migration])
        if self.check:
            return {"changed": True, "migrations": [looked.migration]}
        if found.id is None:
            return self._intervene_in_foreign_job(found, meant)
        return self._intervene_in_move(found)

    # -- nothing is in progress ------------------------------------------------------------------------------------

    def _end_left_record(self, meant: MeantMove) -> Result:
        """End the record of a move that nobody follows any more; without one there is nothing to do."""
        ledger, holder = self.book.ledger, meant.own_holder
        if self.request.act == ABORT and holder and ledger:
            return self._settle(ledger, holder)
        is_known = meant.looked.domain is not None or meant.named is not None
        if self.request.missing_ok and is_known:
            return {"changed": False, "migrations": []}
        if is_known:
            raise NotFound(str(meant.looked.absence), migrations=[])
        message = f"There is no domain {self.request.label} on {self.source.name}."
        raise NotFound(message, "Check the name and the host (virsh list --all). Nothing was changed.")

    def _settle(self, ledger: Ledger, holder: Stored) -> Result:
        """Abort a move by settling its record. Raises L(InvalidState) if it was too late, L(Internal) if its result cannot be proved."""
        if self.check:
            return {"changed": True, "migrations": [encode(holder.record)]}
        record = self._settle_record(ledger, holder)
        if record.status == s.ERROR:
            raise final_error(record) or InvalidState(record.last_detail)
        if record.status == s.COMPLETED and not self.request.missing_ok:
            raise InvalidState(
                f"The request came too late: the migration of domain {record.domain.name} had ended: {record.status}. {record.last_detail}".rstrip(),
                "Its record is closed now.",
                changed=True,
                migrations=[encode(record)],
            )
        return {"changed": True, "migrations": [encode(record)]}

    def _settle_record(self, ledger: Ledger, holder: Stored) -> MoveRecord:
        context = self.settling(ledger)
        try:
            return MoveSettlement(context, holder, self.by if self.request.act == ABORT else None, self.request.wait_seconds).settle_move()
        finally:
            self.warnings += context.warnings

    # -- a move of ours --------------------------------------------------------------------------------------------

    def _intervene_in_move(self, found: MoveRecord) -> Result:
        """Let the watcher act, and close the record if nobody else does."""
        try:
            answer = self._carry_out(found, None)
        except KvmfleetError as error:
            self._close_record(found, _migrations_of(error))
            raise
        migrations = t.cast("t.Sequence[JsonObject]", answer["migrations"])
        self._close_record(found, migrations)
        return {"changed": True, "migrations": list(migrations)}

    def _carry_out(self, found: MoveRecord, opened: MoveRecord | None) -> JsonObject:
        request = self.request
        # From now on, something is done.
        self.book.is_needed = False
        answer = self.source.run_phase(
            "carry_out",
            {
                "act": request.act,
                "by": self.by,
                "uuid": found.domain.uuid,
                "id": found.id,
                "record": encode(opened),
                "bandwidth_mib": request.bandwidth_mib,
                "wait_seconds": request.wait_seconds,
            },
        )
        self.warnings += t.cast("t.Sequence[str]", answer.get("notes", ()))
        return answer

    def _close_record(self, found: MoveRecord, migrations: t.Sequence[JsonObject]) -> None:
        """Write the end of the move, unless the task that follows it does so first."""
        stored = self.book.use(lambda ledger: ledger.read_record(found.record_id))
        if stored is None:
            if not self.book.is_lost:
                self.warnings.append(
                    f"This ledger has no record {found.id}, so the task does not record what it does there. The record is in the ledger "
                    f"{found.ledger_id or 'of the task that began the move'}, which that task writes, or the same task when it is run again."
                )
            return
        ended = [record for record in map(_read_record, migrations) if record and record.status in s.FINAL]
        if ended:
            self.book.use(lambda ledger: _mirror_end(RecordMirror(ledger, stored, owner=False), ended[0]))

    # -- a foreign job ---------------------------------------------------------------------------------------------

    def _intervene_in_foreign_job(self, found: MoveRecord, meant: MeantMove) -> Result:
        """Open the record, or continue the one of an earlier task; act; and close it with the outcome."""
        request, ledger, holder = self.request, self.book.ledger, meant.own_holder
        if holder and ledger and not holder.record.is_foreign and request.act == ABORT:
            # The job of a move whose state file is lost: a new watcher aborts it, and asks both hosts for the result.
            return self._settle(ledger, holder)
        opened, stored = self._note_act(describe_foreign_job(found, meant.looked.info, meant.here, self.by)), None
        if request.act != BANDWIDTH:
            stored = self._open_record(opened, holder)
        try:
            answer = self._carry_out(found, stored.record if stored else opened.predict())
        except KvmfleetError as error:
            if stored:
                error.result["migrations"] = [encode(self._note_failure(stored, error))]
            raise
        migrations = t.cast("list[JsonObject]", answer["migrations"])
        record = _read_record(migrations[0])
        if stored and record:
            stored = self._write_record(stored, record)
            migrations = [encode(self._settle_if_open(stored))] if stored else migrations
        return {"changed": True, "migrations": list(migrations)}

    def _note_act(self, record: MoveRecord) -> MoveRecord:
        """Return the record with the act that is about to be done."""
        if self.request.act == ABORT:
            return record.note(s.ABORT_START, self.by, s.REASON_OPERATOR).intend(f"abort: {s.REASON_OPERATOR}")
        return record.note(s.FORCE_COMPLETE, self.by, s.REASON_OPERATOR)

    def _open_record(self, opened: MoveRecord, holder: Stored | None) -> Stored | None:
        """Return the record in the ledger, which has the act; null if the ledger cannot be used, or another record holds the domain."""
        self.book.open_ledger(create=True)
        if holder and holder.record.is_foreign:
            noted = self._note_act(holder.record)
            return self.book.use(lambda ledger: ledger.update_record(holder, noted))
        held = find_unsettled(self.book, opened.domain.uuid)
        if held:
            self.warnings.append(
                f"What this task does is not recorded: record {held[0].record.id} ({held[0].record.type}, '{held[0].record.status}') holds the domain."
            )
            return None
        return self.book.use(lambda ledger: ledger.open_record(replace(opened, ledger_id=ledger.ledger_id)))

    def _note_failure(self, stored: Stored, error: KvmfleetError) -> MoveRecord:
        """Write why the act failed, after what the host has done until then; settle the record if the job has ended. Return the record as it is then."""
        known = [record for record in map(_read_record, _migrations_of(error)) if record and record.id == stored.record.id]
        noted = (known or [stored.record])[-1].note(f"{self.request.act}_failed", self.by, str(error))
        after = self._write_record(stored, noted)
        return self._settle_if_open(after) if after and not isinstance(error, Unreachable) else noted

    def _write_record(self, stored: Stored, record: MoveRecord) -> Stored | None:
        return self.book.use(lambda ledger: ledger.update_record(stored, record))

    def _settle_if_open(self, stored: Stored) -> MoveRecord:
        """Return the record, settled if its job has ended. One of a job that continues stays as it is, for the next task."""
        ledger = self.book.ledger
        if stored.record.status in s.CLOSED or ledger is None:
            return stored.record
        try:
            return self._settle_record(ledger, stored)
        except KvmfleetError as error:
            self.warnings.append(f"The record {stored.record.id} of domain {stored.record.domain.name} is not closed. {error}")
            return stored.record


def _migrations_of(error: KvmfleetError) -> t.Sequence[JsonObject]:
    return t.cast("t.Sequence[JsonObject]", error.result.get("migrations", ()))


def _read_record(document: JsonObject) -> MoveRecord | None:
    """Return the record in what the host returned; null for the description of a foreign job."""
    record = decode(MoveRecord, record_in(document))
    return record if record.id else None


def _mirror_end(mirror: RecordMirror, record: MoveRecord) -> None:
    """Wait until the task that follows the move has written its end, or write it."""
    deadline = time.monotonic() + MIRROR_SECONDS
    while time.monotonic() < deadline:
        mirror.follow_state(record)
        if mirror.record.status in s.CLOSED or mirror.record.status == record.status:
            return
        time.sleep(POLL_SECONDS)


def _allow_new_ledger(action: FleetAction, uri: str, task_vars: Result) -> None:
    """Raise L(Conflict) if the host belongs to another ledger. It says nothing about a next step: the task goes on without a ledger."""
    try:
        action.check_unprotected(uri, task_vars)
    except Conflict as error:
        raise Conflict(error.message) from error


def run_intervention(action: FleetAction, act: str, options: InterventionOptions, task_vars: Result) -> Result:
    """Carry out the task of one of the two modules; return its result. An error has the warnings too."""
    request = read_intervention(options, act)
    settings, source = action.settings(task_vars), SourceHost(action, task_vars, options["uri"])
    location = settings.ledger(source.name, options["ledger"])
    warnings: list[str] = []

    def open_it(create: bool) -> Ledger:
        try:
            ledger = open_ledger(*location, create=False)
        except NotFound:
            if not create:
                raise
            _allow_new_ledger(action, options["uri"], task_vars)
            ledger = open_ledger(*location)
        return action.attach_notifier(ledger, settings, source.name, location)

    def settling(ledger: Ledger) -> RunContext:
        host = SourceHost(action, task_vars, options["uri"], "live_migrate")
        return RunContext(ledger, settings, host, options["uri"], describe_actor(task_vars))

    is_needed = request.name is None and request.uuid is None
    book = LedgerInEmergency(open_it, is_needed, warnings)
    try:
        result = Intervention(request, source, book, describe_actor(task_vars), action._task.check_mode, settling, warnings).run()
    except KvmfleetError as error:
        if warnings:
            error.result["warnings"] = warnings
        raise
    told = [*warnings, *(book.ledger.problems if book.ledger else ())]
    return {**result, "warnings": told} if told else result
