# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The requirements of a domain that is to be placed, and the validation of a request from outside (a saved plan, a record)."""

from __future__ import annotations

import functools
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.renamed_request import rename_request
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Json, JsonObject, ShapeError, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.device_names import is_identity
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.policies import check_field
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import (
    BootFile,
    DeviceNeed,
    DiskFile,
    DiskNeed,
    DomainGroup,
    DomainRequest,
    GuestCpu,
    HugepageNeed,
    NetworkNeed,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import HostNames, NameChange, Renaming

_WHERE: t.Final = "request"
# Fields that a domain's policy has, too.
_OF_POLICY = ("labels", "group", "priority", "drain")
_MAX_ITEMS = 10000
_MAX_TEXT = 65536
_SHOWN_CHARACTERS = 60
_NEXT_STEP: t.Final = "Use the format in which host_facts returns the request of a domain."


def read_request(needs: Json) -> DomainRequest:
    """Return a request. Raises L(InvalidArgument) for the first invalid value in it. Unknown keys are kept."""
    try:
        request = decode(DomainRequest, needs, _WHERE)
    except ShapeError as error:
        raise _refusal(error) from error
    for key, value in t.cast(JsonObject, needs).items():
        if key not in request.extra:
            _check_size(f"{_WHERE}.{key}", value)
        if key in _OF_POLICY and value is not None:
            _check_policy(key, value)
    return request


def _refusal(error: ShapeError) -> InvalidArgument:
    if error.found is not ABSENT:
        return InvalidArgument(f"{error.path} is {_shown(error.found)}.", f"Give {error.expected}.")
    where, _dot, key = error.path.rpartition(".")
    return InvalidArgument(f"{'The request' if where == _WHERE else where} has no {key}.", _NEXT_STEP)


def _shown(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _check_size(where: str, value: Json) -> None:
    """Raise L(InvalidArgument) for a text or a list that is too long for any domain."""
    if isinstance(value, str):
        if len(value) > _MAX_TEXT:
            raise InvalidArgument(f"{where} is {_shown(value)}.", f"Give at most {_MAX_TEXT} characters.")
        return
    if not isinstance(value, (Mapping, list, tuple)):
        return
    if len(value) > _MAX_ITEMS:
        raise InvalidArgument(f"{where} has {len(value)} entries.", f"Give at most {_MAX_ITEMS}.")
    for inner in value.values() if isinstance(value, Mapping) else value:
        _check_size(where, inner)


def _check_policy(key: str, value: Json) -> None:
    try:
        check_field(key, dict(value) if isinstance(value, Mapping) else value)
    except InvalidArgument as error:
        raise InvalidArgument(f"In the request: {error.message}", error.next_step) from error


# Modes of libvirt's numatune in which memory is on the named cells or nowhere.
_BINDING_MODES = ("strict", "restrictive")


@dataclass(frozen=True)
class DiskImage:
    """The image of a disk, or a file that an image is built on. Such a file is only read, and needed on every host of the disk."""

    disk: DiskNeed
    file: t.Optional[DiskFile] = None

    @functools.cached_property
    def kind(self) -> t.Optional[str]:
        """The kind of its source, as libvirt names it: file, block, volume and others."""
        return (self.file or self.disk).kind or None

    @functools.cached_property
    def shared(self) -> t.Optional[bool]:
        """Whether its storage is shared between hosts; None if that is not known."""
        shared = (self.file or self.disk).shared
        return shared if isinstance(shared, bool) else None

    @functools.cached_property
    def source(self) -> str:
        """The path, or the name."""
        return (self.file or self.disk).source or ""

    @functools.cached_property
    def store(self) -> t.Optional[str]:
        """The identity of a path on every host; None for a device."""
        return ((self.file or self.disk).store or None) if self.kind != "block" else None

    @property
    def is_identified(self) -> bool:
        """Whether a device has an identity by which C(protect) can prove it."""
        return is_identity((self.file or self.disk).store or None)

    @functools.cached_property
    def is_readonly(self) -> bool:
        """Whether the disk itself cannot be written."""
        return self.file is None and bool(self.disk.readonly)


@dataclass(frozen=True)
class Request:
    """One domain to be placed.

    :arg source: inventory name of the host that it leaves.
    :arg source_uuid: libvirt's UUID of that host, C(source_id) its own ID; empty if it is not known.
    :arg needs: the request as C(host_facts) gives it for the domain.
    :arg copied: target to bytes, of the disks that are to be copied.
    :arg unsafe: whether the operator confirms storage that is not proved to be shared.
    :arg one_way: whether it may move to a host from which it could not move back.
    :arg at_source: the request with the names of the host that it leaves, if this one has those of another host.
    :arg renamed: what the names that differ are on that other host.
    :arg unnamed: what has no name on that other host, each a sentence.
    :arg is_cold: whether it moves without a live migration: its definition is made at its destination, and removed there if the move has to be undone.
    :arg names: of the host whose names it has; None: those of the host that it leaves.
    :arg starts: whether the guest is off while it moves, so that rules about moves between two QEMU do not apply.
    """

    uuid: str
    name: str
    source: str
    source_uuid: str
    memory_mib: int
    vcpus: int = 1
    needs: DomainRequest = field(default_factory=lambda: DomainRequest(1, 1), hash=False)
    copied: Mapping[str, int] = field(default_factory=dict, hash=False)
    unsafe: bool = False
    source_id: str = ""
    one_way: bool = True
    at_source: t.Optional[Request] = field(default=None, hash=False)
    unnamed: tuple[str, ...] = ()
    renamed: tuple[NameChange, ...] = field(default=(), hash=False)
    starts: bool = False
    is_cold: bool = False
    names: t.Optional[HostNames] = field(default=None, hash=False)

    @classmethod
    def from_needs(
        cls,
        needs: Json | DomainRequest,
        uuid: str = "",
        name: str = "",
        source: str = "",
        source_uuid: str = "",
        copied: t.Optional[Mapping[str, int]] = None,
        unsafe: bool = False,
        source_id: t.Optional[str] = None,
        one_way: bool = True,
    ) -> Request:
        """Return the request of a domain. Raises L(InvalidArgument) with a sentence for invalid values.

        :arg needs: as a host reported it, or a saved one, which includes UUID and name.
        """
        read = needs if isinstance(needs, DomainRequest) else read_request(needs)
        return cls(
            uuid=uuid or read.uuid or "",
            name=name or read.name or "The domain",
            source=source,
            source_uuid=source_uuid,
            memory_mib=read.memory_mib,
            vcpus=read.vcpus,
            needs=read,
            copied=_checked_copies(copied or {}),
            unsafe=unsafe,
            source_id=source_id or "",
            one_way=one_way,
        )

    def rename(self, renaming: Renaming) -> Request:
        """Return the request as another host has to fulfil it, with the names of that host."""
        needs, problems, changes = rename_request(self.needs, renaming)
        return self if needs == self.needs and not problems else replace(self, needs=needs, at_source=self, unnamed=problems, renamed=changes)

    @functools.cached_property
    def source_ref(self) -> HostRef:
        """The host that the domain leaves, as records name it."""
        return HostRef(self.source, self.source_id or None, self.source_uuid or None)

    def as_json(self) -> JsonObject:
        """Return the value that a record keeps as C(request), so that reservations count it."""
        own = {**encode(self.needs), "memory_mib": self.memory_mib, "vcpus": self.vcpus}
        return {**own, "copied_disk_bytes": dict(self.copied)} if self.copied else own

    @functools.cached_property
    def arch(self) -> t.Optional[str]:
        """The guest's architecture; None if it is not known."""
        return self.needs.arch or None

    @functools.cached_property
    def virt_type(self) -> t.Optional[str]:
        """C(kvm) or C(qemu)."""
        return self.needs.virt_type or None

    @functools.cached_property
    def machine(self) -> t.Optional[str]:
        """The machine type as it runs, e.g. C(pc-q35-7.2)."""
        return self.needs.machine or None

    @functools.cached_property
    def hypervisor(self) -> t.Optional[int]:
        """The version of the QEMU it runs on, as libvirt's number."""
        return self.needs.hypervisor or None

    @functools.cached_property
    def cpu(self) -> t.Optional[GuestCpu]:
        """The CPU that the guest sees."""
        return self.needs.cpu or None

    @functools.cached_property
    def start_cpu(self) -> t.Optional[GuestCpu]:
        """The CPU that the guest asks for when it starts anew, if a host then gives it another one than it sees."""
        return self.needs.start_cpu or None

    @functools.cached_property
    def vcpu_pins(self) -> tuple[frozenset[int], ...]:
        """The host CPUs of each vCPU that is pinned."""
        pinning = self.needs.pinning
        return tuple(frozenset(ids) for ids in ((pinning.vcpus if pinning else None) or {}).values() if ids)

    @functools.cached_property
    def pinned_cpus(self) -> frozenset[int]:
        """Every host CPU that the guest is pinned to, those of its emulator and of its I/O threads included."""
        pinning = self.needs.pinning
        if not pinning:
            return frozenset()
        return frozenset(pinning.emulator or ()).union(*self.vcpu_pins, *(pinning.iothreads or {}).values())

    @functools.cached_property
    def dedicated_cpus(self) -> frozenset[int]:
        """Host CPUs that carry one vCPU pinned to them alone."""
        return frozenset().union(*(pin for pin in self.vcpu_pins if len(pin) == 1))

    @functools.cached_property
    def bindings(self) -> tuple[tuple[frozenset[int], int], ...]:
        """Strict bindings of memory to NUMA cells of the host: the cells, and how many MiB they hold together."""
        numa = self.needs.numa
        if not numa:
            return ()
        whole = frozenset(numa.nodeset or ())
        if not numa.cells:
            return ((whole, self.memory_mib),) if whole and numa.mode in _BINDING_MODES else ()
        bound = [cell for cell in numa.cells if (cell.mode or numa.mode) in _BINDING_MODES]
        return tuple((nodes, cell.memory_mib) for cell in bound if (nodes := frozenset(cell.nodeset or ()) or whole))

    @functools.cached_property
    def named_cells(self) -> frozenset[int]:
        """Every NUMA cell of the host that the definition names for memory, in any mode: libvirt starts no guest on a host that lacks one of them."""
        numa = self.needs.numa
        return frozenset(numa.nodeset or ()).union(*(cell.nodeset or () for cell in numa.cells or ())) if numa else frozenset()

    @functools.cached_property
    def hugepages(self) -> Sequence[HugepageNeed]:
        """Huge pages that back its memory."""
        return self.needs.hugepages or ()

    @functools.cached_property
    def page_mib(self) -> int:
        """How many MiB of its memory are in huge pages."""
        return sum(page.mib for page in self.hugepages)

    @functools.cached_property
    def devices(self) -> Sequence[DeviceNeed]:
        """Devices of the host that it holds."""
        return self.needs.devices or ()

    @functools.cached_property
    def uncopied_disks(self) -> Sequence[DiskNeed]:
        """The disks whose images must exist on the destination."""
        return [disk for disk in self.disks if disk.target not in self.copied]

    @functools.cached_property
    def images(self) -> Sequence[DiskImage]:
        """The images of those disks, and the files that they are built on."""
        return [image for disk in self.uncopied_disks for image in (DiskImage(disk), *(DiskImage(disk, file) for file in disk.files or ()))]

    @functools.cached_property
    def disks(self) -> Sequence[DiskNeed]:
        """All its disks that are not empty drives."""
        return [disk for disk in self.needs.disks or () if disk.source]

    @functools.cached_property
    def boot_files(self) -> Sequence[BootFile]:
        """The files that QEMU reads when it starts the guest."""
        return self.needs.boot_files or ()

    @functools.cached_property
    def nvram(self) -> t.Optional[str]:
        """The file of its firmware variables; None if it has none."""
        return self.needs.nvram or None

    @functools.cached_property
    def networks(self) -> Sequence[NetworkNeed]:
        """The networks of its interfaces."""
        return self.needs.networks or ()

    @functools.cached_property
    def traits(self) -> Sequence[str]:
        """The traits that its policy requires of both hypervisors."""
        return self.needs.traits or ()

    @functools.cached_property
    def labels(self) -> frozenset[str]:
        """The labels that the host must have in the inventory."""
        return frozenset(self.needs.labels or ())

    @functools.cached_property
    def group(self) -> t.Optional[DomainGroup]:
        """Its group; None if it has none."""
        return self.needs.group or None

    @functools.cached_property
    def blockers(self) -> Sequence[str]:
        """Reasons why the domain cannot be moved at all."""
        return self.needs.blockers or ()

    @functools.cached_property
    def priority(self) -> int:
        """The priority: domains with a higher one move earlier."""
        return self.needs.priority or 0


def _checked_copies(copied: Mapping[str, int]) -> dict[str, int]:
    if not isinstance(copied, Mapping) or not all(isinstance(size, int) and not isinstance(size, bool) and size >= 0 for size in copied.values()):
        raise InvalidArgument(f"The disks to copy are {copied!r}.", "Give the size of each in bytes by its target.")
    return dict(copied)
