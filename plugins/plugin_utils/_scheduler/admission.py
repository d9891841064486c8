# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Admission of moves: which of the waiting moves may start under the limits of hosts and fleet, in the order in which their records were opened."""

from __future__ import annotations

import collections
import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import parse_timestamp
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Turn
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef

from .._ledger.rules import holds_domain
from .._settings.scheduler import SCHEDULER_VARIABLE, SchedulerSettings
from .filters.base import names_text, one_or_many
from .guests import STARTED_STATUSES

# How often a run with waiting moves reports; a run that is silent for the longer time does not block others.
HEARTBEAT_SECONDS = 10.0
SILENT_SECONDS = 30.0

MOVES_OUT, MOVES_IN, MOVES_TOTAL = "moves_out", "moves_in", "moves_total"

MoveLimits = dict[str, int]
Slot = tuple[str, str]


def limits_between(source: SchedulerSettings, destination: SchedulerSettings) -> MoveLimits:
    """Return the limits of a move between these hosts, by name. Of two limits for the whole fleet, the smaller one counts."""
    total = [limit for limit in (source.limits.moves_total, destination.limits.moves_total) if limit is not None]
    found = {MOVES_OUT: source.move_limits.moves_out, MOVES_IN: destination.move_limits.moves_in, MOVES_TOTAL: min(total, default=None)}
    return {name: limit for name, limit in found.items() if limit is not None}


@dataclass(frozen=True)
class FullLimit:
    """A limit that admits no further move now.

    :arg where: its scope, for people: C(to kvm2), C(away from kvm1), C(in the fleet).
    :arg moving: names of the domains whose moves have begun within this scope.
    :arg first: names of the domains that have waited longer and come first.
    """

    name: str
    where: str
    limit: int
    moving: tuple[str, ...]
    first: tuple[str, ...]

    def __str__(self) -> str:
        """Return the reason as a sentence for the operator."""
        reasons = [f"{len(self.moving)} {one_or_many(len(self.moving), 'is', 'are')} moving {self.where} ({names_text(self.moving)})"] if self.moving else []
        reasons += [f"{len(self.first)} {one_or_many(len(self.first), 'is', 'are')} queued before it ({names_text(self.first)})"] if self.first else []
        return f"{' and '.join(reasons) or f'no move {self.where} is permitted'}; the limit is {self.limit} ({SCHEDULER_VARIABLE}.limits.{self.name})"


def find_full_limits(records: Iterable[MoveRecord], own: MoveRecord, limits: MoveLimits, now: datetime.datetime) -> list[FullLimit]:
    """Return the limits for which this move has to wait; none if it may begin.

    Every live migration that has begun counts, whoever started it, unless an evacuation has superseded it. Waiting moves are admitted in the order in which
    their records were opened. A move that could not begin anyway does not block others, and neither does one whose run is silent.

    :arg records: all unsettled ones.
    :arg own: the record of the move.
    :arg limits: the limits for the move, see L(limits_between).
    :arg now: the time with its zone, by which the age of reports is determined.
    """
    known = [record for record in records if record.type == s.LIVE_MIGRATION and record.id != own.id and holds_domain(record)]
    moving: dict[Slot, list[str]] = collections.defaultdict(list)
    first: dict[Slot, list[str]] = collections.defaultdict(list)
    for record in known:
        if record.status in STARTED_STATUSES:
            _count_move(moving, record)
    for record, turn in sorted(_waiting_before(known, own, now), key=lambda waiting: _opening_order(waiting[0])):
        if not _full_limits(record, turn.limits, moving, first):
            _count_move(first, record)
    return _full_limits(own, limits, moving, first)


def _full_limits(record: MoveRecord, limits: Mapping[str, int], moving: Mapping[Slot, Sequence[str]], first: Mapping[Slot, Sequence[str]]) -> list[FullLimit]:
    found = []
    for name, slot in _slots_of(record).items():
        there, ahead = moving.get(slot, ()), first.get(slot, ())
        if name in limits and len(there) + len(ahead) >= limits[name]:
            found.append(FullLimit(name, _where_text(name, record), limits[name], tuple(there), tuple(ahead)))
    return found


def _slots_of(record: MoveRecord) -> dict[str, Slot]:
    """Return the slots of the move, by the names of their limits. A host is identified by its own ID, else by libvirt's UUID, else by its name."""
    return {
        MOVES_OUT: (MOVES_OUT, _key_of(record.source)),
        MOVES_IN: (MOVES_IN, _key_of(record.destination)),
        MOVES_TOTAL: (MOVES_TOTAL, ""),
    }


def _key_of(host: HostRef) -> str:
    return str(host.host_id or host.host_uuid or host.host)


def _count_move(taken: dict[Slot, list[str]], record: MoveRecord) -> None:
    for slot in _slots_of(record).values():
        taken[slot].append(record.domain.name or record.domain.uuid)


def _where_text(name: str, record: MoveRecord) -> str:
    if name == MOVES_TOTAL:
        return "in the fleet"
    return f"away from {record.source.host}" if name == MOVES_OUT else f"to {record.destination.host}"


def _opening_order(record: MoveRecord) -> tuple[str, str]:
    return record.created_at, str(record.id)


def _waiting_before(records: Iterable[MoveRecord], own: MoveRecord, now: datetime.datetime) -> Iterator[tuple[MoveRecord, Turn]]:
    """Yield the moves that wait for admission, were opened before, and whose run is alive."""
    for record in records:
        if record.status == s.QUEUED and _opening_order(record) < _opening_order(own) and record.turn and _is_heard(record.turn, now):
            yield record, record.turn


def _is_heard(turn: Turn, now: datetime.datetime) -> bool:
    seen_at = parse_timestamp(turn.seen_at)
    return seen_at is not None and abs((now - seen_at).total_seconds()) <= SILENT_SECONDS
