# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Huge pages that are free."""

from __future__ import annotations

import typing as t

from ..fleet import Fleet
from ..guest import pages_of
from ..host_state import HostState
from ..pages import default_size, free_mib, sizes_of
from ..request import Request
from ..words import ids_text, one_or_many, size_text
from .base import PASS, Finding, Rule


class Hugepages(Rule):
    """Counted in MiB by size of page, on the cells that the guest is bound to where it is. No ratio makes more of them."""

    name = "hugepages"

    def concerns(self, request: Request) -> bool:
        """Return whether its memory is in huge pages."""
        return bool(request.hugepages)

    def judge(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Say how many MiB of which pages are missing."""
        if host.hardware.pages is None:
            return Finding(warnings=(f"How many huge pages {host.name} has is not known.",))
        if not sizes_of(host):
            return Finding(f"It has no huge pages, which the memory of {request.name} is in.")
        needed: dict[tuple[t.Optional[int], frozenset[int]], int] = {}
        for size, cells, mib in pages_of(request):
            resolved = size or default_size(host)
            needed[resolved, cells] = needed.get((resolved, cells), 0) + mib
        findings = [_one(request, host, size, cells, mib) for (size, cells), mib in needed.items()]
        reasons = [finding.reason for finding in findings if finding.reason]
        return Finding(" ".join(reasons) or None, tuple(warning for finding in findings for warning in finding.warnings))


def _one(request: Request, host: HostState, size: t.Optional[int], cells: frozenset[int], mib: int) -> Finding:
    if size is None:
        sizes = ", ".join(size_text(size / 1024) for size in sizes_of(host))
        return Finding(warnings=(f"Which huge pages {host.name} gives by default is not known: it has pages of {sizes}.",))
    free = free_mib(host, size, cells, request.uuid)
    if mib <= free:
        return PASS
    where = f" on NUMA {one_or_many(len(cells), 'cell', 'cells')} {ids_text(cells)}" if cells else ""
    return Finding(f"It is {mib - free} MiB short of huge pages of {size_text(size / 1024)}{where}: {mib} MiB are needed, {max(0, free)} MiB are free.")
