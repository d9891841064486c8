# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""One move, from its start order to its outcome, in a thread of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import random
import threading
import time
import typing as t

from .._libvirt.interface import Host, OpenHost
from .._migration.monitor import Limits
from .._model import statuses as s
from .._model.errors import Aborted, InvalidState, KvmfleetError, MigrationFailed
from .._model.watched_moves import StartOrder
from .._run_folder import Ownership
from . import control_files
from .backups import BusyWait
from .calls import MAX_TRIES, ArrivalEvents, MigrateCall, is_worth_another_try, retry_pause_seconds
from .follow import Follower
from .journal import ABORT_PREFIX, ARRIVED_NOTE, MIGRATE_ACT, Journal
from .order_terms import limits_of, terms_of
from .preparation import JobPreparation
from .recover import Recovery, check_resume
from .settle import Opener, Settlement, has_job_begun

UNREACHABLE_SECONDS = 600.0
# How long libvirt may take to end its call after the job: a hypervisor that hangs at the destination blocks it forever.
CALL_OUTLIVES_SECONDS = 60.0

# How long connecting to the destination may keep the watcher from its polls.
BRIEF_SECONDS = 5.0

LOGIN_DROPPED_NOTE = "login_dropped"
_INTENT_POLL_SECONDS = 0.5
_RANDOM = random.SystemRandom()


class Mover(threading.Thread):
    """Moves one domain, or adopts its move. The last status in the journal always states where the guest is.

    C(waits) is true until the run admits the move, and C(is_settling) from the end of its job on.
    """

    def __init__(
        self,
        order: StartOrder,
        journal: Journal,
        ownership: Ownership,
        open_host: OpenHost,
        arrivals: ArrivalEvents,
        clock: t.Callable[[], float] = time.monotonic,
        sleep: t.Optional[t.Callable[[float], None]] = None,
    ) -> None:
        super().__init__(name=f"move-{order.uuid}", daemon=True)
        self.order = order
        self.journal = journal
        self.waits = order.waits
        self._ownership = ownership
        self._open_host = open_host
        self._arrivals = arrivals
        self._clock = clock
        self._news = threading.Event()
        self._sleep = sleep or self._wait_for_news
        self.is_settling = False
        self._why_now = ""
        self._limits = limits_of(order)
        self._follower = Follower(
            self._open_source, order.uuid, journal, self._limits, terms_of(order), clock, self._check_resume, self._open_destination_briefly
        )
        self._share_mib: t.Optional[int] = None
        self._preparation = JobPreparation(journal, self._open_destination, arrivals, self._handle_intents_before_job, lambda: self._share_mib is not None)
        self._busy_wait = BusyWait(order, journal, self._open_source, clock)

    def run(self) -> None:
        follower = self._follower
        try:
            error, silent_seconds = None, 0.0
            if self.order.adopt:
                silent_seconds = self._adopt_job(follower)
            else:
                error = self._carry_out_move(follower, self._limits)
            self.is_settling = True
            settlement = Settlement(
                self._opener_of(self.order.source_uri),
                self._opener_of(self.order.destination_uri),
                self.journal,
                follower.completed_job,
                self._clock,
                self._sleep,
            )
            while not settlement.settle_move(error, follower.elapsed_ms, silent_seconds):
                why = Recovery(self.order, self.journal, self._open_source, self._open_destination, self._clock, self._sleep).recover_post_copy()
                if why:
                    settlement.give_up(why)
                    break
                silent_seconds = 0.0
            self.journal.retry_last_write(self._clock, self._sleep)
        finally:
            follower.close()
            self._ownership.release_lock()
            self._arrivals.wake_up()

    @property
    def has_arrived(self) -> bool:
        """Whether the guest runs at its destination with all of its memory, and only the cleanup of its source is left."""
        return self._arrivals.arrival_of(self.order.uuid) is not None

    @property
    def is_adopted(self) -> bool:
        """Whether another watcher began the move: then its job may be running while the move waits for a slot of this window."""
        return self.order.adopt

    @property
    def is_foreign(self) -> bool:
        """Whether another tool began the job."""
        return self.is_adopted and not self.journal.record.has_begun(MIGRATE_ACT)

    def give_share(self, mib: int) -> None:
        """Give the job that share of the link in MiB/s, C(0) without a limit: now if it runs, else from its start on.

        The job of another tool keeps its bandwidth, because the speed that the domain had before is not known and could not be restored.
        """
        if mib != self._share_mib and not self.is_foreign:
            self._share_mib = mib
            self._follower.share_link(mib)
            self._news.set()

    @property
    def is_free(self) -> bool:
        """Whether the job no longer shares the link."""
        return self._follower.is_free

    def _wait_for_news(self, seconds: float) -> None:
        """Sleep for that time, or until the share of the link changes."""
        self._news.wait(seconds)
        self._news.clear()

    def admit_move(self, why: str) -> None:
        """Admit the move, with a reason for its history."""
        self.waits = False
        self._why_now = why

    @property
    def is_held_up(self) -> bool:
        """Whether the move waits for another job of its domain."""
        return self._busy_wait.is_held_up

    def attend_while_waiting(self) -> bool:
        """Carry out an abort, and look for another job of the domain; return whether the move was cancelled. An adopted move does this when it is followed."""
        if self.is_adopted:
            return False
        try:
            self._handle_intents_before_job()
        except Aborted as error:
            self.journal.note_event("abort_end", "The move had not started.")
            self.cancel_move(s.REASON_OPERATOR, error.message)
            return True
        too_long = "" if self.waits else self._busy_wait.poll_domain()
        if too_long:
            self.cancel_move(s.REASON_BUSY, too_long)
        return bool(too_long)

    def cancel_move(self, reason: str, detail: str) -> None:
        """End a move that was never started."""
        self.journal.advance_status(s.CANCELLED, detail, reason)
        self._ownership.release_lock()

    def _carry_out_move(self, follower: Follower, limits: Limits) -> t.Optional[KvmfleetError]:
        self.journal.advance_status(s.PREPARING, self._why_now)
        try:
            error = self._call_until_done(follower, limits)
        except KvmfleetError as refusal:
            return refusal
        arrived_at = self._arrivals.arrival_of(self.order.uuid)
        if arrived_at:
            self.journal.note_event(ARRIVED_NOTE, at=arrived_at)
        return error

    def _call_until_done(self, follower: Follower, limits: Limits) -> t.Optional[KvmfleetError]:
        """Start the job and follow it to its end; repeat that when libvirt's own login to the destination was dropped. Return what the last call raised.

        The guest is read on both hosts before each start. Raises what makes a start impossible.
        """
        for tries in itertools.count(1):
            error = self._attend_call(self._begin_job(limits), follower)
            if error is None or self.journal.record.disk_copies or not is_worth_another_try(error.message, tries, self.journal.record):
                return error
            self._wait_for_next_try(error, tries)
        raise AssertionError("unreachable")

    def _wait_for_next_try(self, error: KvmfleetError, tries: int) -> None:
        destination = self.journal.record.destination.host
        self.journal.note_event(LOGIN_DROPPED_NOTE, error.message)
        self.journal.wait_for(f"waits for attempt {tries + 1} of {MAX_TRIES}: {destination} dropped the login of this host's libvirt")
        until = self._clock() + retry_pause_seconds(tries, _RANDOM.random())
        while self._clock() < until:
            self._handle_intents_before_job()
            self._sleep(_INTENT_POLL_SECONDS)
        self.journal.wait_for(None)

    def _attend_call(self, call: MigrateCall, follower: Follower) -> t.Optional[KvmfleetError]:
        """Follow the job until libvirt's call has ended; return what it raised, or why it is no longer waited for."""
        there_at = self._clock()
        while call.is_alive():
            if follower.poll_job() or follower.elapsed_ms is None:
                there_at = self._clock()
            elif self._clock() - there_at > CALL_OUTLIVES_SECONDS:
                return MigrationFailed(f"The job has ended, and {CALL_OUTLIVES_SECONDS:.0f} s later libvirt's call was still waiting for the destination.")
            self._sleep(follower.pause_seconds)
        return call.error

    def _begin_job(self, limits: Limits) -> MigrateCall:
        """Start the job, on a connection that the call closes."""
        host = self._open_source()
        try:
            self.order, definitions = self._preparation.prepare_job(host, self.order, limits.downtime.first_ms)
        except KvmfleetError:
            host.close()
            raise
        call = MigrateCall(host, self._order_with_share(), definitions=definitions)
        call.start()
        return call

    def _order_with_share(self) -> StartOrder:
        """Return the order with the bandwidth of the share, if the window shares the link.

        A share without a limit is set when the job runs: without a parameter, it starts with the bandwidth that libvirt has kept from an earlier job.
        """
        mib = self._share_mib
        if not mib:
            return self.order
        self._follower.note_start_share(mib)
        return dataclasses.replace(self.order, parameters={**self.order.parameters, "bandwidth": mib})

    def _handle_intents_before_job(self) -> None:
        """Carry out an abort that arrives before the job exists; any other intent has to wait for the job."""
        for intent in self._take_intents():
            if intent.act == control_files.ABORT:
                self.journal.note_event(s.ABORT_START, s.REASON_OPERATOR, by=intent.by)
                self.journal.intend_act(ABORT_PREFIX + s.REASON_OPERATOR)
                self.journal.answer_intent(intent)
                raise Aborted("The move was aborted before its job was started.")
            self.journal.answer_intent(intent, InvalidState(f"The move of domain {self.order.name} has not started yet."))

    def _take_intents(self) -> t.List[control_files.Intent]:
        record, folder = self.journal.record, self.journal.folder
        return control_files.take_intents(self.order.uuid, str(record.id), record.generation, folder) if folder else []

    def _adopt_job(self, follower: Follower) -> float:
        """Follow a job to its end; one whose source has not answered for ten minutes is settled as it is then. Return for how long the source was silent."""
        self._keep_checkpoints()
        if self.order.aborted_by:
            follower.abort_adopted_job(self.order.aborted_by)
        answered_at = self._clock()
        while follower.poll_job() and not follower.is_broken and self._clock() - answered_at < UNREACHABLE_SECONDS:
            if follower.is_answering:
                answered_at = self._clock()
            self._sleep(follower.pause_seconds)
        if self.order.aborted_by and not self.journal.record.is_aborting:
            self._note_abort_without_job(self.order.aborted_by)
        return 0.0 if follower.is_answering else self._clock() - answered_at

    def _keep_checkpoints(self) -> None:
        """Keep the checkpoints of a domain whose move this collection did not begin, before they are gone with its source."""
        if not self.is_foreign:
            return
        record = self.journal.record
        with contextlib.suppress(KvmfleetError), contextlib.closing(self._open_source()) as host:
            found = host.list_checkpoints(self.order.uuid)
            if found:
                self.journal.record = dataclasses.replace(record, before=dataclasses.replace(record.before, checkpoints=found))
                self.journal.write_state()

    def _note_abort_without_job(self, by: str) -> None:
        """Write that the abort found no job: it cancels a move that had none yet, and comes too late for any other."""
        if has_job_begun(self.journal.record):
            self.journal.note_event("abort_too_late", s.REASON_OPERATOR, by=by)
            return
        self.journal.note_event(s.ABORT_START, s.REASON_OPERATOR, by=by)
        self.journal.intend_act(ABORT_PREFIX + s.REASON_OPERATOR)

    def _opener_of(self, uri: str) -> Opener:
        return lambda seconds: self._open_host(uri, seconds)

    def _open_source(self) -> Host:
        return self._open_host(self.order.source_uri)

    def _check_resume(self) -> None:
        check_resume(self._open_destination_briefly)

    def _open_destination_briefly(self) -> Host:
        return self._open_host(self.order.destination_uri, BRIEF_SECONDS)

    def _open_destination(self) -> Host:
        return self._open_host(self.order.destination_uri)
