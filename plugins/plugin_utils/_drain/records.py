# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The records by which a drain knows which domains are moving, and which have moved lately."""

from __future__ import annotations

import datetime

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import clock
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord

from .._ledger.ledger import Ledger
from .._ledger.query import Conditions, read_records
from .._ledger.rules import holds_domain
from .answers import MAX_AGE_SECONDS

_CLOCKS_DIFFER_SECONDS = 60
# Ended moves are read from further back than facts can be fresh, because another control node with another clock may have written them.
ENDED_SECONDS = 10 * MAX_AGE_SECONDS


def read_unsettled(ledger: Ledger | None) -> list[MoveRecord]:
    """Return the unsettled records of moves and evacuations that hold their domains, each kind from the oldest on."""
    wanted = Conditions(status=sorted(s.UNSETTLED))
    found = [record for term in ("migrations", "evacuations") for record in read_records(ledger, term, wanted)] if ledger else []
    return [record for record in found if holds_domain(record)]


def read_completed(ledger: Ledger | None, seconds: float) -> list[MoveRecord]:
    """Return the records of moves that were completed within the last C(seconds)."""
    return _read_since(ledger, "migrations", _seconds_ago(seconds), s.COMPLETED)


def read_arrived(ledger: Ledger | None, seconds: float) -> list[MoveRecord]:
    """Return the records of moves that were completed, and of evacuations that were done, within the last C(seconds)."""
    return _read_arrived_since(ledger, _seconds_ago(seconds))


def read_arrived_since_plan(ledger: Ledger | None, created_at: str) -> list[MoveRecord]:
    """Return the records of moves that were completed, and of evacuations that were done, since a plan was made.

    Some of them are from before, because clocks of control nodes differ.
    """
    made_at = clock.parse_timestamp(created_at)
    earlier = datetime.timedelta(seconds=_CLOCKS_DIFFER_SECONDS if made_at else ENDED_SECONDS)
    since = (made_at or datetime.datetime.now(datetime.UTC)) - earlier
    return _read_arrived_since(ledger, since)


def _seconds_ago(seconds: float) -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=seconds)


def _read_arrived_since(ledger: Ledger | None, at: datetime.datetime) -> list[MoveRecord]:
    return [*_read_since(ledger, "migrations", at, s.COMPLETED), *_read_since(ledger, "evacuations", at, s.DONE, s.COMPLETED)]


def _read_since(ledger: Ledger | None, term: str, at: datetime.datetime, *statuses: str) -> list[MoveRecord]:
    since = f"{at.astimezone(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}"
    return read_records(ledger, term, Conditions(status=statuses, since=since)) if ledger else []
