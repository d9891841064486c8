# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Both hosts of a cold move: they are opened when they are needed, opened again when a connection is lost, and verified to be those of the record."""

from __future__ import annotations

import dataclasses
import typing as t

from .._dataclass import dataclass
from .._libvirt.interface import Host, OpenHost
from .._model.domain_states import NO_ANSWER, DomainView
from .._model.errors import KvmfleetError, Unreachable
from .._model.records import MoveRecord
from .._model.references import HostRef

# How long a host that does not answer is asked again.
SILENT_SECONDS = 60.0
_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class HostView:
    """What one host shows of the domain.

    :arg autostart: whether the domain starts with the host.
    :arg saved: whether it has a managed-save image.
    :arg error: why the host did not answer.
    """

    domain: DomainView
    autostart: bool = False
    saved: bool = False
    error: t.Optional[KvmfleetError] = None


@dataclass
class MoveHosts:
    """The connections to the source and the destination of a record."""

    record: MoveRecord
    source_uri: str
    destination_uri: str
    open_host: OpenHost
    clock: t.Callable[[], float]
    sleep: t.Callable[[float], None]
    _open: t.Dict[str, Host] = dataclasses.field(default_factory=dict, init=False)

    @property
    def source(self) -> Host:
        """The source. Raises L(Unreachable)."""
        return self._connect(self.source_uri)

    @property
    def destination(self) -> Host:
        """The destination. Raises L(Unreachable)."""
        return self._connect(self.destination_uri)

    def view(self, uri: str) -> HostView:
        """Return what the host shows of the domain. One that does not answer, or with an error, is asked again for a while."""
        deadline, uuid = self.clock() + SILENT_SECONDS, self.record.domain.uuid
        while True:
            try:
                host = self._connect(uri)
                view = host.view_domain(uuid)
                if not view.present:
                    return HostView(view)
                return HostView(view, host.find_domain(uuid=uuid).autostart, host.has_managed_save(uuid))
            except KvmfleetError as error:
                self._forget(uri)
                if self.clock() > deadline:
                    return HostView(NO_ANSWER, error=error)
            self.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """Close both connections."""
        for uri in list(self._open):
            self._forget(uri)

    def _connect(self, uri: str) -> Host:
        host = self._open.get(uri)
        if host is None or not host.is_connected():
            host = self._open[uri] = self._check_identity(self.open_host(uri), uri)
        return host

    def _check_identity(self, host: Host, uri: str) -> Host:
        """Return the host. Raises L(Unreachable) if another host than the one in the record answers under its URI."""
        end = self.record.source if uri == self.source_uri else self.record.destination
        if not end.may_be(HostRef(None, host.host_id(), host.host_uuid())):
            host.close()
            raise Unreachable(f"Another host than {end.label} answers at {uri}.")
        return host

    def _forget(self, uri: str) -> None:
        host = self._open.pop(uri, None)
        if host is not None:
            host.close()
