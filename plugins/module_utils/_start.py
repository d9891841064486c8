# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Starting a domain that is defined on this host, as C(virsh start) does: never one that is being moved, and never twice."""

from __future__ import annotations

import dataclasses
import typing as t

from ._errors import InvalidState, KvmfleetError
from ._facts.migrations import canonical_uuid
from ._hypervisor.start_host import open_start_host
from ._migration import hypervisor as h
from ._module import check_domain_name, require_local, require_root
from ._records.statuses import FINAL
from ._start_notes import FOLDER as NOTES_FOLDER
from ._start_notes import forget
from ._watcher.files import RUN_FOLDER, read_json, run_folder, state_path
from ._watcher.ownership import Ownership, Watched
from ._watcher.process import is_alive

Result = t.Dict[str, t.Any]


class StartHost(h.Host, t.Protocol):
    """A host that can be asked to start a domain that is defined on it."""

    def start(self, uuid: str) -> None:
        """Start the domain; one with a saved memory image goes on from there."""


@dataclasses.dataclass
class Start:
    """One domain that is to run."""

    host: StartHost
    info: h.DomainInfo
    folder: str = RUN_FOLDER
    notes_folder: str = NOTES_FOLDER

    @property
    def what(self) -> str:
        return f"Domain {self.info.name} on {self.host.hostname()}"

    def is_active(self) -> bool:
        return self.info.view.active

    def check(self) -> None:
        """Raise L(InvalidState) where the domain is being moved."""
        state = read_json(state_path(self.info.uuid, self.folder))
        if isinstance(state, dict) and state.get("status") not in FINAL and is_alive(state.get("watcher")):
            raise self._being_moved()

    def carry_out(self) -> Result:
        """Start the domain, and return C(state) and C(reason) that it is in then. No move of it can begin here meanwhile."""
        try:
            ownership = Ownership(self.info.uuid, self.folder)
        except Watched:
            raise self._being_moved() from None
        try:
            view = self._started()
        finally:
            ownership.release()
        self.forget()
        return {"state": view.state, "reason": view.reason}

    def forget(self) -> None:
        """Forget that the domain was to be started again: it is active."""
        forget(self.info.uuid, self.notes_folder)

    def _started(self) -> h.GuestView:
        try:
            self.host.start(self.info.uuid)
        except KvmfleetError as error:
            if self.host.view(self.info.uuid).active:
                return self.host.view(self.info.uuid)
            error.next_step = error.next_step or "It is off. Mend what libvirt names and run the task again."
            raise
        view = self.host.view(self.info.uuid)
        if not view.active:
            raise InvalidState(f"{self.what} was started and is {view.describe()} already.", "Look at its log in /var/log/libvirt/qemu and run the task again.")
        return view

    def _being_moved(self) -> InvalidState:
        return InvalidState(f"{self.what} is being moved.", "It was not started: wait for the end of the move.")


def start_of(params: t.Mapping[str, t.Any]) -> Start:
    """Return the start that a module's options ask for. Raises what is wrong with them, L(Forbidden), or L(NotFound)."""
    check_domain_name(params["name"])
    uuid = canonical_uuid(params["uuid"])
    require_root()
    run_folder()
    host = open_start_host(require_local(params["uri"]))
    return Start(host, host.find(name=params["name"], uuid=uuid))
