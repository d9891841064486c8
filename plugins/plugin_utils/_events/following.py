# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Following many hosts at once, in one event loop: links report to it from their threads, and all that is decided is decided here."""

from __future__ import annotations

import asyncio
import dataclasses
import time
import typing as t
from collections.abc import Callable

from ansible_collections.kvmfleet.migration.plugins.module_utils._hypervisor.connection import OPEN_TIMEOUT_SECONDS
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.clock import utc_now

from .backlog import Backlog
from .link import Link, Reporter
from .options import Options
from .presence import Presence
from .words import Event, Words

_TICK_SECONDS = 0.5
# How long links get to say goodbye to their hosts; one that hangs is left behind.
_GOODBYE_SECONDS = 2.0

MakeLink = Callable[[str, Words, Reporter], Link]


class Queue(t.Protocol):
    """Where a rulebook takes its events from."""

    async def put(self, event: Event) -> None:
        """Hand an event over; waits while the rulebook is busy."""


@dataclasses.dataclass
class _Host:
    uri: str
    words: Words
    presence: Presence
    link: t.Optional[Link] = None
    is_connected: bool = False
    begun_at: float = 0.0
    hanging: list[Link] = dataclasses.field(default_factory=list)


class Following:
    """Follows the hosts of these options until its task is cancelled.

    :arg make_link: makes the connection to a host.
    """

    def __init__(self, options: Options, make_link: MakeLink = Link, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._make_link = make_link
        self._clock = clock
        self._backlog = Backlog(options.queue_size, utc_now)
        self._loop = asyncio.get_running_loop()
        self._hosts = [_Host(uri, Words(name, uri, utc_now), Presence(options.gone_after_seconds, clock())) for name, uri in options.hosts.items()]

    async def run(self, queue: Queue) -> None:
        """Hand events over, for ever."""
        try:
            await asyncio.gather(self._tick_on(), self._hand_over(queue))
        finally:
            await self._say_goodbye()

    async def _hand_over(self, queue: Queue) -> None:
        while True:
            await queue.put(await self._backlog.get())

    # -- what links report, from their threads

    def connected(self, link: Link) -> None:
        """A link is made."""
        self._soon(self._connected, link)

    def event(self, link: Link, event: Event) -> None:
        """Something has happened on a host."""
        self._soon(self._event, event)

    def ended(self, link: Link, why: str, silent_seconds: float) -> None:
        """A link has ended, or could not be made."""
        self._soon(self._ended, link, why, silent_seconds)

    def _soon(self, what: Callable[..., None], *arguments: t.Any) -> None:
        try:
            self._loop.call_soon_threadsafe(what, *arguments)
        except RuntimeError:
            pass  # the loop has ended, and nobody listens any more

    # -- what is decided, in the loop

    def _connected(self, link: Link) -> None:
        for host in self._hosts:
            if host.link is link:
                host.is_connected = True
                seconds = host.presence.heard(self._clock())
                if seconds is not None:
                    self._event(host.words.host_back(seconds))

    def _ended(self, link: Link, why: str, silent_seconds: float) -> None:
        for host in self._hosts:
            if host.link is link:
                if host.is_connected:
                    host.presence.lost(self._clock(), why, silent_seconds)
                else:
                    host.presence.failed(self._clock(), why)
                host.link, host.is_connected = None, False

    def _event(self, event: Event) -> None:
        if event["event"] in self._options.events:
            self._backlog.put(event)

    async def _tick_on(self) -> None:
        while True:
            for host in self._hosts:
                self._tick(host, self._clock())
            await asyncio.sleep(_TICK_SECONDS)

    def _tick(self, host: _Host, now: float) -> None:
        if host.link and not host.is_connected and now - host.begun_at > OPEN_TIMEOUT_SECONDS:
            self._leave_behind(host, host.link, now)
        if host.link is None and host.presence.wants_to_try(now):
            host.link, host.begun_at = self._make_link(host.uri, host.words, self), now
            host.link.start()
        gone = host.presence.gone(now)
        if gone:
            self._event(host.words.host_gone(*gone))

    def _leave_behind(self, host: _Host, link: Link, now: float) -> None:
        """Give up a try that hangs: libvirt's own call may do so for minutes, or for ever."""
        link.stop()
        host.hanging = [one for one in (*host.hanging, link) if one.is_alive()]
        host.presence.failed(now, f"its libvirt did not answer within {OPEN_TIMEOUT_SECONDS:.0f} s", len(host.hanging))
        host.link = None

    async def _say_goodbye(self) -> None:
        links = [host.link for host in self._hosts if host.link]
        for link in links:
            link.stop()
        until = self._loop.time() + _GOODBYE_SECONDS
        while any(link.is_alive() for link in links) and self._loop.time() < until:
            await asyncio.sleep(0.05)
