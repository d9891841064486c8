# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whether the memory of the domain fits on a host: in all, on its NUMA cells, and in its huge pages, which hold no other memory."""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Iterable, Mapping, Sequence

from ..fleet import Fleet, HostState
from ..guests import Guest, pages_of
from ..request import Request
from .base import PASS, Finding, Rule, ids_text, names_text, one_or_many, size_text

Binding = tuple[frozenset[int], int]


def find_overfull_cells(own: Sequence[Binding], others: Iterable[Binding], capacity_mib: Mapping[int, float]) -> tuple[frozenset[int], int] | None:
    """Return the cells on which C(own) does not fit beside C(others), and how many MiB are missing; None if everything fits.

    Everything fits if and only if, for each set of cells, the bindings within it need no more than it has. Sets without a binding of C(own) are irrelevant.
    """
    bindings = [*own, *others]
    for cells in _unite_cells([nodes for nodes, _mib in own], {nodes for nodes, _mib in bindings}):
        needed = sum(mib for nodes, mib in bindings if nodes <= cells)
        capacity = sum(capacity_mib.get(cell, 0) for cell in cells)
        if needed > capacity:
            return cells, -int(-(needed - capacity) // 1)
    return None


def _unite_cells(start: Iterable[frozenset[int]], sets: Collection[frozenset[int]]) -> list[frozenset[int]]:
    """Return the first sets and every union of one of them with others that overlap, small ones first."""
    found = set(start)
    todo = list(found)
    while todo:
        cells = todo.pop()
        new = {cells | one for one in sets if one & cells} - found
        found |= new
        todo.extend(new)
    return sorted(found, key=lambda cells: (len(cells), sorted(cells)))


ANY_CELL: t.Final[frozenset[int]] = frozenset()


def default_page_size(host: HostState) -> t.Optional[int]:
    """Return the size in KiB of the pages that the host uses by default: the only size that it has; None if it has none or several."""
    sizes = page_sizes(host)
    return sizes[0] if len(sizes) == 1 else None


def page_sizes(host: HostState) -> list[int]:
    """Return the sizes in KiB of which the host has pages."""
    return sorted(size for size, cells in (host.hardware.pages or {}).items() if any(total for total, _free in cells.values()))


def free_page_mib(host: HostState, size_kib: int, cells: frozenset[int], without: str) -> int:
    """Return the MiB in free pages of that size, on these cells (none given: on all), that are not reserved for other guests.

    Pages of guests that were active when the facts were gathered are not free in the facts.
    """
    by_cell = (host.hardware.pages or {}).get(size_kib, {})
    everywhere = sum(free for _total, free in by_cell.values()) - _reserved_page_mib(host, size_kib, ANY_CELL, without)
    if not cells:
        return everywhere
    return min(everywhere, sum(by_cell.get(cell, (0, 0))[1] for cell in cells) - _reserved_page_mib(host, size_kib, cells, without))


def _reserved_page_mib(host: HostState, size_kib: int, cells: frozenset[int], without: str) -> int:
    """Return the MiB that guests need which arrived after the facts were gathered, less the MiB of those that have left since."""
    coming = (guest for guest in host.guests.values() if not guest.arrived and guest.uuid != without)
    held = [guest for guest in host.vacated if guest.uuid != without] + [guest for guest in host.guests.values() if guest.arrived and guest.uuid == without]
    return _sum_page_mib(host, coming, size_kib, cells) - _sum_page_mib(host, held, size_kib, cells)


def _sum_page_mib(host: HostState, guests: Iterable[Guest], size_kib: int, cells: frozenset[int]) -> int:
    # Pages of unknown size or location may be the same ones.
    pages = [page for guest in guests for page in guest.pages]
    return sum(mib for size, bound, mib in pages if (size or default_page_size(host) or size_kib) == size_kib and (not cells or bound & cells))


def free_mib_for(request: Request, host: HostState) -> int:
    """Return the MiB that are free without the domain, of the kinds of memory that it needs: in huge pages, or beside them."""
    if not request.hugepages or not host.hardware.page_pool_mib:
        return host.free_mib(request.uuid)
    kinds = {(size or default_page_size(host), cells) for size, cells, _mib in pages_of(request)}
    in_pages = sum(free_page_mib(host, size, cells, request.uuid) for size, cells in kinds if size)
    return in_pages + (host.free_mib(request.uuid) if host.ordinary_mib(request) else 0)


class Memory(Rule):
    """Counted in MiB, beside huge pages: (total - reserved) x ratio, and no domain larger than the host, whatever the ratio. L(Hugepages) judges the rest."""

    name = "memory"

    def host_passes(self, request: Request, host: HostState, fleet: Fleet) -> bool:
        """Compare without building a reason for each full host of a large fleet."""
        needed = host.ordinary_mib(request)
        return not needed or (needed <= host.total_mib and needed <= host.free_mib(request.uuid))

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Return how many MiB are missing."""
        if self.host_passes(request, host, fleet):
            return PASS
        needed, pool = host.ordinary_mib(request), host.hardware.page_pool_mib
        if needed > host.total_mib:
            return Finding(f"{request.name} has {needed} MiB of memory{' outside of huge pages' if pool else ''}, the whole host has {host.total_mib} MiB.")
        free = host.free_mib(request.uuid)
        return Finding(
            f"It is {needed - free} MiB short of memory: {needed} MiB are needed, {max(0, free)} MiB of {host.capacity_mib} MiB "
            f"are free ({host.settings.reserved_memory_mib} MiB are reserved for the host itself{f', and {pool} MiB are huge pages' if pool else ''})."
        )


class Numa(Rule):
    """CPUs must exist and not be dedicated to another guest; cells must exist and have enough memory.

    For a guest with dedicated CPUs or huge pages, memory is not overcommitted, whatever the ratio (as in Nova).
    """

    name = "numa"

    def applies_to(self, request: Request) -> bool:
        """Return whether the domain has pinned vCPUs or memory for which cells are named."""
        return bool(request.pinned_cpus or request.named_cells)

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Return which CPUs, and how many MiB on which cells, are missing."""
        findings = [_judge_pins(request, host), _judge_cells(request, host)]
        reasons = [finding.reason for finding in findings if finding.reason]
        return Finding(" ".join(reasons) or None, tuple(warning for finding in findings for warning in finding.warnings))


def _judge_pins(request: Request, host: HostState) -> Finding:
    if not request.pinned_cpus:
        return PASS
    known = host.hardware.cpu_ids
    if known is None:
        return Finding(warnings=(f"Whether {host.name} has the CPUs that {request.name} is pinned to is not known.",))
    absent = request.pinned_cpus - known
    if absent:
        return Finding(
            f"It has no {one_or_many(len(absent), 'CPU', 'CPUs')} {ids_text(absent)}, which {request.name} is pinned to (it has {ids_text(known) or 'none'})."
        )
    owners = {guest.name: guest.dedicated & request.pinned_cpus for guest in host.guests.values() if guest.uuid != request.uuid}
    taken = [f"CPU {ids_text(cpus)} is {name}'s own" for name, cpus in sorted(owners.items()) if cpus]
    return Finding(f"{request.name} is pinned to CPUs that are taken: {', '.join(taken)}.") if taken else PASS


def _judge_cells(request: Request, host: HostState) -> Finding:
    if not request.named_cells:
        return PASS
    cells = host.hardware.cells_mib
    if cells is None:
        return Finding(warnings=(f"Whether {host.name} has the NUMA cells that {request.name} is bound to is not known.",))
    absent = request.named_cells - cells.keys()
    if absent:
        return Finding(f"It has no NUMA {_cell_text(absent)}, which the memory of {request.name} is bound to (it has {ids_text(cells) or 'none'}).")
    findings = (_judge_ordinary_cells(request, host), _judge_page_cells(request, host))
    return next((finding for finding in findings if finding.reason), PASS)


def _judge_ordinary_cells(request: Request, host: HostState) -> Finding:
    pools = host.hardware.page_pools_mib
    sizes = {cell: max(0, mib - pools.get(cell, 0)) for cell, mib in (host.hardware.cells_mib or {}).items()}
    bindings = _ordinary_bindings(request, host)
    too_small = find_overfull_cells(bindings, (), sizes)
    if too_small:
        beside = ", beside its huge pages," if pools else ""
        return Finding(f"Its NUMA {_cell_text(too_small[0])} would have to be {too_small[1]} MiB larger{beside} to hold {request.name} at all.")
    memory_ratio = 1.0 if request.dedicated_cpus or request.hugepages else host.settings.ram_allocation_ratio
    others = [(guest.name, _ordinary_bindings(guest, host)) for guest in _list_bound_guests(request, host)]
    return _find_shortage("memory", bindings, others, {cell: mib * memory_ratio for cell, mib in sizes.items()})


def _judge_page_cells(request: Request, host: HostState) -> Finding:
    """Judge the huge pages of a cell, free or not, for all guests that are bound to it; L(Hugepages) judges those that are free."""
    pools, bindings = host.hardware.page_pools_mib, _page_bindings(request, host)
    too_small = find_overfull_cells(bindings, (), pools)
    if too_small:
        return Finding(f"It has {too_small[1]} MiB too few huge pages on NUMA {_cell_text(too_small[0])} to hold {request.name} at all.")
    others = [(guest.name, _page_bindings(guest, host)) for guest in _list_bound_guests(request, host)]
    return _find_shortage("huge pages", bindings, others, pools)


def _list_bound_guests(request: Request, host: HostState) -> list[Guest]:
    return [guest for guest in host.guests.values() if guest.uuid != request.uuid and guest.bindings]


def _find_shortage(what: str, own: Sequence[Binding], others: Sequence[tuple[str, Sequence[Binding]]], capacity_mib: Mapping[int, float]) -> Finding:
    short = find_overfull_cells(own, [binding for _name, bindings in others for binding in bindings], capacity_mib)
    if not short:
        return PASS
    there = {name for name, bindings in others if any(nodes <= short[0] for nodes, _mib in bindings)}
    return Finding(f"It is {short[1]} MiB short of {what} on NUMA {_cell_text(short[0])}, to which {names_text(there)} is bound too.")


def _ordinary_bindings(guest: Guest | Request, host: HostState) -> Sequence[Binding]:
    """Return the bindings of memory that the guest has beside huge pages. Which cells of a guest are in huge pages in part only is not known: see L(_join)."""
    if not guest.page_mib or not host.hardware.page_pool_mib:
        return guest.bindings
    return _join(guest, sum(mib for _nodes, mib in guest.bindings) - guest.page_mib)


def _page_bindings(guest: Guest | Request, host: HostState) -> Sequence[Binding]:
    """Return the bindings of memory in huge pages."""
    if not guest.page_mib or not host.hardware.page_pool_mib:
        return ()
    bound = sum(mib for _nodes, mib in guest.bindings)
    # What is bound nowhere may be in huge pages, too.
    return guest.bindings if guest.page_mib >= guest.memory_mib else _join(guest, min(bound, guest.page_mib - max(0, guest.memory_mib - bound)))


def _join(guest: Guest | Request, mib: int) -> Sequence[Binding]:
    """Return one binding of so many MiB to all cells that the guest is bound to."""
    return [(frozenset().union(*(nodes for nodes, _mib in guest.bindings)), mib)] if mib > 0 and guest.bindings else []


def _cell_text(cells: frozenset[int]) -> str:
    return f"{one_or_many(len(cells), 'cell', 'cells')} {ids_text(cells)}"


class Hugepages(Rule):
    """Counted in MiB by size of page, on the cells that the guest is bound to where it is. The ratio does not apply."""

    name = "hugepages"

    def applies_to(self, request: Request) -> bool:
        """Return whether its memory is in huge pages."""
        return bool(request.hugepages)

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Return how many MiB of which pages are missing."""
        if host.hardware.pages is None:
            return Finding(warnings=(f"How many huge pages {host.name} has is not known.",))
        if not page_sizes(host):
            return Finding(f"It has no huge pages, which the memory of {request.name} needs.")
        needed: dict[tuple[t.Optional[int], frozenset[int]], int] = {}
        for size, cells, mib in pages_of(request):
            resolved = size or default_page_size(host)
            needed[resolved, cells] = needed.get((resolved, cells), 0) + mib
        findings = [_judge_page_size(request, host, size, cells, mib) for (size, cells), mib in needed.items()]
        reasons = [finding.reason for finding in findings if finding.reason]
        return Finding(" ".join(reasons) or None, tuple(warning for finding in findings for warning in finding.warnings))


def _judge_page_size(request: Request, host: HostState, size: t.Optional[int], cells: frozenset[int], mib: int) -> Finding:
    if size is None:
        sizes = ", ".join(size_text(size / 1024) for size in page_sizes(host))
        return Finding(warnings=(f"Which huge pages {host.name} gives by default is not known: it has pages of {sizes}.",))
    free = free_page_mib(host, size, cells, request.uuid)
    if mib <= free:
        return PASS
    where = f" on NUMA {one_or_many(len(cells), 'cell', 'cells')} {ids_text(cells)}" if cells else ""
    return Finding(f"It is {mib - free} MiB short of huge pages of {size_text(size / 1024)}{where}: {mib} MiB are needed, {max(0, free)} MiB are free.")
