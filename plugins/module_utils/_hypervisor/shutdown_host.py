# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A libvirt host that can be asked to shut a domain down, and that says afterwards how it stopped."""

from __future__ import annotations

import typing as t

from .._errors import InvalidState
from .domain import definition_root
from .errors import libvirt_errors
from .host import LibvirtHost
from .library import libvirt

# virDomainEventStoppedDetailType, in the words that virsh has for the state's reason.
_STOPPED = {0: "shutdown", 1: "destroyed", 2: "crashed", 3: "migrated", 4: "saved", 5: "failed", 6: "from snapshot"}


class LibvirtShutdownHost(LibvirtHost):
    """Implements L(ShutdownHost)."""

    def __init__(self, uri: str, timeout_seconds: t.Optional[float] = None) -> None:
        super().__init__(uri, timeout_seconds)
        self._stops: t.Dict[str, str] = {}

    def on_poweroff(self, uuid: str) -> str:
        with libvirt_errors(f"read the definition of domain {uuid} on {self.uri}"):
            xml = self._lookup(uuid, "read the definition").XMLDesc(0)
        return definition_root(xml).findtext("on_poweroff") or "destroy"

    def listen_for_stop(self, uuid: str) -> None:
        with libvirt_errors(f"listen for the end of domain {uuid} on {self.uri}"):
            domain = self._lookup(uuid, "listen for the end")
            self._connection.domainEventRegisterAny(domain, libvirt().VIR_DOMAIN_EVENT_ID_LIFECYCLE, self._on_lifecycle, None)

    def stopped_by(self, uuid: str) -> t.Optional[str]:
        return self._stops.get(uuid)

    def shut_down(self, uuid: str) -> None:
        try:
            with libvirt_errors(f"ask domain {uuid} on {self.uri} to shut down"):
                self._lookup(uuid, "shut down").shutdown()
        except InvalidState:
            if self.view(uuid).active:
                raise

    def _on_lifecycle(self, _connection: t.Any, domain: t.Any, event: int, detail: int, _opaque: t.Any) -> None:
        if event == libvirt().VIR_DOMAIN_EVENT_STOPPED:
            self._stops[domain.UUIDString()] = _STOPPED.get(detail, "")


def open_shutdown_host(uri: str) -> LibvirtShutdownHost:
    """Open a host. Raises L(Unreachable)."""
    return LibvirtShutdownHost(uri)
