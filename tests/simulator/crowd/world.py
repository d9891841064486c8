# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fleet of any size in memory that all processes share: where each guest runs, and what a host would say of itself."""

from __future__ import annotations

import functools
import multiprocessing.sharedctypes
import typing as t
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import GuestPlatform, HostFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import CpuVerdict
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f

GUEST_MIB = 1024
_SCHEME = "qemu+tcp://"


@dataclass(frozen=True)
class Size:
    """How large a fleet is, and what is permitted in it.

    :arg rooms: how many guests a host has memory for.
    :arg popular: to so many hosts half of the moves go, so that there is something to quarrel about.
    :arg limits: C(kvmfleet_scheduler.limits) of every host.
    :arg move_seconds: how long a move lasts.
    """

    processes: int
    hosts: int
    guests: int
    rooms: int
    popular: int
    tasks: int
    moves: int
    limits: dict[str, int]
    move_seconds: float = 0.5

    def host(self, number: int) -> str:
        return f"kvm{number + 1}"

    def guest(self, number: int) -> str:
        return f"g{number}"


class World:
    """Each guest is moved by one process alone, but every process sees all of them."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self._places = multiprocessing.sharedctypes.RawArray("i", [guest % size.hosts for guest in range(size.guests)])
        self._templates: dict[int, f.Document] = {}
        self._domains: dict[int, f.Document] = {}
        self._overfull = multiprocessing.sharedctypes.RawArray("i", size.processes)

    def owner(self, guest: int) -> int:
        """Return the number of the process that moves the guest."""
        return guest % self.size.hosts % self.size.processes

    def place(self, guest: int) -> int:
        return int(self._places[guest])

    def move(self, guest: int, host: int) -> None:
        """Let a guest arrive, and remember where that was more than the host has room for."""
        self._places[guest] = host
        self._overfull[self.owner(guest)] += len(self.guests_on(host)) > self.size.rooms

    @property
    def overfull(self) -> int:
        """How often a guest arrived on a host that had no room for it."""
        return sum(self._overfull)

    def guests_on(self, host: int) -> list[int]:
        return [guest for guest, place in enumerate(self._places) if place == host]

    def facts(self, host: int) -> f.Document:
        """Return what a host says of itself."""
        return {**self._template(host), "domains": [self._domain(guest) for guest in self.guests_on(host)]}

    def _template(self, host: int) -> f.Document:
        if host not in self._templates:
            self._templates[host] = f.host(self.size.host(host), self.size.rooms * GUEST_MIB, 64)
        return self._templates[host]

    def _domain(self, guest: int) -> f.Document:
        if guest not in self._domains:
            self._domains[guest] = f.domain(self.size.guest(guest), GUEST_MIB)
        return self._domains[guest]

    def at(self, uri: str) -> SimulatedHost:
        """Return the host that a URI leads to."""
        return SimulatedHost(self, int(uri.removeprefix(_SCHEME).partition("/")[0].removeprefix("kvm")) - 1, uri)

    @functools.cached_property
    def guest_of(self) -> dict[str, int]:
        """Guests by UUID."""
        return {f.uuid_of(self.size.guest(guest)): guest for guest in range(self.size.guests)}


class SimulatedHost:
    """What a survey asks of a host."""

    is_read_only = False

    def __init__(self, world: World, number: int, uri: str = "qemu:///system") -> None:
        self.uri = uri
        self.number = number
        self._world = world

    def find_domain(self, name: t.Optional[str] = None, uuid: t.Optional[str] = None) -> domain_states.DomainInfo:
        """Return a domain of this host, by its UUID."""
        return domain_states.DomainInfo(
            str(uuid), self._world.size.guest(self._world.guest_of[str(uuid)]), self.view_domain(str(uuid)), memory_bytes=GUEST_MIB * f.MIB, vcpus=1
        )

    def find_other_job(self, uuid: str) -> str:
        """Return no job: nothing but moves happens in the world."""
        return ""

    def view_domain(self, uuid: str) -> domain_states.DomainView:
        is_here = self._world.place(self._world.guest_of[uuid]) == self.number
        return domain_states.DomainView(present=is_here, active=is_here, persistent=is_here, state=domain_states.RUNNING if is_here else domain_states.SHUTOFF)

    def describe(self) -> HostFacts:
        return decode(HostFacts, self._world.facts(self.number))

    def compare_cpu(self, platform: GuestPlatform, cpu_xml: str) -> CpuVerdict:
        return CpuVerdict(True, None)

    def has_path(self, path: str) -> bool:
        return True

    def close(self) -> None:
        return
