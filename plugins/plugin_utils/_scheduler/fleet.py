# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""All hosts at once, for the rules that no host can answer alone: groups of domains, and the host that a domain leaves."""

from __future__ import annotations

import functools
import typing as t
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._records.hosts import same_host

from .guest import Guest
from .host_state import HostState
from .request import Request

# Group to host to the UUIDs of its members there, and the names that they have.
Groups = Mapping[str, Mapping[str, Mapping[str, Guest]]]


@dataclass(frozen=True)
class Fleet:
    """Hosts by inventory name.

    :arg leaving: UUIDs of domains that will have left the host that they are active on now: there they are no member of a group any more.
    """

    states: Mapping[str, HostState] = field(default_factory=dict, hash=False)
    leaving: frozenset[str] = frozenset()

    def taking(self, request: Request, host: str) -> Fleet:
        """Return the fleet with that domain on that host as well."""
        return self._replacing(self.states[host], self.states[host].taking(request), request.uuid)

    def without(self, uuid: str, host: str) -> Fleet:
        """Return the fleet with that domain no longer on that host."""
        return self._replacing(self.states[host], self.states[host].without(uuid), uuid)

    def source_of(self, request: Request) -> t.Optional[HostState]:
        """Return the host that the domain is to leave."""
        keys = {"host_id": request.source_id, "host_uuid": request.source_uuid, "host": request.source}
        named = (self._by_key.get((kind, value)) for kind, value in keys.items() if value)
        found = (self.states[name] for name in named if name)
        return next((state for state in found if same_host(state.place, request.source_place)), None)

    def members(self, group: str) -> Mapping[str, Mapping[str, Guest]]:
        """Return the members of a group by host and UUID, those that leave not counted where they leave."""
        return self._groups.get(group, {})

    def policies(self, group: str) -> Mapping[str, frozenset[str]]:
        """Return what the members of a group say that it is: policy to their names."""
        if group not in self._said:
            said: dict[str, set[str]] = {}
            for there in self.members(group).values():
                for guest in there.values():
                    said.setdefault((guest.group or {}).get("policy", ""), set()).add(guest.name)
            self._said[group] = {policy: frozenset(names) for policy, names in said.items()}
        return self._said[group]

    @functools.cached_property
    def _said(self) -> dict[str, Mapping[str, frozenset[str]]]:
        """Asked for each host of the fleet, and the same for all of them."""
        return {}

    @functools.cached_property
    def _by_key(self) -> Mapping[tuple[str, str], str]:
        return {(kind, value): name for name, state in self.states.items() for kind, value in state.place.items() if value}

    @functools.cached_property
    def _groups(self) -> Groups:
        groups: dict[str, dict[str, dict[str, Guest]]] = {}
        for name, state in self.states.items():
            for group, guest in self._counted(state):
                groups.setdefault(group, {}).setdefault(name, {})[guest.uuid] = guest
        return groups

    def _counted(self, state: HostState) -> Iterator[tuple[str, Guest]]:
        for guest in state.guests.values():
            is_leaving = guest.uuid in self.leaving and guest.arrived and guest.uuid not in state.moves_in
            if guest.group and not is_leaving:
                yield guest.group["name"], guest

    def _replacing(self, before: HostState, after: HostState, uuid: str) -> Fleet:
        fleet = replace(self, states={**self.states, after.name: after})
        # Hosts and their names stay as they are, and of the groups only that of one guest has changed.
        fleet.__dict__["_by_key"] = self._by_key
        groups = {guest.group["name"] for guest in (before.guests.get(uuid), after.guests.get(uuid)) if guest and guest.group}
        fleet.__dict__["_groups"] = self._groups if not groups else {**self._groups, **{group: self._regrouped(group, after) for group in groups}}
        return fleet

    def _regrouped(self, group: str, state: HostState) -> Mapping[str, Mapping[str, Guest]]:
        there = {guest.uuid: guest for name, guest in self._counted(state) if name == group}
        others = {host: members for host, members in self.members(group).items() if host != state.name}
        return {**others, state.name: there} if there else others
