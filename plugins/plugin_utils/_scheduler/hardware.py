# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A host according to its facts: everything that does not change when guests arrive or leave, and the storage of its paths."""

from __future__ import annotations

import functools
import posixpath
import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Maybe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.definition_files import locate_volume
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import (
    CpuFacts,
    HostDevice,
    HostFacts,
    LibvirtNetwork,
    MountFacts,
    Platform,
    StoragePool,
)

MIB = 1024**2

Name = t.TypeVar("Name")
Place = t.TypeVar("Place", StoragePool, MountFacts)
# Mounts or pools, each with the text with which the paths in it begin.
Roots = Sequence[tuple[str, Place]]
PlatformKey = tuple[str, str]


@dataclass(frozen=True)
class Hardware:
    """The facts of one host. Unknown facts are None, and filters warn about them. They are empty for a host that did not answer."""

    facts: HostFacts = field(default_factory=HostFacts, hash=False)

    @functools.cached_property
    def total_mib(self) -> int:
        """The host's memory."""
        return (self.facts.memory or {}).get("total_bytes", 0) // MIB

    @functools.cached_property
    def cpus(self) -> int:
        """The host's CPUs that are in use."""
        return self.facts.cpus or 0

    @functools.cached_property
    def cpu_ids(self) -> t.Optional[frozenset[int]]:
        """The numbers of these CPUs."""
        return _names_of(self.facts.cpu_ids)

    @functools.cached_property
    def cells_mib(self) -> t.Optional[Mapping[int, int]]:
        """NUMA cells and their memory in MiB."""
        cells = self.facts.numa_cells
        return {cell.id: cell.total_mib for cell in cells} if isinstance(cells, tuple) else None

    @functools.cached_property
    def pages(self) -> t.Optional[Mapping[int, Mapping[int, tuple[int, int]]]]:
        """Huge pages: by size in KiB and by cell, the total MiB, and the MiB that were free when the facts were gathered."""
        cells = self.facts.numa_cells
        if not isinstance(cells, tuple):
            return None
        sizes: dict[int, dict[int, tuple[int, int]]] = {}
        for cell in cells:
            for pool in cell.pages or ():
                sizes.setdefault(pool.size_kib, {})[cell.id] = (pool.total * pool.size_kib // 1024, pool.free * pool.size_kib // 1024)
        return sizes

    @functools.cached_property
    def page_pools_mib(self) -> Mapping[int, int]:
        """NUMA cells and their memory in huge pages, in use or not, in MiB. The kernel gives it to nothing else. Empty if the host has none, or if that is
        not known.
        """
        pools: dict[int, int] = {}
        for cells in (self.pages or {}).values():
            for cell, (total, _free) in cells.items():
                pools[cell] = pools.get(cell, 0) + total
        return {cell: mib for cell, mib in pools.items() if mib}

    @functools.cached_property
    def page_pool_mib(self) -> int:
        """The memory of the host in huge pages, in MiB, by the same rule."""
        return sum(self.page_pools_mib.values())

    @functools.cached_property
    def traits(self) -> frozenset[str]:
        """The traits that its hypervisor is known to have."""
        return frozenset(self.facts.traits or ())

    @functools.cached_property
    def missing_traits(self) -> Mapping[str, str]:
        """The traits that its hypervisor lacks, with the host's own explanation."""
        return self.facts.missing_traits or {}

    def explain_unknown(self, what: str) -> str:
        """Return why a fact, or a part of one, is unknown; empty if the host was read with the rights of root."""
        return (self.facts.unverified_reasons or {}).get(what, "")

    @functools.cached_property
    def hypervisor(self) -> t.Optional[int]:
        """The version of its QEMU, as libvirt's number."""
        return (self.facts.versions or {}).get("hypervisor") or None

    @functools.cached_property
    def libvirt(self) -> t.Optional[int]:
        """The version of its libvirt, as libvirt's number."""
        return (self.facts.versions or {}).get("libvirt") or None

    @functools.cached_property
    def host_cpu(self) -> t.Optional[CpuFacts]:
        """Its own CPU; None if libvirt does not describe it, as on s390x and riscv64."""
        cpu = self.facts.host_cpu
        return cpu if cpu and (cpu.model or cpu.features) else None

    @functools.cached_property
    def platforms(self) -> t.Optional[Mapping[PlatformKey, Platform]]:
        """The kinds of guests that it runs: architecture and kind of virtualisation to the platform."""
        platforms = self.facts.platforms
        return {(platform.arch, platform.virt_type): platform for platform in platforms} if isinstance(platforms, tuple) else None

    @functools.cached_property
    def machines(self) -> Mapping[PlatformKey, frozenset[str]]:
        """The machine types of each platform."""
        return {key: frozenset(platform.machines or ()) for key, platform in (self.platforms or {}).items()}

    @functools.cached_property
    def cpu_features(self) -> Mapping[PlatformKey, frozenset[str]]:
        """The CPU features that each platform can give a guest, if they are known."""
        return {key: frozenset(cpu.features or ()) for key, cpu in self._guest_cpus}

    @functools.cached_property
    def cpu_models(self) -> Mapping[PlatformKey, frozenset[str]]:
        """The CPU models that each platform can give a guest, if they are known."""
        return {key: frozenset(cpu.usable_models or ()) for key, cpu in self._guest_cpus}

    def find_given_cpu(self, key: PlatformKey) -> t.Optional[CpuFacts]:
        """Return the CPU that a guest of this platform is given if it asks for that of the host; None if it is not known."""
        return self.host_cpu or dict(self._guest_cpus).get(key)

    @property
    def _guest_cpus(self) -> list[tuple[PlatformKey, CpuFacts]]:
        return [(key, platform.cpu) for key, platform in (self.platforms or {}).items() if platform.cpu]

    @functools.cached_property
    def networks(self) -> t.Optional[Mapping[str, LibvirtNetwork]]:
        """Libvirt's networks by name."""
        networks = self.facts.networks
        return {network.name: network for network in networks} if isinstance(networks, tuple) else None

    @functools.cached_property
    def network_bridges(self) -> frozenset[str]:
        """The bridges of networks that are active."""
        return frozenset(network.bridge for network in self.facts.networks or () if network.active and network.bridge)

    @functools.cached_property
    def bridges(self) -> t.Optional[frozenset[str]]:
        """The bridges of the host."""
        return _names_of(self.facts.bridges)

    @functools.cached_property
    def net_devices(self) -> frozenset[str]:
        """Network interfaces that libvirt reported, with an underscore for every character that is not a letter or digit; there may be more."""
        return frozenset(self.facts.net_devices or ())

    @functools.cached_property
    def network_filters(self) -> t.Optional[frozenset[str]]:
        """The names of libvirt's network filters."""
        return _names_of(self.facts.network_filters)

    @functools.cached_property
    def secrets(self) -> t.Optional[frozenset[str]]:
        """The names of libvirt's secrets."""
        return _names_of(self.facts.secrets)

    @functools.cached_property
    def interfaces(self) -> t.Optional[frozenset[str]]:
        """All network interfaces of the host."""
        return _names_of(self.facts.interfaces)

    @functools.cached_property
    def linux_bridges(self) -> frozenset[str]:
        """Those of the interfaces that are known to be bridges of the kernel, and not of Open vSwitch."""
        return frozenset(one.name for one in self.facts.interface_details or () if one.kind == "bridge")

    @functools.cached_property
    def devices(self) -> t.Optional[Mapping[tuple[str, str], HostDevice]]:
        """Devices by kind and address."""
        devices = self.facts.devices
        return {(device.kind, device.address or ""): device for device in devices} if isinstance(devices, tuple) else None

    @functools.cached_property
    def pools(self) -> t.Optional[Mapping[str, StoragePool]]:
        """Storage pools by name."""
        pools = self.facts.pools
        return {pool.name: pool for pool in pools} if isinstance(pools, tuple) else None

    @functools.cached_property
    def active_pools(self) -> Roots[StoragePool]:
        """Storage pools that are active, for L(find_root)."""
        return _sort_roots(pool for pool in self.facts.pools or () if pool.active)

    @functools.cached_property
    def firmware_files(self) -> t.Optional[Mapping[str, tuple[str, ...]]]:
        """The folders in which packages install firmware, with the names of the files in them."""
        return self.facts.firmware_files if isinstance(self.facts.firmware_files, Mapping) else None

    @functools.cached_property
    def mounts(self) -> t.Optional[Roots[MountFacts]]:
        """Mounted file systems, for L(find_root)."""
        mounts = self.facts.mounts
        return _sort_roots(mounts) if isinstance(mounts, tuple) else None

    @functools.cached_property
    def has_silent_mount(self) -> bool:
        """Whether a file system of the host does not answer."""
        return any(mount.silent for _root, mount in self.mounts or ())


def _names_of(names: Maybe[tuple[Name, ...]]) -> t.Optional[frozenset[Name]]:
    return frozenset(names) if isinstance(names, tuple) else None


def _sort_roots(places: Iterable[Place]) -> Roots[Place]:
    """Return the mounts or pools by their path prefix, the deepest first; of two at one mount point, the later one."""
    pairs = [(f"{(place.path or '?').rstrip('/')}/", place) for place in places]
    return sorted(pairs, key=lambda pair: len(pair[0]))[::-1]


def find_root(roots: Roots[Place], path: str) -> t.Optional[tuple[Place, str]]:
    """Return the deepest mount or pool that contains the path, and the path relative to it; C(.) for its root."""
    wanted = _as_folder(path)
    for root, place in roots:
        if wanted.startswith(root):
            return place, wanted[len(root) : -1] or "."
    return None


@functools.lru_cache(maxsize=4096)
def _as_folder(path: str) -> str:
    return f"{posixpath.normpath(path)}/"


# Pools whose volumes are files of a file system, which may be the file system of others too.
_FILE_POOLS = ("dir", "fs", "netfs")


@dataclass(frozen=True)
class StorageLocation:
    """A mounted file system or a storage pool. Sizes in bytes."""

    name: str
    capacity_bytes: int
    available_bytes: int


def find_location(hardware: Hardware, path: str) -> t.Optional[StorageLocation]:
    """Return the location of that path's data; None if the facts do not show it.

    A mount has precedence over the pools on it, which share its space; a pool of block devices has precedence over the mount of its device nodes.
    """
    pool = find_root(hardware.active_pools, path)
    if pool is not None and (hardware.mounts is None or pool[0].type not in _FILE_POOLS):
        return _make_location(f"pool {pool[0].name}", pool[0])
    mount = find_root(hardware.mounts or (), path)
    # A path in /dev is a device, not a file of the file system that is mounted at /dev.
    return None if mount is None or path.startswith("/dev/") else _make_location(f"file system {mount[0].path}", mount[0])


class Store(t.NamedTuple):
    """The mount that holds a path.

    :arg identity: of the path, the same on other hosts; None if it has none.
    """

    mount: MountFacts
    identity: t.Optional[str]

    def __str__(self) -> str:
        return self.identity or f"{self.mount.kind or 'a file system'} at {self.mount.path}"


def find_store(hardware: Hardware, path: str) -> t.Optional[Store]:
    """Return the mount of the path; None if the host's mounts are not known."""
    found = find_root(hardware.mounts or (), path)
    if found is None:
        return None
    store = found[0].store
    return Store(found[0], f"{store}/{found[1]}" if store else None)


def find_image_path(hardware: Hardware, kind: t.Optional[str], source: str) -> str:
    """Return the path of an image on a host; of a volume, the one that it has in the host's own pool, empty if that is not known."""
    return locate_volume(source, hardware.facts.pools or ())[1] if kind == "volume" else source


def has_store(hardware: Hardware, image: str) -> bool:
    """Whether a store is mounted anywhere on the host that holds an image of that identity."""
    return any(True for _mount in _iterate_mounts_of(hardware, image))


def is_silent_store(hardware: Hardware, image: str) -> bool:
    """Whether the store that holds an image of that identity is mounted on the host, and does not answer there."""
    return any(mount.silent for mount in _iterate_mounts_of(hardware, image))


def _iterate_mounts_of(hardware: Hardware, image: str) -> t.Iterator[MountFacts]:
    mounts = (mount for _root, mount in hardware.mounts or ())
    return (mount for mount in mounts if mount.store and (image == mount.store or image.startswith(f"{mount.store}/")))


def has_shared_mount(hardware: Hardware) -> bool:
    """Whether any file system of the host is of a type that hosts share."""
    return any(mount.is_shared for _root, mount in hardware.mounts or ())


def _make_location(name: str, place: StoragePool | MountFacts) -> t.Optional[StorageLocation]:
    capacity, available = place.capacity_bytes, place.available_bytes
    return StorageLocation(name, capacity, available) if isinstance(capacity, int) and isinstance(available, int) else None
