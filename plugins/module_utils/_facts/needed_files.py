# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which files of its host a domain needs beside its disks, by its definition.

A start on another host takes whatever has that path there, or makes a fresh one: libvirt does not ask whether it is the same.
"""

from __future__ import annotations

import os
import typing as t
from xml.etree.ElementTree import Element

from .volumes import source_of

Json = t.Dict[str, t.Any]

NVRAM, TPM = "nvram", "tpm"
# A guest can start with fresh ones of these, without what it has kept in them.
REPLACEABLE = (NVRAM, TPM)
# Models of memory that keeps its content in a file.
PERSISTENT_MEMORY = ("nvdimm", "virtio-pmem")
# What a person calls them.
NAMES = {
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

# Where libvirt keeps what a definition gives no path for.
_NVRAM_PATH = "/var/lib/libvirt/qemu/nvram/{name}_VARS.fd"
_TPM_PATH = "/var/lib/libvirt/swtpm/{uuid}"
# What stands here belongs to packages of the distribution, which every host has for itself.
_OF_PACKAGES = "/usr/"


def needed_files(root: Element) -> t.List[Json]:
    """Return C({what, kind, path}) of each file, folder or device; C(kind) is C(file), C(dir), C(block), C(network) or C(device) (of this host alone)."""
    found = [*_nvram(root), *_tpm(root), *_filesystems(root), *_memory(root), *_own_boot_files(root)]
    return [{"what": what, "kind": kind, "path": path} for what, kind, path in found if path or kind == "network"]


def boot_files(root: Element) -> t.List[Json]:
    """Return C({what, path}) of each file that QEMU reads when it starts the domain: firmware, kernel and the files that they are given."""
    return [{"what": what, "path": path} for what, path in _boot_files(root)]


def nvram_folder(nvram: t.Optional[str]) -> t.Optional[str]:
    """Return the folder in which libvirt creates a guest's firmware variables when it arrives; null for libvirt's own folder, or without variables."""
    folder = os.path.dirname(nvram or "")
    return folder if folder.startswith("/") and folder != os.path.dirname(_NVRAM_PATH) else None


def boot_paths(request: t.Mapping[str, t.Any]) -> t.List[str]:
    """Return the paths that must exist on a host before its QEMU can receive a domain with that request."""
    folder = nvram_folder(request.get("nvram"))
    return [*(file["path"] for file in request.get("boot_files") or ()), *([folder] if folder else [])]


def name_of(file: t.Mapping[str, t.Any]) -> str:
    """Return what a message calls a needed file."""
    name = NAMES.get(str(file["what"]), str(file["what"]))
    return f"{name} {file['path']}".rstrip()


_Found = t.Tuple[str, str, str]


def _nvram(root: Element) -> t.Iterator[_Found]:
    nvram = root.find("os/nvram")
    if nvram is not None:
        source = nvram.find("source")
        path = (nvram.text or "").strip() or source_of(source)
        if path:
            yield NVRAM, nvram.get("type", "file"), path
            return
    varstore = root.find("os/varstore")
    if varstore is not None and varstore.get("path"):
        yield NVRAM, "file", varstore.get("path", "")
    elif _keeps_variables(root):
        yield NVRAM, "file", _NVRAM_PATH.format(name=root.findtext("name") or "")


def _keeps_variables(root: Element) -> bool:
    """Whether the firmware keeps variables although the definition does not say where."""
    system, loader = root.find("os"), root.find("os/loader")
    if loader is not None and (loader.get("stateless") == "yes" or loader.get("type") == "rom"):
        return False
    is_flash = loader is not None and loader.get("type") == "pflash" and loader.get("readonly") == "yes"
    return is_flash or (system is not None and system.get("firmware") == "efi")


def _tpm(root: Element) -> t.Iterator[_Found]:
    for backend in root.findall("devices/tpm/backend"):
        if backend.get("type") == "emulator":
            source = backend.find("source")
            given = source.get("path") if source is not None else None
            yield TPM, "file", given or _TPM_PATH.format(uuid=(root.findtext("uuid") or "").strip())
        elif backend.get("type") == "passthrough":
            device = backend.find("device")
            yield TPM, "device", device.get("path", "") if device is not None else ""


def _filesystems(root: Element) -> t.Iterator[_Found]:
    kinds = {"dir": "dir", "file": "file", "dev": "block", "name": "dir"}
    for filesystem in root.findall("devices/filesystem"):
        source = filesystem.find("source")
        for key, value in (source.attrib if source is not None else {}).items():
            if key in kinds and filesystem.get("type", "mount") != "ram":
                yield "filesystem", kinds[key], value


def _memory(root: Element) -> t.Iterator[_Found]:
    for memory in root.findall("devices/memory"):
        if memory.get("model") in PERSISTENT_MEMORY:
            path = (memory.findtext("source/path") or "").strip()
            yield "memory", "device" if path.startswith("/dev/") else "file", path


def _own_boot_files(root: Element) -> t.Iterator[_Found]:
    for what, path in _boot_files(root):
        if not path.startswith(_OF_PACKAGES):
            yield what, "file", path


def _boot_files(root: Element) -> t.Iterator[t.Tuple[str, str]]:
    named = [(what, root.findtext(f"os/{what}")) for what in ("loader", "kernel", "initrd", "dtb")]
    named += [("acpi", table.text) for table in root.findall("os/acpi/table")]
    named += [("fw_cfg", entry.get("file")) for entry in root.findall("sysinfo/entry")]
    for what, text in named:
        path = (text or "").strip()
        if path:
            yield what, path
