# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The entry of a host in the ledger: finding it, changing it, its libvirt UUID, and its grant for clean-shutdown tokens.

An identity that contradicts the entry is a conflict, which a person resolves. A grant never changes. It names the folders of shared storage in which it can be
revoked while the host is off, and the host reads all of them before it accepts a token. When the folders change, the grant is replaced by another one.
"""

from __future__ import annotations

import typing as t
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._host_identity import HOST_ID_FILE, LEDGER_ID_FILE
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, JsonObject, Maybe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import ProtectedWatchdog
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef, host_of
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import ENABLED

from .changes import find_only_host
from .documents import Document, HostEntry, HostFencing, HostProtection
from .ledger import Ledger
from .unreadable_hosts import LedgerHosts, make_missing_error

HOW_TO_SET_UUID = (
    "Set host_uuid to a UUID of the host's own in /etc/libvirt/libvirtd.conf (in virtqemud.conf where that daemon runs), and restart the daemon: guests run on."
)


def host_ref_from_facts(ledger: t.Optional[Ledger], name: str, facts: JsonObject) -> HostRef:
    """Return the host that these facts are of. One whose own ID could not be read is looked up in the ledger by libvirt's UUID."""
    reported = host_of(facts)
    host_id, host_uuid = reported.host_id, reported.host_uuid
    if not host_id and host_uuid and ledger is not None:
        host_id = find_host_id(list_entries(ledger), name, host_uuid)
    return HostRef(name, host_id or None, host_uuid or None)


def read_hosts(ledger: t.Optional[Ledger]) -> LedgerHosts:
    """Return all hosts of the ledger, including those whose document cannot be read."""
    return ledger.read_hosts() if ledger else LedgerHosts()


def list_entries(ledger: t.Optional[Ledger]) -> list[HostEntry]:
    """Return all hosts of the ledger whose document can be read, by name."""
    return read_hosts(ledger).entries


def unlisted_text(host: str) -> str:
    """Return the message for a host that the ledger has, and the inventory has not: its silence withholds the guests of every other host."""
    return (
        f"{host} is in the ledger, but not in the inventory: no guest of another host is started elsewhere before it has answered at its last known"
        f" address. If it will not return: kvmfleet.migration.host with name={host}, source_discarded and a reason"
    )


def displacing_since(hosts: Iterable[HostEntry]) -> t.Optional[str]:
    """Return the time from which records can displace a domain from one of these hosts; null if all hosts are enabled."""
    return min((host.since for host in hosts if host.state != ENABLED and host.since), default=None)


def find_host_id(entries: Iterable[HostEntry], name: str, host_uuid: t.Optional[str]) -> t.Optional[str]:
    """Return the host ID that the ledger has for a libvirt UUID; if several hosts have that UUID, the one with this name is used."""
    found = [entry for entry in entries if entry.host_id and host_uuid and entry.host_uuid == host_uuid]
    meant = found if len(found) == 1 else [entry for entry in found if entry.name == name]
    return meant[0].host_id if meant else None


def host_lock_name(host: HostRef) -> str:
    """Return the name of the lock under which the capacity of a host is reserved."""
    return f"host-{host.host_id or host.host_uuid or 'unknown'}"


_ADOPT = " with adopt_identity of kvmfleet.migration.host. Nothing was changed."
_OR_ADOPT = ", or confirm that it is with adopt_identity of kvmfleet.migration.host. Nothing was changed."


@dataclass(frozen=True)
class HostIdentity:
    """The identity that a host reports; null for what could not be read."""

    name: str
    host_id: t.Optional[str]
    host_uuid: t.Optional[str]
    machine_id: t.Optional[str]

    @classmethod
    def from_entry(cls, entry: HostEntry) -> HostIdentity:
        """Return the identity that the host had when its entry was written."""
        return cls(entry.name, entry.host_id, entry.host_uuid, entry.machine_id or None)

    @property
    def host_ref(self) -> HostRef:
        """The host, as records name it."""
        return HostRef(self.name, self.host_id, self.host_uuid)


def find_entry_by_name(ledger: t.Optional[Ledger], name: str) -> Document:
    """Return the entry of a host that is not queried. Raises L(NotFound), or L(Conflict) if several have that name."""
    found = ledger.find_host(name=name) if ledger else None
    if found is None:
        raise make_missing_error(
            read_hosts(ledger).unreadable,
            name,
            "A host gets its entry from the first task of kvmfleet.migration.host that runs on it while it answers. Nothing was changed.",
        )
    return found


def find_host_entry(ledger: Ledger, identity: HostIdentity) -> t.Optional[Document]:
    """Return the host's entry, or None if it has none yet. Raises L(Conflict) if it is unclear whether an entry is this host's."""
    found = ledger.read_host(identity.host_id) if identity.host_id else None
    if found is None:
        found = find_entry_by_uuid(ledger, identity)
    if found is None:
        found = ledger.find_host(name=identity.name)
    elif _has_namesake(ledger, found, identity.name):
        raise Conflict(f"The ledger has another host with the name {identity.name!r}.", f"Give each host of the inventory one name{_OR_ADOPT}")
    if found is not None:
        _check_same_host(found.host, identity)
    return found


def find_own_entry(ledger: Ledger, identity: HostIdentity, fleet: Collection[str]) -> t.Optional[Document]:
    """Return the host's entry, as L(find_host_entry) does. Raises L(Conflict) also if it may be the entry of another host of the inventory."""
    found = find_host_entry(ledger, identity)
    check_one_name(found.host if found else None, identity.name, fleet)
    return found


def check_one_name(entry: t.Optional[HostEntry], name: str, fleet: Collection[str]) -> None:
    """Raise L(Conflict) if the entry of a host has another name that the inventory has, too.

    The entry has one name, by which the host is fenced, asked and evacuated. Each task would give it the other one. The copy of a whole disk has the libvirt
    UUID of the original, too, if that is in the configuration of the daemon.
    """
    if entry is not None and entry.name != name and entry.name in fleet:
        raise Conflict(
            f"{name} and {entry.name} of the inventory lead to one host, or to one and a copy of its disk: {name} reports the host ID {entry.host_id}, which"
            f" the ledger has for {entry.name}.",
            f"If they are one host, correct the address of the wrong name, or remove it from the inventory. If {name} is a copy of {entry.name}, remove"
            f" {HOST_ID_FILE} there, and give it a machine ID and, if libvirtd.conf sets one, a host_uuid of its own. Only if {name} is the host that the"
            f" ledger has had as {entry.name}, and {entry.name} is a new one, confirm that{_ADOPT}",
        )


def check_own_ledger(host: str, ledger_id: Maybe[str], ledger: t.Optional[Ledger]) -> None:
    """Raise L(Conflict) if a host was protected under another ledger than that of the task, which knows neither its moves nor its evacuations.

    :arg ledger_id: as the host reports it.
    :arg ledger: None if it does not exist yet.
    """
    if _is_of_another(ledger_id, ledger):
        raise Conflict(
            f"{host} was protected under the ledger {ledger_id}, and {_own_text(ledger)}: a fleet must have only one ledger.",
            f"Use that ledger (option ledger, or kvmfleet_ledger). If it is permanently lost, or {host} has left its fleet, remove {LEDGER_ID_FILE} there."
            " Nothing was changed.",
        )


def group_by_other_ledger(reported: Mapping[str, Maybe[str]], ledger: t.Optional[Ledger]) -> dict[str, list[str]]:
    """Return the hosts that were protected under another ledger than that of the task, by the ID of theirs.

    :arg reported: the ID that each host reports.
    :arg ledger: None if it does not exist.
    """
    groups: dict[str, list[str]] = {}
    for host, ledger_id in sorted(reported.items()):
        if _is_of_another(ledger_id, ledger):
            groups.setdefault(str(ledger_id), []).append(host)
    return groups


def wrong_ledger_text(hosts: str, ledger_id: str, ledger: t.Optional[Ledger]) -> str:
    """Return the message for hosts of L(group_by_other_ledger)."""
    return (
        f"{hosts}: protected under the ledger {ledger_id}, and {_own_text(ledger)}. Use that ledger (kvmfleet_ledger): this one does not know what became of"
        " their domains. If it is permanently lost: docs/ledger.md"
    )


def _is_of_another(ledger_id: Maybe[str], ledger: t.Optional[Ledger]) -> bool:
    return bool(ledger_id) and (ledger is None or ledger_id != ledger.ledger_id)


def _own_text(ledger: t.Optional[Ledger]) -> str:
    return f"this task uses {ledger.name} ({ledger.ledger_id})" if ledger else "there is no ledger where this task looks for it"


def find_entry_by_uuid(ledger: Ledger, identity: HostIdentity) -> t.Optional[Document]:
    """Return the entry that has the host's libvirt UUID, or None. Raises L(Conflict) if several have it.

    Some boards share one UUID: an entry with another name and another machine ID is another host.
    """
    if not identity.host_uuid:
        return None
    return find_only_host([document for document in ledger.list_hosts() if not _is_another_host(document.host, identity)], None, identity.host_uuid)


def _is_another_host(entry: HostEntry, identity: HostIdentity) -> bool:
    has_other_values = _are_different(entry.name, identity.name) and _are_different(entry.machine_id, identity.machine_id)
    return has_other_values and entry.host_id != identity.host_id


def _are_different(one: Maybe[str], other: t.Optional[str]) -> bool:
    """Whether both values are known, and differ."""
    return bool(one and other) and one != other


def _has_namesake(ledger: Ledger, found: Document, name: str) -> bool:
    return any(other.name == name and other.host_key != found.host.host_key for other in list_entries(ledger))


def _check_same_host(entry: HostEntry, identity: HostIdentity) -> None:
    known = entry.host_id
    if known and identity.host_id and known != identity.host_id:
        raise Conflict(
            f"{identity.name} reports the host ID {identity.host_id}, but the ledger has {known} for it.",
            f"If it is the same host, write {known} into {HOST_ID_FILE} there. Nothing was changed.",
        )
    if known and not identity.host_id:
        raise Conflict(
            f"{identity.name} has lost its identity: the ledger has {known} for it, and there is no {HOST_ID_FILE}.",
            f"If it is the same host, write {known} into that file there{_OR_ADOPT}",
        )
    # The copy of a whole disk has the machine ID of the original, too.
    if _are_different(entry.name, identity.name) and _are_different(entry.host_uuid, identity.host_uuid):
        raise Conflict(
            f"Two hosts report the host ID {known}: {entry.name} in the ledger, and {identity.name}, with another libvirt UUID.",
            f"If {HOST_ID_FILE} of {identity.name} is a copy, remove it there. If it is the same host, confirm it{_ADOPT}",
        )
    if not known and entry.host_uuid and entry.host_uuid != identity.host_uuid:
        now = identity.host_uuid or "none: libvirt does not answer"
        raise Conflict(
            f"The ledger's host {entry.name} has the libvirt UUID {entry.host_uuid}, {identity.name} has {now}.",
            f"Start libvirt there if it is the same host{_OR_ADOPT}",
        )


def make_entry(before: t.Optional[HostEntry], identity: HostIdentity, state: str, reason: t.Optional[str], by: str) -> HostEntry:
    """Return the new entry. Values that the host could not report stay unchanged.

    A host that is fenced during its maintenance, or returns from a fence to it, is out of service since before: what left it then is still displaced.

    :arg reason: None keeps the reason while the state stays.
    """
    entry = with_identity(before or HostEntry(identity.name, None, None, state), identity)
    # A host that is in service again was fenced, or need not be.
    is_in_service = bool(entry.fencing and entry.fencing.is_impossible and state == ENABLED)
    fencing, adopted = (HostFencing() if entry.fencing is ABSENT or is_in_service else entry.fencing), (() if entry.adopted is ABSENT else entry.adopted)
    is_same = before is not None and before.state == state
    kept = before.reason or None if before and is_same and reason is None else reason or None
    stays_out = before is not None and before.since and ENABLED not in (before.state, state)
    since = entry.since if is_same or stays_out else utc_now()
    entry = replace(entry, fencing=fencing, adopted=adopted, state=state, reason=kept, since=since)
    return replace(entry, by=by) if is_changed(before, entry) else entry


def with_identity(entry: HostEntry, identity: HostIdentity) -> HostEntry:
    """Return the entry with that identity. Values that the host could not report stay unchanged.

    Nothing is known of the boot guard and of the watchdog of a host that was installed anew.
    """
    protected = entry.protected
    if protected and _are_different(entry.machine_id, identity.machine_id):
        protected = replace(protected, guard=ABSENT, watchdog=ABSENT)
    return replace(
        entry,
        protected=protected,
        name=identity.name,
        host_id=entry.host_id if identity.host_id is None else identity.host_id,
        host_uuid=entry.host_uuid if identity.host_uuid is None else identity.host_uuid,
        machine_id=entry.machine_id or None if identity.machine_id is None else identity.machine_id,
    )


def is_changed(before: t.Optional[HostEntry], after: HostEntry) -> bool:
    """Whether the task changes the entry."""
    return shown_entry(before) != shown_entry(after)


def shown_entry(entry: t.Optional[HostEntry]) -> JsonObject:
    """Return the part of an entry that a diff shows."""
    if entry is None:
        return {}
    identity = {"name": entry.name, "host_id": entry.host_id, "host_uuid": entry.host_uuid, "machine_id": entry.machine_id or None}
    return {**identity, "state": entry.state, "reason": entry.reason or None}


UPDATE_TRIES = 5


def update_entry(ledger: Ledger, find: Callable[[], t.Optional[Document]], change: Callable[[t.Optional[HostEntry]], HostEntry]) -> HostEntry:
    """Return the written entry. Nothing is written without a difference. Raises L(Conflict) if other processes always write first.

    :arg find: returns the current entry.
    :arg change: returns the new entry, and changes nothing itself.
    """
    for rest in reversed(range(UPDATE_TRIES)):
        found = find()
        after = change(found.host if found else None)
        if found is not None and after == found.host:
            return after
        try:
            return ledger.put_host(after, found.version if found else None).host
        except Conflict as error:
            # An error other than a version conflict is raised.
            if not rest or (found is not None and _version_of(find()) == found.version):
                raise Conflict(error.message, error.next_step) from error
    raise AssertionError("unreachable")


def _version_of(document: t.Optional[Document]) -> t.Optional[int]:
    return document.version if document else None


@dataclass(frozen=True)
class Grant:
    """A grant.

    :arg folders: path to nonce of the token that the host has left there; none in a grant of an earlier version, which cannot be revoked elsewhere.
    """

    id: str
    host_id: str
    folders: Mapping[str, str] = field(default_factory=dict)

    def for_host(self) -> JsonObject:
        """Return the grant in the form of the input of a phase."""
        return {"grant": self.id, "host_id": self.host_id, "folders": self.folders}

    def for_revocation(self) -> JsonObject | None:
        """Return the grant in the form in which a host revokes it on storage; null if it names no folders."""
        return self.for_host() if self.folders else None


def recorded_grant(entry: HostEntry | None) -> Grant | None:
    """Return the grant that a host may have according to its entry."""
    protected = entry.protected if entry else None
    return Grant(protected.token_id, str(entry.host_id), protected.token_folders or {}) if entry and protected and protected.token_id else None


def with_grant(entry: HostEntry, grant: Grant | None) -> HostEntry:
    """Return the entry with the grant, or without one.

    What was seen of a watchdog while the host may have left a token is no evidence: the token releases the boot after the reset.
    """
    token_id, folders = (grant.id, grant.folders) if grant else (None, None)
    before = entry.protected or HostProtection()
    watchdog = replace(before.watchdog, held_at_boot=False) if before.watchdog and (token_id or before.token_id) else before.watchdog
    return replace(entry, protected=replace(before, token_id=token_id, token_folders=folders, watchdog=watchdog))


def withdraw_watchdog(ledger: Ledger, host_key: str, still_counts: Callable[[ProtectedWatchdog], bool] = lambda seen: False) -> None:
    """Remove what C(protect) saw of the watchdog of a host: from here on, no silence of the host is taken for a reset until it was protected again.

    To be called before anything by which the host may live on, or its guests may run in another boot, and of which its lease in etcd may never show anything.

    :arg still_counts: whether this evidence stays valid.
    """

    def change(entry: HostEntry | None) -> HostEntry:
        found = t.cast(HostEntry, entry)
        seen = found.protected.watchdog if found.protected else None
        return found if not seen or still_counts(seen) else replace(found, protected=replace(found.protected or HostProtection(), watchdog=None))

    if ledger.read_host(host_key):
        update_entry(ledger, lambda: ledger.read_host(host_key), change)


def new_grant(entry: HostEntry, folders: Mapping[str, str]) -> Grant | None:
    """Return a new grant for a host; None if no folder could revoke it."""
    return Grant(str(uuid.uuid4()), entry.host_id, dict(folders)) if folders and entry.host_id else None


def revocable_folders(entry: HostEntry, peers: Iterable[HostEntry], sights: Mapping[str, JsonObject]) -> dict[str, str]:
    """Return the folders of a host, with their nonces, that at least one other host was proved to see. Hosts that will not return do not count.

    :arg sights: what each other host sees of this one, by its ID.
    """
    others = [peer for peer in peers if peer.host_id not in (None, entry.host_id) and not peer.discarded]
    seen = [sights.get(str(peer.host_id), {}) for peer in others]
    return {folder: nonce for folder, nonce in (entry.folders or {}).items() if any(sight.get(folder) == nonce for sight in seen)}


_WHY_IT_CHANGES = "Where the firmware (DMI) has no usable UUID, libvirt generates a random one at each start of its daemon."


def list_uuid_notes(before: t.Optional[HostEntry], identity: HostIdentity, entries: Iterable[HostEntry]) -> list[str]:
    """Return a sentence for each problem with the libvirt UUID of the host.

    :arg before: the host's entry as it was.
    :arg entries: of all hosts.
    """
    return [*_changed_uuid_notes(before, identity), *_shared_uuid_notes(identity, entries)]


def _changed_uuid_notes(before: t.Optional[HostEntry], identity: HostIdentity) -> Iterator[str]:
    if before is None or not identity.host_id or before.host_id != identity.host_id or (before.machine_id or None) != identity.machine_id:
        return
    was = before.host_uuid
    if was and identity.host_uuid and was != identity.host_uuid:
        yield (
            f"The libvirt UUID of {identity.name} was {was}, and is {identity.host_uuid} now, though it is the same host by its host ID and machine ID. "
            f"{_WHY_IT_CHANGES} The host is still identified by its host ID. {HOW_TO_SET_UUID}"
        )


def _shared_uuid_notes(identity: HostIdentity, entries: Iterable[HostEntry]) -> Iterator[str]:
    names = sorted(entry.name for entry in entries if entry.host_ref.shares_uuid(identity.host_ref))
    if names:
        yield (
            f"{identity.name} and {', '.join(names)} have the same libvirt UUID ({identity.host_uuid}): libvirt refuses to migrate between them. "
            f"{HOW_TO_SET_UUID}"
        )
