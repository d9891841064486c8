# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The event source for rulebooks: many hosts in one event loop, when to connect to each of them, and which of their changes are reported."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
import typing as t
from collections.abc import Callable, Coroutine

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.connection import OPEN_TIMEOUT_SECONDS
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_before, utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject

from .._ledger.ledger import describe_process
from .detection import GONE, ISOLATED, SECOND_ADDRESS, SSH, SUSPECT, UP, Change, HostDetection
from .event_backlog import Backlog
from .event_options import SourceOptions
from .libvirt_events import (
    HOST_BACK,
    HOST_GONE,
    HOST_ISOLATED,
    HOST_SUSPECT,
    Event,
    EventWords,
    HostLink,
    LinkReporter,
    source_started,
)
from .signs_of_life import PROBE_SECONDS, LeasesByName, LedgerServices, ProbeAnswer, probe_port

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
# While a host boots. With a try that hangs, well below the time after which a host that was gone is isolated.
_RETURN_PAUSE_SECONDS = 5.0


_LOG = logging.getLogger("kvmfleet.migration.libvirt")


class Retries:
    """When to try to connect to a host again. All times are of one monotonic clock, in seconds."""

    def __init__(self, now: float) -> None:
        self._there = False
        self._tries = 0
        self._next_try = now

    def note_answer(self) -> None:
        """Note a connection."""
        self._there, self._tries = True, 0

    def note_loss(self, now: float) -> None:
        """Note a lost connection; the next try comes soon."""
        self._there, self._next_try = False, now + FIRST_PAUSE_SECONDS

    def note_failed_try(self, now: float, hanging: int = 0) -> None:
        """Note a failed try to connect; tries become rarer, and even rarer while earlier ones hang.

        :arg hanging: how many tries have never come back.
        """
        pause = min(FIRST_PAUSE_SECONDS * 2**self._tries, LONGEST_PAUSE_SECONDS) * (1 + hanging)
        self._tries = min(self._tries + 1, 16)
        self._next_try = now + pause

    def note_return(self, now: float) -> None:
        """Note that the host is returning: the next try comes soon, however many have failed while it was away."""
        self._next_try = min(self._next_try, now + _RETURN_PAUSE_SECONDS)

    def wants_to_try(self, now: float) -> bool:
        """Whether it is time to connect."""
        return not self._there and now >= self._next_try


_TICK_SECONDS = 0.5
# Since a tick that is longer ago, nobody has watched: the process was stopped, or the control node was.
_STALLED_SECONDS = 5.0
# How long links may take to close their connections; one that hangs is abandoned.
_GOODBYE_SECONDS = 2.0
# Leases that were not read for so long say nothing.
_UNREAD_SECONDS = 10.0
_EVENT_NAMES = {UP: HOST_BACK, SUSPECT: HOST_SUSPECT, ISOLATED: HOST_ISOLATED, GONE: HOST_GONE}

LinkFactory = Callable[[str, EventWords, LinkReporter], HostLink]
Probe = Callable[[str, int], Coroutine[t.Any, t.Any, ProbeAnswer]]


class EventQueue(t.Protocol):
    """The source of events for a rulebook."""

    async def put(self, event: Event) -> None:
        """Deliver an event; waits while the rulebook is busy."""


@dataclass
class _FollowedHost:
    name: str
    uri: str
    words: EventWords
    detection: HostDetection
    retries: Retries
    link: t.Optional[HostLink] = None
    is_connected: bool = False
    begun_at: float = 0.0
    hanging: list[HostLink] = dataclasses.field(default_factory=list)
    probe: t.Optional[asyncio.Task[None]] = None
    probed_at: float = float("-inf")


class HostFollower:
    """Follows the hosts of these options until its task is cancelled.

    :arg make_link: makes the connection to a host.
    :arg services: of the ledger; None for what the options say.
    """

    def __init__(
        self,
        options: SourceOptions,
        make_link: LinkFactory = HostLink,
        clock: Callable[[], float] = time.monotonic,
        services: t.Optional[LedgerServices] = None,
        probe: Probe = probe_port,
    ) -> None:
        self._options = options
        self._make_link = make_link
        self._clock = clock
        self._probe = probe
        self._backlog = Backlog(options.queue_size, utc_now)
        self._loop = asyncio.get_running_loop()
        self._services = services or (LedgerServices(options.etcd, options.election, self.note_leases) if options.etcd else None)
        self._leads = False
        self._read_at = self._ticked_at = clock()
        self._by = describe_process()
        self._hosts = [self._make_host(name, uri) for name, uri in options.hosts.items()]

    def _make_host(self, name: str, uri: str) -> _FollowedHost:
        now = self._clock()
        return _FollowedHost(name, uri, EventWords(name, uri, utc_now), HostDetection(self._options.gone_after_seconds, now), Retries(now))

    async def run(self, queue: EventQueue) -> None:
        """Deliver events until cancelled."""
        self._on_event(source_started([host.name for host in self._hosts], self._by, utc_now()))
        if self._services:
            self._services.start()
        try:
            await asyncio.gather(self._tick_on(), self._hand_over(queue))
        finally:
            await self._say_goodbye()

    async def _hand_over(self, queue: EventQueue) -> None:
        while True:
            event = await self._backlog.get()
            if self._is_still_true(event):
                await queue.put(event)

    def _is_still_true(self, event: Event) -> bool:
        """Whether the event may be delivered: while the rulebook was busy, the lock may have been lost, and a host that was gone may have answered."""
        if event["event"] not in _EVENT_NAMES.values():
            return True
        is_gone = any(host.name == event["host"] and host.detection.state == GONE for host in self._hosts)
        return self._is_leader() and (event["event"] != HOST_GONE or is_gone)

    def _is_leader(self) -> bool:
        return self._services is None or self._services.is_leader

    # -- what links report, from their threads

    def connected(self, link: HostLink) -> None:
        """A link is connected."""
        self._call_soon(lambda: self._on_connected(link))

    def event(self, link: HostLink, event: Event) -> None:
        """Something has happened on a host."""
        self._call_soon(lambda: self._on_event(event))

    def ended(self, link: HostLink, why: str, silent_seconds: float) -> None:
        """A link has ended, or could not be connected."""
        self._call_soon(lambda: self._on_ended(link, why, silent_seconds))

    def note_leases(self, leases: LeasesByName) -> None:
        """The leases of all hosts were read."""
        self._call_soon(lambda: self._on_leases(leases))

    def _call_soon(self, act: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(act)
        except RuntimeError:
            pass  # The loop has ended, and nothing listens any more.

    # -- what is decided, in the loop

    def _on_connected(self, link: HostLink) -> None:
        for host in self._hosts:
            if host.link is link:
                host.is_connected = True
                host.retries.note_answer()
                host.detection.note_connection(self._clock())
                self._judge_host(host, self._clock())

    def _on_ended(self, link: HostLink, why: str, silent_seconds: float) -> None:
        for host in self._hosts:
            if host.link is link:
                now = self._clock()
                if host.is_connected:
                    host.retries.note_loss(now)
                    host.detection.note_loss(now, why, silent_seconds)
                else:
                    host.retries.note_failed_try(now)
                    host.detection.note_failed_try(why)
                host.link, host.is_connected = None, False

    def _on_leases(self, leases: LeasesByName) -> None:
        now = self._clock()
        if now - self._read_at >= _UNREAD_SECONDS:
            self._forget_leases()
        self._read_at = now
        for host in self._hosts:
            seen = leases.get(host.name)
            if seen:
                host.detection.note_lease(seen.revision, seen.lease.lease_seconds, seen.lease.renew_seconds, now)
            else:
                host.detection.forget_lease()

    def _forget_leases(self) -> None:
        for host in self._hosts:
            host.detection.forget_lease()

    def _on_event(self, event: Event) -> None:
        if event["event"] in self._options.events:
            self._backlog.put(event)

    async def _tick_on(self) -> None:
        while True:
            now = self._clock()
            self._skip_stall(now)
            if now - self._read_at >= _UNREAD_SECONDS:
                self._forget_leases()
            self._follow_leadership(now)
            for host in self._hosts:
                self._tick_host(host, now)
            await asyncio.sleep(_TICK_SECONDS)

    def _skip_stall(self, now: float) -> None:
        """Keep the time in which nobody watched from being taken for silence of the hosts."""
        seconds, self._ticked_at = now - self._ticked_at, now
        if seconds <= _STALLED_SECONDS:
            return
        _LOG.warning("The event source did not run for %.0f s. This time does not count as silence of a host.", seconds)
        self._read_at = min(self._read_at + seconds, now)
        for host in self._hosts:
            host.detection.skip_time(seconds, now)
            host.begun_at += seconds

    def _follow_leadership(self, now: float) -> None:
        """Report again which hosts are gone, or have lately returned, once this source leads: the one before may have died while its rulebook handled them."""
        led, self._leads = self._leads, self._is_leader()
        if self._leads and not led:
            for host in self._hosts:
                change = host.detection.report_again(now)
                if change:
                    self._report_change(host, change, now)

    def _tick_host(self, host: _FollowedHost, now: float) -> None:
        if host.link and not host.is_connected and now - host.begun_at > OPEN_TIMEOUT_SECONDS:
            self._leave_behind(host, host.link, now)
        if host.detection.is_returning:
            host.retries.note_return(now)
        if host.link is None and host.retries.wants_to_try(now):
            host.link, host.begun_at = self._make_link(host.uri, host.words, self), now
            host.link.start()
        self._probe_host(host, now)
        self._judge_host(host, now)

    def _judge_host(self, host: _FollowedHost, now: float) -> None:
        change = host.detection.judge(now)
        # Asked again: the lock may have been lost since the last tick.
        if change and self._is_leader():
            self._report_change(host, change, now)

    def _report_change(self, host: _FollowedHost, change: Change, now: float) -> None:
        detection = host.detection
        signs = f"; but {detection.describe_signs_of_life(now)}" if change.state == ISOLATED else ""
        facts: JsonObject = {
            "was": change.was,
            "silent": [other.name for other in self._hosts if other.detection.is_silent(now)],
            "silent_since": utc_before(round(change.seconds * 1000)),
            "signals": detection.describe_signals(now),
            "by": self._by,
        }
        self._on_event(host.words.host_changed(_EVENT_NAMES[change.state], "" if change.state == UP else f"{detection.why}{signs}", change.seconds, facts))

    def _leave_behind(self, host: _FollowedHost, link: HostLink, now: float) -> None:
        """Abandon an attempt that hangs: libvirt's own call may hang for minutes, or forever."""
        link.stop()
        host.hanging = [one for one in (*host.hanging, link) if one.is_alive()]
        host.retries.note_failed_try(now, len(host.hanging))
        host.detection.note_failed_try(f"its libvirt did not answer within {OPEN_TIMEOUT_SECONDS:.0f} s")
        host.link = None

    def _probe_host(self, host: _FollowedHost, now: float) -> None:
        ports = [(path, given[host.name]) for path, given in self._probed_paths() if host.name in given]
        if ports and host.detection.wants_probes and host.probe is None and now - host.probed_at >= PROBE_SECONDS:
            host.probe, host.probed_at = self._loop.create_task(self._probe_ports(host, ports)), now

    def _probed_paths(self) -> tuple[tuple[str, dict[str, tuple[str, int]]], ...]:
        return (SSH, self._options.ssh_ports), (SECOND_ADDRESS, self._options.second_addresses)

    async def _probe_ports(self, host: _FollowedHost, ports: list[tuple[str, tuple[str, int]]]) -> None:
        try:
            for path, (address, port) in ports:
                answer = await (self._probe)(address, port)
                now = self._clock()
                host.detection.note_probe(path, now if answer.answers else None, answer.says)
        finally:
            host.probe = None

    async def _say_goodbye(self) -> None:
        if self._services:
            self._services.stop()
        links = [host.link for host in self._hosts if host.link]
        for link in links:
            link.stop()
        ending: list[HostLink | LedgerServices] = [*links, *([self._services] if self._services else [])]
        until = self._loop.time() + _GOODBYE_SECONDS
        while any(one.is_alive() for one in ending) and self._loop.time() < until:
            await asyncio.sleep(0.05)
