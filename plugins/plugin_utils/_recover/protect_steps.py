# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The steps that protect a host: its identity and tokens, the tokens of its peers, its domains, its boot guard.

A role runs each step on all hosts before the next step, so that each host reads tokens that its peers have just left.
"""

from __future__ import annotations

import typing as t
from dataclasses import field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, JsonObject, Maybe, decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import ProtectedWatchdog
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef, IdentityAnswer
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import NO_MAPS, HostNames, Renaming, ResourceMaps, rename_folders
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import ENABLED

from .._ledger.documents import Document, GuardStatus, HostEntry, HostProtection
from .._ledger.host_entries import (
    Grant,
    HostIdentity,
    find_own_entry,
    list_entries,
    list_uuid_notes,
    make_entry,
    new_grant,
    recorded_grant,
    revocable_folders,
    update_entry,
    with_grant,
)
from .._ledger.host_parts import ProtectTime
from .._ledger.ledger import Ledger
from .._ledger.remembered import find_missing_records
from .._ledger.sights import Sights, list_sights_of, read_own_sights, write_sights
from .protect_domains import DomainSaver, ProtectOutcome, SaveAnswer

RunPhase = t.Callable[[str, JsonObject], JsonObject]
ChangeEntry = t.Callable[[HostEntry], HostEntry]

NOT_REVOCABLE = (
    "No clean-shutdown token is granted: no other host was proved to see a folder with images of this one, so nobody could revoke a token while this "
    "host is off. Every boot is held."
)
NOT_ALONE = (
    "No clean-shutdown token is granted: after a boot that a token releases, this host would start by itself what is, or may be, on another host: {names}. "
    "Remove the definitions that are left over, or their marks for autostart, and run protect_host again. Until then, every boot is held."
)
TOKENS_KEPT = "The tokens of {host} in {folders} cannot be read now, so what is known of them stays. Find out whether their storage answers."
# The keys of the host's entry whose change is reported. A token that goes, because the domains that needed it were saved elsewhere, is no change.
_REPORTED_KEYS = ("name", "host_id", "host_uuid", "machine_id", "unwritable", "devices", "addresses")


@dataclass(frozen=True)
class _LeaveAnswer:
    """The answer of a host that has left its tokens; C(folders), C(unwritable) and C(devices) are as in its entry."""

    changed: bool
    host_id: t.Optional[str]
    folders: t.Mapping[str, str]
    unwritable: t.Mapping[str, str]
    devices: Maybe[t.Mapping[str, t.Optional[str]]] = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class LeftTokens:
    """The folders with a token of the host, and those in which none could be written, with the reason."""

    left: tuple[str, ...]
    unwritable: t.Mapping[str, str]


@dataclass(frozen=True)
class LeaveResult:
    """The result of the step that leaves tokens."""

    changed: bool
    host_id: t.Optional[str]
    tokens: LeftTokens
    uuid_notes: tuple[str, ...]


@dataclass(frozen=True)
class _SeeAnswer:
    sees: t.Mapping[str, t.Mapping[str, t.Optional[str]]]
    unread: Maybe[t.Mapping[str, tuple[str, ...]]] = ABSENT
    boot_id: Maybe[str] = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class ReadResult:
    """The result of the step that reads tokens.

    :arg sees: by name of the peer, the paths of its tokens and devices that the host sees.
    :arg notes: sentences about what could not be read.
    """

    changed: bool
    sees: t.Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReportedGuard:
    """The boot guard of a host. C(note) is for a person."""

    installed: bool
    systemd: bool
    held_at_boot: bool
    note: str
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class GuardResult:
    """The result of the step that sets up the boot guard. C(watchdog): null for a host without one."""

    changed: bool
    guard: ReportedGuard
    watchdog: t.Optional[ProtectedWatchdog]


@dataclass(frozen=True)
class _GuardAnswer:
    """The answer of a host about its boot guard and its watchdog.

    :arg withdrawn: whether the host never accepts its grant again; C(revoked_in): the folders in which a person has revoked it.
    :arg spent: whether a token of its grant was used, or the host has lost the grant. An earlier copy of its disk, or its former disk, may have a token.
    :arg unrevoked: why an earlier copy of the host's disk could still use the grant before; empty if it could not.
    """

    changed: bool
    guard: ReportedGuard
    watchdog: Maybe[ProtectedWatchdog] = ABSENT
    withdrawn: Maybe[bool] = ABSENT
    revoked_in: Maybe[tuple[str, ...]] = ABSENT
    spent: Maybe[bool] = ABSENT
    unrevoked: Maybe[str] = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class ProtectSteps:
    """:arg ledger: None in check mode if it does not exist yet.

    :arg phase: runs a phase on the host.
    :arg check: to change nothing.
    :arg remembered: the moves that other hosts remember, as far as known.
    :arg maps_of: returns what a host of that name calls its resources.
    :arg fleet: the names of all hosts in the inventory.
    """

    name: str
    ledger: t.Optional[Ledger]
    phase: RunPhase
    by: str
    check: bool
    remembered: t.Sequence[tuple[str, t.Optional[t.Sequence[JsonObject]]]] = ()
    maps_of: t.Callable[[str], ResourceMaps] = lambda host: NO_MAPS
    fleet: t.Collection[str] = ()

    def leave_tokens(self, addresses: JsonObject) -> LeaveResult:
        """Give the host its identity, entry and tokens. Raises L(Conflict), L(Unreachable)."""
        identity, found = self._identify_host()
        before = found.host if found else None
        known = (before.folders or {}) if before else {}
        answer = decode(_LeaveAnswer, self.phase("leave", {"ledger_id": self._ledger_id(), "known": known, "check": self.check}))
        changed = answer.changed
        if self.ledger and not self.check:
            identity = HostIdentity(self.name, answer.host_id, identity.host_uuid, identity.machine_id)
            kept = self._list_kept_tokens(before, answer)
            after = self._update_entry(identity, lambda entry: _with_tokens(entry, answer, kept, addresses))
            changed = changed or before is None or _has_changed(before, after)
        tokens = LeftTokens(tuple(sorted(answer.folders)), answer.unwritable)
        return LeaveResult(changed or before is None, answer.host_id, tokens, tuple(list_uuid_notes(before, identity, ())))

    def _list_kept_tokens(self, before: t.Optional[HostEntry], answer: _LeaveAnswer) -> dict[str, str]:
        """Return the earlier tokens that are still needed for a domain that was saved on this host and has left it.

        Until the host that has the domain now is protected, only these tokens prove its disks.
        """
        folders = (before.folders or {}) if before else {}
        unused = {folder: nonce for folder, nonce in folders.items() if folder not in answer.folders and folder not in answer.unwritable}
        if not unused or before is None or self.ledger is None:
            return {}
        saved = (document.domain.saved for document in self.ledger.list_domains())
        needed = {folder for domain in saved if domain and domain.host and domain.host.is_same(before.host_ref) for folder in domain.folders}
        return {folder: nonce for folder, nonce in unused.items() if folder in needed}

    def read_tokens(self) -> ReadResult:
        """Read the tokens of all peers and write which of them this host sees, by the folders as the peers call them.

        An entry of version 0.1.0 has its sights inside: they are removed after the documents with the new ones were written.
        """
        own = self.find_entry()
        if self.ledger is None or own is None or not own.host_id:
            return ReadResult(False, {})
        peers = {entry.host_id: entry for entry in list_entries(self.ledger) if entry.host_id and entry.host_id != own.host_id}
        folders = {host_id: self._rename_folders(peer) for host_id, peer in peers.items() if peer.folders}
        devices = {host_id: peer.devices for host_id, peer in peers.items() if peer.devices}
        wanted = {host_id: {here: (peers[host_id].folders or {})[folder] for folder, here in named.items()} for host_id, named in folders.items()}
        answer = decode(_SeeAnswer, self.phase("see", {"folders": wanted, "devices": devices, "host_id": own.host_id}))
        back = {host_id: {here: folder for folder, here in named.items()} for host_id, named in folders.items()}
        before = read_own_sights(self.ledger, own)

        def named_there(host_id: str, path: str) -> str:
            return back.get(host_id, {}).get(path, path)

        unread = {(host_id, named_there(host_id, path)) for host_id, paths in (answer.unread or {}).items() for path in paths}
        kept = _select_sights(before, unread, peers)
        seen = {host_id: {named_there(host_id, path): value for path, value in paths.items()} for host_id, paths in answer.sees.items()}
        sees = {host_id: {**kept.get(host_id, {}), **seen.get(host_id, {})} for host_id in {**kept, **seen}}
        if not self.check:
            write_sights(self.ledger, str(own.host_id), sees, answer.boot_id)
        if not self.check and own.sees is not ABSENT:
            self._update_entry(HostIdentity.from_entry(own), lambda entry: replace(entry, sees=ABSENT))
        changed = sees != _without_forgotten(before, peers)
        notes = tuple(TOKENS_KEPT.format(host=peers[host_id].name, folders=", ".join(sorted(folders))) for host_id, folders in kept.items())
        return ReadResult(changed, {peer.name: tuple(sorted(sees[host_id])) for host_id, peer in peers.items() if host_id in sees}, notes)

    def _rename_folders(self, peer: HostEntry) -> dict[str, str]:
        """Return what this host calls each folder in which the peer has left a token."""
        names, own = HostNames(peer.name, self.maps_of(peer.name)), HostNames(self.name, self.maps_of(self.name))
        return rename_folders(peer.folders or (), Renaming.between(names, own))

    def save_domains(self) -> ProtectOutcome:
        """Save the domains."""
        own = self.find_entry()
        host_id = own.host_id if own else None
        protected_host = HostRef(self.name, host_id, own.host_uuid if own else None)
        remembered: list[t.Optional[t.Sequence[JsonObject]]] = []
        # During a drain, a domain is noted before it is asked to shut down, while it is still active.
        forgets = not self.check and own is not None and own.state == ENABLED

        def ask(uuids: t.Optional[list[str]]) -> SaveAnswer:
            answer = decode(SaveAnswer, self.phase("save", {"host_id": host_id, "uuids": uuids, "forget_started": forgets}))
            remembered.append(answer.remembered or None)
            return answer

        write = not self.check and self.ledger is not None
        outcome = DomainSaver(self.ledger, protected_host, ask, self.by, write, self.remembered, self._rename_folders).save_domains()
        outcome.missing_records = find_missing_records(self.ledger, [(self.name, moves) for moves in remembered])
        return outcome

    def set_up_guard(self, install: bool, with_token: bool, left_over: t.Sequence[str] = ()) -> GuardResult:
        """Install the boot guard, or only read its state. Writes in any case when the host was protected.

        :arg left_over: names of domains that the host would start by itself although they are, or may be, on another host: then it has no grant.
        """
        own = self.find_entry()
        before = recorded_grant(own)
        if not install and not (before and left_over):
            answer = self._run_guard_phase(own, None, install=False)
            return GuardResult(answer.changed, answer.guard, answer.watchdog or None)
        folders, unrevoked = self._revocable_folders(own) if with_token and not left_over else {}, ""
        if before and not (folders and before.folders == folders):
            unrevoked = self._take_back(own, before, install)
            before = None
        grant = before or (new_grant(own, folders) if own else None)
        # While the host may hold a token, the ledger shows it: the grant is written before the host receives it, and removed after.
        if grant and grant != before:
            self._replace_grant(own, None, grant)
        answer = self._run_guard_phase(own, grant, install, is_granted=before is not None)
        if grant and (answer.withdrawn or answer.revoked_in or answer.spent) and not self.check:
            # A revocation, on the host itself or on storage, that ended before it reached the ledger; or a token that must be good for one boot only.
            unrevoked = self._take_back(own, grant, install)
            result = self.set_up_guard(install, with_token, left_over)
            return replace(result, guard=replace(result.guard, note=" ".join(filter(None, (result.guard.note, unrevoked)))))
        note = NOT_REVOCABLE if with_token and not folders else ""
        note = NOT_ALONE.format(names=", ".join(left_over)) if left_over and (with_token or recorded_grant(own)) else note
        guard = replace(answer.guard, note=" ".join(filter(None, (answer.guard.note, note, unrevoked or answer.unrevoked or ""))))
        return GuardResult(answer.changed or bool(answer.spent) or grant != recorded_grant(own), guard, answer.watchdog or None)

    def _run_guard_phase(self, own: t.Optional[HostEntry], grant: t.Optional[Grant], install: bool, is_granted: bool = False) -> _GuardAnswer:
        """Run the phase on the host, write the state of guard and watchdog into the host's entry, and return the answer."""
        work: JsonObject = {"install": install, "grant": grant.for_host() if grant else None, "granted": is_granted, "taken_back": [], "check": self.check}
        answer, now = decode(_GuardAnswer, self.phase("guard", work)), utc_now()
        guard = GuardStatus(answer.guard.installed, answer.guard.systemd, answer.guard.held_at_boot)

        def changed(entry: HostEntry) -> HostEntry:
            protected = replace(entry.protected or HostProtection(), guard=guard, watchdog=answer.watchdog)
            kept = with_grant(replace(entry, protected=protected), recorded_grant(entry))
            # The entry of a large host is not written for its time alone.
            return entry if entry == kept else replace(kept, protected=replace(kept.protected or HostProtection(), at=now, by=self.by))

        self._change_entry(own, changed)
        if not self.check and self.ledger is not None and own is not None:
            self.ledger.put_protect_time(ProtectTime(str(own.host_key), now, self.by))
        return answer

    def _take_back(self, own: t.Optional[HostEntry], grant: Grant, install: bool) -> str:
        """Withdraw a grant from the host, which never accepts it again, and then from the ledger; return C(unrevoked) of its answer."""
        if self.check:
            return ""
        # The host may have withdrawn it already, and forgotten it, before an earlier task could write the ledger.
        work: JsonObject = {"install": install, "grant": None, "granted": False, "taken_back": [grant.id], "withdrawn": grant.for_revocation(), "check": False}
        answer = decode(_GuardAnswer, self.phase("guard", work))
        self._replace_grant(own, grant, None)
        return answer.unrevoked or ""

    def _replace_grant(self, own: t.Optional[HostEntry], before: t.Optional[Grant], after: t.Optional[Grant]) -> None:
        """Write the grant into the host's entry. Raises L(Conflict) if that has another one than this process has read: the host may hold it."""

        def changed(entry: HostEntry) -> HostEntry:
            if recorded_grant(entry) != before:
                raise Conflict(
                    f"Another task changed the clean-shutdown grant of {self.name} at the same time. The ledger keeps the grant of that task.",
                    "Run the task again.",
                )
            return with_grant(entry, after)

        self._change_entry(own, changed)

    def _revocable_folders(self, own: t.Optional[HostEntry]) -> dict[str, str]:
        if own is None:
            return {}
        entries = list_entries(self.ledger)
        return revocable_folders(own, entries, list_sights_of(self.ledger, entries, own.host_id))

    def list_shared_uuid_notes(self) -> list[str]:
        """Return a sentence if other hosts have this one's libvirt UUID. All hosts of the play have their entries by now."""
        own = self.find_entry()
        return list_uuid_notes(None, HostIdentity.from_entry(own), list_entries(self.ledger)) if own else []

    def find_entry(self) -> t.Optional[HostEntry]:
        """Return the host's entry, by its name."""
        found = self.ledger.find_host(name=self.name) if self.ledger else None
        return found.host if found else None

    def _identify_host(self) -> tuple[HostIdentity, t.Optional[Document]]:
        answer = decode(IdentityAnswer, self.phase("identify", {"ledger_id": self._ledger_id()}))
        identifiers = answer.identity
        if answer.libvirt_error:
            raise Unreachable(f"Libvirt on {self.name} did not answer, so nothing was saved of it: {answer.libvirt_error}")
        identity = HostIdentity(self.name, identifiers.host_id, identifiers.host_uuid, identifiers.machine_id)
        found = find_own_entry(self.ledger, identity, self.fleet) if self.ledger else None
        if self.ledger and found is None:
            self.ledger.check_new_host(identity.host_ref)
        if found and found.host.ledger_id and found.host.ledger_id != self._ledger_id():
            raise Conflict(f"The entry of {self.name} is of the ledger {found.host.ledger_id}.", "Use that ledger. Nothing was changed.")
        return identity, found

    def _ledger_id(self) -> t.Optional[str]:
        return self.ledger.ledger_id if self.ledger else None

    def _update_entry(self, identity: HostIdentity, change: ChangeEntry) -> HostEntry:
        ledger = t.cast("Ledger", self.ledger)

        def changed(before: t.Optional[HostEntry]) -> HostEntry:
            return change(make_entry(before, identity, before.state if before else ENABLED, None, self.by))

        return update_entry(ledger, lambda: find_own_entry(ledger, identity, self.fleet), changed)

    def _change_entry(self, own: t.Optional[HostEntry], change: ChangeEntry) -> None:
        if not self.check and self.ledger is not None and own is not None:
            self._update_entry(HostIdentity.from_entry(own), change)


def _has_changed(before: HostEntry, after: HostEntry) -> bool:
    known = before.folders or {}
    has_new_tokens = any(known.get(folder) != nonce for folder, nonce in (after.folders or {}).items())
    return has_new_tokens or any((getattr(before, key) or None) != (getattr(after, key) or None) for key in _REPORTED_KEYS)


def _select_sights(before: Sights, unread: t.Collection[tuple[str, str]], peers: t.Mapping[str, HostEntry]) -> dict[str, JsonObject]:
    """Return what this host has seen of tokens that it cannot read now, and that their hosts still have. Storage that hangs for a while withdraws no proof.

    :arg unread: IDs of hosts and folders, as those hosts call them.
    """
    nonces = {host_id: peer.folders or {} for host_id, peer in peers.items()}
    kept = {
        host_id: {path: value for path, value in seen.items() if (host_id, path) in unread and value == nonces.get(host_id, {}).get(path)}
        for host_id, seen in before.items()
    }
    return {host_id: seen for host_id, seen in kept.items() if seen}


def _without_forgotten(sees: Sights, peers: t.Mapping[str, HostEntry]) -> Sights:
    """Return what a host has seen of others, without tokens and devices that these do not have any more."""
    items = {host_id: {*(peer.folders or ()), *(peer.devices or ())} for host_id, peer in peers.items()}
    kept = {host_id: {path: value for path, value in seen.items() if path in items.get(host_id, ())} for host_id, seen in sees.items()}
    return {host_id: seen for host_id, seen in kept.items() if seen}


def _with_tokens(entry: HostEntry, answer: _LeaveAnswer, kept: t.Mapping[str, str], addresses: JsonObject) -> HostEntry:
    devices = entry.devices if answer.devices is ABSENT else answer.devices
    return replace(entry, folders={**kept, **answer.folders}, unwritable=answer.unwritable, devices=devices, addresses=addresses)
