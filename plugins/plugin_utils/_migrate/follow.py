# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Follows moves until each one has ended, is settled, or has lost its watcher; and concludes the result of a job."""

from __future__ import annotations

import contextlib
import re
import time
import typing as t
from collections.abc import Sequence
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import outcome
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import JOB_NONE
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import (
    Aborted,
    Conflict,
    Internal,
    InvalidState,
    KvmfleetError,
    MigrationFailed,
    NotFound,
    NotSupported,
    TimedOut,
    Unreachable,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import Survey, Watcher
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.remembered import RememberedMove
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate import decide as d
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.admission import AdmissionQueue
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.job import MoveJob, RecordMirror, RunContext, unkept_error
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.shared_links import SharedLinks
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.source_host import PolledState, SourceHost, WatcherNews
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._run_process import RunProcess

# From the beginning of a poll to the next one. A poll waits on the host for news, and may therefore last longer.
POLL_SECONDS = 0.2
UNREACHABLE_SECONDS = 120.0
# A shorter silence of the source is not worth a line.
SHOWN_SILENCE_SECONDS = 5.0
# How often the ledger is read meanwhile.
LEDGER_SECONDS = 10.0

ShowRecord = t.Callable[[MoveRecord, str | None], None]
T = t.TypeVar("T")


class Follower:
    """Polls the state files of one run's moves, and mirrors them.

    :arg admissions: the moves that wait for admission.
    :arg show: receives each record as its state file has it, and what its move waits for, for progress lines; a waiting move has its admission in the record.
    :arg wait_seconds: how long moves are followed; null for as long as they last.
    :arg links: counts the other sources of this run's destinations; null if its watcher does not share a link.
    """

    def __init__(
        self,
        source: SourceHost,
        admissions: AdmissionQueue,
        run_id: str,
        show: ShowRecord,
        sleep: t.Callable[[float], None] = time.sleep,
        wait_seconds: float | None = None,
        links: SharedLinks | None = None,
    ) -> None:
        self._source = source
        self._admissions = admissions
        self._run_id = run_id
        self._show = show
        self._sleep = sleep
        self._links = links
        self._run_process = RunProcess()
        self._counter = 0
        # When the first of the polls began that the source has left unanswered since.
        self._silent_since: float | None = None
        self._ledger_read_at = 0.0
        self._deadline = None if wait_seconds is None else time.monotonic() + wait_seconds

    def read_seen_facts(self, watchers: t.Mapping[str, Watcher]) -> t.Mapping[str, JsonObject] | None:
        """Return, by libvirt URI, the facts of hosts that this run's watcher has read at its end.

        None if it has not, if another run has moves, or if the source does not answer: the results of the moves are known without them.
        """
        ours = {uuid: watcher for uuid, watcher in watchers.items() if watcher.run_id == self._run_id}
        if not ours or len(ours) < len(watchers):
            return None
        if self._source.seen is None:
            with contextlib.suppress(Unreachable):
                self._poll_states(ours)
        return self._source.seen

    def follow_moves(self, mirrors: dict[str, RecordMirror], watchers: dict[str, Watcher], lost: dict[str, KvmfleetError]) -> list[str]:
        """Wait until every move is settled in the ledger or has lost its watcher; return the domain UUIDs of those that lost it.

        :arg mirrors: domain UUID to the ledger's record of its move.
        :arg watchers: domain UUID to the watcher of its move; replaced by the one in its state file.
        :arg lost: receives the error of each move whose record the ledger could not keep; the others are still followed.
        """
        orphans: list[str] = []
        open_moves = set(mirrors)
        while open_moves:
            self.stop_if_orphaned()
            self._admissions.admit_moves()
            began_at = time.monotonic()
            news = self._collect_news([mirrors[uuid].record for uuid in sorted(open_moves)])
            states = self._poll_states({uuid: watchers[uuid] for uuid in sorted(open_moves)}, news)
            if states is None:
                open_moves -= self._end_settled({uuid: mirrors[uuid] for uuid in sorted(open_moves)})
                self._show_silence([mirrors[uuid].record for uuid in sorted(open_moves)])
            else:
                open_moves -= {uuid for uuid in sorted(open_moves) if self._is_done(uuid, states.get(uuid), mirrors[uuid], watchers, orphans, lost)}
            if open_moves:
                self._check_deadline([mirrors[uuid].record for uuid in sorted(open_moves)])
                self._sleep(max(0.0, began_at + POLL_SECONDS - time.monotonic()))
        return orphans

    def _check_deadline(self, records: Sequence[MoveRecord]) -> None:
        """Raise L(TimedOut), with the moves that continue, if they were followed for long enough."""
        if self._deadline is not None and time.monotonic() > self._deadline:
            names = ", ".join(str(record.domain.name) for record in records)
            raise TimedOut(
                f"The move of {names} is not settled within the time of wait_seconds. Its watcher on {self._source.name} continues.",
                "Check it with migration_info, and run the task again.",
                migrations=encode(records),
            )

    def _is_done(
        self,
        uuid: str,
        state: PolledState | None,
        mirror: RecordMirror,
        watchers: dict[str, Watcher],
        orphans: list[str],
        lost: dict[str, KvmfleetError],
    ) -> bool:
        try:
            return self._is_over(uuid, state, mirror, watchers, orphans)
        except KvmfleetError as error:
            lost[uuid] = self._unkept_error(error, state, mirror)
            return True

    def _unkept_error(self, error: KvmfleetError, state: PolledState | None, mirror: RecordMirror) -> KvmfleetError:
        """Return the ledger's error with the move that it concerns, and what happens to that move."""
        record = state.record if state else mirror.record
        return unkept_error(error, record, f". Its watcher on {self._source.name} continues without it and reports '{record.status}'.")

    def _is_over(self, uuid: str, state: PolledState | None, mirror: RecordMirror, watchers: dict[str, Watcher], orphans: list[str]) -> bool:
        if state is None or state.record.id != mirror.record.id:
            # Another move of the domain has begun since, or the host was rebooted: the ledger is newer than the file.
            mirror.read_again()
            if not mirror.is_settled:
                orphans.append(uuid)
            return True
        watchers[uuid] = state.watcher
        self._show(replace(state.record, turn=mirror.record.turn), state.waits_for)
        mirror.follow_state(state.record)
        if mirror.is_settled:
            return True
        if not state.is_alive and state.record.status not in s.FINAL:
            orphans.append(uuid)
            return True
        return False

    def _collect_news(self, moves: Sequence[MoveRecord]) -> WatcherNews | None:
        """Return what this run's watcher is told; None for nothing."""
        sources = self._links.count_sources(moves) if self._links else {}
        return {**(self._admissions.answers or {}), "sources": sources} if sources else self._admissions.answers

    def _poll_states(self, watchers: dict[str, Watcher], news: WatcherNews | None = None) -> dict[str, PolledState] | None:
        self._counter += 1
        began_at = time.monotonic()
        try:
            states = self._source.poll_states(self._run_id, self._counter, watchers, news)
        except Unreachable as error:
            self._silent_since = began_at if self._silent_since is None else self._silent_since
            if time.monotonic() - self._silent_since > UNREACHABLE_SECONDS:
                moves = "1 move was" if len(watchers) == 1 else f"{len(watchers)} moves were"
                raise Unreachable(
                    f"{self._source.name} has not answered for {UNREACHABLE_SECONDS:.0f} s while {moves} in flight. "
                    f"If it runs, moves are watched there and end by their own limits. {error.message}",
                    "Run the same task again when the host can be reached: it follows what is in flight and settles what has ended. If the host is dead: "
                    f"kvmfleet.migration.evacuate -e source={self._source.name}",
                ) from error
            return None
        self._silent_since = None
        return states

    def _end_settled(self, mirrors: t.Mapping[str, RecordMirror]) -> set[str]:
        """Return the moves of a silent source that somebody else has settled, as an evacuation of the source does. The ledger is read now and then."""
        now = time.monotonic()
        if self._silent_since is None or now - max(self._silent_since, self._ledger_read_at) < LEDGER_SECONDS:
            return set()
        self._ledger_read_at = now
        with contextlib.suppress(KvmfleetError):
            for mirror in mirrors.values():
                mirror.adopt_end()
        settled = {uuid for uuid, mirror in mirrors.items() if mirror.is_settled}
        for uuid in sorted(settled):
            self._show(mirrors[uuid].record, None)
        return settled

    def _show_silence(self, records: Sequence[MoveRecord]) -> None:
        seconds = 0.0 if self._silent_since is None else time.monotonic() - self._silent_since
        if seconds < SHOWN_SILENCE_SECONDS:
            return
        for record in records:
            self._show(record, f"{self._source.name} has not answered for {seconds:.0f} s")

    def wait_for_answer(self, query: t.Callable[[], T]) -> T:
        """Return what the query of the source returns once the source answers. Raises L(Unreachable) if it stays silent."""
        deadline = time.monotonic() + UNREACHABLE_SECONDS
        while True:
            self.stop_if_orphaned()
            try:
                return query()
            except Unreachable:
                if time.monotonic() > deadline:
                    raise
                self._sleep(POLL_SECONDS)

    def stop_if_orphaned(self) -> None:
        """Raise L(ControllerGone) if the process that runs the play has ended: from then on a newer run may own the moves."""
        self._run_process.require()


_TIMEOUTS = (s.REASON_TIMEOUT, s.REASON_STALLED, s.REASON_PAUSE_OVERRUN, s.REASON_QUEUE_TIMEOUT)

_NEXT_STEPS = {
    s.REASON_TIMEOUT: "The guest writes memory faster than it can be transferred: try auto_converge, more bandwidth, or a longer timeout_seconds.",
    s.REASON_STALLED: "Check the network between the two hosts, then run the task again.",
    s.REASON_CONTROLLER_LOST: "Run the task again.",
    s.REASON_QUEUE_TIMEOUT: "Run the task again when those moves have ended. A move whose task was killed counts until that task is run again.",
    s.REASON_BUSY: "Run the task again when that job has ended, or with a longer busy_wait_seconds.",
    s.REASON_OPERATOR: "The move was cancelled by a person. Run the task again if it is still required.",
}

_SETTLED_BY_HOSTS = "Check both hosts. When they answer, run the same task again to settle the record."
# Both hosts answer, and would answer the same again.
_SETTLED_BY_PERSON = {
    outcome.REASON_GUEST_DIED: (
        "It runs on neither host. Find out why (/var/log/libvirt/qemu on both), start it where it belongs, and run the same task again, which settles the "
        "record; or settle the record with kvmfleet.migration.host."
    ),
    outcome.REASON_MEMORY_LOST: (
        "Resume neither copy. Destroy what is left of it on both hosts, settle the record with kvmfleet.migration.host, and start the guest from its disks "
        "on one of them (docs/guides/post-copy.md)."
    ),
    outcome.REASON_RUNNING_TWICE: (
        "Find out immediately which copy is right, and stop the other one by hand. Then run the same task again, which settles the record."
    ),
}

# libvirt does not always give the cause: for a full disk it may only report that an AppArmor profile cannot be loaded.
_AFTER_FAILURE = (
    "If this does not show the cause, read libvirt's log on both hosts (journalctl -u libvirtd -u virtqemud) and look for a full disk; then run the task again."
)

# The libvirt daemons had reached each other before. Their own ports are no migration ports.
_NO_CONNECTION = re.compile(r"unable to connect to server at '\S+:(?!16509'|16514')\d+'")
_AFTER_NO_CONNECTION = (
    "Check the network and the firewalls between the two hosts: memory is sent to TCP ports 49152 to 49215 of the destination, unless its qemu.conf names "
    "others. Then run the task again."
)


def final_error(record: MoveRecord) -> KvmfleetError | None:
    """Return the error for a record's last status, or none for one that completed."""
    status, reason = record.status, record.reason
    if status == s.COMPLETED:
        return None
    ends = f"from {record.source.host} to {record.destination.label}"
    why = f"{status} ({reason})" if reason else status
    message = f"Domain {record.domain.name} was not moved {ends}: {why}. {record.last_detail}".rstrip()
    if status == s.ERROR:
        return Internal(message, _SETTLED_BY_PERSON.get(reason or "", _SETTLED_BY_HOSTS), migrations=[encode(record)])
    after_failure = _AFTER_NO_CONNECTION if _NO_CONNECTION.search(record.last_detail) else _AFTER_FAILURE
    next_step = _NEXT_STEPS.get(reason or "", after_failure if status == s.FAILED else None)
    return _error_class(status, reason)(message, next_step, migrations=[encode(record)])


def _error_class(status: str, reason: str | None) -> type[KvmfleetError]:
    if status == s.CONFLICT:
        return Conflict
    if (status, reason) == (s.CANCELLED, s.REASON_BUSY):
        return InvalidState
    if status == s.CANCELLED:
        return TimedOut if reason in _TIMEOUTS else Aborted
    return MigrationFailed if status == s.FAILED else Internal


def conclude_job(job: MoveJob) -> None:
    """Take the result of a move that was followed from its record."""
    if job.error or not job.mirror:
        return
    job.record = job.mirror.record
    job.moved = job.record.status == s.COMPLETED and job.was_at_source
    job.error = final_error(job.record)


def describe_lost_checkpoints(record: MoveRecord | None) -> str:
    """Return the warning about a completed move after which incremental backups do not continue; empty for any other move."""
    if record is None or record.reason != s.REASON_CHECKPOINTS_LOST:
        return ""
    return (
        f"Not all checkpoints of domain {record.domain.name} can be used on {record.destination.label}; the history of record {record.id} names them. "
        "Begin a new chain with a full backup."
    )


def needs_new_move(job: MoveJob) -> bool:
    """Whether this was an earlier move that was only settled now, and did not bring the domain to the wanted destination."""
    if job.mirror is None or job.record is None or job.record.status not in s.CLOSED:
        return False
    if job.record.status == s.COMPLETED:
        return job.request.destination not in (None, job.record.destination.host)
    if isinstance(job.decision, d.Conclude):
        return True
    if isinstance(job.decision, d.Observe):
        return job.record.reason == s.REASON_CONTROLLER_LOST
    was_in_flight = job.domain.at_source is not None and job.domain.at_source.view.job != JOB_NONE
    return isinstance(job.decision, d.Adopt) and not was_in_flight


def find_arrival(context: RunContext, survey: Survey, job: MoveJob, decision: d.AlreadyThere, record_type: str = s.LIVE_MIGRATION) -> MoveRecord:
    """Return the record of the move that brought the domain to this host, or a predicted one of that type without an ID.

    A definition of the domain that its source still has is a warning.
    """
    left = job.domain.at_source
    if left:
        name, source = job.request.label, context.source.name
        context.warnings.append(
            f"Domain {name} is active on {decision.host}, and {source} still has a definition of it, which is off. Undefine it there: virsh undefine {name} "
            f"{left.undefine_options}"
        )
    document = context.ledger.read_domain(decision.uuid)
    last = document.domain.last_record if document else None
    # It can be archived, or of a later version.
    with contextlib.suppress(NotFound, NotSupported):
        record = context.ledger.read_record(last).record if last else None
        if record and record.status == s.COMPLETED and record.destination.host == decision.host:
            return record
    there = survey.destinations[job.request.uris[decision.host]].host
    record = new_record(
        record_type,
        domain=DomainRef(decision.uuid, job.request.name),
        source=HostRef(None, None, None),
        destination=replace(there, host=decision.host),
        policy=job.request.policy.as_json(),
        by=context.by,
    )
    return record.advance(s.COMPLETED, context.by, "The domain was already at the destination.").predict()


Result = dict[str, Json]
# Statuses of a record whose domain is, or is going to be, at its destination.
_ARRIVED = (s.COMPLETED, s.SCHEDULED)


def make_result(jobs: Sequence[MoveJob], warnings: list[str], missing: Sequence[RememberedMove], diff: bool) -> Result:
    """Return the task's result: all records, C(changed), and of several failures the code of the first.

    :arg missing: moves that hosts remember and the ledger is behind.
    """
    migrations: list[Result] = []
    for job in jobs:
        migrations += [encode(job.record)] if job.record else (job.error.result.get("migrations", []) if job.error else [])
    result: Result = {"changed": any(job.moved for job in jobs), "migrations": migrations, "missing_records": encode(missing)}
    if warnings:
        result["warnings"] = warnings
    if diff:
        result["diff"] = _make_diff(migrations)
    errors = [(job, job.error) for job in jobs if job.error]
    if errors:
        result.update(failed=True, msg=_failure_message(errors, len(jobs)), error_code=errors[0][1].error_code)
        result["failures"] = [_describe_failure(job, error) for job, error in errors]
    return result


def _describe_failure(job: MoveJob, error: KvmfleetError) -> Result:
    return {"domain": job.request.label, "uuid": job.domain_uuid, "msg": str(error), "error_code": error.error_code}


def _failure_message(errors: list[tuple[MoveJob, KvmfleetError]], moves: int) -> str:
    first = str(errors[0][1])
    return first if moves == 1 else f"{len(errors)} of {moves} moves failed. {first}"


def _make_diff(migrations: Sequence[Result]) -> dict[str, str]:
    """Return the host of each domain before and after the task, and what differs in its definition there."""
    before, after = [], []
    for record in migrations:
        has_arrived = record["status"] in _ARRIVED
        before += [_place_line(record, "source"), *list_name_lines(record, "before")]
        after += [_place_line(record, "destination" if has_arrived else "source"), *list_name_lines(record, "after" if has_arrived else "before")]
    return {"before": "".join(before), "after": "".join(after)}


def list_name_lines(record: JsonObject, when: str) -> list[str]:
    """Return a line for each name in the definition that differs between the two hosts."""
    domain, changes = t.cast(JsonObject, record["domain"]), t.cast("Sequence[JsonObject]", record.get("rewritten") or ())
    return [f"{domain['name']}: {change['path']}: {change[when]}\n" for change in changes]


def _place_line(record: JsonObject, end: str) -> str:
    domain, host = (t.cast(JsonObject, record[key]) for key in ("domain", end))
    return f"{domain['name']}: {host['host']}\n"
