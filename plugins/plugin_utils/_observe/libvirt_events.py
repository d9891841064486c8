# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Events of the libvirt of one host, from a read-only connection in a thread of its own.

Rulebooks receive them as flat dictionaries, with names instead of libvirt's numbers.
"""

from __future__ import annotations

import functools
import re
import threading
import typing as t
from collections.abc import Callable, Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.connection import (
    KEEPALIVE_COUNT,
    KEEPALIVE_INTERVAL_SECONDS,
    libvirt_binding,
    libvirt_errors,
    start_event_loop,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError, printable_line

Event = JsonObject

HOST_SUSPECT, HOST_ISOLATED, HOST_GONE, HOST_BACK = "host_suspect", "host_isolated", "host_gone", "host_back"
SOURCE_STARTED, EVENTS_LOST = "source_started", "events_lost"
JOB_COMPLETED, MIGRATION_ITERATION, POST_COPY_FAILED = "job_completed", "migration_iteration", "post_copy_failed"
SOURCE, DESTINATION = "source", "destination"

# virDomainEventType, and the details of each: https://libvirt.org/html/libvirt-libvirt-domain.html
_SUSPENDED, _RESUMED = 3, 4
_LIFECYCLE: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("defined", ("added", "updated", "renamed", "from_snapshot")),
    ("undefined", ("removed", "renamed")),
    ("started", ("booted", "migrated", "restored", "from_snapshot", "wakeup")),
    ("suspended", ("paused", "migrated", "io_error", "watchdog", "restored", "from_snapshot", "api_error", "post_copy", POST_COPY_FAILED)),
    ("resumed", ("unpaused", "migrated", "from_snapshot", "post_copy", POST_COPY_FAILED)),
    ("stopped", ("shutdown", "destroyed", "crashed", "migrated", "saved", "failed", "from_snapshot")),
    ("shutdown", ("finished", "guest", "host")),
    ("pmsuspended", ("memory", "disk")),
    ("crashed", ("panicked", "crashloaded")),
)
_SIDES = {_SUSPENDED: SOURCE, _RESUMED: DESTINATION}
# virDomainState and virDomainPausedReason, virDomainRunningReason: the state of a domain whose post-copy broke while no link was listening.
_POST_COPY_FAILED_STATES = {(3, 13): SOURCE, (1, 11): DESTINATION}

EVENTS = (
    *(name for name, _details in _LIFECYCLE),
    *(JOB_COMPLETED, MIGRATION_ITERATION, POST_COPY_FAILED, HOST_SUSPECT, HOST_ISOLATED, HOST_GONE, HOST_BACK, SOURCE_STARTED),
)

# Names of virDomainGetJobStats and of events, for a job that has ended.
_JOB_FIGURES = (
    ("time_elapsed", "elapsed_ms"),
    ("downtime", "downtime_ms"),
    ("data_total", "data_total_bytes"),
    ("data_processed", "data_processed_bytes"),
    ("memory_iteration", "iteration"),
)
_OPERATIONS = ("unknown", "start", "save", "restore", "migration_in", "migration_out", "snapshot", "snapshot_revert", "dump", "backup", "snapshot_delete")


def _word_for(words: tuple[str, ...], number: int) -> str:
    """Return the word, or the number of a value of a newer libvirt."""
    return words[number] if 0 <= number < len(words) else str(number)


class EventWords:
    """Converts the reports of one host to events.

    :arg host: its name in the inventory.
    :arg clock: returns the time of day as text.
    """

    def __init__(self, host: str, uri: str, clock: t.Callable[[], str]) -> None:
        self._base = {"host": host, "uri": uri}
        self._clock = clock

    def lifecycle_event(self, domain: str, uuid: str, number: int, detail: int) -> Event:
        """Return the change of a domain; a failed post-copy is a separate event, and its detail states which side this host is."""
        name, details = _LIFECYCLE[number] if 0 <= number < len(_LIFECYCLE) else (str(number), ())
        if number in _SIDES and _word_for(details, detail) == POST_COPY_FAILED:
            return self._make_event(POST_COPY_FAILED, _SIDES[number], domain, uuid)
        return self._make_event(name, _word_for(details, detail), domain, uuid)

    def state(self, domain: str, uuid: str, state: int, reason: int) -> t.Optional[Event]:
        """Return the event for the state of a domain: a failed post-copy; None for any other state."""
        side = _POST_COPY_FAILED_STATES.get((state, reason))
        return self._make_event(POST_COPY_FAILED, side, domain, uuid) if side else None

    def job_completed(self, domain: str, uuid: str, figures: Mapping[str, int]) -> Event:
        """Return the end of a job that succeeded, with its figures if libvirt reported them."""
        known = {ours: figures[theirs] for theirs, ours in _JOB_FIGURES if theirs in figures}
        return self._make_event(JOB_COMPLETED, _word_for(_OPERATIONS, int(figures.get("operation", 0))), domain, uuid, **known)

    def iteration(self, domain: str, uuid: str, iteration: int) -> Event:
        """Return the event of another iteration of a migration."""
        return self._make_event(MIGRATION_ITERATION, "", domain, uuid, iteration=iteration)

    def host_changed(self, name: str, why: str, seconds: float, facts: JsonObject) -> Event:
        """Return the event of a change of the host.

        :arg name: e.g. L(HOST_GONE).
        :arg seconds: since when it has been so, or for how long it was away.
        :arg facts: further keys of the event.
        """
        return {**self._make_event(name, why, seconds=round(seconds)), **{key: _plain_value(value) for key, value in facts.items()}}

    def _make_event(self, name: str, detail: str, domain: str = "", uuid: str = "", **more: Json) -> Event:
        texts = {"domain": _plain_line(domain), "uuid": uuid, "event": name, "detail": _plain_line(detail)}
        return {**self._base, **texts, "time": self._clock(), **more}


def _plain_line(text: str) -> str:
    """Return a text that a host or an owner of a guest has chosen as one line without the beginning of a template: extra variables are templates to Ansible."""
    return _TEMPLATE_BEGINS.sub("{ ", printable_line(text))


def _plain_value(value: Json) -> Json:
    """Return a value, or a dictionary of values, with plain lines."""
    if isinstance(value, Mapping):
        return {key: _plain_value(one) for key, one in value.items()}
    return _plain_line(value) if isinstance(value, str) else value


_TEMPLATE_BEGINS = re.compile(r"\{(?=[{%#])")


_NOBODY: JsonObject = {"host": "", "uri": "", "domain": "", "uuid": ""}


def events_lost(count: int, time: str) -> Event:
    """Return the event of lost events: the rulebook was too slow for that number of events."""
    return {**_NOBODY, "event": EVENTS_LOST, "detail": "", "time": time, "count": count}


def source_started(hosts: Sequence[str], by: str, time: str) -> Event:
    """Return the first event of a source, which follows these hosts."""
    return {**_NOBODY, "event": SOURCE_STARTED, "detail": "", "time": time, "hosts": list(hosts), "by": by}


# virConnectCloseReason
_CLOSED_BY_KEEPALIVE = 2
_CLOSE_REASONS = ("the connection broke", "its libvirt closed the connection", "it stopped answering", "the connection was closed")
KEEPALIVE_SECONDS = KEEPALIVE_INTERVAL_SECONDS * (KEEPALIVE_COUNT + 1)


class EventDomain(t.Protocol):
    """A domain in an event, as libvirt's binding has it."""

    def name(self) -> str:
        """Return its name."""

    def UUIDString(self) -> str:
        """Return its UUID."""


class EventConnection(t.Protocol):
    """What a link uses of a connection of libvirt's binding."""

    def getAllDomainStats(self, stats: int, flags: int) -> list[tuple[EventDomain, Mapping[str, int]]]:
        """Return the statistics of all domains."""

    def domainEventDeregisterAny(self, callbackID: int) -> None:
        """End a callback."""

    def unregisterCloseCallback(self) -> int:
        """End the callback for the end of the connection."""

    def close(self) -> int:
        """Close the connection."""


class LinkReporter(t.Protocol):
    """Receives the reports of a link. It is called from threads."""

    def connected(self, link: HostLink) -> None:
        """The host answers, and its events are reported from now on."""

    def event(self, link: HostLink, event: Event) -> None:
        """An event of the host has arrived."""

    def ended(self, link: HostLink, why: str, silent_seconds: float) -> None:
        """The link has ended or was never made; the last report of a link that was not stopped."""


class HostLink(threading.Thread):
    """Connects, listens, and reports until it is stopped or the connection ends."""

    def __init__(self, uri: str, words: EventWords, reporter: LinkReporter) -> None:
        super().__init__(name=f"libvirt {uri}", daemon=True)
        self._uri = uri
        self._words = words
        self._reporter = reporter
        self._over = threading.Event()
        self._stopped = False
        self._reason = 0

    def stop(self) -> None:
        """Stop soon, and report nothing more. Returns at once, even if the host hangs."""
        self._stopped = True
        self._over.set()

    def run(self) -> None:
        """Report the events of the host."""
        try:
            with libvirt_errors(f"follow the events of libvirt at {self._uri}"):
                self._follow_events()
        except KvmfleetError as error:
            self._report_end(error.message, 0.0)
        else:
            self._report_end(_CLOSE_REASONS[self._reason], float(KEEPALIVE_SECONDS) if self._reason == _CLOSED_BY_KEEPALIVE else 0.0)

    def _report_end(self, why: str, silent_seconds: float) -> None:
        if not self._stopped:
            self._reporter.ended(self, why, silent_seconds)

    def _follow_events(self) -> None:
        start_event_loop()
        connection = libvirt_binding().openReadOnly(self._uri)
        callbacks: list[int] = []
        try:
            if self._stopped:
                return
            connection.setKeepAlive(KEEPALIVE_INTERVAL_SECONDS, KEEPALIVE_COUNT)
            connection.registerCloseCallback(self._on_close, None)
            callbacks.extend(connection.domainEventRegisterAny(None, number, tell, None) for number, tell in self._make_listeners())
            # A post-copy may have failed while no link was listening. It is queried after listening has begun, so that it is reported twice rather than never.
            self._probe_domains(connection)
            if not self._stopped:
                self._reporter.connected(self)
            self._over.wait()
        finally:
            self._close_connection(connection, callbacks)

    def _probe_domains(self, connection: EventConnection) -> None:
        binding = libvirt_binding()
        flags = binding.VIR_CONNECT_GET_ALL_DOMAINS_STATS_ACTIVE | binding.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
        for domain, stats in connection.getAllDomainStats(binding.VIR_DOMAIN_STATS_STATE, flags):
            event = self._words.state(domain.name(), domain.UUIDString(), stats.get("state.state", 0), stats.get("state.reason", 0))
            if event:
                self._report_event(event)

    def _make_listeners(self) -> list[tuple[int, Callable[..., None]]]:
        """Return the libvirt events to listen to, with the function that converts each. A callback gets connection, domain, details, nothing."""
        binding, words = libvirt_binding(), self._words

        def telling(make: Callable[..., Event]) -> Callable[..., None]:
            return lambda _connection, domain, *details: self._report_event(make(domain.name(), domain.UUIDString(), *details[:-1]))

        return [
            (binding.VIR_DOMAIN_EVENT_ID_LIFECYCLE, telling(words.lifecycle_event)),
            (binding.VIR_DOMAIN_EVENT_ID_JOB_COMPLETED, telling(words.job_completed)),
            (binding.VIR_DOMAIN_EVENT_ID_MIGRATION_ITERATION, telling(words.iteration)),
        ]

    def _report_event(self, event: Event) -> None:
        if not self._stopped:
            self._reporter.event(self, event)

    def _on_close(self, _connection: EventConnection, reason: int, _nothing: None) -> None:
        self._reason = reason if 0 <= reason < len(_CLOSE_REASONS) else 0
        self._over.set()

    def _close_connection(self, connection: EventConnection, callbacks: list[int]) -> None:
        """Close the connection, which libvirt keeps open as long as a callback is registered on it."""
        steps: list[Callable[[], int | None]] = [functools.partial(connection.domainEventDeregisterAny, number) for number in callbacks]
        for step in (*steps, connection.unregisterCloseCallback, connection.close):
            try:
                step()
            except libvirt_binding().libvirtError:
                pass  # A broken connection has nothing to release.
