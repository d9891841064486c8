# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A migration under way between two fake hosts, as libvirt and QEMU would carry it out (docs/libvirt.md)."""

from __future__ import annotations

import dataclasses
import threading
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Aborted, Internal, InvalidState, KvmfleetError, MigrationFailed

from .domain import FakeDomain
from .machine import FakeMachine

SETUP_SECONDS = 0.2
MIB = 1024**2
_SWITCH_MS = 10

Place = t.Optional[t.Tuple[str, str]]


class FakeMigration:
    """Copies memory at the link's rate, iteration by iteration, and hands over once the rest fits the downtime.

    A test may stop the link (C(link_bytes = 0)), or end the migration in its own way with L(end). C(ended) is the end of the call,
    C(is_over) that of the job: a broken post-copy has lost its call and keeps its job.
    """

    def __init__(self, source: FakeMachine, destination: FakeMachine, domain: FakeDomain, flags: t.Sequence[str], link_bytes: int, cap_bytes: int = 0) -> None:
        self.source, self.destination = source, destination
        self.flags = frozenset(flags)
        self.link_bytes = link_bytes
        self.cap_bytes = cap_bytes
        self.is_over = False
        self.is_streaming = True
        # A job whose hypervisors connect reports no memory.
        self.is_connecting = False
        self.ended = threading.Event()
        self.error: t.Optional[KvmfleetError] = None
        self.caller = threading.current_thread()
        # The definition that the guest gets at the destination, if it was given one.
        self.definition_there = domain.live_definition
        self._guest = domain
        self._before = (domain.state, domain.reason)
        self._downtime_before_ms = domain.max_downtime_ms
        self._defined_there = domain.uuid in destination.domains
        self._elapsed = 0.0
        # How far the wall clock of the source has been set since the start: libvirt computes the age of a job with it.
        self.clock_step_seconds = 0.0
        self._iteration = 0
        self._sent = 0
        self._remaining = domain.memory_bytes
        self._written_seconds = 0.0
        self._suspended_at: t.Optional[float] = None
        domain.job = domain_states.JOB_OUTGOING
        domain.completed = None

    @property
    def uuid(self) -> str:
        return self._guest.uuid

    @property
    def is_post_copy(self) -> bool:
        return self._guest.reason in (domain_states.POST_COPY, domain_states.POST_COPY_FAILED)

    @property
    def rate_bytes(self) -> int:
        """What crosses the link a second; the cap is that of pre-copy."""
        return min(self.link_bytes, self.cap_bytes) if self.cap_bytes and not self.is_post_copy else self.link_bytes

    def stats(self) -> domain_states.JobStats:
        """Return what libvirt would say of the job now."""
        return domain_states.JobStats(
            elapsed_ms=max(0, int((self._elapsed + self.clock_step_seconds) * 1000)),
            downtime_ms=self._pause_ms(),
            setup_ms=int(SETUP_SECONDS * 1000),
            data_processed_bytes=self._sent,
            memory_total_bytes=0 if self.is_connecting else self._guest.memory_bytes,
            memory_processed_bytes=self._sent,
            memory_remaining_bytes=self._remaining,
            bandwidth_bytes=self.rate_bytes,
            dirty_rate_bytes=self._guest.dirty_rate_bytes if self._iteration > 1 else 0,
            iteration=self._iteration,
        )

    def step(self, seconds: float) -> None:
        """Go on for that long."""
        if self.is_over or not self.is_streaming:
            return
        self._elapsed += seconds
        self._arrive(domain_states.STARTING_UP if self._elapsed < SETUP_SECONDS else domain_states.MIGRATION)
        if self._elapsed < SETUP_SECONDS:
            return
        self._iteration = self._iteration or 1
        sent = min(self._remaining, int(self.rate_bytes * seconds))
        self._sent += sent
        self._remaining -= sent
        self._written_seconds += seconds if self._guest.state == domain_states.RUNNING else 0
        if not self._remaining or (self._fits() and not self.is_post_copy):
            self._next_iteration()

    def suspend(self) -> None:
        """Stop the guest while it is copied; what it had written until then is still to be sent."""
        self._suspended_at = self._elapsed
        self._guest.enter(domain_states.PAUSED, domain_states.MIGRATION)

    def switch(self) -> None:
        """Start post-copy as requested, or refuse it (docs/libvirt.md, "Post-copy")."""
        if self.is_post_copy or "POSTCOPY" not in self.flags:
            raise InvalidState(f"Failed to switch domain {self.uuid} to post-copy: it was not started with VIR_MIGRATE_POSTCOPY.")
        if not self._iteration:
            raise Internal(f"Failed to switch domain {self.uuid} to post-copy: it is too early.")
        self.start_post_copy()

    def start_post_copy(self) -> None:
        """Let the guest run at the destination with the rest of its memory still here."""
        self._remaining += self._written()
        self._guest.enter(domain_states.PAUSED, domain_states.POST_COPY)
        self._there().enter(domain_states.RUNNING, domain_states.POST_COPY)

    def break_post_copy(self, error: t.Optional[KvmfleetError] = None) -> None:
        """Lose the connection in post-copy: the call ends, and both halves of the guest stay."""
        self.lose_post_copy_call(error)
        self.is_streaming = False
        self._there().enter(domain_states.RUNNING, domain_states.POST_COPY_FAILED)

    def lose_post_copy_call(self, error: t.Optional[KvmfleetError] = None) -> None:
        """Lose libvirt's connection only: the call ends, and the hypervisors go on among themselves."""
        self._guest.enter(domain_states.PAUSED, domain_states.POST_COPY_FAILED)
        if not self.ended.is_set():
            self.error = error or MigrationFailed("client socket is closed")
            self.ended.set()

    def leave_unattended(self) -> None:
        """Be as after a restart of the source's daemon in post-copy: nobody watches, and nothing is broken."""
        self.lose_post_copy_call()
        self._guest.enter(domain_states.PAUSED, domain_states.POST_COPY)

    def resume_post_copy(self, link_bytes: int) -> None:
        """Go on over a new link, for the thread that asks. Raises L(InvalidState) where libvirt would refuse to."""
        if not self.is_post_copy or self.is_over:
            raise InvalidState(f"Failed to move domain {self.uuid}: its migration is not in post-copy phase.")
        if not self.ended.is_set():
            raise InvalidState(f"Failed to move domain {self.uuid}: its post-copy migration is actively monitored by another thread.")
        if self.is_streaming:
            raise InvalidState(f"Failed to move domain {self.uuid}: the hypervisor reports that its migration is still running.")
        self.caller = threading.current_thread()
        self.error = None
        self.link_bytes = link_bytes
        self.is_streaming = True
        self._guest.enter(domain_states.PAUSED, domain_states.POST_COPY)
        self._there().enter(domain_states.RUNNING, domain_states.POST_COPY)
        self.ended.clear()

    def complete(self) -> None:
        """End as libvirt does when everything went well."""
        was_post_copy, attended = self.is_post_copy, not self.ended.is_set()
        completed = self._completed()
        arrived = (domain_states.PAUSED, "user") if self._before[0] == domain_states.PAUSED else (domain_states.RUNNING, "migrated")
        if not attended:
            # Nobody is left who would undefine the source's copy.
            self.flags -= {"UNDEFINE_SOURCE"}
        self.end(None, None, arrived)
        self.source.tell_completed(self.uuid, completed)
        self.destination.domains[self.uuid].completed = None if was_post_copy else completed

    def cancel(self) -> None:
        """End as after an abort: the guest runs on at the source."""
        self.end(Aborted("operation aborted: migration out job: canceled by client"), self._at_source(), None)

    def fail(self, text: str = "Unable to write to socket: Connection reset by peer") -> None:
        """End as after a failure: the guest runs on at the source."""
        self.end(MigrationFailed(f"Failed to move domain: {text}"), self._at_source(), None)

    def end(self, error: t.Optional[KvmfleetError], source: Place, destination: Place) -> None:
        """End the call, with the guest in these states (state and reason), or not active, at either end."""
        guest, there = self._guest, self._there()
        memory = guest.restored_from
        guest.job = there.job = domain_states.JOB_NONE
        guest.max_downtime_ms = self._downtime_before_ms
        if source is not None:
            guest.enter(*source)
        elif error is None:
            self._leave_source()
        else:
            guest.enter(domain_states.SHUTOFF, "crashed")
        if destination is not None:
            there.enter(*destination)
            there.restored_from, there.live_definition = memory, self.definition_there
            there.persistent = "PERSIST_DEST" in self.flags or self._defined_there
            if destination == (domain_states.RUNNING, "migrated"):
                self.destination.tell_arrived(self.uuid)
        elif self._defined_there:
            there.enter(domain_states.SHUTOFF, "failed")
        else:
            self.destination.remove(self.uuid)
        self.is_over = True
        if not self.ended.is_set():
            self.error = error
            self.ended.set()

    # -- inside ---------------------------------------------------------------------------------------------------

    def _at_source(self) -> t.Tuple[str, str]:
        return self._before if self._suspended_at is None else (domain_states.RUNNING, "migration canceled")

    def _completed(self) -> domain_states.JobStats:
        """The figures of the end; a pause that began with a suspension counts from there."""
        since = 0 if self._suspended_at is None else int((self._elapsed - self._suspended_at) * 1000)
        stats = self.stats()
        sent = self._sent + self._remaining
        downtime = _SWITCH_MS if self.is_post_copy else (stats.downtime_ms or 0) + since
        return dataclasses.replace(stats, downtime_ms=downtime, memory_processed_bytes=sent, data_processed_bytes=sent, memory_remaining_bytes=0)

    def _pause_ms(self) -> int:
        """The rest crosses the link without the cap once the guest has stopped."""
        return int(1000 * self._remaining / self.link_bytes) if self.link_bytes else 0

    def _fits(self) -> bool:
        """Whether the hypervisor would stop the guest now: it judges by the rate that it sees, which is the capped one."""
        return bool(self.rate_bytes) and 1000 * self._remaining / self.rate_bytes <= self._guest.max_downtime_ms

    def _written(self) -> int:
        """What the guest has written since it was last looked at."""
        written = min(self._guest.dirty_bytes, int(self._guest.dirty_rate_bytes * self._written_seconds))
        self._written_seconds = 0.0
        return written

    def _next_iteration(self) -> None:
        if self.is_post_copy:
            self.complete()
            return
        self._iteration += 1
        self._remaining = min(max(self._remaining, self._guest.dirty_bytes), self._remaining + self._written())
        # What is left is known only when the pages written meanwhile have been counted.
        if self._fits() or not self._remaining:
            self.complete()

    def _arrive(self, reason: str) -> None:
        there = self._there()
        if not self.is_post_copy:
            there.enter(domain_states.PAUSED, reason)
        there.job = domain_states.JOB_INCOMING

    def _there(self) -> FakeDomain:
        """The copy at the destination; made where there is none."""
        if self.uuid not in self.destination.domains:
            guest = self._guest
            twin = FakeDomain(
                guest.uuid, guest.name, domain_states.PAUSED, domain_states.STARTING_UP, False, False, guest.memory_bytes, guest.vcpus, guest.disks
            )
            twin.dirty_bytes, twin.dirty_rate_bytes = guest.dirty_bytes, guest.dirty_rate_bytes
            self.destination.put(twin)
        return self.destination.domains[self.uuid]

    def _leave_source(self) -> None:
        if self._guest.persistent and "UNDEFINE_SOURCE" not in self.flags:
            self._guest.enter(domain_states.SHUTOFF, "migrated")
        else:
            self.source.remove(self.uuid)
