# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""One read-only connection to one host's libvirt, in a thread of its own: whatever blocks there delays nobody else."""

from __future__ import annotations

import functools
import threading
import typing as t
from collections.abc import Callable

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._hypervisor.connection import KEEPALIVE_COUNT, KEEPALIVE_INTERVAL_SECONDS
from ansible_collections.kvmfleet.migration.plugins.module_utils._hypervisor.errors import libvirt_errors
from ansible_collections.kvmfleet.migration.plugins.module_utils._hypervisor.library import libvirt, start_event_loop

from .words import Event, Words

# virConnectCloseReason
_KEEPALIVE = 2
_REASONS = ("the connection broke", "its libvirt closed the connection", "it stopped answering", "the connection was closed")
KEEPALIVE_SECONDS = KEEPALIVE_INTERVAL_SECONDS * (KEEPALIVE_COUNT + 1)


class Reporter(t.Protocol):
    """Who hears of a link. It is called from threads."""

    def connected(self, link: Link) -> None:
        """The host answers, and events come from now on."""

    def event(self, link: Link, event: Event) -> None:
        """Something has happened there."""

    def ended(self, link: Link, why: str, silent_seconds: float) -> None:
        """The link has ended or was never made; the last word of a link that nobody told to stop."""


class Link(threading.Thread):
    """Connects, listens, and reports until it is told to stop or the connection ends."""

    def __init__(self, uri: str, words: Words, reporter: Reporter) -> None:
        super().__init__(name=f"libvirt {uri}", daemon=True)
        self._uri = uri
        self._words = words
        self._reporter = reporter
        self._over = threading.Event()
        self._stopped = False
        self._reason = 0

    def stop(self) -> None:
        """End soon, and report nothing more. Returns at once, also where the host hangs."""
        self._stopped = True
        self._over.set()

    def run(self) -> None:
        """Report what the host tells."""
        try:
            with libvirt_errors(f"follow the events of libvirt at {self._uri}"):
                self._follow()
        except KvmfleetError as error:
            self._end(error.message, 0.0)
        else:
            self._end(_REASONS[self._reason], float(KEEPALIVE_SECONDS) if self._reason == _KEEPALIVE else 0.0)

    def _end(self, why: str, silent_seconds: float) -> None:
        if not self._stopped:
            self._reporter.ended(self, why, silent_seconds)

    def _follow(self) -> None:
        start_event_loop()
        connection = libvirt().openReadOnly(self._uri)
        callbacks: list[int] = []
        try:
            if self._stopped:
                return
            connection.setKeepAlive(KEEPALIVE_INTERVAL_SECONDS, KEEPALIVE_COUNT)
            connection.registerCloseCallback(self._closed, None)
            callbacks.extend(connection.domainEventRegisterAny(None, number, tell, None) for number, tell in self._listeners())
            # What broke while nobody listened; asked after listening has begun, so that it is told twice rather than never.
            self._look(connection)
            if not self._stopped:
                self._reporter.connected(self)
            self._over.wait()
        finally:
            self._close(connection, callbacks)

    def _look(self, connection: t.Any) -> None:
        binding = libvirt()
        flags = binding.VIR_CONNECT_GET_ALL_DOMAINS_STATS_ACTIVE | binding.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
        for domain, stats in connection.getAllDomainStats(binding.VIR_DOMAIN_STATS_STATE, flags):
            event = self._words.state(domain.name(), domain.UUIDString(), stats.get("state.state", 0), stats.get("state.reason", 0))
            if event:
                self._tell(event)

    def _listeners(self) -> list[tuple[int, Callable[..., None]]]:
        """Return which of libvirt's events are listened to, and what makes words of each. A callback gets connection, domain, details, nothing."""
        binding, words = libvirt(), self._words

        def telling(make: Callable[..., Event]) -> Callable[..., None]:
            return lambda _connection, domain, *details: self._tell(make(domain.name(), domain.UUIDString(), *details[:-1]))

        return [
            (binding.VIR_DOMAIN_EVENT_ID_LIFECYCLE, telling(words.lifecycle)),
            (binding.VIR_DOMAIN_EVENT_ID_JOB_COMPLETED, telling(words.job_completed)),
            (binding.VIR_DOMAIN_EVENT_ID_MIGRATION_ITERATION, telling(words.iteration)),
        ]

    def _tell(self, event: Event) -> None:
        if not self._stopped:
            self._reporter.event(self, event)

    def _closed(self, _connection: t.Any, reason: int, _nothing: t.Any) -> None:
        self._reason = reason if 0 <= reason < len(_REASONS) else 0
        self._over.set()

    def _close(self, connection: t.Any, callbacks: list[int]) -> None:
        """Let go of the connection, which libvirt keeps as long as anything is registered on it."""
        steps = [functools.partial(connection.domainEventDeregisterAny, number) for number in callbacks]
        for step in (*steps, connection.unregisterCloseCallback, connection.close):
            try:
                step()
            except libvirt().libvirtError:
                pass  # of a connection that is broken nothing is left to give back
