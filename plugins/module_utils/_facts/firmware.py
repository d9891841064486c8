# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The firmware and the TPM of a guest by its definition, and the firmware that is installed on a host."""

from __future__ import annotations

import os
import typing as t
from xml.etree.ElementTree import Element

from .._model.definition_files import has_persistent_state

# Where the packages of distributions install the firmware of guests.
FIRMWARE_FOLDERS = (
    "/usr/share/AAVMF",
    "/usr/share/OVMF",
    "/usr/share/edk2",
    "/usr/share/edk2-ovmf",
    "/usr/share/ovmf",
    "/usr/share/qemu",
)
_SUFFIXES = (".fd", ".qcow2", ".raw")
# As some packages name files of firmware that have none of these suffixes; "vars." begins the templates for the variables of the device uefi-vars.
_PREFIXES = ("aavmf", "ovmf", "vars.")


class FirmwareNeeds(t.TypedDict):
    """The keys of a request that are about firmware and TPM."""

    nvram: t.Optional[str]
    nvram_template: t.Optional[str]
    loader: t.Optional[str]
    secure_boot: bool
    tpm: bool
    tpm_model: t.Optional[str]
    tpm_version: t.Optional[str]
    tpm_persistent: bool


def read_firmware_needs(root: Element) -> FirmwareNeeds:
    """Return what the guest boots with. In the definition of an active guest, libvirt names the files that it has chosen."""
    loader, nvram, varstore = root.find("os/loader"), root.find("os/nvram"), root.find("os/varstore")
    variables = nvram if nvram is not None else varstore
    tpm = root.find("devices/tpm/backend[@type='emulator']/..")
    backend = tpm.find("backend") if tpm is not None else None
    return {
        "nvram": _find_nvram(nvram) or (varstore.get("path") if varstore is not None else None),
        "nvram_template": variables.get("template") if variables is not None else None,
        "loader": (loader.text or "").strip() or None if loader is not None else None,
        "secure_boot": loader is not None and loader.get("secure") == "yes",
        "tpm": tpm is not None,
        "tpm_model": tpm.get("model") if tpm is not None else None,
        "tpm_version": backend.get("version") if backend is not None else None,
        "tpm_persistent": backend is not None and has_persistent_state(backend),
    }


def _find_nvram(nvram: t.Optional[Element]) -> t.Optional[str]:
    if nvram is None:
        return None
    source = nvram.find("source")
    return (nvram.text or "").strip() or (source.get("file") if source is not None else None)


def list_firmware_files(folders: t.Sequence[str] = FIRMWARE_FOLDERS) -> t.Dict[str, t.Tuple[str, ...]]:
    """Return these folders and the folders below them with the names of their firmware files; a folder that does not exist is empty."""
    found: t.Dict[str, t.Tuple[str, ...]] = dict.fromkeys(folders, ())
    for top in folders:
        for folder, _folders, names in os.walk(top):
            chosen = tuple(sorted(name for name in names if _is_firmware(name)))
            if chosen or folder == top:
                found[folder] = chosen
    return found


def _is_firmware(name: str) -> bool:
    return name.endswith(_SUFFIXES) or name.lower().startswith(_PREFIXES)
