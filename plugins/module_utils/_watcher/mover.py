# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""One move, from its order to its outcome, in a thread of its own."""

from __future__ import annotations

import threading
import time
import typing as t

from .._errors import InvalidState, KvmfleetError
from .._migration import downtime as d
from .._migration import hypervisor as h
from .._migration.monitor import Limits
from .._migration.policy import value
from .._records import statuses as s
from .call import MigrateCall
from .follow import POLL_SECONDS, Follower
from .journal import MIGRATE_ACT, Journal
from .order import Order
from .ownership import Ownership
from .settle import Settlement

UNREACHABLE_SECONDS = 600.0

Open = t.Callable[[str], h.Host]


class Mover(threading.Thread):
    """Moves one domain, or adopts its move. Whatever happens, the journal's last status says where the guest is."""

    def __init__(
        self,
        order: Order,
        journal: Journal,
        ownership: Ownership,
        open_host: Open,
        clock: t.Callable[[], float] = time.monotonic,
        sleep: t.Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(name=f"move-{order.uuid}", daemon=True)
        self.order = order
        self.journal = journal
        self._ownership = ownership
        self._open_host = open_host
        self._clock = clock
        self._sleep = sleep

    def run(self) -> None:
        limits = limits_of(self.order)
        follower = Follower(self._open_source, self.order.uuid, self.journal, limits, self._clock)
        try:
            error = None
            if self.order.adopt:
                self._adopt(follower)
            else:
                error = self._move(follower, limits)
            Settlement(self._open_source, self._open_destination, self.journal, self._clock, self._sleep).settle(error, follower.elapsed_ms)
        finally:
            follower.close()
            self._ownership.release()

    def cancel(self, reason: str, detail: str) -> None:
        """End a move that was never started."""
        self.journal.advance(s.CANCELLED, detail, reason)
        self._ownership.release()

    def _move(self, follower: Follower, limits: Limits) -> t.Optional[KvmfleetError]:
        self.journal.advance(s.PREPARING)
        try:
            call = self._begin(limits)
        except KvmfleetError as error:
            return error
        while call.is_alive():
            follower.poll()
            self._sleep(POLL_SECONDS)
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
        self.journal.record["before"] = {
            "state": info.view.state,
            "reason": info.view.reason,
            "persistent": info.view.persistent,
            "autostart": info.autostart,
            "at_destination": self._is_at_destination(),
        }
        self.journal.intend(MIGRATE_ACT)
        host.set_max_downtime_ms(self.order.uuid, limits.ramp[0][1])

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

    def _adopt(self, follower: Follower) -> None:
        """Follow a job to its end; one whose source has not answered for ten minutes is settled as it is then."""
        answered_at = self._clock()
        while follower.poll() and self._clock() - answered_at < UNREACHABLE_SECONDS:
            if follower.answers:
                answered_at = self._clock()
            self._sleep(POLL_SECONDS)

    def _open_source(self) -> h.Host:
        return self._open_host(self.order.source_uri)

    def _open_destination(self) -> h.Host:
        return self._open_host(self.order.destination_uri)


def limits_of(order: Order) -> Limits:
    """Return the limits that the order's record asks for, for a guest of its size."""
    policy = order.record["policy"]
    gib = d.size_gib(order.record["request"].get("memory_mib", 0) * 1024**2)
    timeout = value(policy, "timeout_seconds")
    ramp = d.downtime_steps(value(policy, "downtime_ms"), value(policy, "downtime_steps"), value(policy, "downtime_delay_seconds_per_gib"), gib, timeout)
    return Limits(tuple(ramp), d.effective_timeout_seconds(timeout, gib), value(policy, "stall_seconds"))
