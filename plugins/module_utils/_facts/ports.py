# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What gathering needs of a host. The libvirt side and the fake of the tests both implement it."""

from __future__ import annotations

import dataclasses
import typing as t
from xml.etree.ElementTree import Element

from .._migration import hypervisor as h
from .image_header import Header

Facts = t.Dict[str, t.Any]


@dataclasses.dataclass(frozen=True)
class Definition:
    """A domain with its definition, the live one where it is active; C(root) is null, with C(problem) a sentence, where libvirt could not give it."""

    info: h.DomainInfo
    root: t.Optional[Element] = None
    has_snapshots: bool = False
    problem: str = ""


@dataclasses.dataclass(frozen=True)
class Roll:
    """Every domain of a host, defined or active, and the names of those that went away while they were read."""

    definitions: t.List[Definition]
    vanished: t.List[str] = dataclasses.field(default_factory=list)


class GatheredHost(h.Host, t.Protocol):
    """A host that can say what it is, what it has, and all its domains."""

    def memory(self) -> t.Dict[str, int]:
        """C(total_bytes) and C(free_bytes)."""

    def cpus(self) -> int:
        """Number of active CPUs."""

    def emulator_uid(self) -> t.Optional[int]:
        """The user ID that QEMU runs as, null where libvirt does not tell it."""

    def hardware(self) -> Facts:
        """C(arch), C(cpu_ids), C(numa_cells), C(platforms), C(host_cpu)."""

    def surroundings(self) -> Facts:
        """C(pools), C(networks), C(devices), C(net_devices); null is what libvirt could not tell."""

    def roll(self) -> Roll:
        """Every domain of the host, each definition read once."""

    def dirty_rates(self, uuids: t.Sequence[str], seconds: int) -> t.Dict[str, int]:
        """How many MiB a second each of these domains writes anew, measured for so many seconds, all at once; what cannot be measured is left out."""


class Stores(t.Protocol):
    """Where a host's images lie, as only the host itself can tell."""

    def file(self, path: str) -> t.Tuple[t.Optional[bool], t.Optional[str]]:
        """Whether the file is on storage that other hosts see, and the identity of it there; null is what cannot be told."""

    def block(self, path: str) -> t.Tuple[t.Optional[bool], t.Optional[str]]:
        """The same of a block device."""

    def bytes_of(self, path: str, image_format: str) -> t.Optional[int]:
        """What a copy of the image would send: all of a raw one, of another what is allocated."""

    def header(self, path: str) -> Header:
        """What the header of an image says of further files. Raises L(Unreadable)."""
