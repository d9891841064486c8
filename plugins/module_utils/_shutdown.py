# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Shutting a domain down by asking its guest to: never by force, and never while the domain moves."""

from __future__ import annotations

import dataclasses
import time
import typing as t

from ._errors import InvalidArgument, InvalidState, TimedOut, Unreachable
from ._facts.migrations import canonical_uuid
from ._hypervisor.shutdown_host import open_shutdown_host
from ._migration import hypervisor as h
from ._module import check_domain_name, require_local, require_root
from ._records.statuses import FINAL
from ._start_notes import DRAIN, note
from ._start_notes import FOLDER as NOTES_FOLDER
from ._watcher.files import RUN_FOLDER, read_json, run_folder, state_path
from ._watcher.ownership import Ownership, Watched
from ._watcher.process import is_alive

POLL_SECONDS = 0.5
# Guests ignore the power button while they boot.
REPEAT_SECONDS = 30.0
# The event that says how a domain stopped may come a little after the domain is gone.
EVENT_SECONDS = 3.0
MAX_WAIT_SECONDS = 86400

LEFT = "migrated"
GRACEFUL = "shutdown"

Result = t.Dict[str, t.Any]


class ShutdownHost(h.Host, t.Protocol):
    """A host that can be asked to shut a domain down."""

    def on_poweroff(self, uuid: str) -> str:
        """What libvirt does when the guest has switched itself off: C(destroy), C(restart), C(preserve)."""

    def listen_for_stop(self, uuid: str) -> None:
        """Remember how the domain stops, for L(stopped_by)."""

    def stopped_by(self, uuid: str) -> t.Optional[str]:
        """How the domain stopped, by the words that virsh has for it (C(shutdown), C(migrated)...); null while it was not told."""

    def shut_down(self, uuid: str) -> None:
        """Ask the guest to shut down, by its agent where it has one, else by its power button. Nothing happens where it has stopped meanwhile."""


@dataclasses.dataclass
class Shutdown:
    """One domain that is to be off.

    :arg wait_seconds: how long to wait until it is.
    :arg start_again: to note on the host that it is to be started again.
    """

    host: ShutdownHost
    info: h.DomainInfo
    wait_seconds: float
    folder: str = RUN_FOLDER
    clock: t.Callable[[], float] = time.monotonic
    sleep: t.Callable[[float], None] = time.sleep
    start_again: bool = False
    notes_folder: str = NOTES_FOLDER

    @property
    def what(self) -> str:
        return f"Domain {self.info.name} on {self.host.hostname()}"

    def is_off(self) -> bool:
        return not self.info.view.active

    def check(self) -> None:
        """Raise L(InvalidState) where the guest cannot shut itself down now, or would come back."""
        view = self.info.view
        if self._is_watched():
            raise self._being_moved()
        if view.is_busy:
            raise InvalidState(f"{self.what} is {view.describe()} and has a job in progress ({view.job}).", "It was not shut down: wait for the job's end.")
        if view.state != h.RUNNING:
            raise InvalidState(f"{self.what} is {view.describe()}, so its guest cannot react.", "It was not shut down: resume it, or move it.")
        action = self.host.on_poweroff(self.info.uuid)
        if action != "destroy":
            raise InvalidState(f"{self.what} has on_poweroff {action} and would not be off.", "It was not shut down: set on_poweroff to destroy, or move it.")

    def carry_out(self) -> Result:
        """Ask the guest, wait until the domain is off, and return C(reason) and C(elapsed_seconds).

        No move of the domain can begin here meanwhile. Raises L(InvalidState) where one is under way, or where the domain left; L(TimedOut) where it
        still runs.
        """
        try:
            ownership = Ownership(self.info.uuid, self.folder)
        except Watched:
            raise self._being_moved() from None
        try:
            self.host.listen_for_stop(self.info.uuid)
            if self.start_again and self.info.view.persistent:
                note(self.info.uuid, self.info.name, [DRAIN], self.notes_folder)
            return self._ask_and_wait()
        finally:
            ownership.release()

    def _is_watched(self) -> bool:
        state = read_json(state_path(self.info.uuid, self.folder))
        return isinstance(state, dict) and state.get("status") not in FINAL and is_alive(state.get("watcher"))

    def _being_moved(self) -> InvalidState:
        return InvalidState(f"{self.what} is being moved.", "It was not shut down: wait for the end of the move, or abort it.")

    def _ask_and_wait(self) -> Result:
        started = asked = self.clock()
        self.host.shut_down(self.info.uuid)
        try:
            while (view := self.host.view(self.info.uuid)).active:
                if self.clock() - started >= self.wait_seconds:
                    raise self._too_late(view)
                if self.clock() - asked >= REPEAT_SECONDS and view.state == h.RUNNING and not view.is_busy:
                    asked = self.clock()
                    self.host.shut_down(self.info.uuid)
                self.sleep(POLL_SECONDS)
            return {"reason": self._how(), "elapsed_seconds": round(self.clock() - started, 1)}
        except Unreachable as error:
            raise Unreachable(error.message, f"Domain {self.info.name} was asked to shut down and may be off soon: run the task again.") from error

    def _how(self) -> str:
        """Return how the domain stopped."""
        deadline = self.clock() + EVENT_SECONDS
        while not (reason := self._told()) and self.clock() < deadline:
            self.sleep(POLL_SECONDS)
        if not reason:
            raise InvalidState(
                f"{self.what} was asked to shut down and is not active here any more; libvirt did not say how.", "Look for it on the other hosts."
            )
        if reason == LEFT:
            raise InvalidState(f"{self.what} was asked to shut down, and has been moved away meanwhile.", "It runs where it was moved to, or shuts down there.")
        return reason

    def _told(self) -> t.Optional[str]:
        """Return how the domain stopped, as its definition or the event says it; a state that was read while it stopped says nothing."""
        view = self.host.view(self.info.uuid)
        return view.reason if view.state == h.SHUTOFF and view.present else self.host.stopped_by(self.info.uuid)

    def _too_late(self, view: h.GuestView) -> TimedOut:
        return TimedOut(
            f"{self.what} was asked to shut down and is still {view.describe()} after {self.wait_seconds:.0f} s.",
            "It was not destroyed, and may still go off. Look at its console; raise wait_seconds and run again, or move it.",
            changed=True,
        )


def shutdown_of(params: t.Mapping[str, t.Any]) -> Shutdown:
    """Return the shutdown that a module's options ask for. Raises what is wrong with them, L(Forbidden), or L(NotFound)."""
    check_domain_name(params["name"])
    uuid = canonical_uuid(params["uuid"])
    if not 1 <= params["wait_seconds"] <= MAX_WAIT_SECONDS:
        raise InvalidArgument(f"wait_seconds is {params['wait_seconds']}.", f"Give a whole number from 1 to {MAX_WAIT_SECONDS}.")
    require_root()
    run_folder()
    host = open_shutdown_host(require_local(params["uri"]))
    return Shutdown(host, host.find(name=params["name"], uuid=uuid), params["wait_seconds"], start_again=params["start_again"])
