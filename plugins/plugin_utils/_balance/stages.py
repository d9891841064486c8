# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The order of the moves of a balance, in stages: a move that needs what another one leaves, memory or the place in a group, is in a later stage."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace

from .._scheduler.fleet import Fleet
from .state import ChosenMove, is_permitted


def assign_stages(moves: Sequence[ChosenMove], fleet: Fleet) -> list[ChosenMove]:
    """Return the moves in the order in which they start: by stage, repairs first, then by priority. Domains of one unit stay next to each other.

    Within a stage, a domain counts on both of its hosts, so that the filters pass every move whichever of the others have ended.

    :arg moves: in the order in which the search chose them, which is possible one after the other.
    :arg fleet: before any of them.
    """
    staged: list[list[ChosenMove]] = []
    stage, begun = 1, fleet
    waiting: list[list[ChosenMove]] = []
    for unit in _group_units(moves):
        if not _is_possible(unit, begun):
            # Everything of this stage has left its source before the next one begins.
            begun = _without_sources(waiting, begun)
            stage, waiting = stage + 1, []
        staged.append([replace(move, stage=stage) for move in unit])
        waiting.append(unit)
        begun = _with_units([unit], begun)
    return _sort_stages(staged, fleet)


def _group_units(moves: Sequence[ChosenMove]) -> list[list[ChosenMove]]:
    return [list(unit) for _key, unit in itertools.groupby(moves, key=lambda move: move.unit)]


def _is_possible(unit: Sequence[ChosenMove], fleet: Fleet) -> bool:
    return is_permitted([move.leaver.request for move in unit], fleet, unit[0].destination)


def _without_sources(units: Iterable[Sequence[ChosenMove]], fleet: Fleet) -> Fleet:
    for unit in units:
        for move in unit:
            fleet = fleet.without_domain(move.leaver.request.uuid, move.leaver.request.source)
    return fleet


def _sort_stages(units: Sequence[Sequence[ChosenMove]], fleet: Fleet) -> list[ChosenMove]:
    """Return the moves, each stage sorted. Bindings to NUMA cells can make another order impossible: then its order is kept."""
    ordered: list[ChosenMove] = []
    for _stage, members in itertools.groupby(units, key=lambda unit: unit[0].stage):
        given = list(members)
        wanted = sorted(given, key=lambda unit: (not unit[0].why, -max(move.leaver.request.priority for move in unit)))
        chosen = wanted if wanted == given or _are_possible(wanted, fleet) else given
        ordered += [move for unit in chosen for move in unit]
        fleet = _without_sources(chosen, _with_units(chosen, fleet))
    return ordered


def _are_possible(units: Iterable[Sequence[ChosenMove]], fleet: Fleet) -> bool:
    for unit in units:
        if not _is_possible(unit, fleet):
            return False
        fleet = _with_units([unit], fleet)
    return True


def _with_units(units: Iterable[Sequence[ChosenMove]], fleet: Fleet) -> Fleet:
    for unit in units:
        for move in unit:
            fleet = fleet.with_domain(move.leaver.request, move.destination)
    return fleet
