# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Following a job that runs: its figures into the journal, the monitor's decisions into libvirt, until it is over."""

from __future__ import annotations

import typing as t

from .._errors import InvalidState, KvmfleetError, NotSupported, Unreachable
from .._migration import hypervisor as h
from .._migration.downtime import downtime_at
from .._migration.monitor import Abort, Limits, SetDowntime, Watched, abort_was_lost, decide, downtime_was_set
from .._records import statuses as s
from .._records.schema import did
from .journal import Journal

POLL_SECONDS = 0.25
ABORT_PREFIX = "abort: "


class Follower:
    """Polls one job on its source host. The clock starts with the job, also when the job is older than we are."""

    def __init__(self, reopen: t.Callable[[], h.Host], uuid: str, journal: Journal, limits: Limits, clock: t.Callable[[], float]) -> None:
        self._reopen = reopen
        self._host: t.Optional[h.Host] = None
        self._uuid = uuid
        self._journal = journal
        self._limits = limits
        self._clock = clock
        self._watched = Watched()
        self._started_at: t.Optional[float] = None
        self._trouble = ""

    @property
    def elapsed_ms(self) -> t.Optional[int]:
        """How long ago the job began; null where none was seen."""
        return None if self._started_at is None else int((self._clock() - self._started_at) * 1000)

    @property
    def answers(self) -> bool:
        """Whether the source answered the last time."""
        return self._host is not None

    def poll(self) -> bool:
        """Look once, and do what is due. Returns whether a job was there, or could be without our seeing it."""
        try:
            host = self._host or self._reopen()
            self._host = host
            stats = host.job(self._uuid)
            if stats is None:
                return False
            self._follow(host, stats)
            self._trouble = ""
        except KvmfleetError as error:
            # Whatever the source says or does not say, the job may still be there, and it is not left alone.
            self._lose(error)
        return True

    def close(self) -> None:
        """Close the connection."""
        if self._host is not None:
            self._host.close()

    def _follow(self, host: h.Host, stats: h.JobStats) -> None:
        if self._started_at is None:
            self._started_at = self._clock() - stats.elapsed_ms / 1000
        elapsed = self._clock() - self._started_at
        if host.view(self._uuid).reason in (h.POST_COPY, h.POST_COPY_FAILED):
            self._journal.enter(s.RUNNING_POST_COPY)
        else:
            self._journal.enter(s.RUNNING)
            actions, self._watched = decide(stats, elapsed, self._limits, self._watched)
            for action in actions:
                self._act(host, action)
        allowed = self._watched.downtime_ms or downtime_at(self._limits.ramp, elapsed)
        self._journal.measured(stats, int(elapsed * 1000), allowed)

    def _act(self, host: h.Host, action: t.Union[Abort, SetDowntime]) -> None:
        if isinstance(action, Abort):
            self._abort(host, action.reason)
            return
        try:
            host.set_max_downtime_ms(self._uuid, action.milliseconds)
        except Unreachable:
            raise
        except KvmfleetError as error:
            self._journal.note("downtime_refused", str(error))
            return
        self._watched = downtime_was_set(self._watched, action.milliseconds)

    def _abort(self, host: h.Host, reason: str) -> None:
        if not did(self._journal.record, ABORT_PREFIX + reason):
            self._journal.intend(ABORT_PREFIX + reason)
        try:
            host.abort(self._uuid)
        except (InvalidState, NotSupported) as error:
            self._journal.note("abort_refused", str(error))
        except KvmfleetError:
            self._watched = abort_was_lost(self._watched)
            raise

    def _lose(self, error: KvmfleetError) -> None:
        if self._host is None:
            return
        if str(error) != self._trouble:
            self._trouble = str(error)
            self._journal.note("source_lost", self._trouble)
        self._host.close()
        self._host = None
