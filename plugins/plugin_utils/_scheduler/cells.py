# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whether memory that is bound to NUMA cells fits on them, where a binding may leave the choice between several cells."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

Binding = tuple[frozenset[int], int]


def overfull(own: Sequence[Binding], others: Iterable[Binding], capacity_mib: Mapping[int, float]) -> tuple[frozenset[int], int] | None:
    """Return the cells that C(own) does not fit on beside C(others), and how many MiB are missing; None where all fits.

    Everything fits if and only if no set of cells is asked to hold more than it has by the bindings that lie within it. Sets that do not
    hold a binding of C(own) are no concern of its.
    """
    bindings = [*own, *others]
    for cells in _unions([nodes for nodes, _mib in own], {nodes for nodes, _mib in bindings}):
        needed = sum(mib for nodes, mib in bindings if nodes <= cells)
        room = sum(capacity_mib.get(cell, 0) for cell in cells)
        if needed > room:
            return cells, -int(-(needed - room) // 1)
    return None


def _unions(start: Iterable[frozenset[int]], sets: Collection[frozenset[int]]) -> list[frozenset[int]]:
    """Return the first sets and every union of one of them with others that overlap, small ones first."""
    found = set(start)
    todo = list(found)
    while todo:
        cells = todo.pop()
        new = {cells | one for one in sets if one & cells} - found
        found |= new
        todo.extend(new)
    return sorted(found, key=lambda cells: (len(cells), sorted(cells)))
