# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""How long guests stood still: the distribution over the live migrations that completed."""

from __future__ import annotations

import math
import typing as t
from collections.abc import Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s

from .._ledger.store import Body

# The upper ends of the ranges, in milliseconds; the last range has none.
EDGES_MS = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000)
MODES = ("pre-copy", "post-copy", "paused")
_QUANTILES = (("median_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99))


def downtimes_of(moves: Sequence[Body]) -> Body:
    """Return C(count), quantiles (each a downtime that was lived: nearest rank), extremes, and C(ranges) with counts by mode. Milliseconds."""
    measured = [move for move in moves if move["type"] == s.LIVE_MIGRATION and move["status"] == s.COMPLETED and move["downtime_ms"] is not None]
    lived = sorted(move["downtime_ms"] for move in measured)
    quantiles = {name: _quantile(lived, share) for name, share in _QUANTILES}
    extremes = {"least_ms": lived[0] if lived else None, "most_ms": lived[-1] if lived else None}
    return {"count": len(lived), **quantiles, **extremes, "ranges": _ranges(measured)}


def _quantile(ordered: Sequence[int], share: float) -> t.Optional[int]:
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else None


def _ranges(measured: Sequence[Body]) -> list[Body]:
    """Return the ranges from the first to the last that has one in it, those between included."""
    bounds = list(zip((0, *EDGES_MS), (*EDGES_MS, None), strict=True))
    found = [_range(low, high, measured) for low, high in bounds]
    filled = [index for index, one in enumerate(found) if any(one[mode] for mode in MODES)]
    return found[filled[0] : filled[-1] + 1] if filled else []


def _range(low: int, high: t.Optional[int], measured: Sequence[Body]) -> Body:
    within = [move for move in measured if low <= move["downtime_ms"] and (high is None or move["downtime_ms"] < high)]
    # What an older record does not say was plain pre-copy, or is not known to be anything else.
    by_mode = {mode: sum(1 for move in within if (move["mode"] if move["mode"] in MODES else MODES[0]) == mode) for mode in MODES}
    return {"from_ms": low, "below_ms": high, **by_mode}
