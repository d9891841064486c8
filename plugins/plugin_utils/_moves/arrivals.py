# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Moves that ended while or after hosts were asked what runs on them: told by the ledger alone, whatever the hosts' clocks say."""

from __future__ import annotations

import datetime
import typing as t
from collections.abc import Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import NotFound, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Ledger

Body = Mapping[str, t.Any]

# How far back closed records are looked at; only clocks that differ by more could hide one.
_WINDOW = datetime.timedelta(minutes=10)


class Arrivals:
    """Made before a survey, it knows later which moves were completed since then.

    :arg ledger: None where there is none.
    """

    def __init__(self, ledger: Ledger | None) -> None:
        self._ledger = ledger
        self._since = (datetime.datetime.now(datetime.UTC) - _WINDOW).isoformat()
        self._known: dict[str, Body | None] = dict.fromkeys(self._closed())

    def records(self) -> list[Body]:
        """Return the completed records that are new, of each domain the latest: one that has moved on is no longer where an earlier move took it."""
        self._known |= {key: self._read(key) for key in self._closed() if key not in self._known}
        latest: dict[str, Body] = {}
        for record in sorted((record for record in self._known.values() if record), key=lambda record: str(record["updated_at"])):
            latest[record["domain"]["uuid"]] = record
        return list(latest.values())

    def _closed(self) -> set[str]:
        return self._ledger.closed_since(self._since) if self._ledger else set()

    def _read(self, key: str) -> Body | None:
        """Return the record of a move that was completed. One that cannot be read is told of by the ledger, which sets a damaged one aside."""
        try:
            record = t.cast(Ledger, self._ledger).get(key).record
        except (NotFound, NotSupported):
            return None
        return record if record["status"] == s.COMPLETED else None
