# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a domain needs of the host that is to take it."""

from __future__ import annotations

import functools
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import place

from .shape import check_needs

Body = Mapping[str, t.Any]
# Modes of libvirt's numatune in which memory is on the named cells or nowhere.
_BINDING = ("strict", "restrictive")
# The policy of a CPU feature in libvirt's definition without which the guest does not start.
_REQUIRED = "require"


@dataclass(frozen=True)
class Request:
    """One domain that wants a place.

    :arg source: inventory name of the host that it is to leave.
    :arg source_uuid: libvirt's UUID of that host, C(source_id) its own ID; empty where it is not known.
    :arg needs: the request as C(host_facts) gives it for the domain.
    :arg copied: target to bytes, of the disks that are to be copied.
    :arg copy_paths: target to path at the destination, where that is not the path at the source.
    :arg unsafe: the operator answers for storage that is not proved shared.
    """

    uuid: str
    name: str
    source: str
    source_uuid: str
    memory_mib: int
    vcpus: int = 1
    needs: Body = field(default_factory=dict, hash=False)
    copied: Mapping[str, int] = field(default_factory=dict, hash=False)
    copy_paths: Mapping[str, str] = field(default_factory=dict, hash=False)
    unsafe: bool = False
    source_id: str = ""

    @classmethod
    def of(
        cls,
        needs: t.Any,
        uuid: str = "",
        name: str = "",
        source: str = "",
        source_uuid: str = "",
        copied: t.Optional[Mapping[str, int]] = None,
        unsafe: bool = False,
        copy_paths: t.Optional[Mapping[str, str]] = None,
        source_id: t.Optional[str] = None,
    ) -> Request:
        """Return the request of a domain. Raises L(InvalidArgument) with a sentence for what no request can hold.

        :arg needs: as a host gave it, or saved and given back: then UUID and name stand in it.
        """
        check_needs(needs)
        return cls(
            uuid=uuid or needs.get("uuid") or "",
            name=name or needs.get("name") or "The domain",
            source=source,
            source_uuid=source_uuid,
            memory_mib=needs["memory_mib"],
            vcpus=needs["vcpus"],
            needs=needs,
            copied=_checked_copies(copied or {}),
            copy_paths=dict(copy_paths or {}),
            unsafe=unsafe,
            source_id=source_id or "",
        )

    @property
    def source_place(self) -> Body:
        """The host that the domain is to leave, as a place of records."""
        return place(self.source, self.source_id or None, self.source_uuid or None)

    def as_json(self) -> dict[str, t.Any]:
        """Return what a record keeps under C(request), so that a booking counts it."""
        own = {"memory_mib": self.memory_mib, "vcpus": self.vcpus}
        return {**self.needs, **own, "copied_disk_bytes": dict(self.copied)} if self.copied else {**self.needs, **own}

    @functools.cached_property
    def arch(self) -> t.Optional[str]:
        """The guest's architecture; None where it is not known."""
        return self.needs.get("arch")

    @functools.cached_property
    def virt_type(self) -> t.Optional[str]:
        """C(kvm) or C(qemu)."""
        return self.needs.get("virt_type")

    @functools.cached_property
    def machine(self) -> t.Optional[str]:
        """The machine type as it runs, e.g. C(pc-q35-7.2)."""
        return self.needs.get("machine")

    @functools.cached_property
    def hypervisor(self) -> t.Optional[int]:
        """The version of the QEMU it runs on, as libvirt's number."""
        return self.needs.get("hypervisor")

    @functools.cached_property
    def cpu(self) -> t.Optional[Body]:
        """The CPU that the guest sees: C(mode), C(model), C(features)."""
        return self.needs.get("cpu")

    @functools.cached_property
    def required_features(self) -> frozenset[str]:
        """CPU features that the guest cannot do without."""
        policies = (self.cpu or {}).get("features") or {}
        return frozenset(name for name, policy in policies.items() if policy == _REQUIRED)

    @functools.cached_property
    def vcpu_pins(self) -> tuple[frozenset[int], ...]:
        """The host CPUs of each vCPU that is pinned."""
        pinning = self.needs.get("pinning") or {}
        return tuple(frozenset(ids) for ids in (pinning.get("vcpus") or {}).values() if ids)

    @functools.cached_property
    def pinned_cpus(self) -> frozenset[int]:
        """Every host CPU that the guest is pinned to, its emulator's included."""
        emulator = (self.needs.get("pinning") or {}).get("emulator") or ()
        return frozenset(emulator).union(*self.vcpu_pins)

    @functools.cached_property
    def dedicated_cpus(self) -> frozenset[int]:
        """Host CPUs that carry one vCPU pinned to them alone."""
        return frozenset().union(*(pin for pin in self.vcpu_pins if len(pin) == 1))

    @functools.cached_property
    def bindings(self) -> tuple[tuple[frozenset[int], int], ...]:
        """Strict bindings of memory to NUMA cells of the host: the cells, and how many MiB they hold together."""
        numa = self.needs.get("numa") or {}
        if numa.get("mode") not in _BINDING:
            return ()
        whole = frozenset(numa.get("nodeset") or ())
        cells = numa.get("cells") or ()
        bound = [(frozenset(cell.get("nodeset") or ()) or whole, cell["memory_mib"]) for cell in cells]
        return tuple((nodes, mib) for nodes, mib in bound if nodes) if bound else ((whole, self.memory_mib),) if whole else ()

    @functools.cached_property
    def hugepages(self) -> Sequence[Body]:
        """Huge pages that back its memory: C(size_kib) (None: the host's default) and C(mib)."""
        return self.needs.get("hugepages") or ()

    @functools.cached_property
    def devices(self) -> Sequence[Body]:
        """Devices of the host that it holds."""
        return self.needs.get("devices") or ()

    @functools.cached_property
    def uncopied_disks(self) -> Sequence[Body]:
        """Those whose images must be there."""
        return [disk for disk in self.disks if disk["target"] not in self.copied]

    @functools.cached_property
    def disks(self) -> Sequence[Body]:
        """All its disks that are not empty drives."""
        return [disk for disk in self.needs.get("disks") or () if disk.get("source")]

    @functools.cached_property
    def boot_files(self) -> Sequence[Body]:
        """What QEMU reads when it starts the guest: C(what) and C(path)."""
        return self.needs.get("boot_files") or ()

    @functools.cached_property
    def nvram(self) -> t.Optional[str]:
        """The file of its firmware variables; None where it has none."""
        return self.needs.get("nvram")

    @functools.cached_property
    def networks(self) -> Sequence[Body]:
        """What its interfaces are plugged into."""
        return self.needs.get("networks") or ()

    @functools.cached_property
    def traits(self) -> Sequence[str]:
        """What its policy asks of both hypervisors."""
        return self.needs.get("traits") or ()

    @functools.cached_property
    def labels(self) -> frozenset[str]:
        """What the inventory must have given the host."""
        return frozenset(self.needs.get("labels") or ())

    @functools.cached_property
    def group(self) -> t.Optional[Body]:
        """Name, policy and C(max_per_host) of its group; None where it has none."""
        return self.needs.get("group")

    @functools.cached_property
    def blockers(self) -> Sequence[str]:
        """Sentences on what keeps it from moving at all."""
        return self.needs.get("blockers") or ()

    @functools.cached_property
    def priority(self) -> int:
        """The higher, the earlier it moves."""
        return self.needs.get("priority") or 0

    @functools.cached_property
    def drain(self) -> str:
        """What a drain does with it: migrate, shutdown or leave."""
        return self.needs.get("drain") or "migrate"


def _checked_copies(copied: t.Any) -> dict[str, int]:
    if not isinstance(copied, Mapping) or not all(isinstance(size, int) and not isinstance(size, bool) and size >= 0 for size in copied.values()):
        raise InvalidArgument(f"The disks to copy are {copied!r}.", "Give the bytes of each by its target.")
    return dict(copied)
