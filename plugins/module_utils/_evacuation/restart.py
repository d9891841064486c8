# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Starting one domain of a dead host here: refuse, note, define, start, verify; and take back what was put where it does not start."""

from __future__ import annotations

import contextlib
import time
import typing as t
from dataclasses import dataclass

from .._errors import Conflict, InvalidState, KvmfleetError, MigrationFailed, Unreachable, Unsafe
from .._migration import hypervisor as h
from .._watcher.files import RUN_FOLDER
from .._watcher.ownership import Ownership, Watched
from . import locks, notes
from .saved import check_saved
from .sight import lock_states, lockable, why_unseen

Json = t.Dict[str, t.Any]
Order = t.Mapping[str, t.Any]

# STARTED: it is as wanted. FAILED: nothing of ours is here. DEFERRED: it was not tried. OVERTAKEN: a newer run has it.
# UNKNOWN: what is here could not be told, or is not as wanted; nobody may start it elsewhere.
STARTED, FAILED, DEFERRED, OVERTAKEN, UNKNOWN = "started", "failed", "deferred", "overtaken", "unknown"

LOCK_SECONDS = 30.0
VERIFY_SECONDS = 10.0
_POLL_SECONDS = 0.2


class StartingHost(h.Host, t.Protocol):
    """A host on which domains can be started from their definitions."""

    def uuid_of_name(self, name: str) -> t.Optional[str]:
        """The UUID of the domain that has this name."""

    def emulators(self) -> t.List[str]:
        """The programs that it runs guests with."""

    def saved_memory(self, name: str) -> t.Optional[str]:
        """The file of a memory image that a start of that name would go on from."""

    def define(self, definition: str) -> None:
        """Put a persistent definition here."""

    def start(self, uuid: str, paused: bool) -> None:
        """Start a domain that is defined here."""

    def create(self, definition: str, paused: bool) -> None:
        """Start a transient domain."""

    def take_back(self, uuid: str) -> None:
        """Remove an inactive definition, and nothing else."""


@dataclass
class Restart:
    """:arg order: C(record) (its id), C(note) (all of it, for L(notes.write)), C(generation), C(rejoin) (the record was C(pre-migrating) before this run),
    C(settle_only) (start nothing), C(uuid), C(name), C(definition), C(persistent),
    C(autostart), C(wanted) (a state), C(sources), C(disks), C(tokens); C(files) that were proved, and the paths of C(fresh) ones that the start is to make;
    C(accepted_locks), images that may be locked for us: QEMU has the last word.
    """

    host: StartingHost
    order: Order
    run_folder: str = RUN_FOLDER
    notes_folder: str = notes.FOLDER
    clock: t.Callable[[], float] = time.monotonic
    sleep: t.Callable[[float], None] = time.sleep

    def run(self) -> Json:
        """Return C(uuid), C(outcome), C(msg), C(error_code), C(generation), C(changed)."""
        try:
            ownership = self._owned()
        except KvmfleetError as error:
            return self._answer(UNKNOWN, error)
        try:
            if self.order["rejoin"]:
                generation = ownership.take_over(self.order["record"], self.order["generation"])
            else:
                generation = self.order["generation"]
                ownership.begin(self.order["record"], generation)
        except Conflict as error:
            return self._answer(OVERTAKEN, error)
        except KvmfleetError as error:
            # Nothing was begun now; of an earlier run that is not known.
            return self._answer(UNKNOWN if self.order["rejoin"] else FAILED, error)
        try:
            return {**self._carried_out(), "generation": generation}
        finally:
            ownership.release()

    def _owned(self) -> Ownership:
        """Take the domain's lock; a start of an earlier run that is still going on is waited for."""
        deadline = self.clock() + LOCK_SECONDS
        while self.clock() < deadline:
            with contextlib.suppress(Watched):
                return Ownership(self.order["uuid"], self.run_folder)
            self.sleep(_POLL_SECONDS)
        return Ownership(self.order["uuid"], self.run_folder)

    def _carried_out(self) -> Json:
        try:
            view = self.host.view(self.order["uuid"])
            ours = notes.record_of(self.order["uuid"], self.notes_folder) == self.order["record"]
        except KvmfleetError as error:
            return self._answer(UNKNOWN, error)
        if self.order["rejoin"] and (view.active or (view.present and ours and self.order["wanted"] == h.SHUTOFF)):
            return self._verified(changed=False)
        if view.present and not ours:
            return self._answer(UNKNOWN if self.order["rejoin"] else FAILED, self._in_the_way(view))
        if self.order.get("settle_only"):
            return self._taken_back(InvalidState(f"{self._what} was not started here."))
        try:
            check_saved(self.order, self.host.emulators())
            self._check_free()
            self._put(view)
        except KvmfleetError as error:
            return self._taken_back(self._explained(error))
        return self._verified(changed=True)

    def _check_free(self) -> None:
        """Raise L(Conflict) for what has this name here, L(Unsafe) for a disk that is not seen now, or that somebody writes."""
        other = self.host.uuid_of_name(self.order["name"])
        if other not in (None, self.order["uuid"]):
            raise Conflict(f"Another domain ({other}) is named {self.order['name']} here. It was not started.", "Rename that one.")
        memory = self.host.saved_memory(self.order["name"])
        if memory:
            raise Conflict(f"{memory} holds the memory of a domain of that name: a start would go on from there.", "Move that file away.")
        reasons = why_unseen(self.order)
        if reasons:
            raise Unsafe(f"{self._what} was not started: " + "; ".join(f"{what}: {why}" for what, why in sorted(reasons.items())) + ".")
        if self.order["wanted"] == h.SHUTOFF:
            return
        held = _locked(path for path in lockable(self.order["disks"]) if path not in self.order.get("accepted_locks", ()))
        if held:
            raise Unsafe(f"{self._what} was not started: somebody has {', '.join(held)} open for writing.", "Find out who; it may still run elsewhere.")

    def _explained(self, error: KvmfleetError) -> KvmfleetError:
        """Return the error of a start. Where an accepted lock is still held, it says how to free that: QEMU takes the same locks and was refused."""
        if isinstance(error, Unreachable):
            return error
        held = _locked(self.order.get("accepted_locks", ()))
        if not held:
            return error
        return Unsafe(f"{self._what} was not started. The lock on {', '.join(held)} was accepted, and QEMU needs it: {error.message}", locks.FREE_KEPT)

    def _put(self, view: h.GuestView) -> None:
        order, wanted = self.order, self.order["wanted"]
        notes.write(order["uuid"], order["note"], self.notes_folder)
        if order["persistent"]:
            if not view.present:
                self.host.define(order["definition"])
            if wanted != h.SHUTOFF:
                self.host.start(order["uuid"], paused=wanted == h.PAUSED)
        else:
            self.host.create(order["definition"], paused=wanted == h.PAUSED)

    def _verified(self, changed: bool) -> Json:
        """Return what the host says now, once it is as wanted, or has had its time for it."""
        order, deadline = self.order, self.clock() + VERIFY_SECONDS
        try:
            while (view := self.host.view(order["uuid"])).state != order["wanted"] and self.clock() < deadline:
                self.sleep(_POLL_SECONDS)
            if order["wanted"] != h.SHUTOFF and not view.active:
                return self._taken_back(MigrationFailed(f"{self._what} was started and is {view.describe()} now.", "See its log under /var/log/libvirt/qemu."))
            if view.state != order["wanted"] or not view.present:
                return self._answer(UNKNOWN, MigrationFailed(f"{self._what} is {view.describe()}, and not {order['wanted']}.", "Look at it there."), changed)
            if order["persistent"]:
                self.host.set_autostart(order["uuid"], order["autostart"])
        except KvmfleetError as error:
            return self._answer(UNKNOWN, error, changed)
        return self._answer(STARTED, changed=changed)

    def _taken_back(self, error: KvmfleetError) -> Json:
        """Remove the definition that we put here, and say that it failed; unless the domain is active, or the host cannot tell."""
        uuid = self.order["uuid"]
        if isinstance(error, Unreachable):
            # The daemon may go on with what it was asked for.
            return self._answer(UNKNOWN, error, changed=True)
        try:
            view = self.host.view(uuid)
            if not view.active and view.present and notes.record_of(uuid, self.notes_folder) == self.order["record"]:
                self.host.take_back(uuid)
            if self.host.view(uuid).present:
                return self._answer(UNKNOWN, error, changed=True)
        except KvmfleetError as other:
            return self._answer(UNKNOWN, Unreachable(f"{error} What is here now could not be told: {other}"), changed=True)
        notes.remove(uuid, self.notes_folder)
        return self._answer(FAILED, error)

    def _in_the_way(self, view: h.GuestView) -> Conflict:
        return Conflict(
            f"{self._what}: a domain of that UUID is here already, {view.describe()}, and this evacuation did not put it here. Nothing was started.",
            "Is it left over from an earlier stay, clean this host up first (kvmfleet.migration.evacuation_cleanup), or undefine it.",
        )

    @property
    def _what(self) -> str:
        return f"Domain {self.order['name']} ({self.order['uuid']})"

    def _answer(self, outcome: str, error: t.Optional[KvmfleetError] = None, changed: bool = False) -> Json:
        told = {"msg": str(error), "error_code": error.error_code} if error else {"msg": "", "error_code": None}
        return {"uuid": self.order["uuid"], "outcome": outcome, "changed": changed, "generation": self.order["generation"], **told}


def _locked(paths: t.Iterable[str]) -> t.List[str]:
    """Return those of these images that are locked."""
    return [path for path, found in lock_states(list(paths), may_take=True).items() if found["state"] == locks.LOCKED]
