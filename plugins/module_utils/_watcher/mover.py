# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""One move, from its order to its outcome, in a thread of its own."""

from __future__ import annotations

import itertools
import random
import threading
import time
import typing as t

from .._errors import Aborted, InvalidState, KvmfleetError, MigrationFailed
from .._migration import downtime as d
from .._migration import hypervisor as h
from .._migration.adaptive import Adaptive
from .._migration.force import Terms
from .._migration.logins import TRIES, is_worth_another_try, pause_seconds
from .._migration.monitor import Limits
from .._migration.policy import FORCE_COMPLETE, STEPPED, STRATEGY, value
from .._migration.schedule import Schedule, Stepped
from .._records import statuses as s
from .._records.schema import did
from .._storage.ports import StorageHost
from .._storage.targets import copies_of, make_targets
from . import intents
from .arrivals import ArrivalEvents
from .call import MigrateCall
from .follow import Follower
from .journal import MIGRATE_ACT, Journal
from .order import Order
from .ownership import Ownership
from .pilot import ABORT_PREFIX
from .recover import Recovery
from .settle import Opener, Settlement

UNREACHABLE_SECONDS = 600.0
# How long libvirt may take to end its call after the job: a hypervisor that hangs at the destination keeps it for ever.
CALL_OUTLIVES_SECONDS = 60.0

ARRIVED_NOTE = "arrived"
LOGIN_DROPPED_NOTE = "login_dropped"
_HEED_SECONDS = 0.5
_RANDOM = random.SystemRandom()


class Mover(threading.Thread):
    """Moves one domain, or adopts its move. Whatever happens, the journal's last status says where the guest is."""

    def __init__(
        self,
        order: Order,
        journal: Journal,
        ownership: Ownership,
        open_host: h.OpenHost,
        arrivals: ArrivalEvents,
        clock: t.Callable[[], float] = time.monotonic,
        sleep: t.Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(name=f"move-{order.uuid}", daemon=True)
        self.order = order
        self.journal = journal
        self._ownership = ownership
        self._open_host = open_host
        self._arrivals = arrivals
        self._clock = clock
        self._sleep = sleep
        self._why_now = ""

    def run(self) -> None:
        limits = limits_of(self.order)
        follower = Follower(self._open_source, self.order.uuid, self.journal, limits, terms_of(self.order), self._clock)
        try:
            error, silent_seconds = None, 0.0
            if self.order.adopt:
                silent_seconds = self._adopt(follower)
            else:
                error = self._move(follower, limits)
            settlement = Settlement(
                self._settles(self.order.source_uri), self._settles(self.order.destination_uri), self.journal, follower.completed_job, self._clock, self._sleep
            )
            while not settlement.settle(error, follower.elapsed_ms, silent_seconds):
                why = Recovery(self.order, self.journal, self._open_source, self._open_destination, self._clock, self._sleep).recover()
                if why:
                    settlement.give_up(why)
                    break
                silent_seconds = 0.0
            self.journal.insist(self._clock, self._sleep)
        finally:
            follower.close()
            self._ownership.release()
            self._arrivals.stir()

    @property
    def has_arrived(self) -> bool:
        """Whether the guest runs at its destination with all of its memory, and only what it left has still to end."""
        return self._arrivals.at(self.order.uuid) is not None

    @property
    def is_adopted(self) -> bool:
        """Whether somebody began the move before: then its job may be running while it waits for its turn here."""
        return self.order.adopt

    @property
    def waits(self) -> bool:
        """Whether it may not begin before its run says that it is its turn."""
        return self.order.waits

    def let(self, why: str) -> None:
        """Permit to begin, for a reason that history keeps."""
        self.order.waits = False
        self._why_now = why

    def heed_while_waiting(self) -> bool:
        """Honour an abort while the move waits for its turn; returns whether it was cancelled. What was adopted heeds it when it is followed."""
        if self.is_adopted:
            return False
        try:
            self._heed_before_job()
        except Aborted as error:
            self.journal.note("abort_end", "The move had not begun.")
            self.cancel(s.REASON_OPERATOR, error.message)
            return True
        return False

    def cancel(self, reason: str, detail: str) -> None:
        """End a move that was never started."""
        self.journal.advance(s.CANCELLED, detail, reason)
        self._ownership.release()

    def _move(self, follower: Follower, limits: Limits) -> t.Optional[KvmfleetError]:
        self.journal.advance(s.PREPARING, self._why_now)
        try:
            error = self._called(follower, limits)
        except KvmfleetError as refusal:
            return refusal
        arrived_at = self._arrivals.at(self.order.uuid)
        if arrived_at:
            self.journal.note(ARRIVED_NOTE, at=arrived_at)
        return error

    def _called(self, follower: Follower, limits: Limits) -> t.Optional[KvmfleetError]:
        """Start the job and follow it to its end; repeat that when libvirt's own login to the destination was dropped. Return what the last call raised.

        The guest is read on both hosts before each start. Raises what makes a start impossible.
        """
        for tries in itertools.count(1):
            error = self._attend(self._begin(limits), follower)
            if error is None or copies_of(self.journal.record) or not is_worth_another_try(error.message, tries, self.journal.record):
                return error
            self._wait_for_next_try(error, tries)
        raise AssertionError("unreachable")

    def _wait_for_next_try(self, error: KvmfleetError, tries: int) -> None:
        destination = self.journal.record["destination"]["host"]
        self.journal.note(LOGIN_DROPPED_NOTE, error.message)
        self.journal.wait_for(f"waits for try {tries + 1} of {TRIES}: {destination} dropped the login of this host's libvirt")
        until = self._clock() + pause_seconds(tries, _RANDOM.random())
        while self._clock() < until:
            self._heed_before_job()
            self._sleep(_HEED_SECONDS)
        self.journal.wait_for(None)

    def _attend(self, call: MigrateCall, follower: Follower) -> t.Optional[KvmfleetError]:
        """Follow the job until libvirt's call has ended; return what it raised, or why it is no longer waited for."""
        there_at = self._clock()
        while call.is_alive():
            if follower.poll() or follower.elapsed_ms is None:
                there_at = self._clock()
            elif self._clock() - there_at > CALL_OUTLIVES_SECONDS:
                return MigrationFailed(f"The job has ended, and {CALL_OUTLIVES_SECONDS:.0f} s later the destination had still not let libvirt's call end.")
            self._sleep(follower.pause)
        return call.error

    def _begin(self, limits: Limits) -> MigrateCall:
        """Start the job, on a connection that the call closes."""
        host = self._open_source()
        try:
            self._prepare(host, limits)
        except KvmfleetError:
            host.close()
            raise
        call = MigrateCall(host, self.order)
        call.start()
        return call

    def _prepare(self, host: h.Host, limits: Limits) -> None:
        """Read the guest as it is, and write that down."""
        info = host.find(uuid=self.order.uuid)
        if not info.view.active or info.view.job != h.JOB_NONE:
            raise InvalidState(f"Domain {self.order.name} is {info.view.describe()} with job '{info.view.job}' on its source host. Nothing was started.")
        before = self.journal.record["before"] if did(self.journal.record, MIGRATE_ACT) else {}
        self.journal.record["before"] = {
            "state": info.view.state,
            "reason": info.view.reason,
            "persistent": info.view.persistent,
            "autostart": info.autostart,
            "max_downtime_ms": host.max_downtime_ms(self.order.uuid),
            "at_destination": self._is_at_destination(),
            # Kept from the first try: a later one would read what that has changed or left behind.
            **{key: before[key] for key in ("max_downtime_ms", "at_destination") if key in before},
        }
        self._heed_before_job()
        self._make_targets()
        # Who recovers this move from post-copy has to ask for it in the same words.
        self.journal.record.setdefault("connection", {}).update(flags=self.order.flags, parameters=self.order.parameters)
        self._arrivals.expect_at(self.order.destination_uri)
        self.journal.intend(MIGRATE_ACT)
        self.journal.require_written()
        host.set_max_downtime_ms(self.order.uuid, limits.downtime.first_ms)
        if info.view.state == h.PAUSED:
            # A guest that is paused stays so on the other side, which libvirt does not combine with post-copy; it converges anyway.
            self.order.flags = [flag for flag in self.order.flags if flag != "POSTCOPY"]
            self.order.parameters.pop("bandwidth.postcopy", None)

    def _make_targets(self) -> None:
        """Make the images that disks are copied into, where the move copies any."""
        if copies_of(self.journal.record):
            destination = t.cast(StorageHost, self._open_destination())
            try:
                make_targets(self.journal.record, destination, self.journal.intend)
            finally:
                destination.close()

    def _heed_before_job(self) -> None:
        """Honour an abort that came before the job exists; anything else has to wait until there is one."""
        for intent in self._intents():
            if intent.act == intents.ABORT:
                self.journal.note(s.ABORT_START, intent.by)
                self.journal.intend(ABORT_PREFIX + s.REASON_OPERATOR)
                self.journal.answer(intent)
                raise Aborted("The move was aborted before its job was started.")
            self.journal.answer(intent, InvalidState(f"The move of domain {self.order.name} has not begun yet."))

    def _intents(self) -> t.List[intents.Intent]:
        record, folder = self.journal.record, self.journal.folder
        return intents.take(self.order.uuid, record["id"], record["generation"], folder) if folder else []

    def _is_at_destination(self) -> bool:
        destination = self._open_destination()
        try:
            view = destination.view(self.order.uuid)
        finally:
            destination.close()
        if view.active:
            raise InvalidState(
                f"Domain {self.order.name} is {view.describe()} on its destination already, under the same UUID. Nothing was started.",
                "Find out which of the two copies is the right one before anything else is done.",
            )
        return view.present

    def _adopt(self, follower: Follower) -> float:
        """Follow a job to its end; one whose source has not answered for ten minutes is settled as it is then. Return for how long the source was silent."""
        answered_at = self._clock()
        while follower.poll() and not follower.is_broken and self._clock() - answered_at < UNREACHABLE_SECONDS:
            if follower.answers:
                answered_at = self._clock()
            self._sleep(follower.pause)
        return 0.0 if follower.answers else self._clock() - answered_at

    def _settles(self, uri: str) -> Opener:
        return lambda seconds: self._open_host(uri, seconds)

    def _open_source(self) -> h.Host:
        return self._open_host(self.order.source_uri)

    def _open_destination(self) -> h.Host:
        return self._open_host(self.order.destination_uri)


def limits_of(order: Order) -> Limits:
    """Return the limits that the order's record asks for, for a guest of its size."""
    policy = order.record["policy"]
    gib = d.size_gib(order.record["request"].get("memory_mib", 0) * 1024**2, order.record["request"].get("copied_disk_bytes", {}).values())
    timeout = d.effective_timeout_seconds(value(policy, "timeout_seconds"), gib)
    return Limits(
        _schedule_of(order, gib, timeout),
        timeout,
        value(policy, "stall_seconds"),
        force_on_timeout=value(policy, "on_timeout") == FORCE_COMPLETE,
    )


def _schedule_of(order: Order, gib: float, timeout_seconds: int) -> Schedule:
    policy = order.record["policy"]
    longest_ms, delay = value(policy, "downtime_ms"), value(policy, "downtime_delay_seconds_per_gib")
    ramp = tuple(d.downtime_steps(longest_ms, value(policy, "downtime_steps"), delay, gib, timeout_seconds))
    if value(policy, STRATEGY) == STEPPED:
        return Stepped(ramp)
    return Adaptive(
        first_ms=ramp[0][1],
        longest_ms=longest_ms,
        full_from_seconds=timeout_seconds / 2,
        link_rate_bytes=_link_rate_bytes(order),
        is_compressed="COMPRESSED" in order.flags,
    )


def _link_rate_bytes(order: Order) -> int:
    return int(order.record.get("connection", {}).get("link_mib") or 0) * 1024**2


def terms_of(order: Order) -> Terms:
    """Return what forcing this move may use."""
    policy, connection = order.record["policy"], order.record.get("connection", {})
    return Terms(
        post_copy=bool(value(policy, "post_copy")) and order.record["before"].get("state") != h.PAUSED,
        capped=bool(connection.get("bandwidth_mib")),
        suspend_seconds=value(policy, "force_suspend_seconds"),
        pause_max_seconds=value(policy, "force_pause_max_seconds"),
        downtime_ms=value(policy, "downtime_ms"),
        link_rate_bytes=_link_rate_bytes(order),
    )
