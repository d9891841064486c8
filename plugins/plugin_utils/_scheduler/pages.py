# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""How many huge pages are left on a host."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable

from .guest import Guest
from .host_state import HostState

ANYWHERE: t.Final[frozenset[int]] = frozenset()


def default_size(host: HostState) -> t.Optional[int]:
    """Return the size in KiB of the pages the host would give who names none: the only size it has pages of; None where it has none or several."""
    sizes = sizes_of(host)
    return sizes[0] if len(sizes) == 1 else None


def sizes_of(host: HostState) -> list[int]:
    """Return the sizes in KiB of which the host has pages at all."""
    return sorted(size for size, cells in (host.hardware.pages or {}).items() if any(total for total, _free in cells.values()))


def free_mib(host: HostState, size_kib: int, cells: frozenset[int], without: str) -> int:
    """Return the MiB in free pages of that size, on these cells (none given: on all), that no other guest is booked for.

    What guests hold that were there when the facts were gathered is not free by the facts themselves.
    """
    by_cell = (host.hardware.pages or {}).get(size_kib, {})
    everywhere = sum(free for _total, free in by_cell.values()) - _booked(host, size_kib, ANYWHERE, without)
    if not cells:
        return everywhere
    return min(everywhere, sum(by_cell.get(cell, (0, 0))[1] for cell in cells) - _booked(host, size_kib, cells, without))


def _booked(host: HostState, size_kib: int, cells: frozenset[int], without: str) -> int:
    """Return the MiB that guests will take which had not come when the facts were gathered, less what those held that have gone since."""
    coming = (guest for guest in host.guests.values() if not guest.arrived and guest.uuid != without)
    held = [guest for guest in host.vacated if guest.uuid != without] + [guest for guest in host.guests.values() if guest.arrived and guest.uuid == without]
    return _sum(host, coming, size_kib, cells) - _sum(host, held, size_kib, cells)


def _sum(host: HostState, guests: Iterable[Guest], size_kib: int, cells: frozenset[int]) -> int:
    # Of pages whose size or place is not known it is not told that they are others.
    pages = [page for guest in guests for page in guest.pages]
    return sum(mib for size, bound, mib in pages if (size or default_size(host) or size_kib) == size_kib and (not cells or bound & cells))
