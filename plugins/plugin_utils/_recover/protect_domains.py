# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Saves the domains of a host in the ledger, and reports what was saved.

It reads the ledger, queries the host, judges, and writes by compare-and-set; for documents that have changed in the meantime, it does so again. A result never
contains a definition, because a definition may contain passwords.
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.qemu_locks import has_kept_locks
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent, Json, JsonObject, Maybe, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, KvmfleetError, printable_line
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import DomainProtection, SavedDomain, UnreadableDomain

from .._evacuate.source import age_seconds
from .._ledger.document_bytes import TooLarge
from .._ledger.documents import Document, DomainEntry
from .._ledger.ledger import Ledger
from .._ledger.remembered import RememberedMove, find_missing_records, missing_text
from . import protect_documents
from .inferred_sights import FolderNames, keep_folder_names
from .protect_documents import (
    CONFLICT,
    KEPT_KEYS,
    SAVED,
    SKIPPED,
    Judgement,
    ProtectInputs,
    UnprovedImage,
    find_missing,
    judge_domain,
    keep_unread_images,
    list_unproved,
    note_missing,
    prove_images,
)

_HIDDEN_KEY = "definition"


@dataclass(frozen=True)
class ListedDocument:
    """A saved domain as it is listed.

    :arg state: that it had at C(state_at); it was saved at C(saved_at).
    :arg possible_hosts: the names of the hosts that it may be on.
    :arg missing_since: since when it has been missing from its only possible host.
    :arg changes: the keys that were saved again.
    """

    uuid: str
    name: t.Optional[str]
    state: t.Optional[str]
    state_at: t.Optional[str]
    saved_at: t.Optional[str]
    age_seconds: t.Optional[int]
    possible_hosts: tuple[t.Optional[str], ...]
    missing_since: Maybe[str] = ABSENT
    changes: t.Union[tuple[str, ...], Absent] = ABSENT


@dataclass(frozen=True)
class ConflictingDomain:
    """A domain that may run twice, so that it was not saved."""

    uuid: str
    name: str
    msg: str


@dataclass(frozen=True)
class SkippedDomain:
    """A domain that is not saved now, and why."""

    uuid: str
    name: str
    reason: str


@dataclass(frozen=True)
class ListedAct:
    """What was done to a domain without this collection: C(moved), C(stopped) or C(started)."""

    uuid: str
    name: str
    act: str
    msg: str


@dataclass(frozen=True)
class SaveAnswer:
    """What a host reports about its domains, and the moves that it remembers.

    :arg arriving: UUIDs of domains that are still moving to the host.
    """

    domains: tuple[SavedDomain, ...]
    arriving: tuple[str, ...]
    unreadable: tuple[UnreadableDomain, ...]
    remembered: Maybe[tuple[JsonObject, ...]] = ABSENT
    boot_id: Maybe[str] = ABSENT
    extra: JsonObject = field(default_factory=dict)

    @property
    def present_uuids(self) -> set[str]:
        """All domains that the host has."""
        return {one.uuid for one in self.domains} | {one.uuid for one in self.unreadable} | set(self.arriving)


@dataclass
class ProtectOutcome:
    """The results of a host's domains."""

    saved: list[ListedDocument] = field(default_factory=list)
    unchanged: list[ListedDocument] = field(default_factory=list)
    missing: list[ListedDocument] = field(default_factory=list)
    # The names of those that no earlier run has noted.
    newly_missing: list[str] = field(default_factory=list)
    conflicts: list[ConflictingDomain] = field(default_factory=list)
    # Whether the document of one of them has got this host as a possible one.
    has_new_place: bool = False
    skipped: list[SkippedDomain] = field(default_factory=list)
    # For each domain whose document the ledger refuses, and will refuse again, a sentence.
    refused: list[str] = field(default_factory=list)
    unproved: list[UnprovedImage] = field(default_factory=list)
    # By store, the domains whose locks outlive this host.
    kept_locks: dict[str, list[str]] = field(default_factory=dict)
    foreign_acts: list[ListedAct] = field(default_factory=list)
    # The domains that the host would start by itself although they are, or may be, on another host.
    left_over: list[str] = field(default_factory=list)
    missing_records: list[RememberedMove] = field(default_factory=list)
    before: dict[str, JsonObject] = field(default_factory=dict)
    after: dict[str, JsonObject] = field(default_factory=dict)

    @property
    def is_changed(self) -> bool:
        """Whether documents were written, or would be in check mode."""
        return bool(self.saved or self.newly_missing or self.has_new_place)

    def list_lock_warnings(self) -> list[str]:
        """Return a sentence for each store that keeps the locks of a dead host."""
        return [
            f"{store} is mounted by NFS 3, which keeps the locks of a host that dies until that host is back: {', '.join(sorted(set(names)))} could not be"
            " started elsewhere meanwhile. Mount it by NFS 4, whose locks end with a lease."
            for store, names in sorted(self.kept_locks.items())
        ]

    def as_result(self) -> JsonObject:
        """Return the lists, each by name."""
        documents = {key: sorted(getattr(self, key), key=lambda one: (str(one.name), one.uuid)) for key in ("saved", "unchanged", "missing")}
        others = {key: sorted(getattr(self, key), key=lambda one: (one.name, one.uuid)) for key in ("conflicts", "skipped", "foreign_acts")}
        unproved = sorted(self.unproved, key=lambda one: (one.name, one.uuid, str(one.target)))
        return t.cast("JsonObject", encode({**documents, **others, "unproved": unproved, "missing_records": self.missing_records}))


def describe_entry(entry: DomainEntry) -> ListedDocument:
    """Return a saved domain as it is listed, with its age: how long ago this was written, in whole seconds."""
    saved = entry.saved or DomainProtection()
    return ListedDocument(
        uuid=entry.uuid,
        name=entry.name,
        state=saved.state or None,
        state_at=saved.state_at or None,
        saved_at=saved.at or None,
        age_seconds=age_seconds(saved.at or None),
        possible_hosts=tuple(host.host for host in entry.possible_hosts),
        missing_since=entry.missing_since,
    )


def list_notes(outcome: ProtectOutcome, guard_note: str, unwritable: Mapping[str, str]) -> list[str]:
    """Return the notes about a protected host, a sentence each.

    :arg guard_note: that of the boot guard, empty for none.
    :arg unwritable: the folders in which it could not write a token, and why.
    """
    sentences = [
        *(conflict.msg for conflict in outcome.conflicts),
        *map(missing_text, outcome.missing_records),
        *(one.msg for one in outcome.foreign_acts),
        *(f"Domain {one.name} is not saved now: {one.reason}." for one in outcome.skipped),
        *(_missing_text(one, is_new) for one in outcome.missing if (is_new := (one.name or one.uuid) in outcome.newly_missing) or not one.missing_since),
        *(f"{_disk_text(one)} could not be started elsewhere: {one.reason}." for one in outcome.unproved),
        *(f"No token could be written to {folder}: {why}." for folder, why in sorted(unwritable.items())),
        *([guard_note] if guard_note else []),
    ]
    return [printable_line(sentence) for sentence in sentences]


def _missing_text(one: ListedDocument, is_new: bool) -> str:
    last = f"saved {one.saved_at}, then {one.state}" if one.saved_at else "it was never saved"
    if is_new and not one.missing_since:
        return f"Domain {one.name} is no longer on this host. According to the ledger, it may be on {', '.join(map(str, one.possible_hosts))} now; {last}."
    if not one.missing_since:
        return f"Domain {one.name} is no longer on this host, and the ledger does not know where it is; {last}."
    gone = f"Domain {one.name} is no longer on this host ({last}), so an evacuation of this host does not start it."
    return f"{gone} If it was moved by hand, start it on its new host, and protect that."


def _disk_text(one: UnprovedImage) -> str:
    path = f" ({one.path})" if one.path else ""
    return f"Domain {one.name} with its disk {one.target}{path}" if one.target else f"Domain {one.name}"


def shown_changes(entry: t.Optional[DomainEntry], judgement: Judgement) -> JsonObject:
    """Return the part of a document that a diff shows: the changed values, but of a definition only that it has changed."""
    document: JsonObject = encode(entry) if entry else {}
    protected: JsonObject = (entry.protected or {}) if entry else {}
    found: dict[str, Json] = {}
    for key in judgement.changed:
        value = protected.get(key) if key in KEPT_KEYS or key == "host" else document.get(key)
        found[key] = value if key != _HIDDEN_KEY or value is None else "not shown, it may hold passwords" + (" (changed)" if entry is judgement.entry else "")
    return found


SAVE_TRIES = 3

QueryHost = t.Callable[[t.Optional[list[str]]], SaveAnswer]


@dataclass(frozen=True)
class DomainSaver:
    """:arg protected_host: the host; without host_id in check mode if it would get one now.

    :arg ask: asks the host for the domains of these UUIDs, or for all.
    :arg write: false in check mode.
    :arg remembered: the moves that other hosts of the fleet remember, as far as known.
    :arg names_here: what the host calls the folders of others.
    """

    ledger: t.Optional[Ledger]
    protected_host: HostRef
    ask: QueryHost
    by: str
    write: bool
    remembered: t.Sequence[tuple[str, t.Optional[t.Sequence[JsonObject]]]] = ()
    names_here: FolderNames = keep_folder_names

    def save_domains(self) -> ProtectOutcome:
        """Return the result of every domain. C(changed) of an error states whether some documents were written before."""
        outcome = ProtectOutcome()
        try:
            self._save_in_rounds(outcome)
        except KvmfleetError as error:
            error.result["changed"] = self.write and outcome.is_changed
            raise
        return outcome

    def _save_in_rounds(self, outcome: ProtectOutcome) -> None:
        pending: t.Optional[list[str]] = None
        for dummy in range(SAVE_TRIES):
            known = protect_documents.read_inputs(self.ledger, self.protected_host.host_id, self.names_here)
            answer = self.ask(pending)
            known = replace(known, lost=self._find_lost(answer))
            if pending is None:
                self._note_missing(find_missing(known, self.protected_host, answer.present_uuids), known, answer, outcome)
                outcome.skipped += [SkippedDomain(uuid, _domain_name(known, uuid), "it is still moving to this host") for uuid in answer.arriving]
                outcome.skipped += [SkippedDomain(one.uuid, one.name, one.why) for one in answer.unreadable]
            late = [domain for domain in answer.domains if not self._save_domain(domain, known, outcome)]
            pending = [domain.uuid for domain in late]
            if not late:
                return
        outcome.skipped += [SkippedDomain(domain.uuid, domain.name, "its document is being changed by others; the next run saves it") for domain in late]

    def _note_missing(self, missing: Sequence[Document], known: ProtectInputs, answer: SaveAnswer, outcome: ProtectOutcome) -> None:
        """Note in the ledger that the host does not have these domains."""
        # A host that has lost all its domains at once may rather have been asked for those of another libvirt.
        may_note = bool(answer.present_uuids) or sum(not document.domain.is_missing for document in missing) == 1
        for document in missing:
            entry = document.domain
            noted = note_missing(entry, known, self.protected_host, self.by, answer.boot_id) if may_note and not entry.is_missing else None
            if noted and not self._write_note(noted, document):
                continue
            outcome.missing.append(describe_entry(noted or entry))
            if noted:
                name = entry.name or entry.uuid
                outcome.newly_missing.append(name)
                key = "missing" if noted.missing else "possible_hosts"
                outcome.before[name], outcome.after[name] = ({key: encode(one).get(key)} for one in (entry, noted))

    def _write_note(self, noted: DomainEntry, document: Document) -> bool:
        """Write the document; return false if somebody else has, who may know more of the domain."""
        try:
            if self.write and self.ledger:
                self.ledger.put_domain(noted, document.version)
        except Conflict:
            return False
        return True

    def _find_lost(self, answer: SaveAnswer) -> frozenset[str]:
        reports = [*self.remembered, (str(self.protected_host.host), answer.remembered or None)]
        return frozenset(move.domain.uuid.lower() for move in find_missing_records(self.ledger, reports))

    def _save_domain(self, reported: SavedDomain, known: ProtectInputs, outcome: ProtectOutcome) -> bool:
        """Judge one domain and write it; return false if another process wrote its document since it was read."""
        host_id = self.protected_host.host_id
        document = known.documents.get(reported.uuid)
        domain = _with_proof(keep_unread_images(reported, document.domain.saved if document else None), host_id, known)
        judgement = judge_domain(domain, known, self.protected_host, self.by)
        entry = judgement.entry
        is_written = entry is not None and judgement.kind in (SAVED, CONFLICT)
        try:
            if is_written and self.write and self.ledger and not self._write_document(self.ledger, known, judgement):
                return False
        except TooLarge as error:
            # The other domains of the host have to be saved all the same.
            outcome.refused.append(f"Domain {domain.name} is not saved, and would not be started elsewhere as it is now: {error}")
            kind, why = (CONFLICT, judgement.why) if judgement.kind == CONFLICT else (SKIPPED, str(error).rstrip("."))
            self._add_to_outcome(domain, known, Judgement(kind, why), outcome)
            return True
        self._add_to_outcome(domain, known, judgement, outcome)
        if entry and judgement.kind != CONFLICT:
            for disk in domain.disks:
                if has_kept_locks(disk) and disk.is_lockable:
                    outcome.kept_locks.setdefault(str(disk.mount.store if disk.mount else None), []).append(domain.name)
            own = next((host for host in known.hosts if host.host_id == host_id), None)
            outcome.unproved += list_unproved(domain, host_id, own)
        return True

    def _write_document(self, ledger: Ledger, known: ProtectInputs, judgement: Judgement) -> bool:
        entry = t.cast("DomainEntry", judgement.entry)
        document = known.documents.get(entry.uuid)
        try:
            ledger.put_domain(entry, document.version if document else None, judgement.act)
        except Conflict:
            return False
        return True

    def _add_to_outcome(self, reported: SavedDomain, known: ProtectInputs, judgement: Judgement, outcome: ProtectOutcome) -> None:
        uuid, name, entry = reported.uuid, reported.name, judgement.entry
        is_only_here = entry is not None and entry.is_only_on(self.protected_host) and uuid not in known.unsettled
        if reported.autostart and not reported.active and not is_only_here:
            outcome.left_over.append(name)
        if judgement.kind == CONFLICT:
            outcome.conflicts.append(ConflictingDomain(uuid, name, judgement.why))
            outcome.has_new_place |= entry is not None
        elif judgement.kind == SKIPPED:
            outcome.skipped.append(SkippedDomain(uuid, name, judgement.why))
        elif entry and judgement.kind == SAVED:
            outcome.saved.append(replace(describe_entry(entry), changes=judgement.changed))
            before = known.documents[uuid].domain if uuid in known.documents else None
            outcome.foreign_acts += [ListedAct(uuid, name, judgement.act.act, f"Domain {name} {judgement.act.description}.")] if judgement.act else []
            outcome.before[name] = shown_changes(before, judgement)
            outcome.after[name] = shown_changes(entry, judgement)
        elif entry:
            outcome.unchanged.append(describe_entry(entry))


def _with_proof(reported: SavedDomain, host_id: t.Optional[str], known: ProtectInputs) -> SavedDomain:
    """Return the domain with the hosts that see each of its disks and files."""
    disks = prove_images(reported.disks, host_id, known.hosts, known.sights)
    return replace(reported, disks=disks, files=prove_images(reported.files or (), host_id, known.hosts, known.sights))


def _domain_name(known: ProtectInputs, uuid: str) -> str:
    return str(known.documents[uuid].domain.name) if uuid in known.documents else uuid
