# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Following a job that runs: its figures into the journal, decisions and intents into libvirt, until it is over."""

from __future__ import annotations

import dataclasses
import typing as t

from .._errors import InvalidState, KvmfleetError, NotSupported, Unreachable
from .._migration import hypervisor as h
from .._migration.force import RUNG_BANDWIDTH, RUNG_DOWNTIME, RUNG_SUSPEND, ForceAction, Forcing, Seen, SetBandwidth, StartPostCopy, Terms, force
from .._migration.monitor import Abort, ForceComplete, Limits, SetDowntime, Watched, abort_was_lost, decide, downtime_was_set, watch_post_copy
from .._records import statuses as s
from . import intents
from .journal import Journal
from .pilot import ABORT_PREFIX, FORCE_PREFIX, Pilot

POLL_SECONDS = 0.25
FORCING_POLL_SECONDS = 0.05
# After the cap was lifted: what is left may be gone within a tenth of a second, and only what was measured of the link by then predicts the pause.
MEASURING_POLL_SECONDS = 0.02
# The shortest pause while an iteration is expected to end.
ATTENTIVE_POLL_SECONDS = 0.05

FORCE_NOTE = "force_complete"
_RUNG_BEFORE = {RUNG_DOWNTIME: RUNG_BANDWIDTH, RUNG_SUSPEND: RUNG_DOWNTIME}


class Follower:
    """Polls one job on its source host. The clock starts with the job, also when the job is older than we are."""

    def __init__(
        self,
        reopen: t.Callable[[], h.Host],
        uuid: str,
        journal: Journal,
        limits: Limits,
        terms: Terms,
        clock: t.Callable[[], float],
    ) -> None:
        self._reopen = reopen
        self._host: t.Optional[h.Host] = None
        self._uuid = uuid
        self._journal = journal
        self._pilot = Pilot(uuid, journal)
        self._limits = limits
        self._terms = terms
        self._clock = clock
        self._watched = Watched(downtime_ms=_allowed_before(journal))
        self._started_at: t.Optional[float] = None
        self.is_broken = False
        self._forcing = _forcing_of(journal)
        self._overdue = _overdue_abort(journal)
        self._trouble = ""
        self._asked: t.List[intents.Intent] = []
        self._undone: t.Optional[ForceAction] = None

    @property
    def elapsed_ms(self) -> t.Optional[int]:
        """How long ago the job began; null where none was seen."""
        return None if self._started_at is None else int((self._clock() - self._started_at) * 1000)

    @property
    def answers(self) -> bool:
        """Whether the source answered the last time."""
        return self._host is not None

    @property
    def pause(self) -> float:
        """How long to sleep until the next poll, in seconds."""
        if self._forcing:
            return MEASURING_POLL_SECONDS if self._forcing.rung == RUNG_BANDWIDTH else FORCING_POLL_SECONDS
        return self._attentive_pause() if self._limits.downtime.is_attentive else POLL_SECONDS

    def _attentive_pause(self) -> float:
        """See the end of an iteration when it is expected, and never later than a tenth of its length: empty pages make it come sooner."""
        if not self._watched.iterations.remaining:
            # Nothing is sent yet, or nothing any more.
            return POLL_SECONDS
        age = (self.elapsed_ms or 0) / 1000 - self._watched.synced_at
        ends_in = self._watched.iterations.ends_in_seconds
        due = age / 10 if ends_in is None else min(ends_in, age / 10)
        return min(POLL_SECONDS, max(ATTENTIVE_POLL_SECONDS, due))

    def poll(self) -> bool:
        """Look once, and do what is due. Returns whether a job was there, or could be without our seeing it."""
        try:
            host = self._host or self._open()
            stats = host.job(self._uuid)
            if stats is None:
                return False
            self._follow(host, stats)
            self._trouble = ""
        except KvmfleetError as error:
            # Whatever the source says or does not say, the job may still be there, and it is not left alone.
            self._lose(error)
        return True

    def completed_job(self) -> t.Optional[h.JobStats]:
        """Return what the source said of the job when it had ended well, where it did."""
        if self._host is None:
            return None
        try:
            return self._host.completed_job(self._uuid)
        except Unreachable:
            return None

    def close(self) -> None:
        """Answer what is still asked, and close the connection."""
        for intent in self._asked + self._intents():
            self._journal.answer(intent, InvalidState(f"The move of domain {self._uuid} has ended already."))
        if self._host is not None:
            self._host.close()

    def _open(self) -> h.Host:
        self._host = self._reopen()
        self._host.listen(self._uuid)
        return self._host

    def _follow(self, host: h.Host, stats: h.JobStats) -> None:
        if self._started_at is None:
            self._started_at = self._clock() - stats.elapsed_ms / 1000
        elapsed = self._clock() - self._started_at
        state, reason = host.state(self._uuid)
        in_post_copy = reason in (h.POST_COPY, h.POST_COPY_FAILED)
        self._journal.enter(s.RUNNING_POST_COPY if in_post_copy else s.RUNNING)
        self._asked += self._intents()
        while self._asked:
            self._heed(host, self._asked.pop(0), in_post_copy)
        self.is_broken = reason == h.POST_COPY_FAILED
        if reason == h.POST_COPY:
            self._watch_post_copy(host, stats, elapsed)
        elif not in_post_copy:
            self._act(host, stats, elapsed, state)
        self._journal.measured(stats, int(elapsed * 1000), self._allowed_ms())

    def _allowed_ms(self) -> int:
        return self._watched.downtime_ms or self._limits.downtime.first_ms

    def _watch_post_copy(self, host: h.Host, stats: h.JobStats, elapsed: float) -> None:
        """Break a stream that stands still, so that it can be resumed over a new link."""
        stalled, self._watched = watch_post_copy(stats, elapsed, self._limits, self._watched)
        if stalled:
            self._pilot.break_post_copy(host)

    def _act(self, host: h.Host, stats: h.JobStats, elapsed: float, state: str) -> None:
        if self._overdue:
            # A watcher before this one wrote the abort down, and perhaps no more than that.
            self._abort(host, Abort(self._overdue))
            self._overdue = None
            self._watched = dataclasses.replace(self._watched, aborted=True)
        actions, self._watched = decide(stats, elapsed, self._limits, self._watched)
        for action in actions:
            if isinstance(action, Abort):
                self._abort(host, action)
            elif isinstance(action, ForceComplete):
                self.begin_forcing("timeout")
            elif self._forcing is None and self._pilot.allow(host, action.milliseconds):
                self._watched = downtime_was_set(self._watched, action.milliseconds)
                self._journal.allowed(action)
        if self._forcing is not None and not self._watched.aborted:
            self._force(host, stats, elapsed, state)

    def _force(self, host: h.Host, stats: h.JobStats, elapsed: float, state: str) -> None:
        was_running = self._journal.record["before"].get("state") != h.PAUSED
        seen = Seen(
            stats,
            elapsed,
            paused=state == h.PAUSED and was_running,
            since_sync_seconds=elapsed - self._watched.synced_at,
            dirty_set_bytes=self._watched.dirty_set_bytes,
            allowed_ms=self._allowed_ms(),
        )
        forcing = t.cast(Forcing, self._forcing)
        if forcing.began_at < 0:
            forcing = dataclasses.replace(forcing, began_at=elapsed, rung_at=elapsed)
        actions, self._forcing = force(seen, self._terms, forcing)
        self._journal.forced(self._forcing.rung, self._forcing.predicted_ms)
        if not actions and self._undone is not None and not seen.paused:
            actions = [self._undone]
        for action in actions:
            if isinstance(action, Abort):
                self._abort(host, action)
            else:
                self._climb(host, action)

    def _climb(self, host: h.Host, action: ForceAction) -> None:
        """Do one act of forcing; what does not come through is asked for again, until something else is due."""
        self._undone = action
        refusal = self._pilot.force(host, action)
        if isinstance(action, StartPostCopy) and isinstance(refusal, InvalidState):
            # The job was not started so that it may switch: the ladder is left.
            self._terms = dataclasses.replace(self._terms, post_copy=False)
            self._forcing = dataclasses.replace(t.cast(Forcing, self._forcing), rung=None)
            self._undone = None
        if refusal is None:
            self._undone = None
            if isinstance(action, SetDowntime):
                self._watched = downtime_was_set(self._watched, action.milliseconds)

    def _abort(self, host: h.Host, action: Abort) -> None:
        """Abort; one that may not have reached libvirt is due again at the next poll."""
        try:
            self._pilot.abort(host, action)
        except KvmfleetError:
            self._watched = abort_was_lost(self._watched)
            if self._forcing:
                self._forcing = dataclasses.replace(self._forcing, aborted=False)
            raise

    def begin_forcing(self, by: str) -> None:
        """Make the move end now, from the next poll on."""
        if self._forcing is None:  # an adopted move may be forced already
            self._journal.note(FORCE_NOTE, by)
            self._forcing = Forcing(began_at=-1.0)

    # -- intents -------------------------------------------------------------------------------------------------

    def _intents(self) -> t.List[intents.Intent]:
        record, folder = self._journal.record, self._journal.folder
        return intents.take(self._uuid, record["id"], record["generation"], folder) if folder else []

    def _heed(self, host: h.Host, intent: intents.Intent, in_post_copy: bool) -> None:
        """Do what is asked. An intent is taken once: an abort that may not have arrived is due again at the next poll."""
        try:
            refusal = self._do(host, intent, in_post_copy)
        except KvmfleetError as error:
            is_abort = intent.act == intents.ABORT
            self._overdue = s.REASON_OPERATOR if is_abort else self._overdue
            self._journal.answer(intent, None if is_abort else error)
            raise
        self._journal.answer(intent, refusal)

    def _do(self, host: h.Host, intent: intents.Intent, in_post_copy: bool) -> t.Optional[KvmfleetError]:
        """Do what a person asks for; return why not, where it cannot be done."""
        if intent.act == intents.ABORT:
            if in_post_copy:
                return NotSupported(f"Domain {self._uuid} is in post-copy and runs on its destination already: that cannot be undone.", "Wait for its end.")
            refused = self._pilot.abort(host, Abort(s.REASON_OPERATOR))
            if refused is None:
                self._watched = dataclasses.replace(self._watched, aborted=True)
            return refused
        if intent.bandwidth_mib is not None:
            refusal = self._pilot.force(host, SetBandwidth(intent.bandwidth_mib))
            if refusal or intent.act == intents.BANDWIDTH:
                return refusal
            self._terms = dataclasses.replace(self._terms, capped=False)
        if not in_post_copy:
            self.begin_forcing(intent.by)
        return None

    def _lose(self, error: KvmfleetError) -> None:
        if self._host is None:
            return
        if str(error) != self._trouble:
            self._trouble = str(error)
            self._journal.note("source_lost", self._trouble)
        self._host.close()
        self._host = None


def _allowed_before(journal: Journal) -> t.Optional[int]:
    """Return the pause that was allowed when this process adopted the move: the job goes on with it."""
    samples = journal.record["samples"]
    return int(samples[-1]["allowed_downtime_ms"]) if samples else None


def _overdue_abort(journal: Journal) -> t.Optional[str]:
    """Return the reason of an abort that was begun before this process adopted the move."""
    reasons = [entry["act"][len(ABORT_PREFIX) :] for entry in journal.record["acts"] if entry["act"].startswith(ABORT_PREFIX)]
    return reasons[-1] if reasons else None


def _forcing_of(journal: Journal) -> t.Optional[Forcing]:
    """Return how far forcing had come before this process adopted the move.

    The last act was written down and perhaps never done, so its rung is climbed again: none of them does harm when it is done twice.
    """
    rungs = [entry["act"][len(FORCE_PREFIX) :] for entry in journal.record["acts"] if entry["act"].startswith(FORCE_PREFIX)]
    if not rungs and not any(line["status"] == FORCE_NOTE for line in journal.record["history"]):
        return None
    return Forcing(began_at=-1.0, rung=_RUNG_BEFORE.get(rungs[-1]) if rungs else None)
