# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Pinned CPUs and memory that is bound to NUMA cells. Libvirt moves a definition as it is: it must fit the host's own numbers."""

from __future__ import annotations

from ..cells import overfull
from ..fleet import Fleet
from ..host_state import HostState
from ..request import Request
from ..words import ids_text, names_text, one_or_many
from .base import PASS, Finding, Rule


class Numa(Rule):
    """CPUs must exist and not be another guest's own; cells must exist, and have room by their own memory.

    A guest with CPUs of its own or with huge pages is given no more memory than there is, whatever the ratio (as in Nova).
    """

    name = "numa"

    def concerns(self, request: Request) -> bool:
        """Return whether anything is pinned or bound."""
        return bool(request.pinned_cpus or request.bindings)

    def judge(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Say which CPUs, and how many MiB on which cells."""
        findings = [_pins(request, host), _cells(request, host)]
        reasons = [finding.reason for finding in findings if finding.reason]
        return Finding(" ".join(reasons) or None, tuple(warning for finding in findings for warning in finding.warnings))


def _pins(request: Request, host: HostState) -> Finding:
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


def _cells(request: Request, host: HostState) -> Finding:
    if not request.bindings:
        return PASS
    cells = host.hardware.cells_mib
    if cells is None:
        return Finding(warnings=(f"Whether {host.name} has the NUMA cells that {request.name} is bound to is not known.",))
    absent = frozenset().union(*(nodes for nodes, _mib in request.bindings)) - cells.keys()
    if absent:
        return Finding(f"It has no NUMA {_cell_text(absent)}, which the memory of {request.name} is bound to (it has {ids_text(cells) or 'none'}).")
    too_small = overfull(request.bindings, (), cells)
    if too_small:
        return Finding(f"Its NUMA {_cell_text(too_small[0])} would have to be {too_small[1]} MiB larger to hold {request.name} at all.")
    return _room(request, host)


def _room(request: Request, host: HostState) -> Finding:
    ratio = 1.0 if request.dedicated_cpus or request.hugepages else host.settings.ram_allocation_ratio
    capacity = {cell: mib * ratio for cell, mib in (host.hardware.cells_mib or {}).items()}
    others = [guest for guest in host.guests.values() if guest.uuid != request.uuid and guest.bindings]
    short = overfull(request.bindings, [binding for guest in others for binding in guest.bindings], capacity)
    if not short:
        return PASS
    there = {guest.name for guest in others if any(nodes <= short[0] for nodes, _mib in guest.bindings)}
    return Finding(f"It is {short[1]} MiB short of memory on NUMA {_cell_text(short[0])}, to which {names_text(there)} is bound too.")


def _cell_text(cells: frozenset[int]) -> str:
    return f"{one_or_many(len(cells), 'cell', 'cells')} {ids_text(cells)}"
