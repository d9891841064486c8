# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The host half of the module C(protect): reports domains as they can be started elsewhere, and the storage tokens of this host and its peers."""

from __future__ import annotations

import dataclasses
import functools
import os
import types
import typing as t

from .._boot_guard.install import NOT_HELD, install_guard, is_withdrawn, list_revoking_folders, read_grant, revoke_grant
from .._boot_guard.status import read_guard_state
from .._domains.starting import forget_started, list_notes
from .._facts.identity import read_identity
from .._facts.local_stores import LocalStores
from .._facts.own_moves import list_remembered
from .._facts.request import build_request
from .._facts.storage_queries import STORAGE_SECONDS, StorageQueries
from .._host_identity import HOST_ID_FILE, check_ledger_id, create_host_id, read_host_id, remember_ledger_id
from .._lease.watchdog import read_protected_watchdog
from .._libvirt.host import open_host
from .._libvirt.interface import Host
from .._libvirt.reading import parse_domain_xml, replace_definition
from .._libvirt.values import Definition
from .._model import domain_states
from .._model.boot_guard import BootStatus
from .._model.clock import boot_moment
from .._model.codec import ABSENT, Json, Maybe, encode
from .._model.definition_files import list_needed_files
from .._model.errors import Conflict, KvmfleetError, NotFound
from .._model.policy_documents import parse_policy
from .._model.requests import NetworkNeed
from .._model.saved_domains import TPM, SavedDomain, SavedDomains, UnreadableDomain
from .._module import Phase, Result, require_local, require_root
from .._run_folder import read_own_act
from .._time_limits import answer_all_within, limit_questions
from . import images
from .images import ImageLocator


class _Identify(t.TypedDict):
    """The input of L(identify_host)."""

    ledger_id: t.Optional[str]


class _LeaveTokens(t.TypedDict):
    """The input of L(leave_own_tokens)."""

    ledger_id: str
    known: t.Mapping[str, str]
    check: bool


class _SeeTokens(t.TypedDict):
    """The input of L(report_seen_tokens)."""

    host_id: t.Optional[str]
    folders: t.Mapping[str, t.Mapping[str, str]]
    devices: t.Mapping[str, t.Mapping[str, str]]


class _SaveDomains(t.TypedDict):
    """The input of L(report_domains)."""

    host_id: t.Optional[str]
    uuids: t.Optional[t.Sequence[str]]
    forget_started: bool


class _InstallGuard(t.TypedDict):
    """The input of L(report_guard)."""

    install: bool
    grant: Json
    granted: bool
    check: bool
    taken_back: t.Sequence[str]
    withdrawn: Json


# To write a token takes some hundred requests of an NFS server. Without it, no other host is proved to see the images.
TOKEN_SECONDS = 30.0
_NO_ANSWER = f"its file system did not answer within {TOKEN_SECONDS:.0f} s"


@limit_questions
def identify_host(uri: str, work: _Identify) -> Result:
    """Return the identity of this host, as C(host) does. Raises L(Forbidden) without root, L(Conflict) if it belongs to another ledger."""
    require_root()
    check_ledger_id(work["ledger_id"])
    return read_identity(uri, {})


def leave_own_tokens(uri: str, work: _LeaveTokens) -> Result:
    """Assign this host to the ledger, with an identity, and leave its tokens.

    :arg work: C(ledger_id); C(known), the tokens that it has according to the ledger; C(check), to write nothing.
    Returns C(host_id), C(folders) (folder: nonce), C(unwritable) (folder: why), C(devices) (path: identity), C(changed). A folder that cannot be read now is in
    both, if it had a token: storage that hangs for a while withdraws no proof.
    """
    require_root()
    domains = _read_all_domains(uri)
    folders = sorted({folder for domain in domains for image in domain.images for folder in image.folders})
    devices = {path: identity for domain in domains for path, identity in _devices_of(domain).items()}
    if work["check"]:
        host_id = read_host_id()
        known = {folder: work["known"][folder] for folder in folders if folder in work["known"]}
        there = _select_seen(_ask_for_tokens(host_id, known, StorageQueries()), known) if host_id else {}
        return {"changed": not host_id or len(there) < len(folders), "host_id": host_id, "folders": there, "unwritable": {}, "devices": devices}
    belongs_now = remember_ledger_id(work["ledger_id"])
    host_id, made = create_host_id()
    nonces, unwritable = _leave_in_folders(folders, host_id)
    _keep_unread(nonces, unwritable, host_id, work["known"])
    changed = belongs_now or made or any(work["known"].get(folder) != nonce for folder, nonce in nonces.items())
    return {"changed": changed, "host_id": host_id, "folders": nonces, "unwritable": unwritable, "devices": devices}


@limit_questions
def _read_all_domains(uri: str) -> t.Tuple[SavedDomain, ...]:
    with _OpenHost(uri) as host:
        return _read_domains(host, None).domains


def report_seen_tokens(uri: str, work: _SeeTokens) -> Result:
    """Return, by host ID, which of the peers' tokens (C(folders): host ID to folder to nonce) and devices (C(devices)) this host sees: C(sees).

    Beside them C(unread), the folders of which that is not known, because they could not be read, and C(boot_id), the present boot of this host.
    """
    require_root()
    require_local(uri)
    _check_identity(work["host_id"])
    images = ImageLocator()
    asked = {host_id: _ask_for_tokens(host_id, nonces, images.storage) for host_id, nonces in work["folders"].items()}
    sees = {host_id: _select_seen(found, work["folders"][host_id]) for host_id, found in asked.items()}
    unread = {host_id: [folder for folder, is_seen in found.items() if is_seen is None] for host_id, found in asked.items()}
    for host_id, devices in work["devices"].items():
        sees.setdefault(host_id, {}).update({path: identity for path, identity in devices.items() if images.find_device_identity(path) == identity})
    return {
        "changed": False,
        "sees": {host_id: seen for host_id, seen in sees.items() if seen},
        "unread": {host_id: folders for host_id, folders in unread.items() if folders},
        "boot_id": boot_moment().boot_id or None,
    }


@limit_questions
def report_domains(uri: str, work: _SaveDomains) -> Result:
    """Return C(domains) as they could be started elsewhere, C(arriving) (UUIDs that are still moving here), C(unreadable) (name, uuid, why).

    Beside them C(remembered), what this host remembers of moves, and C(boot_id), its present boot.

    :arg work: C(host_id) that this host has to have; C(uuids), the requested domains, null for all; C(forget_started), whether domains that are active need not
        be started again by a recovery.
    """
    require_root()
    _check_identity(work["host_id"])
    with _OpenHost(uri) as host:
        if work.get("forget_started"):
            forget_started(host)
        boot = read_guard_state().boot
        return {"changed": False, **encode(_read_domains(host, work["uuids"], boot)), "remembered": list_remembered(), "boot_id": boot.boot_id}


def report_guard(uri: str, work: _InstallGuard) -> Result:
    """Install the boot guard if C(install) is set, otherwise only withdraw the grants in C(taken_back); return C(guard), its state after that.

    :arg work: C(grant), the grant for clean-shutdown tokens (C(grant), C(host_id), C(folders)), or null; C(granted), whether the host was given it before;
        C(taken_back), IDs of grants that this host must never accept again; C(withdrawn), one of these with its folders.
    Returns also C(withdrawn), whether this host never accepts that grant again, so that nothing was installed; C(revoked_in), the folders in which a person
    has revoked it; C(spent), whether a token of that grant was used, or this host has lost it, so that a former disk of the host may have a token
    (this host does not get it again then: the next task would not know of the loss if this one dies); and C(watchdog), null for a host without one.
    """
    require_root()
    require_local(uri)
    grant = None if work["grant"] is None else read_grant(work["grant"])
    withdrawn = work["install"] and is_withdrawn(grant)
    installs = work["install"] and not withdrawn
    is_lost = bool(grant and work.get("granted") and read_guard_state().boot.grant != grant.grant)
    lost, taken_back = read_grant(work["withdrawn"]) if work.get("withdrawn") else None, work.get("taken_back") or ()
    change = None
    if installs:
        change = install_guard(grant=None if is_lost else grant, check_mode=work["check"], taken_back=taken_back, withdrawn=lost)
    revoked = [revoke_grant(check_mode=work["check"], grant=one, withdrawn=lost) for one in taken_back] if not work["install"] else []
    now = read_guard_state()
    installed = now.installed or bool(change)
    held_at_boot = installed and now.systemd
    # A host with a grant may leave a token, which releases its next boot.
    held_after_reset = held_at_boot and not (grant or now.boot.grant)
    return {
        "changed": withdrawn or bool(change and change.changed) or any(was_there for was_there, _unrevoked in revoked),
        "withdrawn": withdrawn,
        "revoked_in": list_revoking_folders(grant) if grant and installs else [],
        "spent": bool(grant and installs and (is_lost or (now.boot.released and now.boot.released.grant == grant.grant))),
        "unrevoked": change.unrevoked if change else " ".join(unrevoked for _was_there, unrevoked in revoked if unrevoked),
        "guard": {
            "installed": installed,
            "systemd": now.systemd,
            "held_at_boot": held_at_boot,
            "held": bool(now.boot.held),
            "note": " ".join(change.warnings) if change else "" if now.systemd or not installed else NOT_HELD,
        },
        "watchdog": encode(read_protected_watchdog(held_at_boot=held_after_reset)),
    }


PHASES: t.Dict[str, Phase] = {
    "identify": identify_host,
    "leave": leave_own_tokens,
    "see": report_seen_tokens,
    "save": report_domains,
    "guard": report_guard,
}


class _OpenHost:
    """An open host within a block."""

    def __init__(self, uri: str) -> None:
        self._host: Host = open_host(require_local(uri))

    def __enter__(self) -> Host:
        return self._host

    def __exit__(self, *_error: t.Union[type[BaseException], BaseException, types.TracebackType, None]) -> None:
        self._host.close()


def _check_identity(host_id: t.Optional[str]) -> None:
    now = read_host_id()
    if host_id is not None and now != host_id:
        raise Conflict(f"The ledger has {host_id} for this host, and {HOST_ID_FILE} says {now}. Nothing was saved.", "Run the whole task again.")


def _leave_in_folders(folders: t.Sequence[str], host_id: str) -> t.Tuple[t.Dict[str, str], t.Dict[str, str]]:
    nonces: t.Dict[str, str] = {}
    problems: t.Dict[str, str] = {}
    groups = _group_by_place(folders)
    answers = answer_all_within(TOKEN_SECONDS, {group[0]: functools.partial(images.leave_tokens, group, host_id) for group in groups})
    for group in groups:
        left, why = answers[group[0]] or ({}, dict.fromkeys(group, _NO_ANSWER))
        nonces.update(left)
        # Reasons are parts of sentences.
        problems.update({folder: text.rstrip(".") for folder, text in why.items()})
    return nonces, problems


def _group_by_place(folders: t.Sequence[str]) -> t.List[t.List[str]]:
    """Return the folders in groups of those that are one folder, reached by links: they have one token."""
    places = answer_all_within(STORAGE_SECONDS, {folder: functools.partial(_find_place, folder) for folder in folders})
    groups: t.Dict[t.Union[str, t.Tuple[int, int]], t.List[str]] = {}
    for folder in folders:
        groups.setdefault(places[folder] or folder, []).append(folder)
    return list(groups.values())


def _find_place(folder: str) -> t.Tuple[int, int]:
    found = os.stat(folder)
    return found.st_dev, found.st_ino


def _keep_unread(nonces: t.Dict[str, str], unwritable: t.Dict[str, str], host_id: str, known: t.Mapping[str, str]) -> None:
    """Add the tokens that were left before, in folders of which nothing shows that they are gone."""
    before = {folder: known[folder] for folder in unwritable if folder in known}
    unread = [folder for folder, is_there in _ask_for_tokens(host_id, before, StorageQueries()).items() if is_there is None]
    nonces.update({folder: before[folder] for folder in unread})
    unwritable.update({folder: f"{unwritable[folder]}, so what is known of the one from before stays" for folder in unread})


def _ask_for_tokens(host_id: str, nonces: t.Mapping[str, str], storage: StorageQueries) -> t.Dict[str, t.Optional[bool]]:
    """Return, by folder, whether this host sees that token of a host; null if the folder cannot be read."""
    return {folder: storage.ask(folder, functools.partial(images.has_token, folder, host_id, nonces[folder])) for folder in sorted(nonces)}


def _select_seen(found: t.Mapping[str, t.Optional[bool]], nonces: t.Mapping[str, str]) -> t.Dict[str, str]:
    return {folder: nonces[folder] for folder, is_seen in found.items() if is_seen}


def _devices_of(domain: SavedDomain) -> t.Dict[str, str]:
    """Return the devices that the domain uses, each with its identity."""
    found = {image.path: image.wwn for image in domain.images}
    for disk in domain.disks:
        found.update(disk.backing_devices or {})
    return {path: identity for path, identity in found.items() if identity}


def _read_domains(host: Host, uuids: t.Optional[t.Collection[str]], boot: t.Optional[BootStatus] = None) -> SavedDomains:
    reader = _DomainReader(host, boot)
    domains, arriving, unreadable = [], [], []
    for definition in host.list_definitions().definitions:
        info = definition.info
        if uuids is not None and info.uuid not in uuids:
            continue
        if info.view.job == domain_states.JOB_INCOMING:
            arriving.append(info.uuid)
            continue
        try:
            domains.append(reader.read_domain(definition))
        except NotFound:
            continue
        except (KvmfleetError, ValueError) as error:
            unreadable.append(UnreadableDomain(info.uuid, info.name, str(error)))
    return SavedDomains(tuple(domains), tuple(arriving), tuple(unreadable))


class _DomainReader:
    """Reads the domains of a host; shared facts are read once.

    :arg boot: of the host. While the boot guard holds it, domains that are off were not shut down by a person.
    """

    def __init__(self, host: Host, boot: t.Optional[BootStatus]) -> None:
        self._host = host
        self._is_held = bool(boot and boot.held)
        self._boot_id = boot.boot_id if boot else None
        withheld = boot.would_start if boot and boot.held else ()
        self._to_start = {*(note.uuid for note in list_notes()[0]), *(start.uuid for start in withheld)}
        self._versions = host.read_versions()
        around = host.read_surroundings()
        self._pools = around.pools or ()
        self._networks = {network.name: network for network in around.networks or ()}
        self._stores = LocalStores()
        self._images = ImageLocator()

    def read_domain(self, definition: Definition) -> SavedDomain:
        """Return a domain. Its request is that of a start from the saved definition, which snapshots and running devices do not block."""
        info = definition.info
        xml = self._host.read_whole_definition(info.uuid, info.view.persistent)
        root = parse_domain_xml(xml)
        # That of a transient domain is the live one, with the number of a start that is over when the definition is used.
        root.attrib.pop("id", None)
        own = parse_policy(info.policy_xml)
        request = build_request(replace_definition(info, root), own, self._versions, self._stores, self._pools)
        files = list_needed_files(root)
        located = self._images.locate_files(files)
        disks = self._images.locate_disks(request.disks or (), self._pools, definition.root if info.view.active else None, self._stores)
        return SavedDomain(
            uuid=info.uuid,
            name=info.name,
            definition=xml,
            active=info.view.active,
            persistent=info.view.persistent,
            autostart=info.autostart,
            state=info.view.state_to_restore(self._is_held),
            request=encode(dataclasses.replace(request, blockers=(), networks=self._add_networks(request.networks), uuid=info.uuid, name=info.name)),
            policy=own.values,
            nvram=request.nvram or None,
            tpm=next((file.path for file in files if file.what == TPM), None),
            disks=tuple(disks),
            files=tuple(located),
            unread=tuple(image.path for image in (*disks, *located) if image.path in self._images.unread) or ABSENT,
            reason=info.view.reason,
            boot_id=self._boot_id,
            own_act=read_own_act(info.uuid),
            awaits_start=not info.view.active and info.uuid in self._to_start,
        )

    def _add_networks(self, needs: Maybe[t.Tuple[NetworkNeed, ...]]) -> t.Tuple[NetworkNeed, ...]:
        """Return what the interfaces need with the kind and the VLAN of each libvirt network, as far as they are known."""
        return tuple(self._add_network(need) if need.type == "network" else need for need in needs or ())

    def _add_network(self, need: NetworkNeed) -> NetworkNeed:
        network = self._networks.get(need.source or "")
        return dataclasses.replace(need, forward=network.forward, network_vlan=network.find_vlan(need.portgroup)) if network else need
