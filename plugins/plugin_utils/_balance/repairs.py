# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Repairs that come before everything else, whether they pay for themselves or not: broken groups, and hosts with more guests than they may have."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping

from .._scheduler.filters.base import names_text
from .._scheduler.filters.policy import ANTI_AFFINITY, find_max_per_host
from .._scheduler.fleet import HostState
from .._scheduler.guests import Guest
from .._scheduler.repair import AFFINITY
from .pressure import MEMORY, VCPUS
from .state import BalanceState, GuestUnit, UnitMove, make_unit

# The members of a group by host and UUID.
_Members = Mapping[str, Mapping[str, Guest]]


def repair_fleet(state: BalanceState) -> list[str]:
    """Choose the moves that repair the fleet as far as it can be repaired, and return what stays broken, in sentences."""
    broken = _repair_groups(state)
    for number in range(len(state.uses)):
        broken += _relieve_host(state, number)
    return broken


def _repair_groups(state: BalanceState) -> list[str]:
    groups: dict[str, str] = {}
    for use in state.uses:
        for guest in state.fleet.states[use.name].guests.values():
            if guest.group and guest.group.policy in (AFFINITY, ANTI_AFFINITY):
                groups.setdefault(guest.group.name, guest.group.policy)
    broken = []
    for name, policy in sorted(groups.items()):
        # Only as it is before any move: a domain that moves is counted on both of its hosts.
        members = state.fleet.group_members(name)
        broken += _unite_group(state, name, members) if policy == AFFINITY else _separate_group(state, name, members)
    return broken


def _unite_group(state: BalanceState, name: str, members: _Members) -> list[str]:
    """Move the members of an affinity group to the host with most of their memory, or to another of their hosts if that one cannot take all."""
    there = {host: guests for host, guests in members.items() if guests}
    if len(there) <= 1:
        return []
    targets = sorted(there, key=lambda host: (-sum(guest.memory_mib for guest in there[host].values()), host))
    target = next((host for host in targets if _can_unite(state, there, host)), targets[0])
    why = f"Its group {name} must be together."
    apart = _members_but(there, target)
    left = [there[host][uuid].name for host, uuid in apart if target not in state.numbers or not _move_one(state, host, uuid, why, [state.numbers[target]])]
    return [f"The group {name} stays apart: {names_text(left)} cannot move to {target}."] if left else []


def _members_but(there: _Members, target: str) -> list[tuple[str, str]]:
    return [(host, uuid) for host, guests in sorted(there.items()) if host != target for uuid in sorted(guests)]


def _can_unite(state: BalanceState, there: _Members, target: str) -> bool:
    """Whether the host could take each of the other members alone."""
    for host, uuid in _members_but(there, target):
        unit = _find_unit(state, host, uuid)
        leavers = state.find_leavers(unit, state.numbers[host]) if unit and target in state.numbers else None
        if leavers is None or not state.permits(leavers, state.numbers[target]):
            return False
    return True


def _separate_group(state: BalanceState, name: str, members: _Members) -> list[str]:
    """Move members of an anti-affinity group away from hosts that have too many of them, the smallest first."""
    broken = []
    for host, guests in sorted(members.items()):
        most = find_max_per_host(guest.group for guest in guests.values())
        excess = len(guests) - most
        for guest in sorted(guests.values(), key=lambda guest: (guest.memory_mib, guest.uuid)):
            if excess > 0 and _move_one(state, host, guest.uuid, f"Its group {name} must be apart."):
                excess -= 1
        if excess > 0:
            broken.append(f"The group {name} stays together on {host}: {excess} more of its domains would have to leave, and none of them can.")
    return broken


def _move_one(state: BalanceState, host: str, uuid: str, why: str, destinations: Iterable[int] | None = None) -> bool:
    """Move a domain alone, to the host where it does least harm; false if it stays."""
    unit = _find_unit(state, host, uuid)
    return unit is not None and _move_unit(state, unit, state.numbers[host], why, destinations)


def _find_unit(state: BalanceState, host: str, uuid: str) -> GuestUnit | None:
    """Return a domain alone as a unit; None if its host takes no part."""
    guests = state.uses[state.numbers[host]].guests if host in state.numbers else ()
    return next((make_unit([guest]) for guest in guests if guest.uuid == uuid), None)


def _move_unit(state: BalanceState, unit: GuestUnit, source: int, why: str, destinations: Iterable[int] | None = None) -> bool:
    leavers = state.find_leavers(unit, source)
    if leavers is None or len(leavers) > state.moves_left:
        return False
    known = state.list_places(leavers) if destinations is None else [number for number in destinations if state.permits(leavers, number)]
    best = max((number for number in known if number != source), key=lambda number: (state.gain(unit, source, number), -number), default=None)
    if best is None:
        return False
    state.carry_out(UnitMove(unit, leavers, source, best, why))
    return True


class _Excess(t.NamedTuple):
    """By how much a host is overcommitted."""

    mib: float
    vcpus: float

    def without(self, unit: GuestUnit, host: HostState) -> _Excess:
        known = [host.guests[guest.uuid] for guest in unit.guests if guest.uuid in host.guests]
        return _Excess(self.mib - sum(map(host.ordinary_mib, known)), self.vcpus - sum(guest.vcpus for guest in known))

    @property
    def is_over(self) -> bool:
        return self.mib > 0 or self.vcpus > 0

    def is_lessened_by(self, unit: GuestUnit, host: HostState) -> bool:
        """Whether the host has less of what it has too much of without a unit. A guest in huge pages may free no other memory."""
        rest = self.without(unit, host)
        return (self.mib > 0 and rest.mib < self.mib) or (self.vcpus > 0 and rest.vcpus < self.vcpus)


def _relieve_host(state: BalanceState, number: int) -> list[str]:
    """Move domains away until the host has no more memory and vCPUs promised than it may: the smallest domain that suffices, else the largest."""
    host = state.fleet.states[state.uses[number].name]
    left = make_unit([guest for guest in state.uses[number].guests if guest.uuid in state.moved])
    excess = _Excess(-host.free_mib(), -host.free_vcpus()).without(left, host)
    closed: set[str] = set()
    while excess.is_over:
        open_units = [unit for unit in state.units[number] if unit.uuid not in closed and excess.is_lessened_by(unit, host)]
        if not open_units:
            return [f"{host.name} stays overcommitted: {_excess_text(excess)} would have to leave, and no domain can."]
        before = excess
        unit = min(open_units, key=lambda unit: (before.without(unit, host).is_over, _size(unit, before), unit.uuid))
        closed.add(unit.uuid)
        if _move_unit(state, unit, number, f"{host.name} is overcommitted by {_excess_text(excess)}."):
            excess = excess.without(unit, host)
    return []


def _size(unit: GuestUnit, excess: _Excess) -> float:
    """Return the sort key of a unit: a small one that suffices is the best, or else a large one."""
    amounts = unit.amounts[MEMORY] if excess.mib > 0 else unit.amounts[VCPUS]
    return amounts if amounts >= max(excess.mib if excess.mib > 0 else excess.vcpus, 0) else -amounts


def _excess_text(excess: _Excess) -> str:
    parts = [f"{excess.mib:g} MiB of memory"] if excess.mib > 0 else []
    return " and ".join([*parts, *([f"{excess.vcpus:g} vCPUs"] if excess.vcpus > 0 else [])])
