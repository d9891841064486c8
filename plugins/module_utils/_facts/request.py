# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The requirements of a domain by its definition and its own policy, and what prevents it from being moved. The control node applies profiles."""

from __future__ import annotations

import dataclasses
import typing as t
from xml.etree.ElementTree import Element

from .._libvirt.values import Definition
from .._model import domain_states
from .._model.codec import SignedInt, decode
from .._model.definition_files import PERSISTENT_MEMORY, Pools, list_boot_files
from .._model.libvirt_formats import round_up_to_mib
from .._model.policies import PLACEMENT_DEFAULTS, features_in, required_traits
from .._model.policy_documents import OwnPolicy
from .._model.requests import DiskNeed, DomainGroup, DomainRequest, GuestCpu
from .disks import describe_disks
from .firmware import read_firmware_needs
from .local_stores import Stores
from .qemu_process import is_program_replaced, waits_since_arrival
from .requirements import (
    NO_CPU,
    describe_cpu,
    describe_start_cpu,
    has_loose_tsc,
    list_host_devices,
    list_networks,
    list_secrets,
    read_hugepages,
    read_numa,
    read_pinning,
)

# The first libvirt that moves a guest with virtiofs, and the first libvirt and QEMU that move one with a VFIO device.
_VIRTIOFS_SINCE = 10005000
_VFIO_SINCE = {"libvirt": 9007000, "hypervisor": 8000000}
_NEVER_MOVED = ("scsi", "scsi_host")
# The first QEMU that survives another move of a guest with a disk that arrived paused and has not run since (docs/libvirt.md).
_MOVES_WAITING_DISKS_SINCE = 10_000_000


def list_blockers(root: Element, cpu: GuestCpu, versions: t.Mapping[str, int], has_snapshots: bool, stores: t.Optional[Stores] = None) -> t.List[str]:
    """Return a sentence for each reason why the guest cannot be moved, given the versions of its own host.

    :arg stores: of that host; null if it was queried remotely.
    """
    found = [
        _find_launch_security(root),
        *_find_shared_folders(root, versions, stores),
        *_find_host_devices(root, versions),
        *_find_transient_disks(root),
        *_find_shared_memory(root),
    ]
    found += _find_persistent_memory(root)
    if has_loose_tsc(root, cpu):
        found.append("It has the CPU feature invtsc without a fixed frequency of its TSC timer.")
    if has_snapshots:
        found.append("It has snapshots, whose metadata libvirt does not move: delete them, with --metadata to keep their content.")
    return [sentence for sentence in found if sentence]


def _find_launch_security(root: Element) -> str:
    security = root.find("launchSecurity")
    return f"Its memory is protected by launch security ({security.get('type', '')})." if security is not None else ""


def _find_shared_folders(root: Element, versions: t.Mapping[str, int], stores: t.Optional[Stores]) -> t.Iterator[str]:
    for filesystem in root.findall("devices/filesystem"):
        target, driver = filesystem.find("target"), filesystem.find("driver")
        tag = target.get("dir", "") if target is not None else ""
        if driver is None or driver.get("type") != "virtiofs":
            yield f"It has the folder {tag!r} of its host through 9p."
        elif versions.get("libvirt", 0) < _VIRTIOFS_SINCE:
            yield f"It has the folder {tag!r} of its host through virtiofs, which needs libvirt 10.5.0."
        elif not _is_shared(filesystem.find("source"), stores):
            yield f"It has the folder {tag!r} of its host through virtiofs, which is not on storage that hosts share: each host has its own."


def _is_shared(source: t.Optional[Element], stores: t.Optional[Stores]) -> bool:
    """Whether other hosts see a folder; true also if that is unknown for a remote host, and for a path that is not a folder."""
    path = source.get("dir") if source is not None else None
    return stores is None or path is None or stores.locate_file(path)[0] is True


def _find_host_devices(root: Element, versions: t.Mapping[str, int]) -> t.Iterator[str]:
    moves_vfio = all(versions.get(part, 0) >= since for part, since in _VFIO_SINCE.items())
    for device in [*root.findall("devices/hostdev"), *root.findall("devices/interface[@type='hostdev']")]:
        kind = device.get("type", "") if device.tag == "hostdev" else "pci"
        teaming = device.find("teaming")
        if teaming is not None and teaming.get("type") == "transient":
            continue
        if device.get("mode", "subsystem") != "subsystem" or kind in _NEVER_MOVED:
            yield f"It has a device of its host of the kind {kind!r}."
        elif kind in ("pci", "mdev") and not moves_vfio:
            yield f"It has a {kind} device of its host, which needs libvirt 9.7.0 and QEMU 8.0.0, or a teamed interface."


def _find_transient_disks(root: Element) -> t.Iterator[str]:
    for disk in root.findall("devices/disk"):
        if disk.find("transient") is not None:
            target = disk.find("target")
            yield f"Its disk {target.get('dev', '') if target is not None else ''} is transient."


def _find_shared_memory(root: Element) -> t.Iterator[str]:
    for memory in root.findall("devices/shmem"):
        if memory.get("role") != "master":
            yield f"It has shared memory {memory.get('name', '')!r} of which it is not the master."


def _find_persistent_memory(root: Element) -> t.Iterator[str]:
    """QEMU sends its content like all memory, and overwrites the file of that path at the destination; on shared storage, the guest's own file."""
    for memory in root.findall("devices/memory"):
        path = (memory.findtext("source/path") or "").strip()
        if memory.get("model") in PERSISTENT_MEMORY and path:
            yield f"It has persistent memory in {path} of its host, and a move would overwrite the file at the destination."


def build_request(definition: Definition, own: OwnPolicy, versions: t.Mapping[str, int], stores: t.Optional[Stores], pools: Pools) -> DomainRequest:
    """Return the request. For a domain whose definition could not be read, it has only the size, and the problem as a blocker.

    :arg versions: of the host that the domain is on.
    """
    request = _bare_request(definition, own, versions)
    root = definition.root
    if root is None:
        return dataclasses.replace(request, blockers=(definition.problem,))
    numa, cpu, kind = read_numa(root), describe_cpu(root), root.find("os/type")
    disks = tuple(describe_disks(root, stores, pools))
    return dataclasses.replace(
        request,
        arch=kind.get("arch") if kind is not None else None,
        virt_type=root.get("type"),
        machine=kind.get("machine") if kind is not None else None,
        cpu=cpu,
        start_cpu=describe_start_cpu(definition.configuration),
        pinning=read_pinning(root),
        numa=numa,
        hugepages=tuple(read_hugepages(root, request.memory_mib, numa)),
        devices=tuple(list_host_devices(root)),
        blockers=(*list_blockers(root, cpu, versions, definition.has_snapshots, stores), *_find_waiting_disks(definition, disks, versions, stores)),
        disks=disks,
        networks=tuple(list_networks(root)),
        secrets=tuple(list_secrets(root)),
        boot_files=tuple(list_boot_files(root)),
        **read_firmware_needs(root),
    )


def _find_waiting_disks(definition: Definition, disks: t.Sequence[DiskNeed], versions: t.Mapping[str, int], stores: t.Optional[Stores]) -> t.Iterator[str]:
    view, name = definition.info.view, definition.info.name
    if stores is None or view.state_to_restore(is_held=False) != domain_states.PAUSED or all(disk.readonly is True for disk in disks):
        return
    is_recent = versions.get("hypervisor", 0) >= _MOVES_WAITING_DISKS_SINCE and not is_program_replaced(name)
    if not is_recent and waits_since_arrival(name):
        yield (
            "It arrived here paused, and has not run since: QEMU before 10.0 would crash when it sends or saves its memory, which would be lost. Let it run for"
            " a moment (virsh resume, then virsh suspend), or shut it down."
        )


def _bare_request(definition: Definition, own: OwnPolicy, versions: t.Mapping[str, int]) -> DomainRequest:
    """Return the request of a domain of which only the size and the policy are known."""
    scheduling = {field: default if own.values.get(field) is None else own.values[field] for field, default in PLACEMENT_DEFAULTS.items()}
    return dataclasses.replace(
        _UNKNOWN,
        memory_mib=round_up_to_mib(definition.info.memory_bytes),
        vcpus=definition.info.vcpus,
        hypervisor=versions.get("hypervisor"),
        traits=tuple(required_traits(features_in(own.values))),
        labels=tuple(t.cast(t.Sequence[str], scheduling["labels"])),
        group=decode(DomainGroup, scheduling["group"]) if scheduling["group"] else None,
        priority=t.cast(SignedInt, scheduling["priority"]),
        drain=scheduling["drain"],
    )


_UNKNOWN = DomainRequest(
    memory_mib=0,
    vcpus=0,
    arch=None,
    virt_type=None,
    machine=None,
    cpu=NO_CPU,
    pinning=None,
    numa=None,
    hugepages=(),
    devices=(),
    disks=(),
    networks=(),
    secrets=(),
    nvram=None,
    nvram_template=None,
    loader=None,
    secure_boot=False,
    boot_files=(),
    tpm=False,
    tpm_model=None,
    tpm_version=None,
    tpm_persistent=False,
)
