# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a host is, as its facts tell: everything that no guest changes by coming or going."""

from __future__ import annotations

import functools
import posixpath
import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

MIB = 1024**2

Body = Mapping[str, t.Any]
# Places, each with the text that the paths in it begin with.
Roots = Sequence[tuple[str, Body]]


@dataclass(frozen=True)
class Hardware:
    """The facts C(kvmfleet_host) of one host. What they do not tell is None, and a filter warns of it.

    Of a host that did not answer they are empty.
    """

    facts: Body = field(default_factory=dict, hash=False)

    @functools.cached_property
    def total_mib(self) -> int:
        """The host's memory."""
        return int((self.facts.get("memory") or {}).get("total_bytes") or 0) // MIB

    @functools.cached_property
    def cpus(self) -> int:
        """The host's CPUs that are in use."""
        return int(self.facts.get("cpus") or 0)

    @functools.cached_property
    def cpu_ids(self) -> t.Optional[frozenset[int]]:
        """The numbers of these CPUs."""
        ids = self.facts.get("cpu_ids")
        return None if ids is None else frozenset(ids)

    @functools.cached_property
    def cells_mib(self) -> t.Optional[Mapping[int, int]]:
        """NUMA cells and their memory in MiB."""
        cells = self.facts.get("numa_cells")
        return None if cells is None else {cell["id"]: cell["total_mib"] for cell in cells}

    @functools.cached_property
    def pages(self) -> t.Optional[Mapping[int, Mapping[int, tuple[int, int]]]]:
        """Huge pages: size in KiB to cell to MiB in all, and MiB free when the facts were gathered."""
        cells = self.facts.get("numa_cells")
        if cells is None:
            return None
        sizes: dict[int, dict[int, tuple[int, int]]] = {}
        for cell in cells:
            for page in cell.get("pages") or ():
                size = page["size_kib"]
                sizes.setdefault(size, {})[cell["id"]] = (page["total"] * size // 1024, page["free"] * size // 1024)
        return sizes

    @functools.cached_property
    def traits(self) -> frozenset[str]:
        """What its hypervisor is known to be able to do."""
        return frozenset(self.facts.get("traits") or ())

    @functools.cached_property
    def missing_traits(self) -> Mapping[str, str]:
        """What its hypervisor cannot do, and the host's own word on why."""
        return self.facts.get("missing_traits") or {}

    @functools.cached_property
    def hypervisor(self) -> t.Optional[int]:
        """The version of its QEMU, as libvirt's number."""
        return (self.facts.get("versions") or {}).get("hypervisor") or None

    @functools.cached_property
    def libvirt(self) -> t.Optional[int]:
        """The version of its libvirt, as libvirt's number."""
        return (self.facts.get("versions") or {}).get("libvirt") or None

    @functools.cached_property
    def host_cpu(self) -> t.Optional[Body]:
        """Its own CPU: C(model), C(vendor), C(features)."""
        return self.facts.get("host_cpu")

    @functools.cached_property
    def platforms(self) -> t.Optional[Mapping[tuple[str, str], Body]]:
        """What guests it runs: architecture and kind of virtualisation to the platform."""
        platforms = self.facts.get("platforms")
        return None if platforms is None else {(platform["arch"], platform["virt_type"]): platform for platform in platforms}

    @functools.cached_property
    def machines(self) -> Mapping[tuple[str, str], frozenset[str]]:
        """The machine types of each platform."""
        return {key: frozenset(platform.get("machines") or ()) for key, platform in (self.platforms or {}).items()}

    @functools.cached_property
    def cpu_features(self) -> Mapping[tuple[str, str], frozenset[str]]:
        """The CPU features that each platform can give a guest, where they are known."""
        return {key: frozenset(platform["cpu"].get("features") or ()) for key, platform in (self.platforms or {}).items() if platform.get("cpu")}

    @functools.cached_property
    def cpu_models(self) -> Mapping[tuple[str, str], frozenset[str]]:
        """The CPU models that each platform can give a guest, where they are known."""
        return {key: frozenset(platform["cpu"].get("usable_models") or ()) for key, platform in (self.platforms or {}).items() if platform.get("cpu")}

    @functools.cached_property
    def networks(self) -> t.Optional[Mapping[str, Body]]:
        """Libvirt's networks by name."""
        networks = self.facts.get("networks")
        return None if networks is None else {network["name"]: network for network in networks}

    @functools.cached_property
    def network_bridges(self) -> frozenset[str]:
        """The bridges of networks that are active."""
        return frozenset(network["bridge"] for network in self.facts.get("networks") or () if network.get("active") and network.get("bridge"))

    @functools.cached_property
    def bridges(self) -> t.Optional[frozenset[str]]:
        """The bridges of the host."""
        bridges = self.facts.get("bridges")
        return None if bridges is None else frozenset(bridges)

    @functools.cached_property
    def net_devices(self) -> frozenset[str]:
        """Network interfaces that libvirt told of, an underscore for every sign that is no letter or digit; there may be more."""
        return frozenset(self.facts.get("net_devices") or ())

    @functools.cached_property
    def interfaces(self) -> t.Optional[frozenset[str]]:
        """All network interfaces of the host."""
        interfaces = self.facts.get("interfaces")
        return None if interfaces is None else frozenset(interfaces)

    @functools.cached_property
    def devices(self) -> t.Optional[Mapping[tuple[str, str], Body]]:
        """Devices by kind and address."""
        devices = self.facts.get("devices")
        return None if devices is None else {(device["kind"], device.get("address") or ""): device for device in devices}

    @functools.cached_property
    def pools(self) -> t.Optional[Mapping[str, Body]]:
        """Storage pools by name."""
        pools = self.facts.get("pools")
        return None if pools is None else {pool["name"]: pool for pool in pools}

    @functools.cached_property
    def active_pools(self) -> Roots:
        """Storage pools that are active, for L(place_with)."""
        return _roots(pool for pool in self.facts.get("pools") or () if pool.get("active"))

    @functools.cached_property
    def mounts(self) -> t.Optional[Roots]:
        """Mounted file systems, for L(place_with)."""
        mounts = self.facts.get("mounts")
        return None if mounts is None else _roots(mounts)


def _roots(places: Iterable[Body]) -> Roots:
    """Return the places (each has C(path)) by the text that a path in them begins with, deep ones first, of two at one point the later one."""
    pairs = [(f"{(place.get('path') or '?').rstrip('/')}/", place) for place in places]
    return sorted(pairs, key=lambda pair: len(pair[0]))[::-1]


def place_with(roots: Roots, path: str) -> t.Optional[tuple[Body, str]]:
    """Return the deepest of the places that the path lies in, and the path as seen from there; C(.) for the place itself."""
    wanted = _as_folder(path)
    for root, place in roots:
        if wanted.startswith(root):
            return place, wanted[len(root) : -1] or "."
    return None


@functools.lru_cache(maxsize=4096)
def _as_folder(path: str) -> str:
    return f"{posixpath.normpath(path)}/"
