# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Follows a running job until it has ended: writes its figures to the journal, and carries out decisions and intents through libvirt."""

from __future__ import annotations

import dataclasses
import typing as t

from .._libvirt.interface import Host
from .._migration.force import (
    RUNG_BANDWIDTH,
    UNLIMITED_MIB,
    ForceAction,
    ForcingPoll,
    ForcingState,
    ForcingTerms,
    SetBandwidth,
    StartPostCopy,
    decide_forcing,
)
from .._migration.link_share import MIB, WAITING_MIB
from .._migration.monitor import (
    Abort,
    EndIncoming,
    ForceComplete,
    Limits,
    MonitorState,
    SetDowntime,
    decide_actions,
    note_bandwidth,
    note_downtime,
    note_lost_abort,
    watch_post_copy,
)
from .._model import domain_states
from .._model import statuses as s
from .._model.codec import Absent
from .._model.errors import InvalidState, KvmfleetError, NotSupported, Unreachable
from .._model.watched_moves import LinkWait
from . import control_files
from .journal import ABORT_PREFIX, END_INCOMING_ACT, FORCE_PREFIX, NOT_PAUSED_NOTE, JobController, Journal

POLL_SECONDS = 0.25
FORCING_POLL_SECONDS = 0.05
# After the cap was lifted: the rest may be sent within a tenth of a second, and the downtime is predicted from the rate that was measured until then.
MEASURING_POLL_SECONDS = 0.02
# The shortest time between two polls, while an iteration is expected to end.
ATTENTIVE_POLL_SECONDS = 0.05

# How long libvirt may still report pre-copy after it has accepted the switch to post-copy. An abort in that time ends a guest that runs at its destination.
SWITCH_SECONDS = 1.0

LINK_PHRASE = "waits for the link"


class Follower:
    """Polls one job on its source host. The clock starts with the job, even if the job is older than this process.

    :arg check_resume: raises the reason why the destination cannot resume a post-copy stream that is paused now.
    :arg open_destination: connects to the destination, within seconds; null if that is not known, as for the job of another tool.
    """

    def __init__(
        self,
        reopen: t.Callable[[], Host],
        uuid: str,
        journal: Journal,
        limits: Limits,
        terms: ForcingTerms,
        clock: t.Callable[[], float],
        check_resume: t.Callable[[], None] = lambda: None,
        open_destination: t.Optional[t.Callable[[], Host]] = None,
    ) -> None:
        self._reopen = reopen
        self._host: t.Optional[Host] = None
        self._uuid = uuid
        self._journal = journal
        self._pilot = JobController(uuid, journal)
        self._limits = limits
        self._terms = _terms_of(journal, terms)
        self._clock = clock
        self._check_resume = check_resume
        self._open_destination = open_destination
        self._no_resume = ""
        self._watched = MonitorState(downtime_ms=_allowed_before(journal))
        # Not every poll leaves a sample: after the last one, an earlier watcher may have allowed more.
        self._may_allow_more = bool(journal.record.samples)
        self._started_at: t.Optional[float] = None
        self.is_broken = False
        self._forcing = _forcing_of(journal)
        if self._forcing:
            self._limits = dataclasses.replace(limits, timeout_seconds=0)
        self._overdue = _overdue_abort(journal)
        self._aborted_by = journal.record.requester_of(s.ABORT_START)
        self._trouble = ""
        self._asked: t.List[control_files.Intent] = []
        self._undone: t.Optional[ForceAction] = None
        self._switched_at: t.Optional[float] = None
        self._share_mib: t.Optional[int] = None
        self._applied_mib: t.Optional[int] = None
        self._has_new_cap = False
        # Before memory is sent, libvirt replaces a bandwidth that is set by that of the migrate call.
        self._is_sending = False

    def share_link(self, mib: int) -> None:
        """Give the job that share of the link from the next poll on, 0 without a limit. A job that has C(WAITING_MIB) waits: none of its limits acts."""
        self._share_mib = mib

    def note_start_share(self, mib: int) -> None:
        """Note that the job is started with that share, which is a limit; the one that is due may be another already."""
        self._applied_mib = mib

    @property
    def is_free(self) -> bool:
        """Whether the job no longer shares the link: it is forced to its end, or in post-copy."""
        return self._forcing is not None or self._journal.record.status == s.RUNNING_POST_COPY

    @property
    def _is_waiting(self) -> bool:
        connection = self._journal.record.connection
        # A job that may have no more than that by its task has its whole share, and never waits: its limits act.
        is_capped = (connection.bandwidth_mib if connection else None) == WAITING_MIB
        return self._share_mib == WAITING_MIB and not is_capped and not self.is_free

    @property
    def _is_switching(self) -> bool:
        """Whether libvirt has accepted the switch to post-copy just now, so that the state that it reports may be older."""
        return self._switched_at is not None and self._clock() - self._switched_at < SWITCH_SECONDS

    @property
    def elapsed_ms(self) -> t.Optional[int]:
        """How long ago the job began; null if none was seen."""
        return None if self._started_at is None else int((self._clock() - self._started_at) * 1000)

    @property
    def is_answering(self) -> bool:
        """Whether the source answered the last time."""
        return self._host is not None

    @property
    def pause_seconds(self) -> float:
        """How long to sleep until the next poll, in seconds."""
        if self._forcing:
            return MEASURING_POLL_SECONDS if self._forcing.rung == RUNG_BANDWIDTH else FORCING_POLL_SECONDS
        return self._attentive_pause() if self._limits.downtime.is_attentive and not self._is_waiting else POLL_SECONDS

    def _attentive_pause(self) -> float:
        """Return the time until the expected end of the iteration, at most a tenth of its length so far: empty pages end an iteration earlier."""
        if not self._watched.iterations.remaining:
            # Nothing is sent yet, or no longer.
            return POLL_SECONDS
        age = self._counted((self.elapsed_ms or 0) / 1000) - self._watched.synced_at
        ends_in = self._watched.iterations.ends_in_seconds
        due = age / 10 if ends_in is None else min(ends_in, age / 10)
        return min(POLL_SECONDS, max(ATTENTIVE_POLL_SECONDS, due))

    def poll_job(self) -> bool:
        """Read the job once, and carry out what is due. Return whether a job exists, or could exist without being visible."""
        try:
            host = self._host or self._open_source()
            stats = host.read_job(self._uuid)
            if stats is None:
                self._journal.job_started_at = None
                return False
            self._follow_job(host, stats)
            self._trouble = ""
        except KvmfleetError as error:
            # Whatever the source answers, the job may still exist, and has to be followed.
            self._lose_source(error)
        return True

    def completed_job(self) -> t.Optional[domain_states.JobStats]:
        """Return the figures that the source reported of a job that succeeded, if it did."""
        if self._host is None:
            return None
        try:
            return self._host.completed_job(self._uuid)
        except Unreachable:
            return None

    def close(self) -> None:
        """Answer the remaining intents, and close the connection."""
        for intent in self._asked + self._take_intents():
            self._journal.answer_intent(intent, InvalidState(f"The move of domain {self._uuid} has ended already."))
        if self._host is not None:
            self._host.close()

    def _open_source(self) -> Host:
        self._host = self._reopen()
        self._host.listen_for_completion(self._uuid)
        return self._host

    def _follow_job(self, host: Host, stats: domain_states.JobStats) -> None:
        if self._started_at is None:
            self._started_at = self._find_start(stats)
        self._journal.job_started_at = self._started_at
        elapsed = self._clock() - self._started_at
        state, reason = host.read_state(self._uuid)
        in_post_copy = reason in (domain_states.POST_COPY, domain_states.POST_COPY_FAILED)
        self._journal.enter_status(s.RUNNING_POST_COPY if in_post_copy else s.RUNNING)
        self._is_sending = bool(stats.memory_total_bytes)
        is_switching = self._is_switching and not in_post_copy
        self._asked += self._take_intents()
        for intent in [one for one in self._asked if not (is_switching and one.act == control_files.ABORT)]:
            self._asked.remove(intent)
            self._handle_intent(host, intent, in_post_copy)
        self.is_broken = reason == domain_states.POST_COPY_FAILED
        if not in_post_copy:
            self._apply_share(host, elapsed)
        if reason == domain_states.POST_COPY:
            self._watch_post_copy(host, stats, self._counted(elapsed))
        elif not in_post_copy and not is_switching and (self._overdue or not self._is_waiting):
            self._act_on_job(host, stats, self._counted(elapsed), state)
        self._journal.write_figures(stats, int(elapsed * 1000), self._allowed_ms())

    def _find_start(self, stats: domain_states.JobStats) -> float:
        """Return when the job began: as the watcher that saw it first has kept it, else by libvirt, which computes the age of a job with the wall clock."""
        now, kept = self._clock(), self._journal.job_started_at
        return now - stats.elapsed_ms / 1000 if kept is None or kept > now else kept

    def _apply_share(self, host: Host, elapsed: float) -> None:
        """Set the bandwidth that is due, and note since when the job waits, or for how long it has waited."""
        wait = self._journal.link_wait
        if self._is_waiting != (wait.since is not None):
            self._journal.link_wait = LinkWait(wait.seconds_at(elapsed), elapsed if self._is_waiting else None)
        self._journal.wait_for(LINK_PHRASE if self._is_waiting else None)
        due = self._own_cap_mib() if self._share_mib is None else self._share_mib
        if due is None or due == self._applied_mib or not self._is_sending or self.is_free:
            return
        if self._set_bandwidth(host, lambda: self._pilot.share_bandwidth(host, due)) is None:
            self._applied_mib = due

    def _counted(self, elapsed: float) -> float:
        """Return how much of that time counts for the limits of the move: all but what its job has waited for the link."""
        return elapsed - self._journal.link_wait.seconds_at(elapsed)

    def _set_bandwidth(self, host: Host, set_bandwidth: t.Callable[[], t.Optional[KvmfleetError]]) -> t.Optional[KvmfleetError]:
        """Change the bandwidth by that call. Return what libvirt refused it with, if it did.

        The hypervisor compares what remains with the allowed downtime at its present rate. What was allowed at a low rate would end the move with a pause that
        is many times as long as permitted, so no more than the longest downtime is allowed before the rate rises.
        """
        refusal = self._limit_downtime(host) or set_bandwidth()
        if refusal is None:
            self._watched = note_bandwidth(self._watched, self._counted((self.elapsed_ms or 0) / 1000))
        return refusal

    def _limit_downtime(self, host: Host) -> t.Optional[KvmfleetError]:
        """Allow no more than the longest downtime, unless the end of the move is forced. Return what libvirt refused it with, if it did."""
        milliseconds = min(self._allowed_ms(), self._limits.downtime.longest_ms)
        is_ending = self._journal.record.status == s.RUNNING_POST_COPY or (self._forcing is not None and self._forcing.rung not in (None, RUNG_BANDWIDTH))
        if is_ending or (milliseconds == self._allowed_ms() and not self._may_allow_more):
            return None
        refusal = self._pilot.allow_downtime(host, milliseconds)
        if refusal is None:
            self._watched = note_downtime(self._watched, milliseconds)
            self._may_allow_more = False
        return refusal

    def _own_cap_mib(self) -> t.Optional[int]:
        """Return the cap of a job that shared the link under an earlier watcher and no longer does, or whose cap a person has changed; null for any other."""
        connection = self._journal.record.connection
        return connection.bandwidth_mib or 0 if connection and (connection.is_shared or self._has_new_cap) else None

    def _cap_in_force_bytes(self) -> int:
        """Return the bandwidth cap of the job itself, bytes a second; 0 without one, or if its share of the link is smaller: then other jobs have the rest."""
        connection = self._journal.record.connection
        cap_mib = connection.bandwidth_mib or 0 if connection else 0
        has_unknown_share = bool(connection and connection.is_shared) and self._applied_mib is None
        return 0 if has_unknown_share or self._applied_mib not in (None, cap_mib) else cap_mib * MIB

    def _allowed_ms(self) -> int:
        return self._watched.downtime_ms or self._limits.downtime.first_ms

    def _watch_post_copy(self, host: Host, stats: domain_states.JobStats, elapsed: float) -> None:
        """Break a stalled stream, so that it can be resumed over a new link."""
        stalled, self._watched = watch_post_copy(stats, elapsed, self._limits, self._watched)
        if stalled and self._can_resume():
            self._pilot.break_post_copy(host)

    def _can_resume(self) -> bool:
        """Whether the destination can resume a stream that is paused now. If not, a stalled stream continues only by itself, when the network works again."""
        try:
            self._check_resume()
        except KvmfleetError as error:
            if str(error) != self._no_resume:
                self._no_resume = str(error)
                self._journal.note_event(NOT_PAUSED_NOTE, self._no_resume)
            return False
        return True

    def _act_on_job(self, host: Host, stats: domain_states.JobStats, elapsed: float, state: str) -> None:
        if self._overdue:
            # An earlier watcher wrote the abort, and perhaps did not do it.
            self._abort_job(host, Abort(self._overdue))
            self._overdue = None
            self._watched = dataclasses.replace(self._watched, aborted=True)
        actions, self._watched = decide_actions(stats, elapsed, self._limits, self._watched, self._cap_in_force_bytes())
        for action in actions:
            if isinstance(action, Abort):
                self._abort_job(host, action)
            elif isinstance(action, ForceComplete):
                self.begin_forcing(s.REASON_TIMEOUT)
            elif isinstance(action, EndIncoming):
                self._end_incoming(host)
            elif self._forcing is None and self._pilot.allow_downtime(host, action.milliseconds) is None:
                self._watched = note_downtime(self._watched, action.milliseconds)
                self._journal.write_allowance(action)
        if self._forcing is not None and not self._watched.aborted:
            self._force_job(host, stats, elapsed, state)

    def _force_job(self, host: Host, stats: domain_states.JobStats, elapsed: float, state: str) -> None:
        was_running = self._journal.record.before.state != domain_states.PAUSED
        seen = ForcingPoll(
            stats,
            elapsed,
            paused=state == domain_states.PAUSED and was_running,
            since_sync_seconds=elapsed - self._watched.synced_at,
            dirty_set_bytes=self._watched.dirty_set_bytes,
            allowed_ms=self._allowed_ms(),
        )
        forcing = t.cast(ForcingState, self._forcing)
        if forcing.began_at < 0:
            forcing = dataclasses.replace(forcing, began_at=elapsed, rung_at=elapsed)
        actions, self._forcing = decide_forcing(seen, self._terms, forcing)
        self._journal.keep_forcing(self._forcing.rung, self._forcing.predicted_ms, self._forcing.paused_at)
        if not actions and self._undone is not None and not seen.paused:
            actions = [self._undone]
        for action in actions:
            if isinstance(action, Abort):
                self._abort_job(host, action)
            else:
                self._climb_ladder(host, action)

    def _climb_ladder(self, host: Host, action: ForceAction) -> None:
        """Do one act of forcing. An act that does not take effect is repeated until another one is due."""
        self._undone = action
        refusal = self._do_force(host, action)
        if isinstance(action, StartPostCopy) and isinstance(refusal, InvalidState):
            # The job was started without the permission to switch, so it cannot be forced further.
            self._terms = dataclasses.replace(self._terms, post_copy=False)
            self._forcing = dataclasses.replace(t.cast(ForcingState, self._forcing), rung=None)
            self._undone = None
        if refusal is None:
            self._undone = None
            if isinstance(action, SetDowntime):
                self._watched = note_downtime(self._watched, action.milliseconds)
            elif isinstance(action, StartPostCopy) and self._switched_at is None:
                self._switched_at = self._clock()

    def _do_force(self, host: Host, action: ForceAction) -> t.Optional[KvmfleetError]:
        if isinstance(action, SetBandwidth):
            return self._set_bandwidth(host, lambda: self._pilot.force_job(host, action))
        return self._pilot.force_job(host, action)

    def _abort_job(self, host: Host, action: Abort) -> None:
        """Abort; one that may not have reached libvirt is due again at the next poll."""
        try:
            self._pilot.abort_job(host, action, self._aborted_by if action.reason == s.REASON_OPERATOR else None)
        except KvmfleetError:
            self._watched = note_lost_abort(self._watched)
            if self._forcing:
                self._forcing = dataclasses.replace(self._forcing, aborted=False)
            raise

    def _end_incoming(self, host: Host) -> None:
        if self._open_destination is None:
            return
        try:
            self._pilot.end_incoming(host, self._open_destination)
        except KvmfleetError as error:
            # It is tried again later; the source may well answer.
            self._journal.note_event(f"{END_INCOMING_ACT} failed", str(error))

    def abort_adopted_job(self, by: str) -> None:
        """Abort the job at the next poll, if there is one that can be aborted."""
        self._overdue, self._aborted_by = s.REASON_OPERATOR, by

    def begin_forcing(self, reason: str, by: t.Optional[str] = None, rung: t.Optional[str] = None) -> None:
        """Start to force the move, from the next poll on. The timeout no longer applies: it would cancel the move while the guest is suspended for its end.

        :arg by: the person who forces; null for a limit.
        :arg rung: the measure that was taken already.
        """
        if self._forcing is not None:  # an adopted move may be forced already
            return
        replaced = self._limits.timeout_seconds and not self._watched.timed_out
        detail = f"{reason}; the timeout of {self._limits.timeout_seconds:g} s no longer applies" if replaced else reason
        self._journal.note_event(s.FORCE_COMPLETE, detail, by=by)
        self._limits = dataclasses.replace(self._limits, timeout_seconds=0)
        # The share of the link is a cap too, which forcing lifts.
        self._terms = dataclasses.replace(self._terms, capped=self._terms.capped or bool(self._applied_mib))
        self._forcing = ForcingState(began_at=-1.0, rung=rung)

    # -- intents -------------------------------------------------------------------------------------------------

    def _take_intents(self) -> t.List[control_files.Intent]:
        record, folder = self._journal.record, self._journal.folder
        return control_files.take_intents(self._uuid, str(record.id), record.generation, folder) if folder else []

    def _handle_intent(self, host: Host, intent: control_files.Intent, in_post_copy: bool) -> None:
        """Carry out an intent. Each is taken once; an abort that may not have arrived is repeated at the next poll."""
        try:
            refusal = self._do_intent(host, intent, in_post_copy)
        except KvmfleetError as error:
            is_abort = intent.act == control_files.ABORT
            if is_abort:
                self.abort_adopted_job(intent.by)
            self._journal.answer_intent(intent, None if is_abort else error)
            raise
        self._journal.answer_intent(intent, refusal)

    def _do_intent(self, host: Host, intent: control_files.Intent, in_post_copy: bool) -> t.Optional[KvmfleetError]:
        """Carry out a person's intent; return the error if that is not possible."""
        if intent.act == control_files.ABORT:
            if in_post_copy:
                return NotSupported(
                    f"Domain {self._uuid} is in post-copy and already runs on its destination: the move cannot be undone.", "Wait until the move ends."
                )
            refused = self._pilot.abort_job(host, Abort(s.REASON_OPERATOR), intent.by)
            if refused is None:
                self._watched = dataclasses.replace(self._watched, aborted=True)
            return refused
        mib = intent.bandwidth_mib
        rung: t.Optional[str] = None
        if intent.act == control_files.BANDWIDTH and mib is not None:
            return self._change_cap(host, mib, intent.by)
        if mib is not None:
            kept_mib = self._journal.forcing.bandwidth_mib
            self._journal.keep_forced_bandwidth(mib)
            refusal = self._do_force(host, SetBandwidth(mib)) if self._is_sending else None
            if refusal:
                self._journal.keep_forced_bandwidth(kept_mib)
                return refusal
            # The cap of the person stays. One that would be set too early is set by forcing, when memory is sent.
            rung = RUNG_BANDWIDTH if self._is_sending else None
            self._terms = dataclasses.replace(self._terms, capped=True, bandwidth_mib=mib)
        if not in_post_copy:
            self.begin_forcing(s.REASON_OPERATOR, intent.by, rung)
        return None

    def _change_cap(self, host: Host, mib: int, by: str) -> t.Optional[KvmfleetError]:
        """Change the cap for a person; one that is set too early is set again when memory is sent."""
        self._applied_mib = None
        refusal = self._set_bandwidth(host, lambda: self._pilot.change_bandwidth(host, mib, by))
        if refusal is None:
            self._has_new_cap = True
            # Forcing lifts the cap, unless the person has set it for a move that is forced already. A job that connects will begin with its old cap.
            kept_mib = UNLIMITED_MIB if self._forcing is None else mib
            if self._forcing is not None:
                self._journal.keep_forced_bandwidth(mib)
            self._terms = dataclasses.replace(self._terms, capped=bool(mib) or not self._is_sending, bandwidth_mib=kept_mib)
            self._applied_mib = mib if self._is_sending else None
        return refusal

    def _lose_source(self, error: KvmfleetError) -> None:
        if self._host is None:
            return
        if str(error) != self._trouble:
            self._trouble = str(error)
            self._journal.note_event("source_lost", self._trouble)
        self._host.close()
        self._host = None


def _allowed_before(journal: Journal) -> t.Optional[int]:
    """Return the downtime that was allowed when this process adopted the move: the job continues with it."""
    samples = journal.record.samples
    return samples[-1].allowed_downtime_ms if samples else None


def _overdue_abort(journal: Journal) -> t.Optional[str]:
    """Return the reason of an abort that was begun before this process adopted the move."""
    reasons = journal.record.reasons_of(ABORT_PREFIX)
    return reasons[-1] if reasons else None


def _forcing_of(journal: Journal) -> t.Optional[ForcingState]:
    """Return the progress of forcing before this process adopted the move. The last act was written and perhaps never done."""
    record = journal.record
    rungs = record.reasons_of(FORCE_PREFIX)
    if not rungs and not record.has_status(s.FORCE_COMPLETE):
        return None
    return ForcingState(
        began_at=-1.0,
        rung=rungs[-1] if rungs else None,
        predicted_ms=record.result.predicted_downtime_ms,
        paused_at=journal.forcing.paused_at,
        in_doubt=True,
    )


def _terms_of(journal: Journal, terms: ForcingTerms) -> ForcingTerms:
    """Return the terms with the bandwidth that a person has set for the forced move before this process adopted it."""
    mib = journal.forcing.bandwidth_mib
    return terms if isinstance(mib, Absent) else dataclasses.replace(terms, capped=True, bandwidth_mib=mib)
