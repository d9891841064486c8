# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Starts one domain of a dead host on this host: check, note, define, start, verify. A definition that does not start is removed again.

A note is written before a definition is put on the host, so that a later run recognizes its own work. The note has the whole record, as a control node wrote
it into its ledger. If the ledger loses the record, it can be restored from the note.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import time
import typing as t
import uuid as uuid_module

from .._dataclass import dataclass
from .._facts.own_moves import NOTES_FOLDER
from .._files import replace_file
from .._libvirt.interface import Host
from .._model import domain_states
from .._model.codec import JsonObject
from .._model.errors import Conflict, Forbidden, InvalidArgument, InvalidState, KvmfleetError, MigrationFailed, NotSupported, Unreachable, Unsafe
from .._model.saved_domains import DEFERRED, FAILED, OVERTAKEN, STARTED, UNKNOWN, RestartOrder, RestartResult, lockable_paths
from .._run_folder import RUN_FOLDER, AlreadyWatched, Ownership, is_newest, note_own_act
from . import qemu_locks
from .start_checks import check_definition, check_kept, find_unproved, read_lock_states


def write_note(domain_uuid: str, record: JsonObject, folder: str = NOTES_FOLDER) -> None:
    """Note permanently that the definition of the domain on this host belongs to this record. Raises L(Forbidden).

    :arg record: as it came from the control node, with C(ledger_id).
    """
    path = _note_path(domain_uuid, folder)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        replace_file(path, json.dumps(record), 0o600)
    except OSError as error:
        raise Forbidden(f"{path} cannot be written: {error.strerror}. Nothing was started.", "Free space there, or connect as root.") from error


def read_noted_record(domain_uuid: str, folder: str = NOTES_FOLDER) -> t.Optional[str]:
    """Return the ID of the last record that created the definition of the domain on this host, or null."""
    try:
        with open(_note_path(domain_uuid, folder), encoding="utf-8") as stream:
            document = json.load(stream)
    except (OSError, ValueError, RecursionError):
        return None
    record = document.get("id") if isinstance(document, dict) else None
    return record if isinstance(record, str) else None


def remove_note(domain_uuid: str, folder: str = NOTES_FOLDER) -> None:
    """Remove the note."""
    with contextlib.suppress(OSError):
        os.unlink(_note_path(domain_uuid, folder))


def _note_path(domain_uuid: str, folder: str) -> str:
    try:
        return os.path.join(folder, f"{uuid_module.UUID(domain_uuid)}.json")
    except ValueError as error:
        raise InvalidArgument(f"{domain_uuid!r} is not a UUID.") from error


LOCK_SECONDS = 30.0
VERIFY_SECONDS = 10.0
_POLL_SECONDS = 0.2


@dataclass
class Restart:
    """Carries out one order.

    :arg refuse: called with the lock; returns why the order starts nothing now, or null.
    :arg is_late: whether the proof that the source is off has become too old for a start.
    """

    host: Host
    order: RestartOrder
    run_folder: str = RUN_FOLDER
    notes_folder: str = NOTES_FOLDER
    clock: t.Callable[[], float] = time.monotonic
    sleep: t.Callable[[float], None] = time.sleep
    refuse: t.Callable[[], t.Optional[RestartResult]] = lambda: None
    is_late: t.Callable[[], bool] = lambda: False

    def carry_out_order(self) -> RestartResult:
        """Carry out the order, and return its result."""
        try:
            ownership = self._take_lock()
        except KvmfleetError as error:
            return self._build_result(UNKNOWN, error)
        try:
            return self._carry_out_locked(ownership)
        finally:
            ownership.release_lock()

    def _carry_out_locked(self, ownership: Ownership) -> RestartResult:
        if self._is_repeated():
            return self._settle_repeated()
        refusal = self.refuse()
        if refusal:
            return refusal
        try:
            generation = self._begin_record(ownership)
        except Conflict as error:
            return self._build_result(OVERTAKEN, error)
        except KvmfleetError as error:
            # This call has begun nothing. It is not known whether an earlier run has.
            return self._build_result(UNKNOWN if self.order.rejoin else FAILED, error)
        return dataclasses.replace(self._start_or_settle(), generation=generation)

    def _begin_record(self, ownership: Ownership) -> int:
        """Write that this run acts for the record; return the generation."""
        if self.order.rejoin:
            return ownership.take_over(self.order.record, self.order.generation)
        ownership.begin_record(self.order.record, self.order.generation)
        return self.order.generation

    def _take_lock(self) -> Ownership:
        """Take the domain's lock; waits for a start of an earlier run that is still in progress, and for one by this very order as long as it takes."""
        deadline = self.clock() + LOCK_SECONDS
        while self.clock() < deadline or self._is_repeated():
            with contextlib.suppress(AlreadyWatched):
                return Ownership(self.order.uuid, self.run_folder)
            self.sleep(_POLL_SECONDS)
        return Ownership(self.order.uuid, self.run_folder)

    def _is_repeated(self) -> bool:
        """Whether this very order has come before."""
        order = self.order
        return not order.rejoin and is_newest(order.record, order.generation, order.uuid, self.run_folder)

    def _settle_repeated(self) -> RestartResult:
        """Return the result of the start that this order has led to before, because SSH has sent it twice; it starts nothing."""
        try:
            view, ours = self._look_at_domain()
        except KvmfleetError as unknown:
            return self._build_result(UNKNOWN, unknown)
        if not (ours and self._is_there(view, ours)):
            return self._build_result(OVERTAKEN, Conflict(f"{self._domain_text} was ordered before, and is not here.", "Run the task again."))
        return self._settle_present(view, changed=True)

    def _look_at_domain(self) -> t.Tuple[domain_states.DomainView, bool]:
        """Return the domain as this host has it, and whether the host has taken it over by this record."""
        return self.host.view_domain(self.order.uuid), read_noted_record(self.order.uuid, self.notes_folder) == self.order.record

    def _is_there(self, view: domain_states.DomainView, ours: bool) -> bool:
        return view.active or (view.present and ours and self.order.wanted == domain_states.SHUTOFF)

    def _start_or_settle(self) -> RestartResult:
        try:
            view, ours = self._look_at_domain()
        except KvmfleetError as error:
            return self._build_result(UNKNOWN, error)
        if self.order.rejoin and self._is_there(view, ours):
            return self._settle_present(view, changed=False)
        if view.present and not ours:
            return self._build_result(UNKNOWN if self.order.rejoin else FAILED, self._conflicting_domain(view))
        if self.order.settle_only:
            return self._take_back(InvalidState(f"{self._domain_text} was not started here."))
        try:
            check_definition(self.order, self.host.list_emulators(), lambda: self.host.read_surroundings().pools or ())
            self._check_no_conflict()
            # The checks of storage may have taken long.
            if self.is_late() or not self._put_domain():
                return self._build_result(DEFERRED)
        except KvmfleetError as error:
            return self._take_back(self._explain_failure(error))
        return self._verify_state(changed=True)

    def _settle_present(self, view: domain_states.DomainView, changed: bool) -> RestartResult:
        """Report the domain that an earlier run has put here. It may have been killed before it compared the definition, or could not remove it then."""
        try:
            if not view.active:
                check_kept(self.order, self.host.read_definition(self.order.uuid))
        except NotSupported as lost:
            return self._take_back(lost)
        except KvmfleetError as error:
            # That of this host may be the only definition that is left.
            return self._build_result(UNKNOWN, error)
        return self._verify_state(changed)

    def _check_no_conflict(self) -> None:
        """Raise L(Conflict) for another domain or memory image of this name, L(Unsafe) for a disk that is not visible now, or that a process writes to."""
        other = self.host.find_uuid(self.order.name)
        if other not in (None, self.order.uuid):
            raise Conflict(f"Another domain ({other}) is named {self.order.name} here. It was not started.", "Rename the other domain.")
        memory = self.host.saved_memory(self.order.name)
        if memory:
            raise Conflict(f"{memory} holds the saved memory of a domain of that name: a start would resume from it.", "Move that file away.")
        reasons = find_unproved(self.order)
        if reasons:
            raise Unsafe(f"{self._domain_text} was not started: " + "; ".join(f"{what}: {why}" for what, why in sorted(reasons.items())) + ".")
        if self.order.wanted == domain_states.SHUTOFF:
            return
        held = _list_locked(path for path in lockable_paths(self.order.disks) if path not in self.order.accepted_locks)
        if held:
            raise Unsafe(
                f"{self._domain_text} was not started: a process has {', '.join(held)} open for writing.",
                "Find out which process; the domain may still run elsewhere.",
            )

    def _explain_failure(self, error: KvmfleetError) -> KvmfleetError:
        """Return the error of a start. If an accepted lock is still held, the error states how to free it: QEMU takes the same locks and was refused."""
        if isinstance(error, Unreachable):
            return error
        held = _list_locked(self.order.accepted_locks)
        if not held:
            return error
        return Unsafe(
            f"{self._domain_text} was not started. The lock on {', '.join(held)} was accepted, but QEMU needs it: {error.message}", qemu_locks.FREE_KEPT_LOCKS
        )

    def _put_domain(self) -> bool:
        """Define and start the domain; return whether there was time for that: the disk or libvirt may have taken long. The definition stays."""
        order, wanted = self.order, self.order.wanted
        definition = order.definition or ""
        write_note(order.uuid, order.note, self.notes_folder)
        if order.persistent:
            # A definition that an earlier run has left here may lack what an older libvirt did not know, or be for other resource maps.
            self.host.define_domain(definition)
            check_kept(order, self.host.read_definition(order.uuid))
        if order.persistent and wanted == domain_states.SHUTOFF:
            return True
        if self.is_late():
            return False
        if wanted != domain_states.SHUTOFF:
            note_own_act(order.uuid, self.run_folder)
        if order.persistent:
            self.host.start_domain(order.uuid, paused=wanted == domain_states.PAUSED)
        else:
            self.host.create_domain(definition, paused=wanted == domain_states.PAUSED)
        return True

    def _verify_state(self, changed: bool) -> RestartResult:
        """Return the state of the domain when it is the wanted one, or at the end of the wait. A person may have resumed or started it meanwhile."""
        order, deadline = self.order, self.clock() + VERIFY_SECONDS
        reached = (order.wanted, domain_states.RUNNING)
        try:
            while (view := self.host.view_domain(order.uuid)).state not in reached and self.clock() < deadline:
                self.sleep(_POLL_SECONDS)
            if order.wanted != domain_states.SHUTOFF and not view.active:
                return self._take_back(
                    MigrationFailed(f"{self._domain_text} was started and is {view.describe()} now.", "See its log under /var/log/libvirt/qemu.")
                )
            if view.state not in reached or not view.present:
                return self._build_result(
                    UNKNOWN, MigrationFailed(f"{self._domain_text} is {view.describe()}, not {order.wanted}.", "Check it on this host."), changed
                )
            if order.persistent:
                self.host.set_autostart(order.uuid, order.autostart)
        except KvmfleetError as error:
            return self._build_result(UNKNOWN, error, changed)
        return self._build_result(STARTED, changed=changed)

    def _take_back(self, error: KvmfleetError) -> RestartResult:
        """Remove the definition of this order and report the failure, unless the domain is active, the host does not answer, or libvirt would delete more."""
        uuid = self.order.uuid
        if isinstance(error, Unreachable):
            # The daemon may still carry out the request.
            return self._build_result(UNKNOWN, error, changed=True)
        try:
            view = self.host.view_domain(uuid)
            if not view.active and view.present and read_noted_record(uuid, self.notes_folder) == self.order.record:
                self.host.undefine_if_inactive(uuid)
            if self.host.view_domain(uuid).present:
                return self._build_result(UNKNOWN, error, changed=True)
        except NotSupported as kept:
            return self._build_result(UNKNOWN, type(error)(f"{error} {kept}"), changed=True)
        except KvmfleetError as other:
            return self._build_result(UNKNOWN, Unreachable(f"{error} The current state on this host is unknown: {other}"), changed=True)
        remove_note(uuid, self.notes_folder)
        return self._build_result(FAILED, error)

    def _conflicting_domain(self, view: domain_states.DomainView) -> Conflict:
        return Conflict(
            f"{self._domain_text}: this host already has a domain of that UUID, {view.describe()}, which this evacuation did not start. Nothing was started.",
            "If it is left over from an earlier stay, clean up this host first (kvmfleet.migration.evacuation_cleanup), or undefine it.",
        )

    @property
    def _domain_text(self) -> str:
        return f"Domain {self.order.name} ({self.order.uuid})"

    def _build_result(self, outcome: str, error: t.Optional[KvmfleetError] = None, changed: bool = False) -> RestartResult:
        return build_restart_result(self.order, outcome, error, changed)


def build_restart_result(order: RestartOrder, outcome: str, error: t.Optional[KvmfleetError] = None, changed: bool = False) -> RestartResult:
    """Return the result of an order, with the error that ended it."""
    msg, error_code = (str(error), error.error_code) if error else ("", None)
    return RestartResult(order.uuid, outcome, changed, order.generation, msg, error_code)


def _list_locked(paths: t.Iterable[str]) -> t.List[str]:
    """Return those of these images that are locked."""
    return [path for path, found in read_lock_states(list(paths), may_take=True).items() if found["state"] == qemu_locks.LOCKED]
