# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whose turn it is: which of the moves that wait may begin under the limits of hosts and fleet, first come first served."""

from __future__ import annotations

import collections
import datetime
import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s

from .arrivals import STARTED, instant
from .settings import VARIABLE, SchedulerSettings
from .words import names_text, one_or_many

# A run whose moves wait says so as often as this; one that was not heard from for so long does not keep others waiting.
BEAT_SECONDS = 10.0
SILENT_SECONDS = 30.0
# Key of a record under which its move says that it waits.
TURN = "turn"

MOVES_OUT, MOVES_IN, MOVES_TOTAL = "moves_out", "moves_in", "moves_total"
_ENDS: t.Final[Mapping[str, str]] = {MOVES_OUT: "source", MOVES_IN: "destination"}

Body = Mapping[str, t.Any]
Limits = dict[str, int]
Place = tuple[str, str]


def limits_of(source: SchedulerSettings, destination: SchedulerSettings) -> Limits:
    """Return the limits that a move between these hosts is under, by name. Of two for the whole fleet the smaller one counts."""
    total = [limit for limit in (source.limits.moves_total, destination.limits.moves_total) if limit is not None]
    found = {MOVES_OUT: source.limits.moves_out, MOVES_IN: destination.limits.moves_in, MOVES_TOTAL: min(total, default=None)}
    return {name: limit for name, limit in found.items() if limit is not None}


@dataclass(frozen=True)
class Full:
    """A limit that leaves no room for a move now.

    :arg where: what it is about, for people: C(to kvm2), C(away from kvm1), C(in the fleet).
    :arg moving: names of the domains whose moves have begun there.
    :arg first: names of the domains that have waited longer, and have their turn next.
    """

    name: str
    where: str
    limit: int
    moving: tuple[str, ...]
    first: tuple[str, ...]

    def __str__(self) -> str:
        """Return the sentence for a person who waits."""
        told = [f"{len(self.moving)} {one_or_many(len(self.moving), 'is', 'are')} moving {self.where} ({names_text(self.moving)})"] if self.moving else []
        told += [f"{len(self.first)} {one_or_many(len(self.first), 'has', 'have')} come before ({names_text(self.first)})"] if self.first else []
        return f"{' and '.join(told) or f'no move {self.where} is permitted'}; the limit is {self.limit} ({VARIABLE}.limits.{self.name})"


def what_is_full(records: Iterable[Body], own: Body, limits: Limits, now: datetime.datetime) -> list[Full]:
    """Return the limits for which this move has to wait; none where it is its turn.

    What counts is every live migration that has begun, whoever began it. Those that wait are served in the order in which their records were opened. One that
    could not begin anyhow takes nobody's turn, and so does one whose run has gone silent.

    :arg records: all unsettled ones.
    :arg own: the record of the move that asks.
    :arg limits: that it is under, as L(limits_of) gives them.
    :arg now: with a zone; runs are aged by it.
    """
    known = [record for record in records if record["type"] == s.LIVE_MIGRATION and record["id"] != own["id"]]
    moving: dict[Place, list[str]] = collections.defaultdict(list)
    first: dict[Place, list[str]] = collections.defaultdict(list)
    for record in known:
        if record["status"] in STARTED:
            _count(moving, record)
    for record in sorted((record for record in known if _is_before(record, own, now)), key=_rank):
        if not _full(record, record[TURN]["limits"], moving, first):
            _count(first, record)
    return _full(own, limits, moving, first)


def _full(record: Body, limits: Mapping[str, int], moving: Mapping[Place, Sequence[str]], first: Mapping[Place, Sequence[str]]) -> list[Full]:
    found = []
    for name, place in _places(record).items():
        there, ahead = moving.get(place, ()), first.get(place, ())
        if name in limits and len(there) + len(ahead) >= limits[name]:
            found.append(Full(name, _where(name, record), limits[name], tuple(there), tuple(ahead)))
    return found


def _places(record: Body) -> dict[str, Place]:
    """Return what the move takes one place of, by the name of its limit: a host is known by its own ID, else by libvirt's UUID, else by its name."""
    ends = {name: (name, str(record[end].get("host_id") or record[end].get("host_uuid") or record[end].get("host"))) for name, end in _ENDS.items()}
    return {**ends, MOVES_TOTAL: (MOVES_TOTAL, "")}


def _count(taken: dict[Place, list[str]], record: Body) -> None:
    for place in _places(record).values():
        taken[place].append(str(record["domain"].get("name") or record["domain"]["uuid"]))


def _where(name: str, record: Body) -> str:
    if name == MOVES_TOTAL:
        return "in the fleet"
    return f"{'away from' if name == MOVES_OUT else 'to'} {record[_ENDS[name]].get('host')}"


def _rank(record: Body) -> tuple[str, str]:
    return str(record["created_at"]), str(record["id"])


def _is_before(record: Body, own: Body, now: datetime.datetime) -> bool:
    """Whether it waits for its turn, was opened before, and its run was heard from lately. What was edited into something else waits for nothing."""
    turn = record.get(TURN)
    if record["status"] != s.QUEUED or _rank(record) >= _rank(own) or not isinstance(turn, Mapping):
        return False
    limits, seen_at = turn.get("limits"), instant(turn.get("seen_at"))
    if not isinstance(limits, Mapping) or not all(isinstance(limit, int) for limit in limits.values()):
        return False
    return seen_at is not None and abs((now - seen_at).total_seconds()) <= SILENT_SECONDS
