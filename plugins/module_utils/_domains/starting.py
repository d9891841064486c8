# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Starts a domain that is defined on this host. It never starts a domain that moves, and never starts one twice.

Notes on the host name the domains that are to be started again because a drain has shut them down, or a boot was held. They survive boots, and are removed when
the domain has been started, by whomever: a domain that somebody switches off afterwards stays off.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import typing as t

from .._dataclass import dataclass
from .._files import replace_file, sync_folder
from .._libvirt.host import open_host
from .._libvirt.interface import Host
from .._live_watchers import is_alive
from .._model import domain_states
from .._model.boot_guard import StartNote, may_be_off_by_drain
from .._model.clock import utc_now
from .._model.codec import ABSENT, Maybe, ShapeError, decode, encode
from .._model.errors import Forbidden, InvalidArgument, InvalidState, KvmfleetError
from .._model.references import canonical_uuid, parse_uuid
from .._model.statuses import FINAL
from .._model.watched_moves import read_watcher
from .._module import check_domain_name, require_local, require_root
from .._run_folder import RUN_FOLDER, AlreadyWatched, Ownership, note_own_act, prepare_run_folder, read_json, state_path

NOTES_FOLDER = "/var/lib/kvmfleet/start-again"


def note_start(uuid: str, name: t.Optional[str], why: t.Sequence[str], folder: str = NOTES_FOLDER, boot_id: Maybe[str] = ABSENT) -> bool:
    """Note on disk that the domain is to be started again; return whether that was new. Reasons are added to those of an earlier note.

    :arg boot_id: the present boot, if the domain is about to be shut down in it.
    """
    path = _note_path(uuid, folder)
    try:
        before = _read_note(path, uuid)
        whys = tuple(sorted({*(before.why if before else ()), *why}))
        noted = before or StartNote(parse_uuid(uuid), name, whys, utc_now())
        noted = dataclasses.replace(noted, why=whys, boot_id=boot_id or noted.boot_id)
        if noted == before:
            return False
        os.makedirs(folder, mode=0o700, exist_ok=True)
        replace_file(path, f"{json.dumps(encode(dataclasses.replace(noted, name=name)))}\n", 0o600)
        return True
    except OSError as error:
        raise Forbidden(
            f"Cannot record in {folder} that domain {name} is to be started again: {error.strerror}.", "Free space there, or connect as root."
        ) from error


def forget_note(uuid: str, folder: str = NOTES_FOLDER) -> bool:
    """Remove the note of the domain. Return whether it had one."""
    try:
        os.unlink(_note_path(uuid, folder))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise Forbidden(f"The note of domain {uuid} in {folder} cannot be removed: {error.strerror}.", "Make it writable, or connect as root.") from error
    sync_folder(folder)
    return True


def forget_started(host: Host, folder: str = RUN_FOLDER, notes_folder: str = NOTES_FOLDER) -> None:
    """Remove the notes of domains that are active on this host. One that is being moved or shut down keeps its note.

    A note that cannot be removed now is left to the next time.
    """
    for noted in list_notes(notes_folder)[0]:
        with contextlib.suppress(KvmfleetError):
            _forget_active(host, noted.uuid, folder, notes_folder)


def _forget_active(host: Host, uuid: str, folder: str, notes_folder: str) -> None:
    """Remove the note of the domain if it is active. Raises L(AlreadyWatched) for one that is being moved or shut down."""
    ownership = Ownership(uuid, prepare_run_folder(folder))
    try:
        if host.view_domain(uuid).active:
            forget_note(uuid, notes_folder)
    finally:
        ownership.release_lock()


def is_noted(uuid: str, folder: str = NOTES_FOLDER) -> bool:
    """Whether the domain has a note."""
    return _read_note(_note_path(uuid, folder), uuid) is not None


def list_notes(folder: str = NOTES_FOLDER) -> t.Tuple[t.List[StartNote], t.List[str]]:
    """Return the notes by name, and the paths of files that are not notes."""
    found, damaged = [], []
    for entry in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        stem, suffix = os.path.splitext(entry)
        if suffix == ".json":
            path = os.path.join(folder, entry)
            noted = _read_note(path, stem)
            if noted:
                found.append(noted)
            elif os.path.lexists(path):
                damaged.append(path)
    return sorted(found, key=lambda one: (str(one.name), one.uuid)), damaged


def _read_note(path: str, uuid: str) -> t.Optional[StartNote]:
    """Return the note; null if the file does not exist, or is torn or edited."""
    with contextlib.suppress(ShapeError, InvalidArgument):
        noted = decode(StartNote, read_json(path))
        return noted if noted.uuid == uuid.lower() and parse_uuid(uuid) else None
    return None


def _note_path(uuid: str, folder: str) -> str:
    return os.path.join(folder, f"{parse_uuid(uuid)}.json")


@dataclass(frozen=True)
class Decision:
    """The decision of a recovery to start a domain. Another recovery may have carried it out since, and the domain be off on purpose.

    :arg note: the note that the domain had; null for one that had none.
    :arg boot_id: the boot of the host; null if it is not known.
    """

    note: t.Optional[StartNote]
    boot_id: t.Optional[str] = None


class StartOptions(t.TypedDict):
    """The options of the module C(domain_start) that select a domain."""

    uri: str
    name: t.Optional[str]
    uuid: t.Optional[str]
    paused: bool


@dataclass
class DomainStart:
    """The start of one domain.

    :arg paused: whether the domain is to be paused when it is active.
    """

    host: Host
    info: domain_states.DomainInfo
    folder: str = RUN_FOLDER
    notes_folder: str = NOTES_FOLDER
    paused: bool = False

    @property
    def domain_text(self) -> str:
        return f"Domain {self.info.name} on {self.host.read_hostname()}"

    def is_active(self) -> bool:
        return self.info.view.active

    def check_startable(self) -> None:
        """Raise L(InvalidState) if the domain is being moved."""
        state = read_json(state_path(self.info.uuid, self.folder))
        if isinstance(state, dict) and state.get("status") not in FINAL and is_alive(read_watcher(state.get("watcher"))):
            raise self._being_moved()

    def carry_out(self, decision: t.Optional[Decision] = None) -> t.Dict[str, str]:
        """Start the domain, and return its C(state) and C(reason) afterwards. No move of the domain can begin on this host during the start.

        :arg decision: that of a recovery, by which the domain is started only if nobody has started or stopped it since.
        """
        try:
            ownership = Ownership(self.info.uuid, self.folder)
        except AlreadyWatched:
            raise self._being_moved() from None
        try:
            if decision:
                self._check_unchanged(decision)
            view = self._start_domain()
            forget_note(self.info.uuid, self.notes_folder)
        finally:
            ownership.release_lock()
        return {"state": view.state, "reason": view.reason}

    def _check_unchanged(self, decision: Decision) -> None:
        note, reason = decision.note, self.host.view_domain(self.info.uuid).reason
        if note and _read_note(_note_path(self.info.uuid, self.notes_folder), self.info.uuid) != note:
            what = "somebody has started it, or has removed it from the list of starts"
        elif reason in domain_states.STOPPED_REASONS and not (note and may_be_off_by_drain(note.why, note.boot_id, decision.boot_id)):
            what = f"it was stopped ({reason})"
        else:
            return
        raise InvalidState(
            f"{self.domain_text} was not started: since that was decided, {what}.", "If it is to run, start it with kvmfleet.migration.domain_start."
        )

    def forget_start(self) -> None:
        """Forget that the domain, which is active, was to be started again. One that is being moved or shut down keeps its note."""
        with contextlib.suppress(AlreadyWatched):
            _forget_active(self.host, self.info.uuid, self.folder, self.notes_folder)

    def _start_domain(self) -> domain_states.DomainView:
        note_own_act(self.info.uuid, self.folder)
        try:
            self.host.start_domain(self.info.uuid, paused=self.paused)
        except KvmfleetError as error:
            if self.host.view_domain(self.info.uuid).active:
                return self.host.view_domain(self.info.uuid)
            error.next_step = error.next_step or "It is off. Repair what libvirt reports, then run the task again."
            raise
        view = self.host.view_domain(self.info.uuid)
        if not view.active:
            raise InvalidState(
                f"{self.domain_text} was started and is {view.describe()} already.", "Look at its log in /var/log/libvirt/qemu and run the task again."
            )
        return view

    def _being_moved(self) -> InvalidState:
        return InvalidState(f"{self.domain_text} is being moved, or shut down by another task.", "It was not started: wait for the end of that.")


def start_of(params: StartOptions) -> DomainStart:
    """Return the start that a module's options ask for. Raises what is wrong with them, L(Forbidden), or L(NotFound)."""
    check_domain_name(params["name"])
    uuid = canonical_uuid(params["uuid"])
    require_root()
    prepare_run_folder()
    host = open_host(require_local(params["uri"]))
    return DomainStart(host, host.find_domain(name=params["name"], uuid=uuid), paused=params["paused"])
