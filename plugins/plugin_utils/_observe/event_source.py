# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The event source for rulebooks: its options, the presence of each host, the queue of waiting events, and many hosts in one event loop."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import time
import typing as t
from collections.abc import Callable, Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.connection import OPEN_TIMEOUT_SECONDS
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.libvirt_formats import check_uri

from .libvirt_events import EVENTS, HOST_BACK, HOST_GONE, MIGRATION_ITERATION, POST_COPY_FAILED, Event, EventWords, HostLink, LinkReporter, events_lost

_GONE_AFTER_SECONDS = 30
_QUEUE_SIZE = 1000
_KNOWN_OPTIONS = ("hosts", "gone_after_seconds", "queue_size", "events")


class SourceOptions(t.NamedTuple):
    """Checked options.

    :arg hosts: URIs by name in the inventory.
    :arg events: names of the events that are wanted.
    """

    hosts: dict[str, str]
    gone_after_seconds: float
    queue_size: int
    events: frozenset[str]


def parse_options(args: JsonObject) -> SourceOptions:
    """Return the options in a source's arguments. Raises L(InvalidArgument), which names the invalid option."""
    unknown = sorted(set(args) - set(_KNOWN_OPTIONS))
    if unknown:
        raise InvalidArgument(f"The event source libvirt has no option {', '.join(unknown)}.", f"It has: {', '.join(_KNOWN_OPTIONS)}.")
    return SourceOptions(
        _read_hosts(args.get("hosts")),
        _read_number("gone_after_seconds", args.get("gone_after_seconds", _GONE_AFTER_SECONDS), 1),
        int(_read_number("queue_size", args.get("queue_size", _QUEUE_SIZE), 10)),
        _read_events(args.get("events")),
    )


def _read_hosts(hosts: Json) -> dict[str, str]:
    if not isinstance(hosts, Mapping) or not hosts:
        raise InvalidArgument(f"hosts is {hosts!r}.", "Give URIs by the names of hosts, such as {kvm1: qemu+ssh://root@kvm1/system?no_tty=1}.")
    return {str(name): check_uri(uri, f"The URI of {name} in hosts") for name, uri in hosts.items()}


def _read_number(name: str, value: Json, least: int) -> float:
    try:
        number = float(t.cast("float", value))
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    # Values that are not numbers compare as false, too.
    if not least <= number < float("inf"):
        raise InvalidArgument(f"{name} is {value!r}.", f"Give a number, at least {least}.")
    return number


def _read_events(events: Json) -> frozenset[str]:
    if events is None:
        return frozenset(EVENTS)
    if not isinstance(events, list) or not set(map(str, events)) <= set(EVENTS):
        raise InvalidArgument(f"events is {events!r}.", f"Give a list of these: {', '.join(EVENTS)}.")
    return frozenset(map(str, events))


FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0


class Presence:
    """The state of a host, which answers, is silent, or is gone. Each change to gone and back is reported once.

    All times are of one monotonic clock, in seconds.

    :arg gone_after_seconds: the silence after which the host counts as gone.
    :arg now: the start of following; the host counts as heard from until then.
    """

    def __init__(self, gone_after_seconds: float, now: float) -> None:
        self._gone_after = gone_after_seconds
        self._heard_at = now
        self._there = False
        self._is_reported = False
        self._why = "it has not answered yet"
        self._tries = 0
        self._next_try = now

    def note_answer(self, now: float) -> t.Optional[float]:
        """Note an answer; return how many seconds the host was silent if it was reported as gone."""
        silent = now - self._heard_at
        was_reported, self._is_reported = self._is_reported, False
        self._there, self._heard_at, self._tries = True, now, 0
        return silent if was_reported else None

    def note_loss(self, now: float, why: str, silent_seconds: float = 0.0) -> None:
        """Note a lost connection; the next try comes soon.

        :arg silent_seconds: for how long nothing had been heard by then.
        """
        self._there, self._heard_at, self._why = False, now - silent_seconds, why
        self._next_try = now + FIRST_PAUSE_SECONDS

    def note_failed_try(self, now: float, why: str, hanging: int = 0) -> None:
        """Note a failed try to connect; tries become rarer, and even rarer while earlier ones hang.

        :arg hanging: how many tries have never come back.
        """
        self._why = why
        pause = min(FIRST_PAUSE_SECONDS * 2**self._tries, LONGEST_PAUSE_SECONDS) * (1 + hanging)
        self._tries = min(self._tries + 1, 16)
        self._next_try = now + pause

    def wants_to_try(self, now: float) -> bool:
        """Whether it is time to connect."""
        return not self._there and now >= self._next_try

    def report_gone(self, now: float) -> t.Optional[tuple[str, float]]:
        """Return why and for how many seconds the host was silent, if that has to be reported now."""
        silent = now - self._heard_at
        if self._there or self._is_reported or silent < self._gone_after:
            return None
        self._is_reported = True
        return self._why, silent


_LEAST_IMPORTANT = frozenset({MIGRATION_ITERATION})
_MOST_IMPORTANT = frozenset({HOST_GONE, HOST_BACK, POST_COPY_FAILED})


class Backlog:
    """A queue with one reader in one event loop; adding an event never waits.

    :arg size: the maximum number of waiting events.
    :arg clock: returns the time of day as text.
    """

    def __init__(self, size: int, clock: t.Callable[[], str]) -> None:
        self._size = size
        self._clock = clock
        self._waiting: collections.deque[Event] = collections.deque()
        self._lost = 0
        self._there = asyncio.Event()

    def put(self, event: Event) -> None:
        """Add an event; in a full queue, the oldest of the least important ones is dropped."""
        self._waiting.append(event)
        if len(self._waiting) > self._size:
            del self._waiting[self._find_least_important()]
            self._lost += 1
        self._there.set()

    async def get(self) -> Event:
        """Return the next event; after a loss, first the number of lost events. Wait for an event if necessary."""
        await self._there.wait()
        if self._lost:
            lost, self._lost = self._lost, 0
            return events_lost(lost, self._clock())
        event = self._waiting.popleft()
        if not self._waiting:
            self._there.clear()
        return event

    def _find_least_important(self) -> int:
        ranks = [0 if event["event"] in _LEAST_IMPORTANT else 2 if event["event"] in _MOST_IMPORTANT else 1 for event in self._waiting]
        return ranks.index(min(ranks))


_TICK_SECONDS = 0.5
# How long links may take to close their connections; one that hangs is abandoned.
_GOODBYE_SECONDS = 2.0

LinkFactory = Callable[[str, EventWords, LinkReporter], HostLink]


class EventQueue(t.Protocol):
    """The source of events for a rulebook."""

    async def put(self, event: Event) -> None:
        """Deliver an event; waits while the rulebook is busy."""


@dataclasses.dataclass
class _FollowedHost:
    uri: str
    words: EventWords
    presence: Presence
    link: t.Optional[HostLink] = None
    is_connected: bool = False
    begun_at: float = 0.0
    hanging: list[HostLink] = dataclasses.field(default_factory=list)


class HostFollower:
    """Follows the hosts of these options until its task is cancelled.

    :arg make_link: makes the connection to a host.
    """

    def __init__(self, options: SourceOptions, make_link: LinkFactory = HostLink, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._make_link = make_link
        self._clock = clock
        self._backlog = Backlog(options.queue_size, utc_now)
        self._loop = asyncio.get_running_loop()
        self._hosts = [_FollowedHost(uri, EventWords(name, uri, utc_now), Presence(options.gone_after_seconds, clock())) for name, uri in options.hosts.items()]

    async def run(self, queue: EventQueue) -> None:
        """Deliver events until cancelled."""
        try:
            await asyncio.gather(self._tick_on(), self._hand_over(queue))
        finally:
            await self._say_goodbye()

    async def _hand_over(self, queue: EventQueue) -> None:
        while True:
            await queue.put(await self._backlog.get())

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
                seconds = host.presence.note_answer(self._clock())
                if seconds is not None:
                    self._on_event(host.words.host_back(seconds))

    def _on_ended(self, link: HostLink, why: str, silent_seconds: float) -> None:
        for host in self._hosts:
            if host.link is link:
                if host.is_connected:
                    host.presence.note_loss(self._clock(), why, silent_seconds)
                else:
                    host.presence.note_failed_try(self._clock(), why)
                host.link, host.is_connected = None, False

    def _on_event(self, event: Event) -> None:
        if event["event"] in self._options.events:
            self._backlog.put(event)

    async def _tick_on(self) -> None:
        while True:
            for host in self._hosts:
                self._tick_host(host, self._clock())
            await asyncio.sleep(_TICK_SECONDS)

    def _tick_host(self, host: _FollowedHost, now: float) -> None:
        if host.link and not host.is_connected and now - host.begun_at > OPEN_TIMEOUT_SECONDS:
            self._leave_behind(host, host.link, now)
        if host.link is None and host.presence.wants_to_try(now):
            host.link, host.begun_at = self._make_link(host.uri, host.words, self), now
            host.link.start()
        gone = host.presence.report_gone(now)
        if gone:
            self._on_event(host.words.host_gone(*gone))

    def _leave_behind(self, host: _FollowedHost, link: HostLink, now: float) -> None:
        """Abandon an attempt that hangs: libvirt's own call may hang for minutes, or forever."""
        link.stop()
        host.hanging = [one for one in (*host.hanging, link) if one.is_alive()]
        host.presence.note_failed_try(now, f"its libvirt did not answer within {OPEN_TIMEOUT_SECONDS:.0f} s", len(host.hanging))
        host.link = None

    async def _say_goodbye(self) -> None:
        links = [host.link for host in self._hosts if host.link]
        for link in links:
            link.stop()
        until = self._loop.time() + _GOODBYE_SECONDS
        while any(link.is_alive() for link in links) and self._loop.time() < until:
            await asyncio.sleep(0.05)
