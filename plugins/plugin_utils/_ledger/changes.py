# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Changes of a ledger, independent of the store: a transaction reads documents, then writes one unit of changes completely or not at all.

Records are opened, changed and closed in one unit with the document of their domain. The key of a document of a host is its host ID, or libvirt's UUID
until the host ID is known.
"""

from __future__ import annotations

import abc
import re
import typing as t
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.balance_runs import BalanceRun
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, JsonObject, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import ForeignAct
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Internal, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import MaintenanceRun
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef

from .audit import AuditEntry, ChainPart, audit_foreign_act, audit_transition
from .brake_document import BrakeDocument
from .contents import RawDocument
from .documents import Document, DomainEntry, DomainRestart, HostEntry, HostProtection, LedgerSettings, Stored
from .host_parts import HostSights, ProtectTime
from .rules import (
    BRAKE,
    DOMAINS,
    HOSTS,
    OPEN,
    SETTINGS,
    SIGHTS,
    DocumentPath,
    check_change,
    check_host,
    check_new,
    check_uuid,
    closed_record_path,
    document_key,
    document_overtaken_error,
    document_path,
    domain_held_error,
    is_uuid,
    overtaken_error,
)
from .unreadable_hosts import LedgerHosts, check_new_host


class DocumentWrite(t.NamedTuple):
    """A document that replaces its previous version."""

    path: DocumentPath
    version: int
    content: t.Union[MoveRecord, HostEntry, HostSights, ProtectTime, DomainEntry, LedgerSettings, MaintenanceRun, BalanceRun, BrakeDocument, JsonObject]


class Transaction(abc.ABC):
    """Access under which reads stay valid until the unit is committed: no other process writes in between, or the unit fails."""

    def prefetch_paths(self, paths: Sequence[DocumentPath]) -> None:
        """Read documents in one request that will be read one by one later, if the store can do this."""
        return

    def prefetch_documents(self, record_id: str, domain_uuid: str) -> None:
        """Read the documents of the unit in one request, if the store can do this."""
        return

    @abc.abstractmethod
    def read_document(self, path: DocumentPath) -> t.Optional[Document]:
        """Return the document; None if it does not exist or was damaged. Raises L(NotSupported) for a newer schema."""

    @abc.abstractmethod
    def read_all(self, parts: Sequence[str]) -> Iterator[Document]:
        """Yield all documents of a folder that can be read."""

    @abc.abstractmethod
    def read_hosts(self) -> LedgerHosts:
        """Return all hosts, including those whose document cannot be read."""

    @property
    @abc.abstractmethod
    def unreadable(self) -> t.Mapping[DocumentPath, t.Optional[JsonObject]]:
        """The documents that this access has found damaged, or of a later version, with the content of the latter."""

    @abc.abstractmethod
    def find_holder(self, domain_uuid: str) -> t.Optional[Stored]:
        """Return the record that holds the domain. Raises L(NotSupported) if one of a newer schema might."""

    @abc.abstractmethod
    def find_record(self, record_id: str) -> t.Optional[Stored]:
        """Return the record of that id, open or closed. Raises L(NotSupported) for a newer schema."""

    @abc.abstractmethod
    def every_record(self) -> Iterator[MoveRecord]:
        """Yield all records, open and closed."""

    @abc.abstractmethod
    def aside_names(self) -> list[str]:
        """Return the names of documents that were damaged, as L(aside_name) made them."""

    @abc.abstractmethod
    def write_document(self, write: DocumentWrite) -> None:
        """Write a single document, without a line of audit."""

    @abc.abstractmethod
    def commit_unit(
        self,
        writes: Sequence[DocumentWrite],
        removes: Sequence[DocumentPath] = (),
        audited: t.Optional[AuditEntry] = None,
    ) -> None:
        """Write all changes or none, and a line of audit if there is something to say in it."""

    @abc.abstractmethod
    def remove_closed(self, entries: Sequence[RawDocument]) -> None:
        """Remove closed records, in as many steps as the store needs; one that is gone already is ignored. Raises L(Conflict) for one with other bytes."""

    def read_part(self, chain: str, until: str, after: t.Optional[ChainPart]) -> tuple[t.Optional[ChainPart], t.Optional[str]]:
        """See L(Ledger.read_part)."""
        return None, None

    def remove_part(self, part: ChainPart) -> None:
        """See L(Ledger.remove_part)."""
        raise Internal("This store has no audit lines to remove.")


def check_unchanged(entry: RawDocument, data: bytes, location: str) -> None:
    """Raise L(Conflict) if the document has other bytes than when it was read.

    :arg location: the name of the document for a person.
    """
    if data != entry.data:
        raise Conflict(f"{location} was changed by another process meanwhile. It was not removed.", "Run the task again.")


def list_newer(transaction: Transaction, folder: DocumentPath) -> list[JsonObject]:
    """Return the contents of the documents of a folder that a later version wrote."""
    for _document in transaction.read_all(folder):
        pass
    return [body for path, body in transaction.unreadable.items() if path[:-1] == folder and body is not None]


_RECORD_ASIDE = re.compile(r"migrations-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-.*")


def list_damaged_records(transaction: Transaction) -> list[str]:
    """Return the IDs of the records that were damaged and set aside, and not restored since. Closed ones count as well."""
    for _document in transaction.read_all(OPEN):
        pass
    aside = {match[1] for match in map(_RECORD_ASIDE.fullmatch, transaction.aside_names()) if match}
    now = {document_key(path) for path, body in transaction.unreadable.items() if path[:-1] == OPEN and body is None}
    return sorted(key for key in {*aside, *filter(is_uuid, now)} if not _has_record(transaction, key))


def _has_record(transaction: Transaction, record_id: str) -> bool:
    try:
        return transaction.find_record(record_id) is not None
    except NotSupported:
        # It was restored, and a later version has written it since.
        return True


class LedgerDomains(t.NamedTuple):
    """All domains of a ledger.

    :arg documents: those that can be read.
    :arg damaged: the UUIDs of those whose document was damaged and not replaced since; C(newer) likewise, if a later version wrote it.
    """

    documents: list[Document]
    damaged: list[str]
    newer: list[str]


_DOMAIN_ASIDE = re.compile(r"domains-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-.*")


def read_domains(transaction: Transaction) -> LedgerDomains:
    """Return all domains, including those whose document cannot be read."""
    documents = list(transaction.read_all(DOMAINS))
    # What this reading sets aside is among the names afterwards, except in a store that reads at one revision.
    aside = {match[1] for match in map(_DOMAIN_ASIDE.fullmatch, transaction.aside_names()) if match}
    now = {document_key(path): body for path, body in transaction.unreadable.items() if path[:-1] == DOMAINS and is_uuid(document_key(path))}
    newer = {key for key, body in now.items() if body is not None}
    return LedgerDomains(documents, sorted((aside | now.keys()) - newer - {document.domain.uuid for document in documents}), sorted(newer))


PossibleHosts = tuple[HostRef, ...]


def next_possible_hosts(record: MoveRecord, old_status: str, before: PossibleHosts) -> PossibleHosts:
    """Return the possible hosts after the record went from C(old_status) to its own."""
    if record.type in s.MOVE_TYPES:
        return _after_move(record, before)
    return _after_evacuation(record, old_status, before)


def _after_move(record: MoveRecord, before: PossibleHosts) -> PossibleHosts:
    if record.superseded_by:
        # The newer record says where the domain is.
        return before
    if record.status == s.COMPLETED:
        # Where the job of another tool has taken the domain may be unknown: then the next protection of its host writes it.
        return (record.destination,) if record.destination.is_known else before
    if record.status in (s.FAILED, s.CANCELLED):
        return (record.source,)
    return before


def _after_evacuation(record: MoveRecord, old_status: str, before: PossibleHosts) -> PossibleHosts:
    status = record.status
    others = tuple(host for host in before if not host.is_same(record.destination))
    if status == s.PRE_MIGRATING:
        return (*others, record.destination)
    if status == s.FAILED and old_status != s.ACCEPTED:
        # A later move may have brought the domain of a superseded record to this destination.
        return others or before if record.superseded_by else others
    # After 'done' the domain may have moved. Its later moves show its host.
    if status == s.DONE or (status == s.COMPLETED and not record.has_status(s.DONE)):
        return (record.destination,)
    return before


def make_domain(record: MoveRecord, generation: int) -> DomainEntry:
    """Return the entry of a domain that the ledger did not know."""
    return DomainEntry(
        uuid=record.domain.uuid.lower(),
        name=record.domain.name,
        possible_hosts=(record.source,),
        generation=generation,
        schema=record.schema,
        last_record=None,
        updated_at=record.updated_at,
    )


def update_domain(entry: DomainEntry, record: MoveRecord, old_status: t.Optional[str]) -> DomainEntry:
    """Return the domain's entry after the record's transition."""
    hosts = entry.possible_hosts if old_status is None else next_possible_hosts(record, old_status, entry.possible_hosts)
    last = record.id if record.status in s.CLOSED else entry.last_record or None
    if _is_restart(record, old_status):
        entry = replace(entry, restarts=(*(entry.restarts or ()), DomainRestart(record.updated_at, record.source))[-MAX_RESTARTS:])
    if hosts != entry.possible_hosts or (old_status is None and _has_seen_missing(entry, record)):
        entry = replace(entry, missing=ABSENT)
    return replace(entry, name=record.domain.name or entry.name, possible_hosts=hosts, last_record=last, updated_at=record.updated_at)


def _has_seen_missing(entry: DomainEntry, record: MoveRecord) -> bool:
    """Whether the domain was noted as missing from the host on which this new move has found it."""
    note = entry.missing or None
    return note is not None and record.type in s.MOVE_TYPES and note.host.is_same(record.source)


# The restarts that the document of a domain keeps.
MAX_RESTARTS = 10


def _is_restart(record: MoveRecord, old_status: t.Optional[str]) -> bool:
    """Whether the record says with this transition that a survivor has started the domain."""
    is_started = record.type == s.EVACUATION and record.wanted_state != domain_states.SHUTOFF
    return is_started and old_status not in (None, s.DONE) and (record.status == s.DONE or (record.status == s.COMPLETED and not record.has_status(s.DONE)))


def open_record(transaction: Transaction, record: MoveRecord) -> Stored:
    """Write the record and the domain's next generation. See L(Ledger.open_record)."""
    kept = check_new(record)
    record_id, domain_uuid = record.record_id.lower(), record.domain.uuid.lower()
    transaction.prefetch_documents(record_id, domain_uuid)
    existing = transaction.find_holder(domain_uuid)
    if existing:
        raise domain_held_error(existing.record)
    same = transaction.find_record(record_id)
    if same:
        raise Conflict(f"A record {record_id} is already in the ledger.", "Open a record with a new id.", record=encode(same.record))
    domain, version = _next_domain(transaction, record)
    opened = replace(kept, generation=domain.generation or 0)
    writes = [DocumentWrite(document_path(OPEN, record_id), 1, opened), DocumentWrite(document_path(DOMAINS, domain_uuid), version, domain)]
    transaction.commit_unit(writes, audited=audit_transition(opened, None))
    return Stored(opened, 1)


def _next_domain(transaction: Transaction, record: MoveRecord) -> tuple[DomainEntry, int]:
    """Return the domain's entry with the next generation, and its next version."""
    domain_uuid = record.domain.uuid.lower()
    present = transaction.read_document(document_path(DOMAINS, domain_uuid))
    before = present.domain if present else make_domain(record, last_generation(transaction, domain_uuid))
    entry = update_domain(before, record, None)
    return replace(entry, generation=max(before.generation or 0, record.generation) + 1), present.version + 1 if present else 1


def last_generation(transaction: Transaction, domain_uuid: str) -> int:
    """Return the last generation given to a domain that has no document.

    That is 0, unless its document was damaged and set aside: then it is derived from all its records.
    """
    if not any(name.startswith(f"{DOMAINS[0]}-{domain_uuid}-") for name in transaction.aside_names()):
        return 0
    return max((record.generation for record in transaction.every_record() if record.domain.uuid.lower() == domain_uuid), default=0)


def _check_version(transaction: Transaction, stored: Stored) -> MoveRecord:
    """Return the current record. Raises L(Conflict) unless it has the version that was read."""
    record_id = check_uuid(stored.record.id, "record id")
    transaction.prefetch_documents(record_id, check_uuid(stored.record.domain.uuid, "domain UUID"))
    now = transaction.find_record(record_id)
    if now is None:
        raise Conflict(f"The record {record_id} is no longer in the ledger.", "Check set_aside in the ledger.", record=None)
    if now.version != stored.version:
        raise overtaken_error(now.record)
    return now.record


def update_record(transaction: Transaction, stored: Stored, record: MoveRecord) -> Stored:
    """Write the record over the one that was read. See L(Ledger.update_record)."""
    old = _check_version(transaction, stored)
    new = check_change(old, record)
    version = stored.version + 1
    path = document_path(OPEN, new.record_id.lower())
    if (new.status, new.generation, new.superseded_by) == (old.status, old.generation, old.superseded_by):
        transaction.write_document(DocumentWrite(path, version, new))
        return Stored(new, version)
    writes, removes = [DocumentWrite(path, version, new)], []
    if new.status in s.CLOSED:
        writes, removes = [DocumentWrite(closed_record_path(new), version, new)], [path]
    writes += _domain_change(transaction, new, old)
    transaction.commit_unit(writes, removes, audit_transition(new, old.status))
    return Stored(new, version)


def _domain_change(transaction: Transaction, record: MoveRecord, old: MoveRecord) -> list[DocumentWrite]:
    """Return the write of the domain's document that the transition requires, if any."""
    path = document_path(DOMAINS, record.domain.uuid.lower())
    present = transaction.read_document(path)
    if present is None and not _says_where(record):
        # The document was damaged. Another one would hide that, and have the domain on the source.
        return []
    before = present.domain if present else make_domain(record, record.generation)
    entry = update_domain(before, record, old.status)
    if record.superseded_by and not old.superseded_by:
        # From here on the record does not add its hosts to those of the domain.
        added = (end for end in record.ends if end.is_known and not entry.includes_host(end))
        entry = replace(entry, possible_hosts=(*entry.possible_hosts, *added))
    entry = replace(entry, generation=max(entry.generation or 0, record.generation))
    if record.status not in s.CLOSED and _lasting_part(entry) == _lasting_part(before):
        return []
    return [DocumentWrite(path, present.version + 1 if present else 1, entry)]


def _says_where(record: MoveRecord) -> bool:
    """Whether the record says where its domain is, or may be; a newer one does for a closed record that it has superseded, or that was a tombstone."""
    is_of_past = record.superseded_by or (record.type == s.EVACUATION and record.has_status(s.DONE))
    return not (record.status in s.CLOSED and is_of_past)


def _lasting_part(entry: DomainEntry) -> tuple[PossibleHosts, t.Optional[str], int, tuple[DomainRestart, ...]]:
    """Return what is written at once when it changes."""
    return entry.possible_hosts, entry.name, entry.generation or 0, entry.restarts or ()


def find_only_host(documents: list[Document], name: t.Optional[str], host_uuid: t.Optional[str]) -> t.Optional[Document]:
    """Return the document that matches the given values (not None), or None. Raises L(Conflict) that names all, if several match."""
    found = [document for document in documents if name in (None, document.host.name) and (host_uuid is None or host_uuid.lower() == document.host.host_uuid)]
    if len(found) > 1:
        keys = ", ".join(f"{document.host.host_key} ({document.host.name})" for document in found)
        raise Conflict(
            f"The ledger has several hosts for {name or host_uuid!r}: {keys}.",
            "Choose one with 'adopt_identity' of the module host.",
            documents=[document.body for document in found],
        )
    return found[0] if found else None


def write_host(transaction: Transaction, entry: HostEntry, version: t.Optional[int], ledger_id: str, is_stated: bool) -> Document:
    """Write the document; one kept under the libvirt UUID moves to the host_id in the same unit. See L(Ledger.put_host)."""
    new = check_host(entry, ledger_id)
    key = str(new.host_key)
    present = transaction.read_document(document_path(HOSTS, key))
    provisional = _find_provisional(transaction, new)
    base = present or provisional
    if (base.version if base else None) != version:
        raise document_overtaken_error(f"the host {new.name!r} ({key})", base.body if base else None)
    if present is None and check_new_host(transaction.read_hosts().unreadable, new.host_ref, is_stated):
        new = _with_unknown_grant(new)
    if not new.host_id:
        _refuse_second(transaction, new)
    if present and provisional:
        _refuse_weaker_state(new, provisional)
        new = _with_decisions_of(new, provisional.host)
    document = Document(encode(new), (version or 0) + 1)
    if provisional:
        transaction.commit_unit([DocumentWrite(document_path(HOSTS, key), document.version, new)], [document_path(HOSTS, str(new.host_uuid))])
    else:
        transaction.write_document(DocumentWrite(document_path(HOSTS, key), document.version, new))
    return document


def _with_unknown_grant(entry: HostEntry) -> HostEntry:
    """Return the entry of a host that may hold a clean-shutdown token, with a grant that no host has: nothing is evacuated before it is withdrawn there."""
    return replace(entry, protected=HostProtection(token_id=str(uuid.uuid4()), token_folders=None)) if entry.host_id else entry


def read_dated_sights(transaction: Transaction, paths: Sequence[DocumentPath]) -> tuple[dict[str, JsonObject], set[str | None]]:
    """Return what a host sees of others, by their ID, from its documents, and the boots in which it has seen that; None for documents that do not say."""
    transaction.prefetch_paths(paths)
    found = [document.sights for path in paths if (document := transaction.read_document(path))]
    seen = {host_id: sights.seen_of(host_id) for sights in found for host_id in sights.sees}
    return seen, {sights.boot_id or None for sights in found if sights.sees}


def list_sights_of(transaction: Transaction, seen_id: str) -> dict[str, HostSights]:
    """Return the documents with what others see of a host, by their ID."""
    return {document.sights.host_id: document.sights for document in transaction.read_all((*SIGHTS, seen_id[0]))}


# The foreign acts that the document of a domain keeps. The audit has all of them.
MAX_FOREIGN_ACTS = 20


def with_foreign_act(entry: DomainEntry, act: ForeignAct) -> DomainEntry:
    """Return the entry with one more act."""
    return replace(entry, foreign_acts=(*(entry.foreign_acts or ()), act)[-MAX_FOREIGN_ACTS:])


def write_domain(transaction: Transaction, entry: DomainEntry, version: t.Optional[int], act: t.Optional[ForeignAct]) -> Document:
    """Write the document, with a line of audit for an act. See L(Ledger.put_domain)."""
    path = document_path(DOMAINS, entry.uuid)
    present = transaction.read_document(path)
    if (present.version if present else None) != version:
        raise document_overtaken_error(f"the document of domain '{entry.name}' ({entry.uuid})", present.body if present else None)
    generation = present.domain.generation if present else last_generation(transaction, entry.uuid)
    kept = replace(entry, generation=generation)
    written = DocumentWrite(path, (version or 0) + 1, with_foreign_act(kept, act) if act else kept)
    if act:
        transaction.commit_unit([written], audited=audit_foreign_act(kept, act))
    else:
        transaction.write_document(written)
    return Document(encode(written.content), written.version)


def write_part(transaction: Transaction, path: DocumentPath, part: t.Union[HostSights, ProtectTime]) -> None:
    """Write the document that one host alone writes. It replaces what is there; the same content is not written again."""
    present = transaction.read_document(path)
    if present is None or present.body != encode(part):
        transaction.write_document(DocumentWrite(path, present.version + 1 if present else 1, part))


def write_settings(transaction: Transaction, settings: LedgerSettings, version: t.Optional[int]) -> Document:
    """Write the settings of the ledger. See L(Ledger.put_settings)."""
    path = document_path(SETTINGS, settings.ledger_id)
    present = transaction.read_document(path)
    if (present.version if present else None) != version:
        raise document_overtaken_error("the settings of the ledger", present.body if present else None)
    document = Document(encode(settings), (version or 0) + 1)
    transaction.write_document(DocumentWrite(path, document.version, settings))
    return document


def write_brake(transaction: Transaction, brake: BrakeDocument, version: t.Optional[int]) -> Document:
    """Write the state of the brake. See L(Ledger.put_brake)."""
    path = document_path(BRAKE, brake.ledger_id)
    present = transaction.read_document(path)
    if (present.version if present else None) != version:
        raise document_overtaken_error("the brake of the ledger", present.body if present else None)
    document = Document(encode(brake), (version or 0) + 1)
    transaction.write_document(DocumentWrite(path, document.version, brake))
    return document


def _find_provisional(transaction: Transaction, new: HostEntry) -> t.Optional[Document]:
    """Return the document that this host has under its libvirt UUID, while C(new) brings a host_id."""
    if not new.host_id or not new.host_uuid:
        return None
    document = transaction.read_document(document_path(HOSTS, new.host_uuid))
    return document if document and not document.host.host_id else None


def _refuse_second(transaction: Transaction, new: HostEntry) -> None:
    for document in transaction.read_all(HOSTS):
        known = document.host
        if known.host_uuid == new.host_uuid and known.host_id:
            raise Conflict(
                f"The host with libvirt UUID {new.host_uuid} is known as {known.name!r} ({known.host_id}).", "Change that document.", document=document.body
            )


def _refuse_weaker_state(new: HostEntry, document: Document) -> None:
    # If two documents turn out to be one host, the stricter state stays: a merge must not lose a cordon.
    provisional = document.host
    if provisional.state not in (s.ENABLED, new.state):
        raise Conflict(
            f"The host {new.name!r} is also stored as {provisional.name!r} ({provisional.host_key}), in state '{provisional.state}'.",
            f"Write it with state '{provisional.state}', then change the state.",
            document=document.body,
        )


def _with_decisions_of(new: HostEntry, provisional: HostEntry) -> HostEntry:
    """Return the entry with what persons have decided about the host under its other document, which this unit removes."""
    decisions = (*(provisional.decisions or ()), *(new.decisions or ()))
    return replace(new, discarded=new.discarded or provisional.discarded or new.discarded, decisions=decisions or new.decisions)
