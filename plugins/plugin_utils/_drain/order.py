# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The order in which the moves of a plan start. Destinations are chosen before, by priority and size; the order does not change them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from .._scheduler.repair import unit_key
from .plan_entries import PlannedMove
from .sorting import LeavingDomain

# Sampled dirty rates can be too low: guests under load wrote up to this many times as much.
DIRTY_FACTOR = 2.5
# A domain is busy if it writes at least this part of what its stream carries: such a move gets longer with every other move beside it.
BUSY_PART = 0.25


def order_moves(moves: Sequence[PlannedMove], leavers: Mapping[str, LeavingDomain], rates: Mapping[str, float]) -> list[PlannedMove]:
    """Return the moves in the order in which they start, and number them from 1.

    Moves under way come first, then domains by priority. Of equal priority, busy domains start while the link is free, the busiest first, and then long
    moves before short ones, so that no long move is left over at the end. Domains of one affinity group stay next to each other. Otherwise the given order
    is kept.

    :arg leavers: by UUID of the domain.
    :arg rates: the rate of one stream in MiB/s, by source.
    """
    units: dict[tuple[str, str], list[PlannedMove]] = {}
    for move in moves:
        units.setdefault(unit_key(leavers[move.uuid].request), []).append(move)
    ordered = sorted(units.values(), key=lambda unit: _rank_unit(unit, leavers, rates))
    return [replace(move, order=number) for number, move in enumerate((move for unit in ordered for move in unit), 1)]


def _rank_unit(unit: Sequence[PlannedMove], leavers: Mapping[str, LeavingDomain], rates: Mapping[str, float]) -> tuple[bool, int, float, float]:
    is_under_way = any(leavers[move.uuid].destination for move in unit)
    busiest = max(busy_rate(leavers[move.uuid].dirty_rate_mib, rates[move.source]) for move in unit)
    return (not is_under_way, -max(move.priority for move in unit), -busiest, -sum(move.predicted_seconds for move in unit))


def busy_rate(dirty_rate_mib: float | None, rate: float) -> float:
    """Return the dirty rate of a busy domain; 0 for a domain that is not busy, or was not measured.

    :arg rate: of its stream, in MiB/s.
    """
    measured = dirty_rate_mib or 0.0
    return measured if measured * DIRTY_FACTOR >= rate * BUSY_PART else 0.0
