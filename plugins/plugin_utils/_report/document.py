# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A report as one document, from which every format is written: what it is about, counts, downtimes, hosts and moves."""

from __future__ import annotations

import typing as t
from collections.abc import Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s

from .._ledger.store import Body
from .downtimes import downtimes_of
from .gather import Found, Scope
from .hosts import hosts_of
from .moves import move_of
from .outcomes import OUTCOMES, UNCERTAIN

SCHEMA = 1
TITLE = "Migration report"


def document_of(found: Found, scope: Scope, made_at: str, title: t.Optional[str] = None) -> Body:
    """Return the report.

    :arg made_at: RFC 3339, UTC.
    """
    moves = [move_of(record) for record in found.records]
    return {
        "schema": SCHEMA,
        "title": title or TITLE,
        "made_at": made_at,
        "scope": {"since": scope.since, "until": scope.until, "host": scope.host, "domain": scope.domain, "ids": list(scope.ids or []) or None},
        "first_at": min((move["created_at"] for move in moves), default=None),
        "last_at": max((move["updated_at"] for move in moves), default=None),
        "counts": counts_of(moves),
        "downtimes": downtimes_of(moves),
        "hosts": hosts_of(moves, found.hosts, found.unsettled, found.domains, found.drains),
        "moves": moves,
    }


def counts_of(moves: Sequence[Body]) -> Body:
    """Return how many records there are, of each type and of each outcome, how many were forced, and the bytes that went over."""
    return {
        "records": len(moves),
        "live_migrations": sum(1 for move in moves if move["type"] == s.LIVE_MIGRATION),
        "evacuations": sum(1 for move in moves if move["type"] == s.EVACUATION),
        **{outcome.replace(" ", "_"): sum(1 for move in moves if move["outcome"] == outcome) for outcome in OUTCOMES},
        "forced": sum(1 for move in moves if move["forced"]),
        "bytes": sum(move["bytes"] or 0 for move in moves),
    }


def summary_of(document: Body) -> str:
    """Return the report in a sentence or two."""
    counts = document["counts"]
    if not counts["records"]:
        return "No move is recorded here."
    parts = [f"{counts[outcome.replace(' ', '_')]} {outcome}" for outcome in OUTCOMES if counts[outcome.replace(" ", "_")]]
    text = f"{counts['records']} {'move' if counts['records'] == 1 else 'moves'}: {', '.join(parts)}."
    return f"{text} What is uncertain needs a person." if counts[UNCERTAIN] else text
