# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The journal of one move: its record as the watcher keeps it, and the acts on its job. Each act is in the state file before libvirt is called."""

from __future__ import annotations

import contextlib
import dataclasses
import typing as t

from .._libvirt.interface import Host
from .._migration.force import PAUSING_RUNGS, ForceAction, SetBandwidth, StartPostCopy, Suspend, latest_rung
from .._migration.monitor import Abort, Samples, SetDowntime, measure_progress
from .._model import domain_states
from .._model import statuses as s
from .._model.clock import utc_now
from .._model.codec import Absent, JsonObject
from .._model.domain_states import JobStats
from .._model.errors import Internal, InvalidState, KvmfleetError, NotSupported, Unreachable
from .._model.record_parts import Connection
from .._model.records import WATCHER_WRITER, MoveRecord
from .._model.watched_moves import NO_FORCING, NO_LINK_WAIT, ForcingProgress, LinkWait, StateFile, Watcher
from .._run_folder import RUN_FOLDER, state_path, write_json
from .control_files import Intent

# The act of asking libvirt for the job, as the record's acts name it.
MIGRATE_ACT = "migrate"
# The guest runs at its destination, with all of its memory.
ARRIVED_NOTE = "arrived"
# A post-copy stream has stalled, and is not paused, because it could not be resumed.
NOT_PAUSED_NOTE = "not_paused"

_MAX_ANSWERS = 20
# How many lines of history one event may have that a watcher notes again and again. Moves last for days, and etcd stores no document above 1.5 MiB.
MAX_NOTES = 100

# How long a watcher tries to write the end of its move if there is no space.
LAST_WRITE_SECONDS = 600.0
_RETRY_SECONDS = 1.0


class Journal:
    """Writes the state file C(/run/kvmfleet/<domain uuid>.json): the record, and which process watches it.

    Without a folder it is kept in memory only, for a foreign job.

    :arg by: who writes, if that is no watcher.

    :arg link_wait: how long the job has waited for the link under an earlier watcher.

    :arg forcing: how far an earlier watcher has forced the move.

    :arg job_started_at: when the job began, as L(StateFile) has it, if an earlier watcher has seen the job.

    C(record), C(link_wait), C(forcing) and C(job_started_at) are the newest ones. What is newly assigned to them is written with the next change.
    """

    def __init__(
        self,
        record: MoveRecord,
        watcher: t.Optional[Watcher],
        folder: t.Optional[str] = RUN_FOLDER,
        by: t.Optional[str] = None,
        link_wait: LinkWait = NO_LINK_WAIT,
        forcing: ForcingProgress = NO_FORCING,
        job_started_at: t.Optional[float] = None,
    ) -> None:
        self.record = record
        self.link_wait = link_wait
        self.forcing = forcing
        self.job_started_at = job_started_at
        self._watcher = watcher
        self.folder = folder
        self._by = by or f"{WATCHER_WRITER} {watcher.pid if watcher else None}"
        self._samples = Samples(record.samples)
        self._answers: t.Dict[str, JsonObject] = {}
        self._trouble: t.Optional[OSError] = None
        self._waits_for: t.Optional[str] = None

    def advance_status(self, status: str, detail: str = "", reason: t.Optional[str] = None) -> None:
        """Give the record its next status and write it."""
        self.record = self.record.advance(status, self._name_author(status, reason), detail, reason)
        self.write_state()

    def _name_author(self, status: str, reason: t.Optional[str]) -> str:
        """Return the writer of a status; of one that a person has caused also that person, e.g. C(watcher pid 812 for root@control pid 4711)."""
        cause = s.ABORT_START if (status, reason) == (s.CANCELLED, s.REASON_OPERATOR) else None
        cause = s.FORCE_COMPLETE if status in (s.RUNNING_POST_COPY, s.COMPLETED) else cause
        requester = self.record.requester_of(cause) if cause else None
        return self._by if requester in (None, self._by) else f"{self._by} for {requester}"

    def enter_status(self, status: str) -> None:
        """Like L(advance_status), and nothing if the record has that status already."""
        if self.record.status != status:
            self.advance_status(status)

    def intend_act(self, act: str, detail: str = "") -> None:
        """Write the act that is about to be done to the guest."""
        self.record = self.record.intend(act).note(act, self._by, detail)
        self.write_state()

    def note_event(self, event: str, detail: str = "", at: t.Optional[str] = None, by: t.Optional[str] = None) -> None:
        """Write a line of history that changes no status. After C(MAX_NOTES) lines of one event, only those that a person causes are written.

        :arg at: the time of the event if it is not now (RFC 3339, UTC).
        :arg by: the person who caused the event.
        """
        noted = sum(line.status == event for line in self.record.history)
        if by is None and noted >= MAX_NOTES:
            return
        is_last = by is None and noted == MAX_NOTES - 1
        self.record = self.record.note(event, by or self._by, f"{detail} Further events of this kind are not noted.".lstrip() if is_last else detail, at)
        self.write_state()

    def write_figures(self, stats: JobStats, elapsed_ms: int, downtime_ms: int) -> None:
        """Write the figures of one poll."""
        progress = measure_progress(stats, self.record.progress.percent, self.record.memory_bytes)
        self._samples.add_sample(stats, elapsed_ms, downtime_ms)
        self.record = dataclasses.replace(self.record, progress=progress, samples=tuple(self._samples.kept), updated_at=utc_now())
        self.write_state()

    def write_completed(self, stats: t.Optional[JobStats], elapsed_ms: t.Optional[int], detail: str, reason: t.Optional[str]) -> None:
        """Write the end of a completed move, with libvirt's own figures if available."""
        progress = self.record.progress if stats is None else measure_progress(stats, 99)
        progress = dataclasses.replace(progress, percent=100, memory_remaining_bytes=0, disk_remaining_bytes=0)
        result = dataclasses.replace(self.record.result, elapsed_ms=elapsed_ms, mode=self._migration_mode(), iterations=progress.iteration or None)
        if stats is not None:
            result = dataclasses.replace(
                result,
                elapsed_ms=stats.elapsed_ms,
                downtime_ms=stats.downtime_ms,
                setup_ms=stats.setup_ms,
                bytes=stats.memory_processed_bytes + stats.disk_processed_bytes,
            )
        self.record = dataclasses.replace(self.record, progress=progress, result=result)
        self.advance_status(s.COMPLETED, detail, reason)

    def keep_elapsed(self, elapsed_ms: t.Optional[int]) -> None:
        """Keep the duration of a move that was not completed; written with its end."""
        self.record = dataclasses.replace(self.record, result=dataclasses.replace(self.record.result, elapsed_ms=elapsed_ms))

    def keep_forcing(self, rung: t.Optional[str], predicted_ms: t.Optional[int], paused_at: t.Optional[float]) -> None:
        """Keep the current rung of forcing, the predicted downtime, and since when the guest is paused; written with the next figures."""
        result = self.record.result
        result = dataclasses.replace(result, rung=latest_rung(result.rung or None, rung), predicted_downtime_ms=predicted_ms)
        self.record = dataclasses.replace(self.record, result=result)
        self.forcing = dataclasses.replace(self.forcing, paused_at=paused_at)

    def keep_forced_bandwidth(self, mib: t.Union[int, Absent]) -> None:
        """Keep the cap that a person sets for the forced move; written with the next change."""
        self.forcing = dataclasses.replace(self.forcing, bandwidth_mib=mib)

    def keep_connection(self, **changes: t.Any) -> None:
        """Keep what has changed about the call, by the names of L(Connection); written with the next figures."""
        self.record = dataclasses.replace(self.record, connection=dataclasses.replace(self.record.connection or Connection(), **changes))

    def write_allowance(self, action: SetDowntime) -> None:
        """Write the reason for which a longer downtime was allowed, if there is one, and keep the predicted downtime."""
        if action.predicted_ms is not None:
            result = dataclasses.replace(self.record.result, predicted_downtime_ms=action.predicted_ms)
            self.record = dataclasses.replace(self.record, result=result)
        if action.reason:
            self.note_event("downtime_allowed", action.reason)

    def wait_for(self, what: t.Optional[str]) -> None:
        """Write what the move waits for, so that other processes can show it; null for nothing. It is not part of the record."""
        if what != self._waits_for:
            self._waits_for = what
            self.write_state()

    def answer_intent(self, intent: Intent, error: t.Optional[KvmfleetError] = None) -> None:
        """Write the result of an intent, for the module that left it."""
        self._answers[intent.id] = error.as_result() if error else {}
        for oldest in list(self._answers)[:-_MAX_ANSWERS]:
            del self._answers[oldest]
        self.write_state()

    def _migration_mode(self) -> str:
        """Return how the guest was switched: in post-copy, after a forced pause, or in plain pre-copy."""
        if self.record.has_status(s.RUNNING_POST_COPY):
            return "post-copy"
        return "paused" if self.record.result.rung in PAUSING_RUNGS else "pre-copy"

    def write_state(self) -> None:
        """Write the current record. If there is no space, it is written with the next change: a full disk does not stop the watching of a guest."""
        if self.folder is None:
            return
        state = StateFile(self.record, self._watcher, self._answers, self._waits_for, self.link_wait, self.forcing, self.job_started_at)
        try:
            write_json(state_path(self.record.domain.uuid, self.folder), state.as_json())
            self._trouble = None
        except OSError as error:
            self._trouble = error

    def require_written(self) -> None:
        """Raise L(Internal) if the state file does not have the content of the record: then nothing may be started."""
        if self._trouble is not None:
            raise Internal(
                f"The state of the move of domain {self.record.domain.name} cannot be written under {self.folder}: {self._trouble.strerror}.",
                "Nothing was started. Free space there, on the source host, then run the task again.",
            )

    def retry_last_write(self, clock: t.Callable[[], float], sleep: t.Callable[[float], None]) -> None:
        """Write the final state if it could not be written yet. Stops after C(LAST_WRITE_SECONDS); the next run then queries the hosts."""
        deadline = clock() + LAST_WRITE_SECONDS
        while self._trouble is not None and clock() < deadline:
            sleep(_RETRY_SECONDS)
            self.write_state()


ABORT_PREFIX = "abort: "
FORCE_PREFIX = "force: "
END_INCOMING_ACT = "end_incoming"
NO_REACTION = "the job has not reacted to its abort; the guest runs on the source"
SUSPEND_ACT = FORCE_PREFIX + "suspend"
BANDWIDTH_NOTE = "bandwidth"
_ACTS: t.Dict[type, str] = {StartPostCopy: "post_copy", SetBandwidth: "bandwidth", SetDowntime: "downtime", Suspend: "suspend"}

Refusals = t.Tuple[t.Type[KvmfleetError], ...]


class JobController:
    """Carries out the actions of the monitor, of forcing, or of a person on one domain's job."""

    def __init__(self, uuid: str, journal: Journal) -> None:
        self._uuid = uuid
        self._journal = journal
        self._begun: t.Set[str] = set()
        self._refused: t.Set[str] = set()

    def abort_job(self, host: Host, action: Abort, by: t.Optional[str] = None) -> t.Optional[KvmfleetError]:
        """Cancel the job; return what libvirt refused it with, if it did. Any other error is raised: the abort may not have arrived.

        :arg by: the person who aborts; null for a limit.
        """
        act = ABORT_PREFIX + action.reason
        if act not in self._begun:
            self._journal.note_event(s.ABORT_START, action.reason, by=by)
        return self._do_act(act, lambda: host.abort_job(self._uuid), (InvalidState, NotSupported))

    def end_incoming(self, source: Host, open_destination: t.Callable[[], Host]) -> None:
        """End the incoming domain of an aborted job at the destination, if the guest runs on the source. Its QEMU then notices that the stream is broken."""
        with contextlib.closing(open_destination()) as destination:
            there = destination.read_state(self._uuid)
            if there != (domain_states.PAUSED, domain_states.MIGRATION) or source.read_state(self._uuid)[0] != domain_states.RUNNING:
                return
            self._do_act(END_INCOMING_ACT, lambda: destination.destroy_domain(self._uuid), detail=NO_REACTION)

    def allow_downtime(self, host: Host, milliseconds: int) -> t.Optional[KvmfleetError]:
        """Allow a downtime; a step of the ramp is not an event of the record. Return what libvirt refused it with, if it did."""
        return self._ask_libvirt("downtime", lambda: host.set_max_downtime_ms(self._uuid, milliseconds))

    def force_job(self, host: Host, action: ForceAction) -> t.Optional[KvmfleetError]:
        """Do one act of forcing; return what libvirt refused it with, if it did."""
        calls: t.Dict[type, t.Callable[[], None]] = {
            StartPostCopy: lambda: host.start_post_copy(self._uuid),
            SetBandwidth: lambda: host.set_bandwidth_mib(self._uuid, t.cast(SetBandwidth, action).mib),
            SetDowntime: lambda: host.set_max_downtime_ms(self._uuid, t.cast(SetDowntime, action).milliseconds),
            Suspend: lambda: host.suspend_domain(self._uuid),
        }
        return self._do_act(FORCE_PREFIX + _ACTS[type(action)], calls[type(action)])

    def change_bandwidth(self, host: Host, mib: int, by: str) -> t.Optional[KvmfleetError]:
        """Change the cap of a job that is not forced, because a person asks for it; return what libvirt refused it with, if it did."""
        self._journal.note_event(BANDWIDTH_NOTE, f"{s.REASON_OPERATOR}; {f'{mib} MiB/s' if mib else 'no cap'}", by=by)
        refusal = self._ask_libvirt(BANDWIDTH_NOTE, lambda: host.set_bandwidth_mib(self._uuid, mib))
        if refusal is None:
            self._journal.keep_connection(bandwidth_mib=mib)
        return refusal

    def share_bandwidth(self, host: Host, mib: int) -> t.Optional[KvmfleetError]:
        """Give the job its share of the link; that is no event of the record. Return what libvirt refused it with, if it did."""
        try:
            host.set_bandwidth_mib(self._uuid, mib)
        except Unreachable:
            raise
        except KvmfleetError as error:
            return error
        return None

    def break_post_copy(self, host: Host) -> None:
        """Pause a post-copy migration that has stalled."""
        self._do_act("recover: pause", lambda: host.pause_post_copy(self._uuid))

    def _do_act(self, act: str, call: t.Callable[[], None], refusals: Refusals = (KvmfleetError,), detail: str = "") -> t.Optional[KvmfleetError]:
        if act not in self._begun:
            self._begun.add(act)
            self._journal.intend_act(act, detail)
        return self._ask_libvirt(act, call, refusals)

    def _ask_libvirt(self, act: str, call: t.Callable[[], None], refusals: Refusals = (KvmfleetError,)) -> t.Optional[KvmfleetError]:
        """Call libvirt; a refusal that repeats at every poll is noted once."""
        try:
            call()
        except Unreachable:
            raise
        except refusals as error:
            if act not in self._refused:
                self._refused.add(act)
                self._journal.note_event(f"{act} refused", str(error))
            return error
        return None
