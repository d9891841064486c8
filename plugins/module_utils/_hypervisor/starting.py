# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A libvirt host on which domains of a dead host are started from their saved definitions."""

from __future__ import annotations

import contextlib
import os
import typing as t

from .._errors import NotFound
from .errors import libvirt_errors
from .facts_host import LibvirtFactsHost

# virDomainCreateFlags, virDomainUndefineFlagsValues.
_START_PAUSED = 1
_KEEP_NVRAM, _KEEP_TPM = 8, 64
_KEEP_TPM_SINCE = 8009000
# Where libvirt keeps the memory of domains that were saved; it would go on from there instead of starting.
_SAVED_FOLDER = "/var/lib/libvirt/qemu/save"


class LibvirtStartingHost(LibvirtFactsHost):
    """Implements L(StartingHost)."""

    def uuid_of_name(self, name: str) -> t.Optional[str]:
        """Return the UUID of the domain that has this name, or null."""
        with contextlib.suppress(NotFound), libvirt_errors(f"look up the name {name!r} on {self.uri}"):
            return str(self._connection.lookupByName(name).UUIDString())
        return None

    def emulators(self) -> t.List[str]:
        """Return the programs that this host runs guests with."""
        return sorted({emulator.text or "" for emulator in self._capabilities().iter("emulator")})

    def saved_memory(self, name: str) -> t.Optional[str]:
        """Return the file of a memory image that a start of that name would go on from, or null."""
        path = os.path.join(_SAVED_FOLDER, f"{name}.save")
        return path if os.path.exists(path) else None

    def define(self, definition: str) -> None:
        """Put a persistent definition here."""
        with libvirt_errors(f"define the domain on {self.uri}"):
            self._connection.defineXML(definition)

    def start(self, uuid: str, paused: bool) -> None:
        """Start a domain that is defined here."""
        with libvirt_errors(f"start domain {uuid} on {self.uri}"):
            self._connection.lookupByUUIDString(uuid).createWithFlags(_START_PAUSED if paused else 0)

    def create(self, definition: str, paused: bool) -> None:
        """Start a transient domain."""
        with libvirt_errors(f"start the transient domain on {self.uri}"):
            self._connection.createXML(definition, _START_PAUSED if paused else 0)

    def take_back(self, uuid: str) -> None:
        """Remove an inactive definition; NVRAM, TPM state and a memory image are kept. Nothing happens where the domain is active or gone."""
        flags = _KEEP_NVRAM | (_KEEP_TPM if self._connection.getLibVersion() >= _KEEP_TPM_SINCE else 0)
        with contextlib.suppress(NotFound), libvirt_errors(f"undefine domain {uuid} on {self.uri}"):
            domain = self._connection.lookupByUUIDString(uuid)
            if not domain.isActive():
                domain.undefineFlags(flags)


def open_starting_host(uri: str) -> LibvirtStartingHost:
    """Open a host. Raises L(Unreachable)."""
    return LibvirtStartingHost(uri)
