# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The host's half of the module C(protect): its domains as they could be started elsewhere, its tokens, and those of its peers that it sees."""

from __future__ import annotations

import functools
import typing as t

from .._errors import Conflict, KvmfleetError, NotFound
from .._facts import host_phases
from .._facts.identity import HOST_ID_FILE, create_host_id, read_host_id
from .._facts.mounts import LocalStores
from .._facts.needed_files import TPM, needed_files
from .._facts.ports import Definition, GatheredHost
from .._facts.remembered import remembered
from .._facts.request import request_of
from .._guard.install import NOT_HELD, install
from .._guard.state import state
from .._guard.tombstones import revoked_in
from .._hypervisor.definitions import open_definitions_host
from .._hypervisor.domain import definition_root, info_of
from .._migration import hypervisor as h
from .._module import require_local, require_root
from .._patience import patient, within
from .._policy.document import parse
from . import tokens
from .belonging import belong, check_belongs
from .images import PATIENCE_SECONDS, Images

Json = t.Dict[str, t.Any]
Work = t.Mapping[str, t.Any]

# Why a person, and not the hypervisor for a moment, or for an error, holds a guest.
_HELD_BY_A_PERSON = ("user", "from snapshot", "API error", "")
_NO_ANSWER = f"its file system did not answer within {PATIENCE_SECONDS:.0f} s"


class ProtectedHost(GatheredHost, t.Protocol):
    """A host that gives whole definitions."""

    def whole_definition(self, uuid: str, persistent: bool) -> str:
        """The definition with its passwords, the inactive one of a persistent domain. Raises L(NotFound)."""

    def close(self) -> None:
        """Close the connection; never raises."""


@patient
def identify(uri: str, work: Work) -> Json:
    """Return who this host is, as C(host) does. Raises L(Forbidden) without root, L(Conflict) where it belongs to another ledger."""
    require_root()
    check_belongs(work["ledger_id"])
    return host_phases.read(uri, work)


def leave(uri: str, work: Work) -> Json:
    """Make this host belong to the ledger, with an identity, and leave its tokens.

    :arg work: C(ledger_id); C(known), the tokens that it has by the ledger; C(check), to leave and make nothing.
    Returns C(host_id), C(folders) (folder: nonce), C(unwritable) (folder: why), C(devices) (path: identity), C(changed).
    """
    require_root()
    with _open(uri) as host:
        images = [image for domain in _read(host, None)["domains"] for image in [*domain["disks"], *domain["files"]]]
    folders = sorted({folder for image in images for folder in image["folders"]})
    devices = {image["path"]: image["wwn"] for image in images if image["wwn"]}
    devices.update({path: wwn for image in images for path, wwn in image.get("backing_devices", {}).items() if wwn})
    if work["check"]:
        host_id = read_host_id()
        known = {folder: work["known"][folder] for folder in folders if folder in work["known"]}
        there = _seen(host_id, known, set()) if host_id else {}
        return {"changed": not host_id or len(there) < len(folders), "host_id": host_id, "folders": there, "unwritable": {}, "devices": devices}
    belongs_now = belong(work["ledger_id"])
    host_id, made = create_host_id()
    nonces, unwritable = _left(folders, host_id)
    changed = belongs_now or made or any(work["known"].get(folder) != nonce for folder, nonce in nonces.items())
    return {"changed": changed, "host_id": host_id, "folders": nonces, "unwritable": unwritable, "devices": devices}


def see(uri: str, work: Work) -> Json:
    """Return, by host ID, which of the peers' tokens (C(folders): host ID to folder to nonce) and devices (C(devices)) this host sees: C(sees)."""
    require_root()
    require_local(uri)
    _check_identity(work["host_id"])
    images = Images()
    silent: t.Set[str] = set()
    sees = {host_id: _seen(host_id, nonces, silent) for host_id, nonces in work["folders"].items()}
    for host_id, devices in work["devices"].items():
        sees.setdefault(host_id, {}).update({path: identity for path, identity in devices.items() if images.identity_of(path) == identity})
    return {"changed": False, "sees": {host_id: seen for host_id, seen in sees.items() if seen}}


@patient
def save(uri: str, work: Work) -> Json:
    """Return C(domains) as they could be started elsewhere, C(arriving) (UUIDs that are still moving here), C(unreadable) (name, uuid, why).

    Beside them C(remembered), what this host remembers of moves.

    :arg work: C(host_id) that this host has to have; C(uuids), those that are asked for, null for all.
    """
    require_root()
    _check_identity(work["host_id"])
    with _open(uri) as host:
        return {"changed": False, **_read(host, work["uuids"], is_held=bool(state().held)), "remembered": remembered()}


def guard(uri: str, work: Work) -> Json:
    """Install the boot guard if C(install) is set; return C(guard), its state after that.

    :arg work: C(grant), the grant for clean-shutdown tokens (C(grant), C(host_id), C(folders)), or null; C(taken_back), IDs of grants that this
        host must never accept again.
    Returns also C(revoked_in), the folders in which a person has revoked that grant.
    """
    require_root()
    require_local(uri)
    grant = work["grant"]
    change = install(grant=grant, check_mode=work["check"], taken_back=work.get("taken_back") or ()) if work["install"] else None
    now = state()
    installed = now.installed or bool(change)
    return {
        "changed": bool(change and change.changed),
        "revoked_in": revoked_in(grant) if grant and work["install"] else [],
        "guard": {
            "installed": installed,
            "systemd": now.systemd,
            "held_at_boot": installed and now.systemd,
            "held": bool(now.held),
            "note": "" if now.systemd or not installed else NOT_HELD,
        },
    }


PHASES: t.Dict[str, t.Callable[[str, Work], Json]] = {"identify": identify, "leave": leave, "see": see, "save": save, "guard": guard}


class _open:
    """A host for the length of a block."""

    def __init__(self, uri: str) -> None:
        self._host: ProtectedHost = open_definitions_host(require_local(uri))

    def __enter__(self) -> ProtectedHost:
        return self._host

    def __exit__(self, *_args: t.Any) -> None:
        self._host.close()


def _check_identity(host_id: t.Optional[str]) -> None:
    now = read_host_id()
    if host_id is not None and now != host_id:
        raise Conflict(f"The ledger has {host_id} for this host, and {HOST_ID_FILE} says {now}. Nothing was saved.", "Run the whole task again.")


def _left(folders: t.Sequence[str], host_id: str) -> t.Tuple[t.Dict[str, str], t.Dict[str, str]]:
    nonces: t.Dict[str, str] = {}
    problems: t.Dict[str, str] = {}
    for folder in folders:
        answer = within(PATIENCE_SECONDS, functools.partial(tokens.leave, [folder], host_id))
        left, why = answer or ({}, {folder: _NO_ANSWER})
        nonces.update(left)
        problems.update(why)
    return nonces, problems


def _seen(host_id: str, nonces: t.Mapping[str, str], silent: t.Set[str]) -> t.Dict[str, str]:
    """Return those of a host's tokens that this host sees. A folder that does not answer is not seen, and put among the C(silent) ones."""
    found = {}
    for folder in sorted(set(nonces) - silent):
        is_seen = within(PATIENCE_SECONDS, functools.partial(tokens.is_seen, folder, host_id, nonces[folder]))
        if is_seen is None:
            silent.add(folder)
        elif is_seen:
            found[folder] = nonces[folder]
    return found


def _read(host: ProtectedHost, uuids: t.Optional[t.Collection[str]], is_held: bool = False) -> Json:
    reader = _Reader(host, is_held)
    answer: Json = {"domains": [], "arriving": [], "unreadable": []}
    for definition in host.roll().definitions:
        info = definition.info
        if uuids is not None and info.uuid not in uuids:
            continue
        if info.view.job == h.JOB_INCOMING:
            answer["arriving"].append(info.uuid)
            continue
        try:
            answer["domains"].append(reader.domain(definition))
        except NotFound:
            continue
        except (KvmfleetError, ValueError) as error:
            answer["unreadable"].append({"uuid": info.uuid, "name": info.name, "why": str(error)})
    return answer


class _Reader:
    """Reads the domains of a host; what they share is asked once.

    :arg is_held: whether the boot guard holds the host: then what is off was not shut down by a person.
    """

    def __init__(self, host: ProtectedHost, is_held: bool) -> None:
        self._host = host
        self._is_held = is_held
        self._versions = host.versions()
        self._pools = host.surroundings()["pools"] or ()
        self._stores = LocalStores()
        self._images = Images()

    def domain(self, definition: Definition) -> Json:
        """Return a domain. Its request is that of a start from the saved definition, which no snapshot and no running device can hinder."""
        info = definition.info
        xml = self._host.whole_definition(info.uuid, info.view.persistent)
        root = definition_root(xml)
        own = parse(info.policy_xml)
        saved = h.DomainInfo(uuid=info.uuid, name=info.name, view=info.view, autostart=info.autostart, **info_of(root))
        request = request_of(Definition(saved, root), own, self._versions, self._stores, self._pools)
        files = needed_files(root)
        return {
            "uuid": info.uuid,
            "name": info.name,
            "definition": xml,
            "active": info.view.active,
            "persistent": info.view.persistent,
            "autostart": info.autostart,
            "state": _state(info.view, self._is_held),
            "request": {**request, "blockers": [], "uuid": info.uuid, "name": info.name},
            "policy": own.values,
            "nvram": request["nvram"],
            "tpm": next((file["path"] for file in files if file["what"] == TPM), None),
            "disks": self._images.disks(request["disks"], self._pools, definition.root if info.view.active else None, self._stores.header),
            "files": self._images.files(files),
        }


def _state(view: h.GuestView, is_held: bool) -> t.Optional[str]:
    """Return the state that a restart is to bring back; null while a job has the domain or the host is held, for then it is not what a person wants."""
    if not view.active:
        return None if is_held else h.SHUTOFF
    if view.is_busy:
        return None
    return h.PAUSED if view.state == h.PAUSED and view.reason in _HELD_BY_A_PERSON else h.RUNNING
