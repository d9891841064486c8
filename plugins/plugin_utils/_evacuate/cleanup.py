# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The control half of evacuation_cleanup. The host is queried about the domains that records name, and cleans them. Only a verified cleanup is recorded.

The retention of quarantined files is computed from records of the ledger and the clock of the control node, because the clock of the returned host may have
been stepped. The record of a cleanup is closed after the host has moved everything. If the clock of the control node was late at that time, an earlier line of
the record can have a later time. The latest time counts, so that nothing is deleted early.
"""

from __future__ import annotations

import contextlib
import datetime
import typing as t
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.cleanup_verdicts import ALARM, REFUSE, SUPERSEDED
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.cleanup import (
    CleanupDone,
    CleanupPlan,
    KeptDisk,
    QuarantinedDisk,
    QuarantineEntry,
    QuarantineExpiry,
    QuarantineListing,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Json, JsonObject, Maybe, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError, NotFound, TimedOut, Unreachable, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef

from .._ledger.host_decisions import settling_step
from .._ledger.host_entries import host_lock_name
from .._ledger.ledger import Ledger
from .._ledger.leftovers import closing_status, is_done_from, is_given_up_on, without_host
from .._ledger.remembered import RememberedMove, copy_text, missing_text, other_ledger_text
from .._ledger.rules import describe_record
from .tombstones import CleanedDomain, KeptImage, LostTombstone, Tombstone, UncleanedDomain, build_question, find_begun, find_tombstones


def judge_retention(
    quarantined: Sequence[QuarantineEntry], ledger: Ledger, host_id: t.Optional[str], days: int, now: t.Optional[datetime.datetime] = None
) -> tuple[list[str], list[QuarantineEntry]]:
    """Return the IDs of the records whose retention is over, and the quarantines that are kept because their age is unknown, each with C(reason).

    :arg quarantined: what the host lists.
    :arg host_id: of that host.
    :arg now: by the clock of this control node.
    """
    at = now or datetime.datetime.now(datetime.UTC)
    due: list[str] = []
    kept: list[QuarantineEntry] = []
    for entry in quarantined:
        record = _find_record(entry.record, ledger)
        reason = _why_age_unknown(record, entry.record, host_id, at)
        if reason:
            kept.append(replace(entry, reason=reason))
        elif record is not None and record.status in s.CLOSED and at - max(_list_times(record)) >= datetime.timedelta(days=days):
            due.append(entry.record)
    return due, kept


def _find_record(record_id: str, ledger: Ledger) -> t.Optional[MoveRecord]:
    try:
        return ledger.read_record(record_id).record
    except NotFound:
        return None


def _why_age_unknown(record: t.Optional[MoveRecord], record_id: str, host_id: t.Optional[str], now: datetime.datetime) -> str:
    """Return why the record does not show how long ago its cleanup ended; empty if it does, or if the cleanup is still in progress."""
    if record is None:
        return f"the ledger has no record {record_id}, so its age is not known: delete it by hand when it is no longer needed"
    is_live = record.type == s.LIVE_MIGRATION and not record.superseded_by
    if not host_id or is_live or host_id not in (record.source.host_id, record.destination.host_id):
        return f"the record {record_id} is not of an evacuation or a cold move of this host, or of a live migration that an evacuation has superseded"
    latest = max(_list_times(record), default=None)
    if latest is None:
        return f"the record {record_id} has no valid time"
    if latest > now:
        return (
            f"the clock of the control node says {_utc_text(now)}, which is before the last line of the record {record_id} ({_utc_text(latest)}): set the clock"
        )
    return ""


def _list_times(record: MoveRecord) -> Iterator[datetime.datetime]:
    for text in (record.created_at, record.updated_at, *(line.at for line in record.history)):
        try:
            at = datetime.datetime.fromisoformat(text)
        except ValueError:
            continue
        if at.tzinfo is not None:
            yield at


def _utc_text(at: datetime.datetime) -> str:
    return at.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


STORAGE_DELETE = "delete"
REASON_SUPERSEDED = "superseded"
_STOP_ONE_COPY = "Find out immediately which copy is correct, and stop the other; until then, nothing is removed from this host."

RunPhase = t.Callable[[str, JsonObject], JsonObject]


@dataclass(frozen=True)
class _SurveyAnswer:
    plans: tuple[CleanupPlan, ...]
    fleet: Maybe[JsonObject] = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class _CleanAnswer:
    """What the host has found of one domain, and what it has done.

    :arg fleet: what all other hosts have answered, if they had to be asked again.
    """

    changed: bool
    plan: CleanupPlan
    done: Maybe[JsonObject] = ABSENT
    fleet: Maybe[JsonObject | None] = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass
class _KnownFleet:
    """What all other hosts have answered last.

    :arg uuids: the domains that are still to be cleaned.
    :arg reading: as the host returned it, which also judges whether it still counts (FleetReading).
    """

    uuids: list[str]
    reading: JsonObject | None = None


class DoubleRunAlarm(Unsafe):
    """A domain runs on the host from which it was evacuated."""


@dataclass
class CleanupOutcome:
    """The results of the domains, as the module returns them.

    :arg has_acted: whether something was changed that none of the lists shows.
    """

    cleaned: list[CleanedDomain] = field(default_factory=list)
    kept: list[KeptImage] = field(default_factory=list)
    refused: list[UncleanedDomain] = field(default_factory=list)
    superseded: list[UncleanedDomain] = field(default_factory=list)
    deleted: list[QuarantineEntry] = field(default_factory=list)
    missing_records: list[RememberedMove] = field(default_factory=list)
    has_acted: bool = False

    def as_result(self) -> dict[str, Json]:
        """Return the lists, and whether anything was changed."""
        lists = {name: value for name, value in self.__dict__.items() if name != "has_acted"}
        return {**encode(lists), "changed": bool(self.has_acted or self.cleaned or self.superseded or self.deleted)}


@dataclass(frozen=True)
class HostCleanup:
    """:arg cleaned_host: the host; its C(host_id) is the one that was read from its own file.

    :arg phase: runs a phase on the host.
    :arg uris: name of each other host of the fleet to its libvirt URI.
    :arg storage: C(quarantine), C(keep) or C(delete).
    :arg check: to change nothing.
    :arg missing: what hosts remember and the ledger lacks, see L(find_missing_records).
    :arg left: the evacuations from here among them, also if the ledger has found the domain by itself since, see L(find_left_behind), and those of other
      ledgers, see L(find_left_under_others).
    """

    ledger: Ledger
    cleaned_host: HostRef
    phase: RunPhase
    uris: t.Mapping[str, str]
    storage: str
    retention_days: int
    by: str
    check: bool
    missing: Sequence[RememberedMove] = ()
    left: Sequence[RememberedMove] = ()

    def clean_host(self) -> CleanupOutcome:
        """Return the result of each domain. Raises L(DoubleRunAlarm) for a domain that runs here although it was evacuated: then nothing else is changed."""
        outcome = CleanupOutcome(missing_records=list(self.missing))
        try:
            self._clean_domains(outcome)
        except KvmfleetError as error:
            error.result.update(outcome.as_result())
            raise
        return outcome

    def _clean_domains(self, outcome: CleanupOutcome) -> None:
        if not self.check:
            self._close_unordered(outcome)
        found = find_tombstones(self.ledger, self.cleaned_host.host_id)
        waiting = [tombstone for tombstone in found if not self._is_busy(tombstone, outcome) and not self._is_outdated(tombstone, outcome)]
        listed = {tombstone.uuid for tombstone in found}
        for begun in [begun for begun in find_begun(self.ledger, self.cleaned_host.host_id) if begun.uuid not in listed]:
            self._is_busy(begun, outcome)
        lost = [LostTombstone(one) for one in self.left if one.domain.uuid not in listed]
        plans, reading = self._survey_domains([*waiting, *lost])
        self._add_lost(lost, plans, outcome)
        self._raise_alarm([plan for tombstone in waiting if (plan := plans[tombstone.record.record_id]).kind == ALARM])
        if self.storage == STORAGE_DELETE:
            self._delete_expired(outcome)
        known = _KnownFleet([tombstone.uuid for tombstone in waiting], reading)
        for tombstone in waiting:
            plan = plans[tombstone.record.record_id]
            if plan.kind == REFUSE:
                self._refuse_domain(tombstone, plan.reason, outcome)
            elif self.check:
                _add_predicted(tombstone, plan, self.storage, outcome)
            else:
                self._clean_locked(tombstone, known, outcome)
            known.uuids.remove(tombstone.uuid)

    def _is_busy(self, tombstone: Tombstone, outcome: CleanupOutcome) -> bool:
        """Whether an unsettled record may bring the domain to this host, or is not newer than the tombstone: then it may show that this copy is needed."""
        unsettled = self.ledger.find_unsettled(tombstone.uuid)
        if unsettled is None or (unsettled.record.generation > tombstone.record.generation and self._is_elsewhere(unsettled.record)):
            return False
        held = unsettled.record
        self._refuse_domain(tombstone, f"{describe_record(held)} is not settled ('{held.status}'). {settling_step(held)}", outcome)
        return True

    def _close_unordered(self, outcome: CleanupOutcome) -> None:
        """Close evacuations from here for which no start was ordered yet. A record gets further only under the lock of its destination."""
        known = {one.domain.uuid for one in self.missing}
        for begun in find_begun(self.ledger, self.cleaned_host.host_id):
            # The ledger was set back: a host remembers that this start was ordered, or what became of the domain later.
            if begun.record.status != s.ACCEPTED or begun.uuid in known:
                continue
            # Whoever holds the lock for long is ordering starts: then the record is refused.
            with contextlib.suppress(TimedOut), self.ledger.hold_lock(host_lock_name(begun.record.destination)):
                stored = self.ledger.read_record(begun.record.record_id)
                if stored.record.status == s.ACCEPTED:
                    detail = f"{self.cleaned_host.host} is back, and no start was ordered."
                    self.ledger.update_record(stored, stored.record.advance(s.FAILED, self.by, detail))
                    outcome.has_acted = True

    def _is_elsewhere(self, record: MoveRecord) -> bool:
        return not any(end.may_be(self.cleaned_host) or not end.is_known for end in record.ends)

    def _is_outdated(self, tombstone: Tombstone, outcome: CleanupOutcome) -> bool:
        """Whether hosts know of a move that is newer than the tombstone, which is then outdated."""
        newer = next((one for one in self.missing if one.domain.uuid == tombstone.uuid), None)
        if newer is not None:
            self._refuse_domain(tombstone, missing_text(newer), outcome)
        return newer is not None

    def _add_lost(self, lost: list[LostTombstone], plans: Mapping[str, CleanupPlan], outcome: CleanupOutcome) -> None:
        """Report evacuations from here that the ledger has lost, as long as a person has to act on them."""
        missing = {one.id for one in self.missing}
        for tombstone in lost:
            move, plan = tombstone.move, plans[tombstone.move.id]
            if move.id in missing:
                text = missing_text(move)
            elif plan.present:
                text = copy_text(move) if move.ledger_id == self.ledger.ledger_id else other_ledger_text(move)
                outcome.missing_records.append(move)
            else:
                continue
            outcome.refused.append(tombstone.list_uncleaned(f"{plan.reason}. {text}" if plan.kind == ALARM else text))

    def _refuse_domain(self, tombstone: Tombstone, reason: str, outcome: CleanupOutcome) -> None:
        outcome.refused.append(tombstone.list_uncleaned(reason))
        self.ledger.witness.report_event(tombstone.record, "cleanup.refused", self.by, reason)

    def _survey_domains(self, waiting: Sequence[Tombstone | LostTombstone]) -> tuple[dict[str, CleanupPlan], JsonObject | None]:
        """Return the plans by record, and what all other hosts have answered."""
        if not waiting:
            return {}, None
        questions = [encode(build_question(tombstone, self.ledger, self.cleaned_host)) for tombstone in waiting]
        answer = self.phase("survey", {"host_id": self.cleaned_host.host_id, "uris": dict(self.uris), "domains": questions})
        found = decode(_SurveyAnswer, answer)
        return {plan.record: plan for plan in found.plans}, found.fleet or None

    def _raise_alarm(self, plans: list[CleanupPlan]) -> None:
        if plans:
            text = " ".join(map(self._report_alarm, plans))
            raise DoubleRunAlarm(f"{text} Nothing was touched on {self.cleaned_host.host}.", _STOP_ONE_COPY)

    def _report_alarm(self, plan: CleanupPlan) -> str:
        record = self.ledger.read_record(plan.record).record
        self.ledger.witness.report_event(record, "cleanup.refused", self.by, plan.reason)
        # Whether a person has moved it back, or started an outdated copy, no host can tell.
        settle = f"If it was moved back by hand, settle the record {record.id} as '{closing_status(record)}' with kvmfleet.migration.host."
        return f"Domain {plan.name} ({plan.uuid}): {plan.reason}.{'' if plan.where else f' {settle}'}"

    def _delete_expired(self, outcome: CleanupOutcome) -> None:
        """Delete quarantines whose retention is over according to the records; the host's clock is not used."""
        answer = self.phase("quarantined", {"host_id": self.cleaned_host.host_id})
        listing = QuarantineListing(_read_entries(answer["quarantined"]), _read_entries(answer["kept"]))
        due, kept = judge_retention(listing.quarantined, self.ledger, self.cleaned_host.host_id, self.retention_days)
        kept += listing.kept
        if due:
            answer = self.phase("expire", {"host_id": self.cleaned_host.host_id, "due": due, "check": self.check})
            expired = QuarantineExpiry(_read_entries(answer["deleted"]), _read_entries(answer["kept"]))
            outcome.deleted += expired.deleted
            kept += expired.kept
        outcome.kept += [KeptImage(entry.uuid or None, entry.name or None, entry.record, None, None, True, entry.reason, entry.paths) for entry in kept]

    def _clean_locked(self, tombstone: Tombstone, known: _KnownFleet, outcome: CleanupOutcome) -> None:
        """Clean up one domain while no move to this host can be reserved; the failure of one domain does not stop the others."""
        try:
            with self.ledger.hold_lock(host_lock_name(self.cleaned_host)):
                if self._is_still_open(tombstone) and not self._is_busy(tombstone, outcome):
                    self._clean_domain(tombstone, known, outcome)
        except DoubleRunAlarm:
            raise
        except KvmfleetError as error:
            outcome.has_acted |= bool(error.result.get("changed"))
            self.ledger.witness.report_event(tombstone.record, "cleanup.failed", self.by, str(error))
            if isinstance(error, Unreachable):
                raise
            outcome.refused.append(tombstone.list_uncleaned(str(error)))

    def _is_still_open(self, tombstone: Tombstone) -> bool:
        """Whether the tombstone is still open: another task that cleans the same host may have been faster, and reports its own work."""
        record, host_id = self.ledger.read_record(tombstone.record.record_id).record, str(self.cleaned_host.host_id)
        return record.status == tombstone.record.status and (is_done_from(record, host_id) or is_given_up_on(record, host_id))

    def _clean_domain(self, tombstone: Tombstone, known: _KnownFleet, outcome: CleanupOutcome) -> None:
        question = encode(build_question(tombstone, self.ledger, self.cleaned_host))
        self.ledger.witness.report_event(tombstone.record, "cleanup.started", self.by)
        fleet = {"uris": dict(self.uris), "fleet": known.reading, "uuids": list(known.uuids)}
        answer = decode(_CleanAnswer, self.phase("clean", {"host_id": self.cleaned_host.host_id, "domains": [question], "storage": self.storage, **fleet}))
        plan, known.reading = answer.plan, answer.fleet or known.reading
        if plan.kind == ALARM:
            self._raise_alarm([plan])
        elif plan.kind == REFUSE:
            self._refuse_domain(tombstone, plan.reason, outcome)
        elif plan.kind == SUPERSEDED:
            self._complete_records([tombstone.record, *tombstone.older], plan.reason, REASON_SUPERSEDED)
            outcome.superseded.append(tombstone.list_uncleaned(plan.reason))
        else:
            done = decode(CleanupDone, {**(answer.done or {}), "changed": answer.changed})
            detail = _cleanup_detail(done, plan)
            outcome.has_acted |= answer.changed
            try:
                self._complete_records([tombstone.record], detail, None)
                self._complete_records(tombstone.older, f"the record {tombstone.record.id} is newer, and was cleaned", REASON_SUPERSEDED)
            except KvmfleetError as error:
                step = "Then run the task again: it changes nothing more on the host, and completes the record."
                raise type(error)(f"{detail} The ledger cannot store that: {error.message}", " ".join(filter(None, [error.next_step, step]))) from error
            _add_cleaned(tombstone, plan, done, outcome)

    def _complete_records(self, records: list[MoveRecord], detail: str, reason: t.Optional[str]) -> None:
        for record in records:
            stored = self.ledger.read_record(record.record_id)
            self.ledger.update_record(stored, without_host(stored.record, str(self.cleaned_host.host_id), self.by, detail, reason))


def _read_entries(documents: Json) -> tuple[QuarantineEntry, ...]:
    return decode(tuple[QuarantineEntry, ...], documents)


def _cleanup_detail(done: CleanupDone, plan: CleanupPlan) -> str:
    acts = ["undefined here" if done.undefined else "it was not defined here"]
    acts += [f"{len(done.quarantined)} files moved to quarantine"] if done.quarantined else []
    acts += [f"{len(done.kept)} disks kept"] if done.kept else []
    where = f"The domain is on {plan.where}" if plan.where else f"The domain is active nowhere: {plan.reason}"
    return f"{where}. Cleanup of its source: {', '.join(acts)}."


def _add_cleaned(tombstone: Tombstone, plan: CleanupPlan, done: CleanupDone, outcome: CleanupOutcome) -> None:
    uuid, name, record = tombstone.uuid, tombstone.name, tombstone.record.id
    superseded = tuple(older.id for older in tombstone.older)
    state = (plan.where, plan.nvram, plan.tpm, done.undefined, done.restore)
    outcome.cleaned.append(CleanedDomain(uuid, name, record, *state, done.quarantined, superseded))
    outcome.kept += [KeptImage(uuid, name, record, disk.target, disk.path, disk.only_copy, disk.reason) for disk in done.kept]


def _add_predicted(tombstone: Tombstone, plan: CleanupPlan, storage: str, outcome: CleanupOutcome) -> None:
    """Predict what L(HostCleanup) would do. The quarantine paths of files and the command to restore them are known only afterwards."""
    if plan.kind == SUPERSEDED:
        outcome.superseded.append(tombstone.list_uncleaned(plan.reason))
        return
    moving = [disk for disk in plan.disks if disk.quarantine and storage != "keep"]
    files = [QuarantinedDisk(disk.target, disk.path, None) for disk in moving]
    files += [QuarantinedDisk(None, plan.managed_save, None)] if plan.managed_save else []
    kept = [KeptDisk(disk.target, disk.path, disk.reason or "storage is 'keep'", disk.only_copy) for disk in plan.disks if disk not in moving]
    _add_cleaned(tombstone, plan, CleanupDone(True, plan.present, tuple(files), tuple(kept), None), outcome)
