# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The facts that C(host_facts) returns about a host: C(kvmfleet_host). A fact that could not be determined is null."""

from __future__ import annotations

import dataclasses
import functools
import typing as t

from .._dataclass import dataclass
from .codec import ABSENT, Absent, JsonObject, Maybe, decode
from .domain_states import JOB_INCOMING, SAVED, DomainView
from .load_signals import DomainLoad, HostLoad
from .references import HostRef
from .requests import DomainRequest


@dataclass(frozen=True)
class HugepagePool:
    """The huge pages of one size in a NUMA cell, counted in pages."""

    size_kib: int
    total: int
    free: int
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class NumaCell:
    """A NUMA cell, with the CPUs of it that are in use."""

    id: int
    total_mib: int
    free_mib: t.Union[int, Absent] = ABSENT
    cpus: t.Union[t.Tuple[int, ...], Absent] = ABSENT
    pages: t.Union[t.Tuple[HugepagePool, ...], Absent] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class CpuFacts:
    """A CPU, with the names of the features that it has.

    :arg usable_models: of the best CPU for a guest, the CPU models that the host can run.
    :arg microcode: of the host's own CPU, the version of its microcode.
    :arg description: of the best CPU for a guest, libvirt's XML, from which libvirt computes what several hosts have in common.
    """

    model: Maybe[str] = ABSENT
    vendor: Maybe[str] = ABSENT
    features: t.Union[t.Tuple[str, ...], Absent] = ABSENT
    usable_models: t.Union[t.Tuple[str, ...], Absent] = ABSENT
    microcode: Maybe[int] = ABSENT
    description: Maybe[str] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class FirmwareFacts:
    """The firmware and the TPMs that libvirt offers to guests of a platform.

    :arg loaders: the paths of the firmware images that libvirt knows.
    :arg secure_boot: whether any of them enforces secure boot.
    :arg tpm_backends: C(emulator) if the programs of an emulated TPM are installed; others by libvirt's names.
    """

    loaders: t.Tuple[str, ...]
    secure_boot: t.Union[bool, Absent] = ABSENT
    tpm_backends: t.Union[t.Tuple[str, ...], Absent] = ABSENT
    tpm_models: t.Union[t.Tuple[str, ...], Absent] = ABSENT
    tpm_versions: t.Union[t.Tuple[str, ...], Absent] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Platform:
    """A kind of guest that the host runs.

    :arg virt_type: C(kvm) or C(qemu).
    :arg max_vcpus: how many vCPUs a guest can have.
    :arg cpu: the best CPU that the host can give a guest.
    :arg firmware: what the host can boot a guest with; null if libvirt does not report it.
    """

    arch: str
    virt_type: str
    emulator: Maybe[str] = ABSENT
    machines: t.Union[t.Tuple[str, ...], Absent] = ABSENT
    max_vcpus: Maybe[int] = ABSENT
    cpu: Maybe[CpuFacts] = ABSENT
    firmware: Maybe[FirmwareFacts] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class StoragePool:
    """A storage pool.

    :arg type: as libvirt names kinds of pools.
    :arg volumes: name to path, of an active pool whose volumes have other names than their devices.
    """

    name: str
    type: str
    active: t.Union[bool, Absent] = ABSENT
    path: Maybe[str] = ABSENT
    capacity_bytes: Maybe[int] = ABSENT
    available_bytes: Maybe[int] = ABSENT
    volumes: t.Union[t.Mapping[str, str], Absent] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


# Types of file systems that hosts share.
SHARED_KINDS = frozenset(
    {"nfs", "nfs4", "gfs2", "ocfs2", "afs", "cifs", "smb", "ceph", "gpfs", "acfs", "beegfs", "fuse.glusterfs", "fuse.quobyte", "fuse.ceph"}
)
# How the names of types begin that may belong to one host or to many: they count as unknown.
UNTOLD_KINDS = ("fuse", "9p", "virtiofs", "lustre", "smb3", "pvfs2", "orangefs", "autofs")


@dataclass(frozen=True)
class MountFacts:
    """A mounted file system.

    :arg store: the identity of the file system, the same on every host; null if it has none.
    :arg silent: true if its server did not answer.
    """

    path: str
    kind: t.Union[str, Absent] = ABSENT
    store: Maybe[str] = ABSENT
    capacity_bytes: Maybe[int] = ABSENT
    available_bytes: Maybe[int] = ABSENT
    silent: Maybe[bool] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)

    @property
    def is_shared(self) -> bool:
        """Whether hosts share file systems of this type."""
        return self.kind in SHARED_KINDS

    @property
    def is_local(self) -> bool:
        """Whether the file system belongs to this host alone. Types that may belong to many hosts do not count."""
        return bool(self.kind) and not self.is_shared and not str(self.kind).startswith(UNTOLD_KINDS)


@dataclass(frozen=True)
class LibvirtNetwork:
    """A network of libvirt's.

    :arg portgroups: the names of its port groups; C(default_portgroup) is the one of interfaces that name none, null if there is none.
    :arg forward: how it connects guests with others, e.g. C(nat) or C(bridge); null for a network that is isolated.
    :arg vlan: the VLAN tags of its interfaces, null if there are none; C(portgroup_vlans) has those of the port groups with tags of their own.
    """

    name: str
    active: t.Union[bool, Absent] = ABSENT
    bridge: Maybe[str] = ABSENT
    portgroups: Maybe[t.Tuple[str, ...]] = ABSENT
    forward: Maybe[str] = ABSENT
    default_portgroup: Maybe[str] = ABSENT
    vlan: Maybe[str] = ABSENT
    portgroup_vlans: Maybe[t.Mapping[str, str]] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)

    def find_vlan(self, portgroup: Maybe[str]) -> Maybe[str]:
        """Return the VLAN tags that an interface of that port group has, unless it names tags itself; null for none."""
        if isinstance(self.vlan, Absent):
            return ABSENT
        return (self.portgroup_vlans or {}).get(portgroup or self.default_portgroup or "", self.vlan)


@dataclass(frozen=True)
class InterfaceFacts:
    """A network interface.

    :arg kind: as the kernel names it, e.g. C(bridge) or C(vlan); empty for a plain interface.
    :arg vlan: the ID of a VLAN.
    :arg lower: the name of the interface that a VLAN is on.
    :arg controller: the name of the bridge or bond that it is a port of.
    """

    name: str
    kind: t.Union[str, Absent] = ABSENT
    mtu: Maybe[int] = ABSENT
    vlan: Maybe[int] = ABSENT
    lower: Maybe[str] = ABSENT
    controller: Maybe[str] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class HostDevice:
    """A device that can be handed to a guest.

    :arg kind: C(pci), C(usb), C(scsi) or C(mdev).
    """

    kind: str
    address: Maybe[str] = ABSENT
    vendor: Maybe[str] = ABSENT
    product: Maybe[str] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class HardwareFacts:
    """The hardware of a host, and what kinds of guests can run on it."""

    arch: str
    cpu_ids: t.Tuple[int, ...]
    numa_cells: t.Tuple[NumaCell, ...]
    platforms: t.Tuple[Platform, ...]
    host_cpu: t.Optional[CpuFacts]


@dataclass(frozen=True)
class Surroundings:
    """What is around the domains of a host; null is what libvirt has no driver for.

    :arg net_devices: network interfaces, with an underscore for every character that is not a letter or digit.
    :arg network_filters: the names of libvirt's network filters.
    :arg secrets: the names of libvirt's secrets: the UUID of each, and its kind with its usage, e.g. C(ceph client.libvirt).
    """

    pools: t.Optional[t.Tuple[StoragePool, ...]]
    networks: t.Optional[t.Tuple[LibvirtNetwork, ...]]
    devices: t.Optional[t.Tuple[HostDevice, ...]]
    net_devices: t.Optional[t.Tuple[str, ...]]
    network_filters: t.Optional[t.Tuple[str, ...]]
    secrets: t.Optional[t.Tuple[str, ...]]


@dataclass(frozen=True)
class TraitFacts:
    """The migration traits of a host.

    :arg unverified: traits that could not be determined, with the reason.
    :arg missing_traits: why the host lacks a trait.
    """

    traits: t.Tuple[str, ...]
    unverified: t.Mapping[str, str]
    missing_traits: t.Mapping[str, str]


@dataclass(frozen=True)
class DomainDisk:
    """A disk of a domain as its definition has it.

    :arg source: where its bytes are.
    """

    target: str
    kind: t.Union[str, Absent] = ABSENT
    source: t.Union[str, Absent] = ABSENT
    readonly: t.Union[bool, Absent] = ABSENT
    shareable: t.Union[bool, Absent] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class DomainFacts:
    """A domain of a host.

    :arg managed_save: whether it has a managed-save image; absent if an earlier version has reported the domain.
    :arg job: the kind of job that libvirt has for it.
    :arg policy: the values of its own policy; C(policy_problems) are its errors, by element.
    :arg request: what it needs of a host, without what a profile adds. Of a thousand domains few are read: see C(needs).
    :arg dirty_rate_mib: how many MiB a second it writes anew; null if that was not measured.
    :arg used_mib: how much of its memory it has written since its start; null if that is not known, absent if it is not active.
    :arg load: its load; null if that is not known.
    """

    uuid: str
    name: str
    active: bool
    state: t.Union[str, Absent] = ABSENT
    reason: t.Union[str, Absent] = ABSENT
    persistent: t.Union[bool, Absent] = ABSENT
    autostart: t.Union[bool, Absent] = ABSENT
    managed_save: t.Union[bool, Absent] = ABSENT
    job: t.Union[str, Absent] = ABSENT
    memory_mib: t.Union[int, Absent] = ABSENT
    vcpus: t.Union[int, Absent] = ABSENT
    disks: t.Union[t.Tuple[DomainDisk, ...], Absent] = ABSENT
    policy: Maybe[JsonObject] = ABSENT
    policy_problems: t.Union[t.Mapping[str, str], Absent] = ABSENT
    request: Maybe[JsonObject] = ABSENT
    dirty_rate_mib: Maybe[float] = ABSENT
    used_mib: Maybe[int] = ABSENT
    load: Maybe[DomainLoad] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def needs(self) -> t.Optional[DomainRequest]:
        """The request of the domain; null if the host did not report it. Raises L(ShapeError) if it is invalid."""
        return decode(DomainRequest, self.request, "request") if self.request else None

    @property
    def has_saved_memory(self) -> bool:
        """Whether its next start restores its memory. libvirt forgets why a domain is off when its daemon ends, but not the image."""
        return self.reason == SAVED if self.managed_save is ABSENT else bool(self.managed_save)

    @property
    def is_leaving(self) -> bool:
        """Whether the domain is being migrated away from the host, post-copy included."""
        return DomainView(active=self.active, state=str(self.state), reason=str(self.reason), job=str(self.job)).is_leaving

    @property
    def is_arriving(self) -> bool:
        """Whether the domain is an incoming domain of the host."""
        return self.active and self.job == JOB_INCOMING


# Why a user who is not root does not know something.
WITHHELD = "libvirt withholds it on its read-only connection, the only one that this user may have"
NOT_READABLE = "only root can read it on the host"
FROM_AFAR = "only the host itself can determine it, and the host was queried over a remote URI"
NOT_REPORTED = "the host did not report it"

# What the read-only connection withholds, and is no fact of its own: the CPU in each of the platforms, the comparison of the CPU of a domain with the host,
# whether files exist on the host, and the dirty rate of domains.
PLATFORM_CPUS = "platforms.cpu"
CPU_COMPARISON = "cpu_comparison"
PATHS = "paths"
DIRTY_RATES = "domains.dirty_rate_mib"
# Parts of facts that need the rights of root: the sizes of mounts, and where the disks of domains are.
MOUNT_SIZES = "mounts.capacity_bytes"
DOMAIN_DISKS = "domains.request.disks"
# The signals of load that this host does not have, or that this user cannot read.
LOAD_SIGNALS = tuple(f"load.{field.name}" for field in dataclasses.fields(HostLoad) if field.name not in ("unknown", "extra"))
PARTS = (PLATFORM_CPUS, CPU_COMPARISON, PATHS, DIRTY_RATES, MOUNT_SIZES, DOMAIN_DISKS, *LOAD_SIGNALS)


# To at most so many hosts the rate of the link is probed.
MAX_LINKS = 3


@dataclass(frozen=True)
class HostFacts:
    """A host and its domains, or why it did not answer. A fact of another form is treated as undetermined.

    :arg answered: whether the host answered; present only if several hosts were queried. C(msg) is why not.
    :arg gathered_at: by the host's own clock.
    :arg host_uuid: libvirt's UUID; C(host_id) is the host's own ID.
    :arg boot_id: of its present boot, as the kernel names it.
    :arg ledger_id: the ledger under which the host was protected; null for none.
    :arg versions: C(libvirt) and C(hypervisor), as libvirt's numbers.
    :arg memory: C(total_bytes) and C(free_bytes).
    :arg unverified: traits and facts, or parts of facts, that could not be determined.
    :arg unverified_reasons: why, for each of them; absent if the host was read with the rights of root.
    :arg firmware_files: the folders in which packages install firmware, each with the names of its firmware images and templates of firmware variables.
    :arg remembered: the records of moves that the host remembers.
    :arg dirty_rate_seconds: for how long the dirty rates of the domains were measured; absent if they were not.
    :arg links: rate of the link to other hosts in MiB/s, by name or URI; absent if no link was probed.
    :arg load: the load of the host; null if that is not known, absent if it was not wanted.
    """

    IS_LENIENT: t.ClassVar[bool] = True

    gathered_at: t.Union[str, Absent] = ABSENT
    name: Maybe[str] = ABSENT
    host_uuid: Maybe[str] = ABSENT
    hostname: Maybe[str] = ABSENT
    versions: Maybe[t.Mapping[str, int]] = ABSENT
    memory: Maybe[t.Mapping[str, int]] = ABSENT
    cpus: Maybe[int] = ABSENT
    arch: Maybe[str] = ABSENT
    cpu_ids: Maybe[t.Tuple[int, ...]] = ABSENT
    numa_cells: Maybe[t.Tuple[NumaCell, ...]] = ABSENT
    platforms: Maybe[t.Tuple[Platform, ...]] = ABSENT
    host_cpu: Maybe[CpuFacts] = ABSENT
    pools: Maybe[t.Tuple[StoragePool, ...]] = ABSENT
    networks: Maybe[t.Tuple[LibvirtNetwork, ...]] = ABSENT
    devices: Maybe[t.Tuple[HostDevice, ...]] = ABSENT
    net_devices: Maybe[t.Tuple[str, ...]] = ABSENT
    network_filters: Maybe[t.Tuple[str, ...]] = ABSENT
    secrets: Maybe[t.Tuple[str, ...]] = ABSENT
    host_id: Maybe[str] = ABSENT
    machine_id: Maybe[str] = ABSENT
    boot_id: Maybe[str] = ABSENT
    ledger_id: Maybe[str] = ABSENT
    mounts: Maybe[t.Tuple[MountFacts, ...]] = ABSENT
    bridges: Maybe[t.Tuple[str, ...]] = ABSENT
    interfaces: Maybe[t.Tuple[str, ...]] = ABSENT
    interface_details: Maybe[t.Tuple[InterfaceFacts, ...]] = ABSENT
    firmware_files: Maybe[t.Mapping[str, t.Tuple[str, ...]]] = ABSENT
    traits: Maybe[t.Tuple[str, ...]] = ABSENT
    unverified: Maybe[t.Tuple[str, ...]] = ABSENT
    unverified_reasons: t.Union[t.Mapping[str, str], Absent] = ABSENT
    missing_traits: Maybe[t.Mapping[str, str]] = ABSENT
    remembered: Maybe[t.Tuple[JsonObject, ...]] = ABSENT
    domains: Maybe[t.Tuple[DomainFacts, ...]] = ABSENT
    dirty_rate_seconds: t.Union[int, Absent] = ABSENT
    links: Maybe[t.Mapping[str, float]] = ABSENT
    load: Maybe[HostLoad] = ABSENT
    answered: t.Union[bool, Absent] = ABSENT
    msg: t.Union[str, Absent] = ABSENT
    error_code: t.Union[str, Absent] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)

    @property
    def host(self) -> HostRef:
        """The host, without the name that the inventory has for it."""
        return HostRef(None, self.host_id or None, self.host_uuid or None)

    @property
    def is_read_by_root(self) -> bool:
        """Whether the host was read with the rights of root, which acting on it needs too."""
        return self.unverified_reasons is ABSENT

    def find_domain(self, uuid: str) -> t.Optional[DomainFacts]:
        """Return a domain of the host; null if the host has none of that UUID."""
        return next((domain for domain in self.domains or () if domain.uuid == uuid), None)


@dataclass(frozen=True)
class GuestPlatform:
    """The platform for which a guest's CPU is compared."""

    arch: str
    virt_type: str
    machine: t.Optional[str]
