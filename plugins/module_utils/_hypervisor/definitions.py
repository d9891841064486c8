# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A libvirt host that gives its domains' definitions whole, so that a domain can be started from one after its host is gone."""

from __future__ import annotations

from .errors import libvirt_errors
from .facts_host import LibvirtFactsHost

# virDomainXMLFlags: with passwords; what the next start would use.
_SECURE, _INACTIVE = 1, 2


class LibvirtDefinitionsHost(LibvirtFactsHost):
    """Implements L(ProtectedHost)."""

    def whole_definition(self, uuid: str, persistent: bool) -> str:
        """Return the definition with its passwords: the inactive one of a persistent domain, the live one of a transient one.

        Raises L(NotFound), or L(Forbidden) on a connection that may only read.
        """
        with libvirt_errors(f"read the whole definition of domain {uuid} on {self.uri}"):
            return str(self._connection.lookupByUUIDString(uuid).XMLDesc(_SECURE | (_INACTIVE if persistent else 0)))


def open_definitions_host(uri: str) -> LibvirtDefinitionsHost:
    """Open a host. Raises L(Unreachable)."""
    return LibvirtDefinitionsHost(uri)
