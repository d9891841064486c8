# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Events as rulebooks see them: flat dictionaries with words where libvirt has numbers."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._printable import printable

Event = dict[str, t.Any]

HOST_GONE, HOST_BACK, EVENTS_LOST = "host_gone", "host_back", "events_lost"
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
# virDomainState and virDomainPausedReason, virDomainRunningReason: how a domain looks whose post-copy broke while nobody listened.
_POST_COPY_FAILED_STATES = {(3, 13): SOURCE, (1, 11): DESTINATION}

EVENTS = (*(name for name, _details in _LIFECYCLE), JOB_COMPLETED, MIGRATION_ITERATION, POST_COPY_FAILED, HOST_GONE, HOST_BACK)

# What virDomainGetJobStats calls it, what we call it, of a job that has ended.
_FIGURES = (
    ("time_elapsed", "elapsed_ms"),
    ("downtime", "downtime_ms"),
    ("data_total", "data_total_bytes"),
    ("data_processed", "data_processed_bytes"),
    ("memory_iteration", "iteration"),
)
_OPERATIONS = ("unknown", "start", "save", "restore", "migration_in", "migration_out", "snapshot", "snapshot_revert", "dump", "backup", "snapshot_delete")


def _word(words: tuple[str, ...], number: int) -> str:
    """Return the word, or the number of what a newer libvirt may know."""
    return words[number] if 0 <= number < len(words) else str(number)


class Words:
    """Puts what one host tells into words.

    :arg host: its name in the inventory.
    :arg clock: returns the time of day as text.
    """

    def __init__(self, host: str, uri: str, clock: t.Callable[[], str]) -> None:
        self._base = {"host": host, "uri": uri}
        self._clock = clock

    def lifecycle(self, domain: str, uuid: str, number: int, detail: int) -> Event:
        """Return what became of a domain; a broken post-copy is an event of its own, and its detail says which side this host is."""
        name, details = _LIFECYCLE[number] if 0 <= number < len(_LIFECYCLE) else (str(number), ())
        if number in _SIDES and _word(details, detail) == POST_COPY_FAILED:
            return self._event(POST_COPY_FAILED, _SIDES[number], domain, uuid)
        return self._event(name, _word(details, detail), domain, uuid)

    def state(self, domain: str, uuid: str, state: int, reason: int) -> t.Optional[Event]:
        """Return the event that a domain's state stands for: a post-copy that is broken; None for any other."""
        side = _POST_COPY_FAILED_STATES.get((state, reason))
        return self._event(POST_COPY_FAILED, side, domain, uuid) if side else None

    def job_completed(self, domain: str, uuid: str, figures: Mapping[str, t.Any]) -> Event:
        """Return the end of a job that succeeded, with its figures where libvirt gave them."""
        known = {ours: figures[theirs] for theirs, ours in _FIGURES if theirs in figures}
        return self._event(JOB_COMPLETED, _word(_OPERATIONS, int(figures.get("operation", 0))), domain, uuid, **known)

    def iteration(self, domain: str, uuid: str, iteration: int) -> Event:
        """Return that a migration has begun another pass over the domain's memory."""
        return self._event(MIGRATION_ITERATION, "", domain, uuid, iteration=iteration)

    def host_gone(self, why: str, seconds: float) -> Event:
        """Return that nothing was heard from the host for so many seconds."""
        return self._event(HOST_GONE, why, seconds=round(seconds))

    def host_back(self, seconds: float) -> Event:
        """Return that the host is heard from again, after so many seconds."""
        return self._event(HOST_BACK, "", seconds=round(seconds))

    def _event(self, name: str, detail: str, domain: str = "", uuid: str = "", **more: t.Any) -> Event:
        # A name is whatever somebody has called a domain; rulebooks print it.
        return {**self._base, "domain": printable(domain), "uuid": uuid, "event": name, "detail": printable(detail), "time": self._clock(), **more}


def events_lost(count: int, time: str) -> Event:
    """Return that the rulebook was too slow for so many events, which it will not see."""
    return {"host": "", "uri": "", "domain": "", "uuid": "", "event": EVENTS_LOST, "detail": "", "time": time, "count": count}
