# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What libvirt or QEMU refuse to move, wherever it would go (libvirt.md, sections 5.2 and 5.3)."""

from __future__ import annotations

import typing as t
from xml.etree.ElementTree import Element

from .cpu import Cpu, has_loose_tsc
from .needed_files import PERSISTENT_MEMORY
from .ports import Stores

# The first libvirt that moves a guest with virtiofs, and the first libvirt and QEMU that move one with a VFIO device.
_VIRTIOFS_SINCE = 10005000
_VFIO_SINCE = {"libvirt": 9007000, "hypervisor": 8000000}
_NEVER_MOVED = ("scsi", "scsi_host")


def blockers_of(root: Element, cpu: Cpu, versions: t.Mapping[str, int], has_snapshots: bool, stores: t.Optional[Stores] = None) -> t.List[str]:
    """Return a sentence for each thing that keeps the guest where it is, by the versions of its own host.

    :arg stores: of that host; null where it was asked from afar.
    """
    found = [_launch_security(root), *_filesystems(root, versions, stores), *_host_devices(root, versions), *_disks(root), *_shared_memory(root)]
    found += _persistent_memory(root)
    if has_loose_tsc(root, cpu):
        found.append("It has the CPU feature invtsc without a fixed frequency of its TSC timer.")
    if has_snapshots:
        found.append("It has snapshots, whose metadata libvirt does not move: delete them, with --metadata to keep their content.")
    return [sentence for sentence in found if sentence]


def _launch_security(root: Element) -> str:
    security = root.find("launchSecurity")
    return f"Its memory is protected by launch security ({security.get('type', '')})." if security is not None else ""


def _filesystems(root: Element, versions: t.Mapping[str, int], stores: t.Optional[Stores]) -> t.Iterator[str]:
    for filesystem in root.findall("devices/filesystem"):
        target, driver = filesystem.find("target"), filesystem.find("driver")
        tag = target.get("dir", "") if target is not None else ""
        if driver is None or driver.get("type") != "virtiofs":
            yield f"It has the folder {tag!r} of its host through 9p."
        elif versions.get("libvirt", 0) < _VIRTIOFS_SINCE:
            yield f"It has the folder {tag!r} of its host through virtiofs, which needs libvirt 10.5.0."
        elif not _is_shared(filesystem.find("source"), stores):
            yield f"It has the folder {tag!r} of its host through virtiofs, which is not on storage that hosts share: each host has another one."


def _is_shared(source: t.Optional[Element], stores: t.Optional[Stores]) -> bool:
    """Whether other hosts see a folder; true also where that cannot be told from afar, and of what is no folder."""
    path = source.get("dir") if source is not None else None
    return stores is None or path is None or stores.file(path)[0] is True


def _host_devices(root: Element, versions: t.Mapping[str, int]) -> t.Iterator[str]:
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


def _disks(root: Element) -> t.Iterator[str]:
    for disk in root.findall("devices/disk"):
        if disk.find("transient") is not None:
            target = disk.find("target")
            yield f"Its disk {target.get('dev', '') if target is not None else ''} is transient."


def _shared_memory(root: Element) -> t.Iterator[str]:
    for memory in root.findall("devices/shmem"):
        if memory.get("role") != "master":
            yield f"It has shared memory {memory.get('name', '')!r} of which it is not the master."


def _persistent_memory(root: Element) -> t.Iterator[str]:
    """QEMU sends what is in it like all memory, and writes it over whatever has that path at the destination; on shared storage over the guest's own."""
    for memory in root.findall("devices/memory"):
        path = (memory.findtext("source/path") or "").strip()
        if memory.get("model") in PERSISTENT_MEMORY and path:
            yield f"It has persistent memory in {path} of its host, which a move would write over what is there at the destination."
