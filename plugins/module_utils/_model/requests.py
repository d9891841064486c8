# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The requirements of a domain, called its request, as C(host_facts), records and the ledger keep it.

A host writes every key. A request that was saved, or that a person provides, may omit all keys but C(memory_mib) and C(vcpus).
"""

from __future__ import annotations

import dataclasses
import typing as t

from .._dataclass import dataclass
from .codec import ABSENT, Absent, Json, JsonObject, Maybe, ShapeError, SignedInt
from .policies import INCREMENTAL


@dataclass(frozen=True)
class GuestCpu:
    """The CPU that a guest sees.

    :arg features: the policy of each CPU feature, by the name of the feature.
    :arg xml: the CPU as the definition has it.
    :arg package_threads: how many threads a processor package has.
    :arg shows_threads: whether the guest sees the CPU features that QEMU makes of these threads; null if that is not known.
    """

    mode: Maybe[str] = ABSENT
    model: Maybe[str] = ABSENT
    features: Maybe[t.Mapping[str, t.Optional[str]]] = ABSENT
    xml: Maybe[str] = ABSENT
    package_threads: t.Union[int, Absent] = ABSENT
    shows_threads: Maybe[bool] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)

    def check(self) -> None:
        """Raise L(ShapeError) for a package without threads."""
        _require_positive("package_threads", self.package_threads)


@dataclass(frozen=True)
class Pinning:
    """The host CPUs of each vCPU by its number, those of the emulator, and those of each I/O thread by its number."""

    vcpus: t.Union[t.Mapping[str, t.Tuple[int, ...]], Absent] = ABSENT
    emulator: Maybe[t.Tuple[int, ...]] = ABSENT
    iothreads: t.Union[t.Mapping[str, t.Tuple[int, ...]], Absent] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class GuestCell:
    """A NUMA cell of a guest.

    :arg memory_mib: with the memory devices that belong to it.
    :arg nodeset: the host's cells that hold the memory of this one; C(mode) is how it is bound to them, if that differs from the mode for all memory.
    """

    memory_mib: int
    id: t.Union[int, Absent] = ABSENT
    vcpus: Maybe[t.Tuple[int, ...]] = ABSENT
    nodeset: Maybe[t.Tuple[int, ...]] = ABSENT
    mode: Maybe[str] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class NumaPlacement:
    """How a guest's memory is bound to NUMA cells of the host.

    :arg mode: libvirt's mode, e.g. C(strict); null if only cells are bound.
    :arg nodeset: the host's cells that hold the memory.
    :arg cells: the guest's own.
    """

    mode: Maybe[str] = ABSENT
    nodeset: Maybe[t.Tuple[int, ...]] = ABSENT
    cells: Maybe[t.Tuple[GuestCell, ...]] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class HugepageNeed:
    """Memory of a guest that is in huge pages of one size; a size of null is the host's default."""

    mib: int
    size_kib: Maybe[int] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)

    def check(self) -> None:
        """Raise L(ShapeError) for pages without a size."""
        _require_positive("size_kib", self.size_kib)


@dataclass(frozen=True)
class DeviceNeed:
    """A device of the host that a guest holds; the address is empty if vendor and product choose the device.

    :arg optional: whether the guest does without it where it is missing.
    :arg network: the libvirt network that has given the guest this device, and gives it another one on another host; absent for none.
    """

    kind: str
    address: Maybe[str] = ABSENT
    vendor: Maybe[str] = ABSENT
    product: Maybe[str] = ABSENT
    optional: t.Union[bool, Absent] = ABSENT
    network: Maybe[str] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class DiskFile:
    """A file or device that the image of a disk is built on.

    :arg role: C(backing) or C(data).
    :arg kind: as libvirt names kinds of disks.
    :arg shared: whether other hosts see its data, null if that is not proved; C(store) is its name there.
    """

    role: str
    kind: str
    source: str
    shared: Maybe[bool] = ABSENT
    store: Maybe[str] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class DiskNeed:
    """A disk.

    :arg kind: as libvirt names kinds of disks.
    :arg source: a path, C(pool/volume), or the name of a network disk; empty for an empty drive.
    :arg shared: whether other hosts see its data, null if that is not proved; C(store) is the name of the disk there.
    :arg optional: whether the guest starts without its image, too.
    :arg bytes: what a copy would send of the image itself, C(below_bytes) what a full copy would send of the images below it; null if that is not known.
    :arg files: what the image is built on; C(files_problem) is why that is not all of it.
    """

    target: str
    device: Maybe[str] = ABSENT
    kind: Maybe[str] = ABSENT
    source: Maybe[str] = ABSENT
    format: Maybe[str] = ABSENT
    readonly: t.Union[bool, Absent] = ABSENT
    shareable: t.Union[bool, Absent] = ABSENT
    shared: Maybe[bool] = ABSENT
    store: Maybe[str] = ABSENT
    optional: t.Union[bool, Absent] = ABSENT
    bytes: Maybe[int] = ABSENT
    below_bytes: Maybe[int] = ABSENT
    files: Maybe[t.Tuple[DiskFile, ...]] = ABSENT
    files_problem: Maybe[str] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)

    def count_copy(self, copy_mode: str) -> int:
        """Return the bytes that a copy of the disk sends, as far as they are known."""
        return (self.bytes or 0) + (0 if copy_mode == INCREMENTAL else self.below_bytes or 0)


# The keys of a disk that change while its guest writes.
SIZES_OF_IMAGES = ("bytes", "below_bytes")


@dataclass(frozen=True)
class NetworkNeed:
    """What a network interface is plugged into.

    :arg portgroup: the port group of the network that it belongs to; absent for none.
    :arg virtualport: the type of its port, e.g. C(openvswitch); absent for none.
    :arg network_filter: the name of libvirt's network filter for it; absent for none.
    :arg vlan: the VLAN tags that its definition has for it; that of a running guest also has those of its libvirt network. Absent for none.
    :arg forward: that of the libvirt network on the host that the guest was saved on, see L(LibvirtNetwork); absent if it was not known.
    :arg network_vlan: the VLAN tags of that network for such an interface, null for none; absent if that was not known.
    """

    type: str
    source: Maybe[str] = ABSENT
    portgroup: Maybe[str] = ABSENT
    virtualport: Maybe[str] = ABSENT
    network_filter: Maybe[str] = ABSENT
    vlan: Maybe[str] = ABSENT
    forward: Maybe[str] = ABSENT
    network_vlan: Maybe[str] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class BootFile:
    """A file that QEMU reads when it starts the guest.

    :arg what: e.g. C(loader) or C(kernel).
    """

    what: str
    path: str
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class DomainGroup:
    """A group of domains that are kept together, or apart.

    :arg max_per_host: how many of them a host may have, if they are kept apart.
    """

    name: str
    policy: str
    max_per_host: Maybe[int] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)

    def check(self) -> None:
        """Raise L(ShapeError) for a group that no host may have a domain of."""
        _require_positive("max_per_host", self.max_per_host)


@dataclass(frozen=True)
class DomainRequest:
    """What a domain needs of a host.

    :arg machine: the machine type as it runs, e.g. C(pc-q35-7.2).
    :arg hypervisor: the version of the QEMU that it runs on, as libvirt's number.
    :arg start_cpu: the CPU that it asks for when it starts anew, if a host then gives it another one: C(host-model).
    :arg blockers: the reasons why the domain cannot be moved, each a sentence.
    :arg secrets: the names of the libvirt secrets that open its disks, its devices and the state of its TPM, as in L(Surroundings).
    :arg nvram: the file of its firmware variables; C(nvram_template) is the file from which a host creates it.
    :arg secure_boot: whether its definition demands firmware that enforces secure boot.
    :arg tpm: whether it has an emulated TPM; C(tpm_model) and C(tpm_version) are as libvirt names them.
    :arg tpm_persistent: whether its definition has libvirt keep the state of that TPM (C(persistent_state)).
    :arg traits: what its policy requires of both hypervisors.
    :arg labels: the labels that the host must have in the inventory.
    :arg drain: what a drain does with the domain: a strategy, or a list of them.
    :arg uuid: of the domain, in a request that was saved; C(name) likewise.
    :arg copied_disk_bytes: in a record, the bytes of copied disks by target. Older records have other forms.
    """

    memory_mib: int
    vcpus: int
    arch: Maybe[str] = ABSENT
    virt_type: Maybe[str] = ABSENT
    machine: Maybe[str] = ABSENT
    hypervisor: Maybe[int] = ABSENT
    cpu: Maybe[GuestCpu] = ABSENT
    start_cpu: Maybe[GuestCpu] = ABSENT
    pinning: Maybe[Pinning] = ABSENT
    numa: Maybe[NumaPlacement] = ABSENT
    hugepages: Maybe[t.Tuple[HugepageNeed, ...]] = ABSENT
    devices: Maybe[t.Tuple[DeviceNeed, ...]] = ABSENT
    blockers: Maybe[t.Tuple[str, ...]] = ABSENT
    disks: Maybe[t.Tuple[DiskNeed, ...]] = ABSENT
    networks: Maybe[t.Tuple[NetworkNeed, ...]] = ABSENT
    secrets: Maybe[t.Tuple[str, ...]] = ABSENT
    nvram: Maybe[str] = ABSENT
    nvram_template: Maybe[str] = ABSENT
    loader: Maybe[str] = ABSENT
    secure_boot: Maybe[bool] = ABSENT
    boot_files: Maybe[t.Tuple[BootFile, ...]] = ABSENT
    tpm: Maybe[bool] = ABSENT
    tpm_model: Maybe[str] = ABSENT
    tpm_version: Maybe[str] = ABSENT
    tpm_persistent: Maybe[bool] = ABSENT
    traits: Maybe[t.Tuple[str, ...]] = ABSENT
    labels: Maybe[t.Tuple[str, ...]] = ABSENT
    group: Maybe[DomainGroup] = ABSENT
    priority: Maybe[SignedInt] = ABSENT
    drain: t.Union[Json, Absent] = ABSENT
    uuid: Maybe[str] = ABSENT
    name: Maybe[str] = ABSENT
    copied_disk_bytes: t.Union[Json, Absent] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)

    def check(self) -> None:
        """Raise L(ShapeError) for a domain without memory or vCPUs."""
        _require_positive("memory_mib", self.memory_mib)
        _require_positive("vcpus", self.vcpus)


def _require_positive(key: str, number: Maybe[int]) -> None:
    if number == 0:
        raise ShapeError(key, "a whole number, at least 1", number)
