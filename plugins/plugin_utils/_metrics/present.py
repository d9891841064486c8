# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a ledger says of this moment: moves and evacuations that have not ended, hosts, and how fresh their protection is."""

from __future__ import annotations

import datetime
import typing as t
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s

from .._ledger.store import Body, Ledger

MOVE_STATUSES = (s.ACCEPTED, s.SCHEDULED, s.QUEUED, s.PREPARING, s.RUNNING, s.RUNNING_POST_COPY, s.ERROR)
EVACUATION_STATUSES = (s.ACCEPTED, s.PRE_MIGRATING, s.DONE, s.ERROR)
HOST_STATES = ("enabled", "maintenance", "fenced")


@dataclass
class Present:
    """Times are Unix seconds; None where there is nothing that has one.

    :arg open_moves: by status; C(open_evacuations) likewise.
    :arg hosts: by state.
    :arg oldest_open: when the oldest record was opened that is still unsettled.
    """

    open_moves: dict[str, int]
    open_evacuations: dict[str, int]
    hosts: dict[str, int]
    protected_domains: int
    newest_protect: float | None
    oldest_protect: float | None
    oldest_open: float | None


def open_records(ledger: Ledger) -> list[Body]:
    """Return the records that are not closed; reading them reads no closed one."""
    return list(ledger.records(statuses=sorted(s.UNSETTLED | s.TOMBSTONE)))


def present_of(ledger: Ledger, open_records: list[Body]) -> Present:
    """Return what the ledger says now."""
    hosts = [document.body for document in ledger.hosts()]
    protected = [_moment((body.get("protected") or {}).get("at")) for body in hosts]
    protects = [moment for moment in protected if moment is not None]
    unsettled = [_moment(record["created_at"]) for record in open_records if record["status"] in s.UNSETTLED]
    return Present(
        open_moves=_counts(MOVE_STATUSES, (record["status"] for record in open_records if record["type"] == s.LIVE_MIGRATION)),
        open_evacuations=_counts(EVACUATION_STATUSES, (record["status"] for record in open_records if record["type"] == s.EVACUATION)),
        hosts=_counts(HOST_STATES, (str(body.get("state")) for body in hosts)),
        protected_domains=sum(bool(document.body.get("protected")) for document in ledger.domains()),
        newest_protect=max(protects, default=None),
        oldest_protect=min(protects, default=None),
        oldest_open=min((moment for moment in unsettled if moment is not None), default=None),
    )


def _counts(words: t.Sequence[str], found: t.Iterable[str]) -> dict[str, int]:
    """Return how often each of the words was found; no other one becomes a label."""
    counts = dict.fromkeys(words, 0)
    for word in found:
        if word in counts:
            counts[word] += 1
    return counts


def _moment(text: t.Any) -> float | None:
    try:
        return datetime.datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError):
        return None
