# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""How many sources send to a destination now, from the open records of the ledger. The watcher shares the link into that host accordingly."""

from __future__ import annotations

import datetime
import time
import typing as t
from collections.abc import Callable, Iterable, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import parse_timestamp
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.guests import STARTED_STATUSES

COUNT_SECONDS = 5.0
# A ledger that cannot be read is waited for, and the source gets no heartbeat meanwhile.
RETRY_SECONDS = 120.0
# A record is written when its status changes. One that has not changed for longer may be that of a move whose control node is dead: it takes no share then.
COUNTED_SECONDS = 900.0


def _utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


class SharedLinks:
    """The sources that send to the destinations of one run.

    :arg clock: monotonic, in seconds.
    :arg now: the time with its zone, to judge the age of records.
    """

    def __init__(self, ledger: Ledger, clock: Callable[[], float] = time.monotonic, now: Callable[[], datetime.datetime] = _utc_now) -> None:
        self._ledger = ledger
        self._clock = clock
        self._now = now
        self._count_at = 0.0
        self._sources: dict[str, int] = {}

    def count_sources(self, moves: Sequence[MoveRecord]) -> dict[str, int]:
        """Return the number of sources by libvirt URI of the destination; empty as long as this run has had no link with others.

        The ledger is read every C(COUNT_SECONDS); if it cannot be read, the last numbers hold, and it is read again after C(RETRY_SECONDS).

        :arg moves: the open moves of this run.
        """
        now = self._clock()
        if now >= self._count_at:
            self._count_at = now + COUNT_SECONDS
            try:
                found = count_sources(moves, self._ledger.list_records(unsettled_only=True), self._now())
            except KvmfleetError:
                self._count_at = self._clock() + RETRY_SECONDS
                return self._sources
            # A number that has been told is taken back as 1, and not left out.
            self._sources = found if self._sources or any(number > 1 for number in found.values()) else {}
        return self._sources


def count_sources(moves: Sequence[MoveRecord], records: Iterable[MoveRecord], now: datetime.datetime) -> dict[str, int]:
    """Return, by URI of each destination of these moves, how many runs send memory to it: this one, and one for each other source or run.

    :arg moves: the open moves of this run, all from one source.
    :arg records: the open records of the fleet.
    """
    own_ids = {move.id for move in moves}
    others = [record for record in records if record.id not in own_ids and _is_sending(record, now)]
    found: dict[str, int] = {}
    for move in moves:
        uri = move.connection.destination_uri if move.connection else None
        if uri and uri not in found:
            found[str(uri)] = 1 + len(_sources_to(move, others))
    return found


def _sources_to(move: MoveRecord, others: Iterable[MoveRecord]) -> set[t.Optional[str]]:
    """Return the sources of other moves to the same host; those from our own source, which another run moves, count once."""
    return {record.source.host_uuid or record.source.host for record in others if record.destination.is_same(move.destination)}


def _is_sending(record: MoveRecord, now: datetime.datetime) -> bool:
    if record.status not in STARTED_STATUSES or record.type != s.LIVE_MIGRATION:
        return False
    changed_at = parse_timestamp(record.updated_at)
    return changed_at is not None and (now - changed_at).total_seconds() <= COUNTED_SECONDS
