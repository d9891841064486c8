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
from .._migration.downtime import AdaptiveSchedule, DowntimeSchedule, SteppedSchedule, size_gib
from .._migration.force import ForcingTerms
from .._migration.monitor import Limits
from .._migration.policy import resolve_policy
from .._migration.rewriting import rewrite_for_move
from .._model import domain_states
from .._model import statuses as s
from .._model.codec import ABSENT
from .._model.errors import Aborted, InvalidState, KvmfleetError, MigrationFailed
from .._model.policies import ResolvedPolicy, read_given_policy
from .._model.record_parts import Before
from .._model.records import MoveRecord
from .._model.watched_moves import StartOrder
from .._run_folder import Ownership
from . import control_files
from .backups import BusyWait
from .calls import MAX_TRIES, ArrivalEvents, MigrateCall, is_worth_another_try, make_targets, retry_pause_seconds
from .follow import Follower
from .journal import ABORT_PREFIX, MIGRATE_ACT, Journal
from .recover import Recovery
from .settle import Opener, Settlement, has_job_begun

UNREACHABLE_SECONDS = 600.0
# How long libvirt may take to end its call after the job: a hypervisor that hangs at the destination blocks it forever.
CALL_OUTLIVES_SECONDS = 60.0

ARRIVED_NOTE = "arrived"
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
        self._follower = Follower(self._open_source, order.uuid, journal, self._limits, terms_of(order), clock)
        self._share_mib: t.Optional[int] = None
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

    def give_share(self, mib: int) -> None:
        """Give the job that share of the link in MiB/s, C(0) without a limit: now if it runs, else from its start on."""
        if mib != self._share_mib:
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
            definitions = self._prepare_job(host, limits)
        except KvmfleetError:
            host.close()
            raise
        call = MigrateCall(host, self._order_with_share(), definitions=definitions)
        call.start()
        return call

    def _order_with_share(self) -> StartOrder:
        """Return the order with the bandwidth of the share, if the window shares the link."""
        mib = self._share_mib
        if mib is None:
            return self.order
        self._follower.note_start_share(mib)
        return dataclasses.replace(self.order, parameters={**self.order.parameters, "bandwidth": mib} if mib else self.order.parameters)

    def _prepare_job(self, host: Host, limits: Limits) -> t.Mapping[str, str]:
        """Read the guest as it is, and write that down. Return the parameters with its definitions for the destination, none if nothing differs there."""
        info = host.find_domain(uuid=self.order.uuid)
        job = host.find_other_job(self.order.uuid) or info.view.job
        if not info.view.active or job != domain_states.JOB_NONE:
            raise InvalidState(f"Domain {self.order.name} is {info.view.describe()} with job '{job}' on its source host. Nothing was started.")
        self.journal.record = dataclasses.replace(self.journal.record, before=self._read_before(host, info))
        definitions = self._rewrite_definitions(host, info)
        self._handle_intents_before_job()
        self._make_targets()
        self._keep_connection()
        self._arrivals.expect_at(self.order.destination_uri)
        self.journal.intend_act(MIGRATE_ACT)
        self.journal.require_written()
        host.set_max_downtime_ms(self.order.uuid, limits.downtime.first_ms)
        if info.view.state == domain_states.PAUSED:
            # A paused guest stays paused at the destination, which libvirt does not combine with post-copy; it converges anyway.
            self._drop_post_copy()
        return definitions

    def _rewrite_definitions(self, host: Host, info: domain_states.DomainInfo) -> t.Mapping[str, str]:
        """Rewrite the definitions as they are now, and write down what differs: the guest may have changed since the move was accepted."""
        if not self.order.renaming:
            return {}
        rewritten = rewrite_for_move(host, info, self.order.renaming)
        self.journal.record = self.journal.record.rewrite(rewritten.changes)
        return rewritten.as_parameters()

    def _read_before(self, host: Host, info: domain_states.DomainInfo) -> Before:
        """Return the guest as it is. A later try would read what the first one has changed or left behind, so that is kept from the first."""
        now = Before(
            state=info.view.state,
            reason=info.view.reason,
            persistent=info.view.persistent,
            autostart=info.autostart,
            max_downtime_ms=host.max_downtime_ms(self.order.uuid),
            bandwidth_mib=host.bandwidth_mib(self.order.uuid),
            at_destination=self._is_at_destination(),
            checkpoints=host.list_checkpoints(self.order.uuid) or ABSENT,
        )
        record = self.journal.record
        if not record.has_begun(MIGRATE_ACT):
            return now
        return dataclasses.replace(
            now,
            max_downtime_ms=now.max_downtime_ms if record.before.max_downtime_ms is ABSENT else record.before.max_downtime_ms,
            bandwidth_mib=now.bandwidth_mib if record.before.bandwidth_mib is ABSENT else record.before.bandwidth_mib,
            at_destination=now.at_destination if record.before.at_destination is ABSENT else record.before.at_destination,
        )

    def _keep_connection(self) -> None:
        """Keep the flags and parameters of the job: recovering the move from post-copy requires the same ones."""
        self.journal.keep_connection(flags=self.order.flags, parameters=self.order.parameters)
        if self._share_mib is not None:
            self.journal.keep_connection(is_shared=True)

    def _drop_post_copy(self) -> None:
        """Request the job without post-copy. The record keeps the flags that were planned, and the parameters that are used."""
        flags = tuple(flag for flag in self.order.flags if flag != "POSTCOPY")
        parameters = {name: value for name, value in self.order.parameters.items() if name != "bandwidth.postcopy"}
        self.order = dataclasses.replace(self.order, flags=flags, parameters=parameters)
        record = self.journal.record
        if record.connection:
            self.journal.record = dataclasses.replace(record, connection=dataclasses.replace(record.connection, parameters=parameters))

    def _make_targets(self) -> None:
        """Make the images that disks are copied into, if the move copies any."""
        if self.journal.record.disk_copies:
            destination = self._open_destination()
            try:
                make_targets(self.journal, destination)
            finally:
                destination.close()

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

    def _is_at_destination(self) -> bool:
        destination = self._open_destination()
        try:
            view = destination.view_domain(self.order.uuid)
        finally:
            destination.close()
        if view.active:
            raise InvalidState(
                f"Domain {self.order.name} is {view.describe()} on its destination already, under the same UUID. Nothing was started.",
                "Find out which of the two copies is correct before you change anything.",
            )
        return view.present

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
        record = self.journal.record
        if record.has_begun(MIGRATE_ACT):
            return
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

    def _open_destination(self) -> Host:
        return self._open_host(self.order.destination_uri)


def limits_of(order: StartOrder) -> Limits:
    """Return the limits that the order's record asks for, for a guest of its size."""
    gib = size_gib(order.record.memory_bytes, order.record.copied_bytes)
    policy = resolve_policy(read_given_policy(order.record.policy), gib)
    return Limits(_schedule_of(order, policy), policy.timeout_seconds, policy.stall_seconds, force_on_timeout=policy.is_forced_on_timeout)


def _schedule_of(order: StartOrder, policy: ResolvedPolicy) -> DowntimeSchedule:
    if policy.is_stepped:
        return SteppedSchedule(policy.ramp)
    return AdaptiveSchedule(
        first_ms=policy.ramp[0][1],
        longest_ms=policy.downtime_ms,
        full_from_seconds=policy.full_downtime_from_seconds,
        link_rate_bytes=_link_rate_bytes(order.record),
        is_compressed="COMPRESSED" in order.flags,
    )


def _link_rate_bytes(record: MoveRecord) -> int:
    return (record.connection.link_mib or 0) * 1024**2 if record.connection else 0


def terms_of(order: StartOrder) -> ForcingTerms:
    """Return what forcing this move may use."""
    record, policy = order.record, read_given_policy(order.record.policy)
    return ForcingTerms(
        post_copy=policy.post_copy and not policy.auto_converge and record.before.state != domain_states.PAUSED,
        capped=bool(record.connection and (record.connection.bandwidth_mib or record.connection.is_shared)),
        suspend_seconds=policy.force_suspend_seconds,
        pause_max_seconds=policy.force_pause_max_seconds,
        downtime_ms=policy.downtime_ms,
        link_rate_bytes=_link_rate_bytes(record),
    )
