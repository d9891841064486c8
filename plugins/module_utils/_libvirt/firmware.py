# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The firmware and the emulated TPMs that libvirt offers to the guests of a host."""

from __future__ import annotations

import typing as t
from xml.etree.ElementTree import Element

from .._model.codec import ABSENT, Absent
from .._model.errors import KvmfleetError
from .._model.facts import FirmwareFacts, Platform
from .._model.libvirt_formats import parse_libvirt_xml
from .connection import libvirt_errors

if t.TYPE_CHECKING:
    import libvirt

# Libvirt lists firmware that enforces secure boot only for this machine type. Other firmware is listed for it as well.
_SECURE_MACHINE = "q35"


def read_firmware(connection: libvirt.virConnect, uri: str, platform: Platform) -> t.Optional[FirmwareFacts]:
    """Return what guests of that platform can boot with; null if libvirt does not report it."""
    machine = _SECURE_MACHINE if _SECURE_MACHINE in (platform.machines or ()) else None
    try:
        with libvirt_errors(f"read the firmware of {uri}"):
            xml = connection.getDomainCapabilities(platform.emulator or None, platform.arch, machine, platform.virt_type, 0)
        return describe_firmware(parse_libvirt_xml(xml, "domain capabilities"))
    except KvmfleetError:
        if not connection.isAlive():
            raise
        return None


def describe_firmware(capabilities: Element) -> FirmwareFacts:
    """Return the firmware and TPMs in the domain capabilities of a host. A libvirt of 2021 or before, such as 7.0, reports no TPMs."""
    return FirmwareFacts(
        loaders=tuple((value.text or "").strip() for value in capabilities.findall("os/loader/value")),
        secure_boot="yes" in _list_values(capabilities, "os/loader", "secure"),
        tpm_backends=_list_tpm_values(capabilities, "backendModel"),
        tpm_models=_list_tpm_values(capabilities, "model"),
        tpm_versions=_list_tpm_values(capabilities, "backendVersion"),
    )


def _list_tpm_values(capabilities: Element, name: str) -> t.Union[t.Tuple[str, ...], Absent]:
    """Return the values of that name; absent if TPMs are not reported."""
    tpm = capabilities.find("devices/tpm")
    if tpm is None:
        return ABSENT
    return _list_values(capabilities, "devices/tpm", name) if tpm.get("supported") == "yes" else ()


def _list_values(capabilities: Element, where: str, name: str) -> t.Tuple[str, ...]:
    return tuple((value.text or "").strip() for value in capabilities.findall(f"{where}/enum[@name='{name}']/value"))
