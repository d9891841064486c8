# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The files, folders and devices of its host that a definition names.

A start on another host uses whatever has that path there, or creates a new file: libvirt does not check whether it is the same.
"""

from __future__ import annotations

import os
import typing as t
from xml.etree.ElementTree import Element

from .facts import StoragePool
from .libvirt_formats import format_pci_address, is_loopback
from .requests import BootFile, DomainRequest
from .saved_domains import NVRAM, TPM, NeededFile

Pools = t.Sequence[StoragePool]

# Pools whose volumes are files, and those whose volumes are block devices; all others are of the network.
_FILE_POOLS = ("dir", "fs", "netfs")
_BLOCK_POOLS = ("logical", "disk", "iscsi", "scsi", "mpath", "zfs")

# Pools that name a volume by its address (C(unit:0:0:1)) or number (C(dm-3)), and not as the device in their folder.
POOLS_OF_UNITS = ("iscsi", "scsi", "mpath")

# Protocols of storage that any of its servers gives access to.
CLUSTERS = ("rbd", "gluster", "sheepdog", "vitastor")


def source_of(source: t.Optional[Element]) -> str:
    """Return where a disk's bytes are: a path, C(pool/volume), the name of a network disk, or C(pci:ADDRESS/NAMESPACE); empty for an empty drive."""
    if source is None:
        return ""
    attributes = source.attrib
    if "pool" in attributes:
        return f"{attributes['pool']}/{attributes.get('volume', '')}"
    if attributes.get("type") == "pci":
        return f"pci:{format_pci_address(source.find('address'))}/{attributes.get('namespace', '')}"
    named = next((attributes[key] for key in ("file", "dev", "name", "dir", "path") if key in attributes), "")
    return named or next((f"{attributes['protocol']}:{server}" for server in list_own_servers(source)), "")


def is_left_out(device: Element, root: Element) -> bool:
    """Whether libvirt leaves out that disk or device if its source is missing: at every start, or only when a guest that runs arrives.

    It never leaves out a hard disk of a guest that arrives, of which QEMU has state.

    :arg root: the definition. Only that of a running guest has the number of its start.
    """
    source, is_running = device.find("source"), bool(root.get("id"))
    if device.tag == "disk" and device.get("device", "disk") not in ("cdrom", "floppy") and is_running:
        return False
    policy = source.get("startupPolicy") if source is not None else None
    return policy == "optional" or (policy == "requisite" and is_running)


def list_own_servers(source: Element) -> t.List[str]:
    """Return the sockets and loopback addresses of a network disk that its own host serves: another host has other servers, or none, under these names.

    For a cluster, they are one of many ways to reach it.
    """
    if source.get("protocol") in (None, *CLUSTERS):
        return []
    servers = [(host.get("socket", ""), host.get("name", "")) for host in source.findall("host")]
    return [socket or name for socket, name in servers if socket or is_loopback(name)]


def locate_source(kind: str, source: t.Optional[Element], pools: Pools) -> t.Tuple[str, str]:
    """Return kind and path of a source of that kind, those of what it is in its pool for a volume; both empty if the pool is not known."""
    where = source_of(source)
    return locate_volume(where, pools) if kind == "volume" else (kind, where)


def locate_volume(where: str, pools: Pools) -> t.Tuple[str, str]:
    """Return kind and path of C(pool/volume); both empty if the pool is not known, no path if the volume has none."""
    name, _slash, volume = where.partition("/")
    pool = next((pool for pool in pools if pool.name == name), None)
    if pool is None:
        return "", ""
    if pool.type not in _FILE_POOLS + _BLOCK_POOLS:
        return "network", ""
    if pool.type in POOLS_OF_UNITS:
        return "block", (pool.volumes or {}).get(volume, "")
    return "file" if pool.type in _FILE_POOLS else "block", f"{pool.path}/{volume}" if pool.path else ""


# Models of memory that keeps its content in a file.
PERSISTENT_MEMORY = ("nvdimm", "virtio-pmem")
# Their names in messages.
FILE_LABELS = {
    NVRAM: "firmware variables",
    TPM: "TPM state",
    "filesystem": "shared folder",
    "memory": "persistent memory",
    "loader": "firmware",
    "kernel": "kernel",
    "initrd": "initial ramdisk",
    "dtb": "device tree",
    "acpi": "ACPI table",
    "fw_cfg": "firmware configuration",
}

# Libvirt's folders for files whose paths the definition does not give.
_NVRAM_FOLDER, _VARSTORE_FOLDER = "/var/lib/libvirt/qemu/nvram", "/var/lib/libvirt/qemu/varstore"
_NVRAM_PATH = f"{_NVRAM_FOLDER}/{{name}}_VARS.fd"
_TPM_PATH = "/var/lib/libvirt/swtpm/{uuid}"
# The first libvirt that can be told to keep the state of an emulated TPM, and the first that knows persistent_state; an older one drops that attribute.
KEEPS_TPM_SINCE = 8_009_000
PERSISTENT_TPM_SINCE = 7_000_000
# Files below these folders belong to packages of the distribution, which every host has itself.
_OF_PACKAGES = "/usr/"


def list_needed_files(root: Element) -> t.List[NeededFile]:
    """Return each file, folder or device that the domain needs."""
    found = [*_find_nvram(root), *_find_tpm(root), *_find_shared_folders(root), *_find_memory_files(root), *_find_own_boot_files(root)]
    return [file for file in found if file.path or file.kind == "network"]


def list_boot_files(root: Element) -> t.List[BootFile]:
    """Return each file that QEMU reads when it starts the domain: firmware, kernel and the files that they are given."""
    return [BootFile(what, path) for what, path in _find_boot_files(root)]


def nvram_folder(nvram: t.Optional[str]) -> t.Optional[str]:
    """Return the folder in which libvirt creates a guest's firmware variables when it arrives; null for a folder of libvirt's own, or without variables."""
    folder = os.path.dirname(nvram or "")
    return folder if folder.startswith("/") and folder not in (_NVRAM_FOLDER, _VARSTORE_FOLDER) else None


def list_boot_paths(request: DomainRequest) -> t.List[str]:
    """Return the paths that decide whether a host can receive a domain with that request: boot files, and where its firmware variables come from."""
    folder = nvram_folder(request.nvram or None)
    variables = [path for path in (folder, request.nvram_template, request.nvram if request.nvram_template else None) if path]
    return [*(file.path for file in request.boot_files or ()), *variables]


def describe_file(what: str, path: str) -> str:
    """Return the description of a needed file for a message."""
    return f"{FILE_LABELS.get(what, what)} {path}".rstrip()


def _find_nvram(root: Element) -> t.Iterator[NeededFile]:
    nvram = root.find("os/nvram")
    if nvram is not None:
        source = nvram.find("source")
        path = (nvram.text or "").strip() or source_of(source)
        if path:
            yield NeededFile(NVRAM, nvram.get("type", "file"), path)
            return
    varstore = root.find("os/varstore")
    if varstore is not None and varstore.get("path"):
        yield NeededFile(NVRAM, "file", varstore.get("path", ""))
    elif _keeps_variables(root):
        yield NeededFile(NVRAM, "file", _NVRAM_PATH.format(name=root.findtext("name") or ""))


def _keeps_variables(root: Element) -> bool:
    """Whether the firmware keeps variables although the definition names no file for them."""
    system, loader = root.find("os"), root.find("os/loader")
    if loader is not None and (loader.get("stateless") == "yes" or loader.get("type") == "rom"):
        return False
    is_flash = loader is not None and loader.get("type") == "pflash" and loader.get("readonly") == "yes"
    return is_flash or (system is not None and system.get("firmware") == "efi")


def has_deletable_tpm(root: Element) -> bool:
    """Whether libvirt deletes the state of an emulated TPM with the definition, unless it is told to keep the state (since libvirt 8.9)."""
    return any(not has_persistent_state(backend) for backend in root.findall("devices/tpm/backend[@type='emulator']"))


def has_persistent_state(backend: Element) -> bool:
    """Whether the definition has every libvirt that knows the attribute keep the state of that TPM."""
    return backend.get("persistent_state") == "yes"


def deletes_tpm(needs: DomainRequest, libvirt: int) -> bool:
    """Whether a libvirt of that version deletes the state of the domain's emulated TPM with the definition, whatever it is told."""
    return bool(needs.tpm) and libvirt < (PERSISTENT_TPM_SINCE if needs.tpm_persistent else KEEPS_TPM_SINCE)


def _find_tpm(root: Element) -> t.Iterator[NeededFile]:
    for backend in root.findall("devices/tpm/backend"):
        if backend.get("type") == "emulator":
            source = backend.find("source")
            given = source.get("path") if source is not None else None
            yield NeededFile(TPM, "file", given or _TPM_PATH.format(uuid=(root.findtext("uuid") or "").strip()))
        elif backend.get("type") == "passthrough":
            device = backend.find("device")
            yield NeededFile(TPM, "device", device.get("path", "") if device is not None else "")


def _find_shared_folders(root: Element) -> t.Iterator[NeededFile]:
    kinds = {"dir": "dir", "file": "file", "dev": "block", "name": "dir"}
    for filesystem in root.findall("devices/filesystem"):
        source = filesystem.find("source")
        for key, value in (source.attrib if source is not None else {}).items():
            if key in kinds and filesystem.get("type", "mount") != "ram":
                yield NeededFile("filesystem", kinds[key], value)


def _find_memory_files(root: Element) -> t.Iterator[NeededFile]:
    for memory in root.findall("devices/memory"):
        if memory.get("model") in PERSISTENT_MEMORY:
            path = (memory.findtext("source/path") or "").strip()
            yield NeededFile("memory", "device" if path.startswith("/dev/") else "file", path)


def _find_own_boot_files(root: Element) -> t.Iterator[NeededFile]:
    for what, path in _find_boot_files(root):
        if not path.startswith(_OF_PACKAGES):
            yield NeededFile(what, "file", path)


def _find_boot_files(root: Element) -> t.Iterator[t.Tuple[str, str]]:
    named = [(what, root.findtext(f"os/{what}")) for what in ("loader", "kernel", "initrd", "dtb")]
    named += [("acpi", table.text) for table in root.findall("os/acpi/table")]
    named += [("fw_cfg", entry.get("file")) for entry in root.findall("sysinfo/entry")]
    for what, text in named:
        path = (text or "").strip()
        if path:
            yield what, path


BACKING, DATA = "backing", "data"

SHARED = "shared"
SEPARATE = "separate"
UNPROVED = "unproved"
