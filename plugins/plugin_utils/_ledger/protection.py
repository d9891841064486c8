# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""How old the protection of hosts is: one rule for the screen of the fleet, its check and its metrics."""

from __future__ import annotations

import datetime
import typing as t
from collections.abc import Iterable

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import parse_timestamp
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import ENABLED

from .documents import HostEntry

# The clocks of control nodes may differ by so much. What lies further ahead was written with a wrong clock, and may be of any age.
_CLOCK_TOLERANCE = datetime.timedelta(minutes=1)


def is_ahead(at: str) -> bool:
    """Whether the time is in the future, so that nobody knows when it was written."""
    then = parse_timestamp(at)
    return then is not None and then > datetime.datetime.now(datetime.UTC) + _CLOCK_TOLERANCE


def protect_time(entry: HostEntry) -> t.Optional[datetime.datetime]:
    """Return when the host was protected last; null if it never was, and if that is not known because a clock was wrong."""
    at = _protected_at(entry)
    return None if is_ahead(at) else parse_timestamp(at)


def _protected_at(entry: HostEntry) -> str:
    return (entry.protected and entry.protected.at) or ""


def is_protected_ahead(entry: HostEntry) -> bool:
    """Whether the time at which the host was protected last is in the future."""
    return is_ahead(_protected_at(entry))


def protected_hours(entry: HostEntry) -> t.Optional[int]:
    """Return how many full hours ago the host was protected last; null as in L(protect_time)."""
    then = protect_time(entry)
    return None if then is None else max(0, int((datetime.datetime.now(datetime.UTC) - then).total_seconds()) // 3600)


class HostProtections(t.NamedTuple):
    """The protection of hosts in service. A host that is off, or that a person works on, is not counted: it may be impossible to protect.

    :arg known: those with a time.
    :arg never: those that were never protected.
    :arg ahead: those whose time is in the future.
    """

    known: list[HostEntry]
    never: list[HostEntry]
    ahead: list[HostEntry]


def sort_protections(entries: Iterable[HostEntry]) -> HostProtections:
    """Return the hosts in service by what is known of their protection.

    :arg entries: with the times at which they were protected last.
    """
    found = HostProtections([], [], [])
    for entry in entries:
        if entry.state == ENABLED:
            group = found.known if protect_time(entry) else found.ahead if is_protected_ahead(entry) else found.never
            group.append(entry)
    return found


def ahead_text(entry: HostEntry) -> str:
    """Return what is wrong with the protection of a host whose time is in the future."""
    return f"{entry.name}: protected at {_protected_at(entry)}, which is in the future: a clock was wrong, so its age is not known."
