# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Who may act on which host now: at most so many hosts within a window of time. Decisions alone; the clock and the file are elsewhere."""

from __future__ import annotations

import dataclasses
import datetime
import typing as t
from collections.abc import Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._printable import printable

# What is older is forgotten, so that the file stays small.
LONGEST_WINDOW_MINUTES = 31 * 24 * 60


class Place(t.NamedTuple):
    """That a reaction has acted on a host.

    :arg at: when, in UTC.
    """

    reaction: str
    host: str
    at: datetime.datetime

    def as_dict(self) -> dict[str, str]:
        """Return it as the file and the task's result have it."""
        return {"reaction": self.reaction, "host": self.host, "at": self.at.isoformat(timespec="milliseconds").replace("+00:00", "Z")}


@dataclasses.dataclass(frozen=True)
class Wish:
    """What somebody wants to do.

    :arg hosts: on how many different hosts the reaction may act within the window, this one included.
    """

    reaction: str
    host: str
    hosts: int
    window_minutes: int

    def __post_init__(self) -> None:
        """Raise L(InvalidArgument) for what can be no limit, and for names that nobody could read in a message."""
        for name in ("host", "reaction"):
            value = getattr(self, name)
            if not value.strip() or not value.isprintable():
                raise InvalidArgument(f"{name} is {value!r}.", "Give a name. Nothing was changed.")
        if self.hosts < 1:
            raise InvalidArgument(f"hosts is {self.hosts}.", "Give at least 1; to let nothing act, make the file that disarms. Nothing was changed.")
        if not 1 <= self.window_minutes <= LONGEST_WINDOW_MINUTES:
            raise InvalidArgument(f"window_minutes is {self.window_minutes}.", f"Give 1 to {LONGEST_WINDOW_MINUTES}. Nothing was changed.")


def counted(places: Sequence[Place], wish: Wish, now: datetime.datetime) -> list[Place]:
    """Return the places of this reaction that count in the window. One of the future counts, too: a clock that was set back frees nothing."""
    since = now - datetime.timedelta(minutes=wish.window_minutes)
    return [place for place in places if place.reaction == wish.reaction and place.at > since]


def taken(places: Sequence[Place], wish: Wish, now: datetime.datetime) -> list[Place]:
    """Return the places with one for this host. A host that has one keeps that, and its time: what was broken off is gone on with.

    Raises L(Conflict) where there is none left.
    """
    within = counted(places, wish, now)
    if any(place.host == wish.host for place in within):
        return list(places)
    others = {place.host for place in within}
    if len(others) >= wish.hosts:
        free = max(min(place.at for place in within) + datetime.timedelta(minutes=wish.window_minutes), now)
        raise Conflict(
            f"The brake holds: '{wish.reaction}' has acted on {', '.join(sorted(map(printable, others)))} within {wish.window_minutes} minutes, "
            f"and may act on {wish.hosts} host{'s' if wish.hosts > 1 else ''} in that time. Nothing was done for {wish.host}.",
            f"See what is wrong with the fleet, and do by hand what has to be done for {wish.host}; the brake lets go at {free:%Y-%m-%d %H:%M} UTC.",
        )
    young = now - datetime.timedelta(minutes=LONGEST_WINDOW_MINUTES)
    kept = [place for place in places if place.at > young and (place.reaction, place.host) != (wish.reaction, wish.host)]
    return [*kept, Place(wish.reaction, wish.host, now)]


def released(places: Sequence[Place], wish: Wish) -> list[Place]:
    """Return the places without this host's."""
    return [place for place in places if (place.reaction, place.host) != (wish.reaction, wish.host)]
