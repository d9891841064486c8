# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Starts the moves of a watcher: in a sliding window of a fixed width, or as they share the link."""

from __future__ import annotations

import time
import typing as t

from .._migration.link_share import CONNECTING, FREE, MIB, QUEUED, READY, LinkState, SharedJob, share_link
from .._model import statuses as s
from .._model.watched_moves import AUTO_PARALLEL, StartOrder
from .control_files import Admissions, Heartbeat
from .dirty_rates import DirtyRates
from .mover import Mover

TICK_SECONDS = 0.1
# A libvirt daemon has twenty workers, and each migrate call holds one to its very end; some are left for queries and aborts.
MAX_CALLS = 16


class Pace(t.Protocol):
    """Decides when a move is started."""

    def choose_next(self, waiting: t.Sequence[Mover], running: t.Sequence[Mover]) -> t.Optional[Mover]:
        """Return which of the waiting moves is started now, if any. Called again when it was started."""


class FixedPace:
    """Starts moves in their order, up to a fixed number.

    :arg parallel: the maximum number of guests that move at the same time. One that runs at its destination frees its slot, while libvirt ends its source;
      of both together there are no more than C(MAX_CALLS), unless C(parallel) itself is more.
    """

    def __init__(self, parallel: int) -> None:
        self._parallel = parallel

    def choose_next(self, waiting: t.Sequence[Mover], running: t.Sequence[Mover]) -> t.Optional[Mover]:
        under_way = sum(not mover.has_arrived for mover in running)
        has_capacity = under_way < self._parallel and len(running) < max(self._parallel, MAX_CALLS)
        return waiting[0] if waiting and has_capacity else None


class LinkPace:
    """Starts moves as they share the link of this host, and gives each job its share (C(_migration/link_share.py)).

    :arg uuids: of all moves, in the order in which they are to be moved.
    :arg link_bytes: what the link is known to carry, bytes a second; 0 if that is not known.
    :arg rates: the dirty rates of domains before their moves.
    :arg sources: returns by URI of a destination how many sources send to it.
    """

    def __init__(
        self,
        uuids: t.Sequence[str],
        link_bytes: float,
        rates: DirtyRates,
        sources: t.Callable[[], t.Mapping[str, int]],
        clock: t.Callable[[], float] = time.monotonic,
    ) -> None:
        self._rank = {uuid: index for index, uuid in enumerate(uuids)}
        self._state = LinkState(link_bytes=link_bytes, told_bytes=link_bytes)
        self._rates = rates
        self._sources = sources
        self._clock = clock

    def choose_next(self, waiting: t.Sequence[Mover], running: t.Sequence[Mover]) -> t.Optional[Mover]:
        adopted = next((mover for mover in waiting if mover.is_adopted), None)
        if adopted is not None:
            # Its job exists already, and may wait for a share.
            return adopted
        self._rates.read_new()
        sending = [mover for mover in running if not mover.has_arrived and not mover.is_settling]
        jobs = [self._describe_job(mover, is_started=True) for mover in sending]
        if len(running) < MAX_CALLS:
            jobs += [self._describe_job(mover, is_started=False) for mover in waiting]
        jobs.sort(key=lambda job: self._rank[job.uuid])
        shares, self._state = share_link(jobs, self._state, self._clock(), self._sources())
        for mover in (*sending, *waiting):
            if mover.order.uuid in shares.mib:
                mover.give_share(shares.mib[mover.order.uuid])
        return next((mover for mover in waiting if mover.order.uuid == shares.start), None)

    def _describe_job(self, mover: Mover, is_started: bool) -> SharedJob:
        return describe_job(mover, is_started, self._rates.rate_of(mover.order.uuid))


def describe_job(mover: Mover, is_started: bool, dirty_rate_bytes: t.Optional[int]) -> SharedJob:
    """Return the move as the shares see it.

    :arg dirty_rate_bytes: of the guest before its move, null while it is being measured; the figure of its job replaces it.
    """
    record = mover.journal.record
    progress, connection = record.progress, record.connection
    is_ready = is_started and bool(progress.memory_total_bytes)
    # The hypervisor throttles a guest whose memory is sent slowly, from the second iteration on.
    is_throttled = "AUTO_CONVERGE" in mover.order.flags and progress.iteration > 1
    return SharedJob(
        uuid=mover.order.uuid,
        stage=FREE if mover.is_free else READY if is_ready else CONNECTING if is_started else QUEUED,
        remaining_bytes=progress.memory_remaining_bytes + progress.disk_remaining_bytes if is_ready else record.memory_bytes,
        sent_bytes=progress.memory_processed_bytes + progress.disk_processed_bytes,
        dirty_rate_bytes=progress.dirty_rate_bytes or dirty_rate_bytes or 0,
        is_measured=bool(progress.dirty_rate_bytes) or dirty_rate_bytes is not None,
        iteration=progress.iteration,
        cap_mib=(connection.bandwidth_mib or 0) if connection else 0,
        may_wait=not (record.disk_copies or is_throttled or mover.is_foreign),
        destination=mover.order.destination_uri,
    )


def make_pace(parallel: int, orders: t.Sequence[StartOrder], rates: DirtyRates, sources: t.Callable[[], t.Mapping[str, int]]) -> Pace:
    """Return the pace of these moves.

    :arg parallel: the maximum number of simultaneous moves, or C(AUTO_PARALLEL).
    :arg rates: the dirty rates of domains before their moves.
    :arg sources: returns by URI of a destination how many sources send to it.
    """
    if parallel != AUTO_PARALLEL:
        return FixedPace(parallel)
    known_mib = [order.record.connection.link_mib or 0 for order in orders if order.record.connection]
    return LinkPace([order.uuid for order in orders], max(known_mib, default=0) * MIB, rates, sources)


class Window:
    """Starts movers at their pace, and those that wait for their admission after it. A running move is always watched to its end.

    :arg pause: sleeps for that many seconds, or less if something has changed.
    """

    def __init__(self, movers: t.Sequence[Mover], pace: Pace, heartbeat: Heartbeat, admissions: Admissions, pause: t.Callable[[float], None]) -> None:
        self._waiting = list(movers)
        self._running: t.List[Mover] = []
        self._pace = pace
        self._heartbeat = heartbeat
        self._admissions = admissions
        self._pause = pause

    def run_moves(self) -> None:
        """Return when every move has ended, or was cancelled before it began."""
        while self._waiting or self._running:
            self._running = [mover for mover in self._running if mover.is_alive()]
            if self._waiting and not self._heartbeat.is_fresh():
                self._cancel_waiting()
            self._waiting = [mover for mover in self._waiting if not mover.attend_while_waiting()]
            self._apply_admissions()
            self._start_movers()
            self._pause(TICK_SECONDS)
        self._heartbeat.remove_file()
        self._admissions.remove_file()

    def _apply_admissions(self) -> None:
        """Start the moves that are admitted, before all others because capacity is reserved for them; end the moves that were given up."""
        self._admissions.read_file()
        for mover in [mover for mover in self._waiting if mover.waits]:
            record_id = str(mover.order.record.id)
            why, too_late = self._admissions.admission_of(record_id), self._admissions.cancellation_of(record_id)
            if why is not None:
                mover.admit_move(why)
                self._waiting.remove(mover)
                self._waiting.insert(0, mover)
            elif too_late is not None:
                mover.cancel_move(s.REASON_QUEUE_TIMEOUT, too_late)
                self._waiting.remove(mover)

    def _start_movers(self) -> None:
        while True:
            mover = self._pace.choose_next([mover for mover in self._waiting if not (mover.waits or mover.is_held_up)], self._running)
            if mover is None:
                return
            try:
                mover.start()
            except RuntimeError:
                # This host has no process or memory left for a thread. The moves that run are watched, and the next tick tries again.
                return
            self._waiting.remove(mover)
            self._running.append(mover)

    def _cancel_waiting(self) -> None:
        for mover in self._waiting:
            if not mover.is_adopted:
                mover.cancel_move(s.REASON_CONTROLLER_LOST, "The run that owns this move sent no heartbeat for 60 s. Nothing was started.")
        self._waiting = [mover for mover in self._waiting if mover.is_adopted]
