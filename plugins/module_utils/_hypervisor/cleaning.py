# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A libvirt host that forgets a domain without deleting anything of it."""

from __future__ import annotations

import contextlib
import typing as t

from .._errors import InvalidState, NotFound, NotSupported
from .definitions import LibvirtDefinitionsHost
from .errors import libvirt_errors
from .storage_host import LibvirtStorageHost

_KEEP_NVRAM, _KEEP_TPM = 8, 64
_KEEP_TPM_SINCE = 8009000
# virDomainXMLFlags of the next start.
_INACTIVE = 2


class LibvirtCleaningHost(LibvirtStorageHost, LibvirtDefinitionsHost):
    """Implements L(CleaningHost)."""

    def definition(self, uuid: str) -> str:
        """Return the inactive definition, without passwords. Raises L(NotFound)."""
        with libvirt_errors(f"read the definition of domain {uuid} on {self.uri}"):
            return str(self._connection.lookupByUUIDString(uuid).XMLDesc(_INACTIVE))

    def definitions(self) -> t.Iterator[t.Tuple[str, str, str]]:
        """Yield UUID, name and definition of every domain of the host, of an active one the live definition and the inactive one."""
        for domain in self._all_domains():
            with contextlib.suppress(NotFound), libvirt_errors(f"read a domain of {self.uri}"):
                uuid, name = domain.UUIDString(), domain.name()
                yield uuid, name, domain.XMLDesc(0)
                if domain.isActive() and domain.isPersistent():
                    yield uuid, name, domain.XMLDesc(_INACTIVE)

    def has_managed_save(self, uuid: str) -> bool:
        """Whether the next start would restore a saved memory image."""
        with libvirt_errors(f"look for a managed-save image of domain {uuid} on {self.uri}"):
            return bool(self._connection.lookupByUUIDString(uuid).hasManagedSaveImage())

    def attached(self, uuid: str) -> t.Tuple[int, int]:
        """Return how many snapshots and checkpoints libvirt knows of the domain; it would forget them with it."""
        with libvirt_errors(f"count the snapshots of domain {uuid} on {self.uri}"):
            domain = self._connection.lookupByUUIDString(uuid)
            snapshots = int(domain.snapshotNum())
        try:
            with libvirt_errors(f"count the checkpoints of domain {uuid} on {self.uri}"):
                return snapshots, len(domain.listAllCheckpoints())
        except NotSupported:
            return snapshots, 0

    def keeps_tpm(self) -> bool:
        """Whether this libvirt can undefine a domain and keep the state of its emulated TPM."""
        return bool(self._connection.getLibVersion() >= _KEEP_TPM_SINCE)

    def forget(self, uuid: str) -> None:
        """Undefine an inactive domain; NVRAM and TPM stay. Nothing happens where it is gone.

        Raises L(InvalidState) where it is active, or where libvirt would have to delete a managed-save image or snapshots with it.
        """
        flags = _KEEP_NVRAM | (_KEEP_TPM if self.keeps_tpm() else 0)
        with contextlib.suppress(NotFound), libvirt_errors(f"undefine domain {uuid} on {self.uri}"):
            domain = self._connection.lookupByUUIDString(uuid)
            if domain.isActive():
                raise InvalidState(f"Domain {domain.name()} ({uuid}) is active on {self.uri}: it was not undefined.")
            domain.undefineFlags(flags)


def open_cleaning_host(uri: str, timeout_seconds: t.Optional[float] = None) -> LibvirtCleaningHost:
    """Open a host. Raises L(Unreachable)."""
    return LibvirtCleaningHost(uri, timeout_seconds)
