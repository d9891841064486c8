# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Room for the disks that are copied."""

from __future__ import annotations

from ..fleet import Fleet
from ..guest import Guest
from ..host_state import HostState
from ..places import Place, place_of
from ..request import Request
from ..words import names_text
from .base import Finding, Rule

MIB = 1024**2


class Disk(Rule):
    """Counted in bytes by pool or file system: capacity x ratio, less what is used and what other moves under way will still copy there."""

    name = "disk"

    def concerns(self, request: Request) -> bool:
        """Return whether any disk is copied."""
        return bool(request.copied)

    def judge(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Say how many MiB are missing, and where. A place that is not known is a warning."""
        needed: dict[Place, int] = {}
        unknown = []
        for path, size in Guest.of(request).copies:
            place = place_of(host.hardware, path) if path else None
            if place is None:
                unknown.append(path or "an unnamed disk")
            else:
                needed[place] = needed.get(place, 0) + size
        short = [reason for reason in (_shortage(host, request, place, size) for place, size in needed.items()) if reason]
        warnings = (f"How much room {host.name} has for the copy of {names_text(unknown)} is not known.",) if unknown else ()
        return Finding(" ".join(short) or None, warnings)


def _shortage(host: HostState, request: Request, place: Place, size: int) -> str:
    if size > place.capacity_bytes:
        return f"The copied disks have {_mib(size)} MiB, the whole {place.name} has {place.capacity_bytes // MIB} MiB."
    used = place.capacity_bytes - place.available_bytes
    free = int(place.capacity_bytes * host.settings.disk_allocation_ratio) - used - _booked(host, request, place)
    if size <= free:
        return ""
    return f"It is {_mib(size - free)} MiB short of disk space: {_mib(size)} MiB are copied, {max(0, free) // MIB} MiB of the {place.name} are free."


def _booked(host: HostState, request: Request, place: Place) -> int:
    copies = [copy for guest in host.guests.values() if guest.uuid != request.uuid for copy in guest.copies]
    # A copy whose target is not known may go to any place.
    return sum(size for path, size in copies if not path or place_of(host.hardware, path) in (place, None))


def _mib(size: int) -> int:
    return -(-size // MIB)
