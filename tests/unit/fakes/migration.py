# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A migration under way between two fake hosts, as libvirt and QEMU would carry it out (libvirt.md, sections 2.4 and 3)."""

from __future__ import annotations

import threading
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Aborted, KvmfleetError, MigrationFailed
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import hypervisor as h

from .domain import FakeDomain
from .machine import FakeMachine

SETUP_SECONDS = 0.2
MIB = 1024**2

Place = t.Optional[t.Tuple[str, str]]


class FakeMigration:
    """Copies memory at the link's rate, iteration by iteration, and hands over once the rest fits the downtime.

    A test may stop the link (C(link_bytes = 0)), or end the migration in its own way with L(end).
    """

    def __init__(self, source: FakeMachine, destination: FakeMachine, domain: FakeDomain, flags: t.Sequence[str], link_bytes: int) -> None:
        self.source, self.destination = source, destination
        self.flags = frozenset(flags)
        self.link_bytes = link_bytes
        self.ended = threading.Event()
        self.error: t.Optional[KvmfleetError] = None
        self.caller = threading.current_thread()
        self._guest = domain
        self._before = (domain.state, domain.reason)
        self._downtime_before_ms = domain.max_downtime_ms
        self._defined_there = domain.uuid in destination.domains
        self._elapsed = 0.0
        self._iteration_seconds = 0.0
        self._iteration = 0
        self._sent = 0
        self._remaining = domain.memory_bytes
        domain.job = h.JOB_OUTGOING
        domain.completed = None

    @property
    def uuid(self) -> str:
        return self._guest.uuid

    @property
    def is_post_copy(self) -> bool:
        return self._guest.reason in (h.POST_COPY, h.POST_COPY_FAILED)

    def stats(self) -> h.JobStats:
        """Return what libvirt would say of the job now."""
        return h.JobStats(
            elapsed_ms=int(self._elapsed * 1000),
            downtime_ms=self._pause_ms(),
            setup_ms=int(SETUP_SECONDS * 1000),
            data_processed_bytes=self._sent,
            memory_total_bytes=self._guest.memory_bytes,
            memory_processed_bytes=self._sent,
            memory_remaining_bytes=self._remaining,
            bandwidth_bytes=self.link_bytes,
            dirty_rate_bytes=self._guest.dirty_rate_bytes if self._iteration > 1 else 0,
            iteration=self._iteration,
        )

    def step(self, seconds: float) -> None:
        """Go on for that long."""
        if self.ended.is_set():
            return
        self._elapsed += seconds
        self._arrive(h.STARTING_UP if self._elapsed < SETUP_SECONDS else h.MIGRATION)
        if self._elapsed < SETUP_SECONDS:
            return
        self._iteration = self._iteration or 1
        sent = min(self._remaining, int(self.link_bytes * seconds))
        self._sent += sent
        self._remaining -= sent
        self._iteration_seconds += seconds
        if not self._remaining:
            self._next_iteration()

    def start_post_copy(self) -> None:
        """Let the guest run at the destination with the rest of its memory still here."""
        self._guest.enter(h.PAUSED, h.POST_COPY)
        self._there().enter(h.RUNNING, h.POST_COPY)

    def break_post_copy(self) -> None:
        """Lose the connection in post-copy: the call ends, and both halves of the guest stay."""
        self.end(MigrationFailed("client socket is closed"), (h.PAUSED, h.POST_COPY_FAILED), (h.RUNNING, h.POST_COPY_FAILED))

    def complete(self) -> None:
        """End as libvirt does when everything went well."""
        completed = self.stats()
        self.end(None, None, (h.PAUSED, "user") if self._before[0] == h.PAUSED else (h.RUNNING, "migrated"))
        self.destination.domains[self.uuid].completed = completed

    def cancel(self) -> None:
        """End as after an abort: the guest runs on at the source."""
        self.end(Aborted("operation aborted: migration out job: canceled by client"), self._before, None)

    def fail(self, text: str = "Unable to write to socket: Connection reset by peer") -> None:
        """End as after a failure: the guest runs on at the source."""
        self.end(MigrationFailed(f"Failed to move domain: {text}"), self._before, None)

    def end(self, error: t.Optional[KvmfleetError], source: Place, destination: Place) -> None:
        """End the call, with the guest in these states (state and reason), or not active, at either end."""
        guest, there = self._guest, self._there()
        guest.job = there.job = h.JOB_NONE
        guest.max_downtime_ms = self._downtime_before_ms
        if source is not None:
            guest.enter(*source)
        elif error is None:
            self._leave_source()
        else:
            guest.enter(h.SHUTOFF, "crashed")
        if destination is not None:
            there.enter(*destination)
            there.persistent = "PERSIST_DEST" in self.flags or self._defined_there
        elif self._defined_there:
            there.enter(h.SHUTOFF, "failed")
        else:
            self.destination.remove(self.uuid)
        self.error = error
        self.ended.set()

    # -- inside ---------------------------------------------------------------------------------------------------

    def _pause_ms(self) -> int:
        return int(1000 * self._remaining / self.link_bytes) if self.link_bytes else 0

    def _next_iteration(self) -> None:
        if self.is_post_copy:
            self.complete()
            return
        self._iteration += 1
        self._remaining = min(self._guest.dirty_bytes, int(self._guest.dirty_rate_bytes * self._iteration_seconds))
        self._iteration_seconds = 0.0
        # What is left is known only when the pages written meanwhile have been counted.
        if self._pause_ms() <= self._guest.max_downtime_ms:
            self.complete()

    def _arrive(self, reason: str) -> None:
        there = self._there()
        if not self.is_post_copy:
            there.enter(h.PAUSED, reason)
        there.job = h.JOB_INCOMING

    def _there(self) -> FakeDomain:
        """The copy at the destination; made where there is none."""
        if self.uuid not in self.destination.domains:
            guest = self._guest
            twin = FakeDomain(guest.uuid, guest.name, h.PAUSED, h.STARTING_UP, False, False, guest.memory_bytes, guest.vcpus, guest.disks)
            twin.dirty_bytes, twin.dirty_rate_bytes = guest.dirty_bytes, guest.dirty_rate_bytes
            self.destination.put(twin)
        return self.destination.domains[self.uuid]

    def _leave_source(self) -> None:
        if self._guest.persistent and "UNDEFINE_SOURCE" not in self.flags:
            self._guest.enter(h.SHUTOFF, "migrated")
        else:
            self.source.remove(self.uuid)
