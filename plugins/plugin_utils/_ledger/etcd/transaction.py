# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""One access to an etcd ledger.

All reads are at one revision, and the unit of changes is one transaction that compares what was read. Every transaction also checks which ledger has the
prefix.
"""

from __future__ import annotations

import os
import time
import typing as t
import uuid
from collections.abc import Callable, Iterator, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import (
    Conflict,
    InvalidArgument,
    InvalidState,
    NotSupported,
    Unreachable,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord

from .. import domain_index
from .. import identity as common
from ..audit import AuditEntry, ChainPart
from ..changes import DocumentWrite, Transaction, check_unchanged
from ..contents import RawDocument
from ..document_bytes import encode_document
from ..documents import Document, Stored
from ..identity import (
    COPYING_NAME,
    IDENTITY_NAME,
    IdentitySource,
    decode_identity,
    lost_identity_step,
    missing_ledger_error,
    new_identity,
    refuse_moved,
    replaced_error,
    unfinished_copy_error,
)
from ..parsed import ParsedDocuments
from ..rules import CLOSED, DOMAINS, HOSTS, OPEN, SET_ASIDE, DocumentPath, document_key, document_path, holds_domain
from ..unreadable_hosts import LedgerHosts, make_hosts
from .chains import chain_of_domain, head_key, line_key, make_line_writes, make_part_removal, new_heads, read_part
from .client import Client
from .messages import (
    KeyValue,
    Message,
    Overtaken,
    Refused,
    TransactionResult,
    delete_key,
    delete_range,
    has_value,
    is_created_at,
    is_empty,
    key_read,
    nested_read,
    put_key,
    range_end,
    range_read,
)
from .reader import DocumentReader, Snapshot, describe_key, join_path

CLUSTER = "cluster"


class EtcdIdentity(t.NamedTuple):
    """:arg key: that holds the C(value) of the identity, byte by byte, as long as this ledger exists."""

    known: common.LedgerIdentity
    key: str

    @property
    def value(self) -> bytes:
        return self.known.data

    @property
    def genesis_hash(self) -> str:
        return self.known.genesis_hash


class PrefixState(t.NamedTuple):
    """The keys that show what is under a prefix, as far as they exist; C(first) is any other key."""

    known: t.Optional[KeyValue]
    cluster: t.Optional[KeyValue]
    copying: t.Optional[KeyValue]
    first: t.Optional[KeyValue]


def ensure_ledger(client: Client, create: bool) -> EtcdIdentity:
    """Return the identity of the ledger under the address's prefix, creating it if it is missing and C(create) is set.

    Raises L(NotFound) if it is missing and must not be created, L(InvalidArgument) for a prefix with other data, L(NotSupported) for a ledger of a
    later version, L(InvalidState) for a damaged one, for an unfinished copy, and for one of another cluster.
    """
    state = read_prefix(client)
    if state.known is None and state.first is None and create:
        _create_ledger(client)
        state = read_prefix(client)
    return check_identity(client, state)


def check_identity(client: Client, state: PrefixState) -> EtcdIdentity:
    """Return the identity among these keys. Raises as L(ensure_ledger)."""
    if state.known is None:
        raise _missing_error(client, state)
    identity = EtcdIdentity(decode_identity(state.known.value, identity_source(client)), state.known.key)
    _check_cluster(client, state.cluster)
    return identity


def identity_source(client: Client) -> IdentitySource:
    """Return the key of the identity of a ledger."""
    return IdentitySource(str(client.address), f"The key {client.address.prefix}{IDENTITY_NAME} of {client.address}", "Restore it from a backup.")


def read_prefix(client: Client) -> PrefixState:
    """Return what is under the prefix."""
    prefix = client.address.prefix
    reads = [*(key_read(f"{prefix}{name}") for name in (IDENTITY_NAME, CLUSTER, COPYING_NAME)), range_read(prefix, range_end(prefix), limit=1, keys_only=True)]
    found = client.run_transaction([], [nested_read(read) for read in reads], []).found
    return PrefixState(*(keys[0] if keys else None for keys in found))


def first_values(client: Client, known: common.LedgerIdentity) -> dict[str, bytes]:
    """Return the keys that a ledger has from its beginning in this cluster."""
    return {IDENTITY_NAME: known.data, CLUSTER: str(client.cluster_id).encode("ascii"), **new_heads(known.genesis_hash)}


def _create_ledger(client: Client) -> None:
    prefix = client.address.prefix
    writes = [put_key(f"{prefix}{key}", value) for key, value in first_values(client, new_identity()).items()]
    # Of several simultaneous processes one creates it first; the others read it.
    client.run_transaction([is_empty(prefix, range_end(prefix))], writes, [])


def _missing_error(client: Client, state: PrefixState) -> Exception:
    if state.copying is not None:
        return unfinished_copy_error(state.copying.value, str(client.address))
    if state.first is not None:
        return InvalidArgument(
            f"The prefix of {client.address} is not a ledger and contains other data (e.g. {state.first.key!r}); nothing was written there.",
            lost_identity_step("key", "an unused prefix"),
        )
    return missing_ledger_error(str(client.address))


def _check_cluster(client: Client, cluster: t.Optional[KeyValue]) -> None:
    made_in = cluster.value.decode("utf-8", "replace") if cluster else "an unknown one"
    if made_in != client.cluster_id:
        raise InvalidState(
            f"The ledger {client.address} belongs to the etcd cluster {made_in}, and cluster {client.cluster_id} answers. It is a copy or an old backup, "
            "which may be older than the state of the hosts. Nothing was changed.",
            "Name members of the ledger's own cluster. Only if that cluster is permanently lost: "
            f"'etcdctl put {client.address.prefix}{CLUSTER} {client.cluster_id}'.",
        )


# How long a writer's last number is kept. The wait for an answer is much shorter.
MARK_SECONDS = 3600


class Fence(t.NamedTuple):
    """A lock that is held: a later holder has another C(create_revision).

    :arg name: the name of the lock.
    """

    name: str
    key: str
    create_revision: int


class Writer:
    """Counts its transactions in a key of its own, which each of them compares and raises.

    A transaction that was already done is known by its number, and a delayed one is refused if it arrives after a later one. Each also
    compares the ledger's identity, and the locks that are held.
    """

    def __init__(self, client: Client, identity: EtcdIdentity, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._identity = identity
        self._clock = clock
        self._begin_count()

    def _begin_count(self) -> None:
        self._mark = f"{self._client.address.prefix}writers/{uuid.uuid4()}"
        self._number = 0
        self._lease = 0
        self._since = self._clock()
        self._pid = os.getpid()

    def write_unit(self, compares: Sequence[Message], acts: Sequence[Message], fences: Sequence[Fence]) -> None:
        """Do all acts of L(messages), if all comparisons hold.

        Raises L(Overtaken) if they do not, L(Conflict) if a lock was lost, L(InvalidState) if the ledger was replaced, and L(Unreachable) if the result is
        unknown.
        """
        self._renew_count()
        number = str(self._number + 1)
        is_next = is_created_at(self._mark, 0) if self._number == 0 else has_value(self._mark, str(self._number))
        must = [has_value(self._identity.key, self._identity.value), is_next, *(is_created_at(fence.key, fence.create_revision) for fence in fences), *compares]
        keys = [self._identity.key, self._mark, *(fence.key for fence in fences)]
        try:
            done = self._client.run_transaction(must, [*acts, put_key(self._mark, number, self._lease)], [nested_read(key_read(key)) for key in keys])
        except Refused as error:
            # The lease has expired: this process was suspended for an hour.
            self._begin_count()
            raise Overtaken(str(error)) from error
        except Unreachable as error:
            self._begin_count()
            raise Unreachable(f"{error.message} Whether the last change was written is not known.", error.next_step) from error
        except BaseException:
            # An attempt before this error may have been written, and no later change may be taken for it.
            self._begin_count()
            raise
        if not done.succeeded:
            self._check_refusal(done, number, fences)
        self._number += 1

    def _renew_count(self) -> None:
        """Start a new counter if none exists, if the key of the old one may expire soon, and in a forked process."""
        if self._pid != os.getpid() or self._clock() - self._since > MARK_SECONDS / 2:
            self._begin_count()
        if not self._lease:
            self._lease = self._client.grant_lease(MARK_SECONDS)

    def _check_refusal(self, done: TransactionResult, number: str, fences: Sequence[Fence]) -> None:
        """Return if the transaction had been done before; otherwise raise the reason why it was not."""
        identity, mark, *held = done.found
        if mark and mark[0].value.decode("utf-8", "replace") == number:
            return
        if not identity or identity[0].value != self._identity.value:
            raise replaced_error(identity[0].value if identity else None, identity_source(self._client))
        for fence, now in zip(fences, held, strict=True):
            if not now or now[0].create_revision != fence.create_revision:
                raise Conflict(
                    f"The lock {fence.name} of the ledger {self._client.address} was lost: this process was suspended until its lock expired. "
                    "Nothing was written.",
                    "Run the task again: it repeats its decisions.",
                )
        if self._number and not mark:
            self._begin_count()
        raise Overtaken("a document was written by another process")


HOLDERS = "holders"
MONTHS = "months"
CLOSED_AT = "closed.at"
_HOSTS_ASIDE = f"{SET_ASIDE[0]}/{HOSTS[0]}-"
BEGIN_KEY = f"{domain_index.FOLDER}.{domain_index.BEGIN}"
# The folders of the keys by which closed records are found.
CLOSED_KEYS = (MONTHS, CLOSED_AT, domain_index.FOLDER)


class EtcdTransaction(Transaction):
    """:arg fences: the locks that are held.

    :arg parsed: what this task has read before.
    """

    def __init__(
        self, client: Client, writer: Writer, fences: Sequence[Fence], identity: EtcdIdentity, report: Callable[[str], None], parsed: ParsedDocuments
    ) -> None:
        self.snapshot = Snapshot(client)
        self.reader = DocumentReader(client, self.snapshot, report, parsed)
        self._client = client
        self._prefix = client.address.prefix
        self._writer = writer
        self._fences = fences
        self._identity = identity
        self._address = str(client.address)

    def prefetch_paths(self, paths: Sequence[DocumentPath]) -> None:
        self.snapshot.fetch_keys(*map(join_path, paths))

    def prefetch_documents(self, record_id: str, domain_uuid: str) -> None:
        paths = (document_path(OPEN, record_id), document_path(DOMAINS, domain_uuid))
        self.snapshot.fetch_keys(*map(join_path, paths), month_key(record_id), holder_key(domain_uuid), head_key(chain_of_domain(domain_uuid)), BEGIN_KEY)

    def read_document(self, path: DocumentPath) -> t.Optional[Document]:
        return self.reader.read_document(path)

    def read_all(self, parts: Sequence[str]) -> Iterator[Document]:
        return self.reader.read_all(parts)

    @property
    def unreadable(self) -> t.Mapping[DocumentPath, t.Optional[JsonObject]]:
        return self.reader.unreadable

    def find_holder(self, domain_uuid: str) -> t.Optional[Stored]:
        record_id = self._read_text(holder_key(domain_uuid))
        try:
            document = self.read_document(document_path(OPEN, record_id)) if record_id else None
        except NotSupported as error:
            raise NotSupported(
                f"The record {record_id} of a later version may hold the domain {domain_uuid}; nothing was changed.",
                "Update the collection on this control node.",
            ) from error
        return document.stored if document and holds_domain(document.record) else None

    def find_record(self, record_id: str) -> t.Optional[Stored]:
        self.snapshot.fetch_keys(join_path(document_path(OPEN, record_id)), month_key(record_id))
        document = self.read_document(document_path(OPEN, record_id))
        month = None if document else self._read_text(month_key(record_id))
        if month:
            document = self.read_document(document_path((*CLOSED, *month.split("/")), record_id))
        return document.stored if document else None

    def every_record(self) -> Iterator[MoveRecord]:
        for folder in (OPEN, CLOSED):
            yield from (document.record for document in self.reader.read_all(folder, counts=False))

    def read_hosts(self) -> LedgerHosts:
        documents = list(self.reader.read_all(HOSTS, counts=False, beside=_HOSTS_ASIDE))
        names = (key.rpartition("/")[2] for key in self.snapshot.list_names(_HOSTS_ASIDE))
        return make_hosts(documents, names, self.unreadable)

    def aside_names(self) -> list[str]:
        return [key.rpartition("/")[2] for key, _found in self.snapshot.each_key(f"{SET_ASIDE[0]}/", keys_only=True)]

    def write_document(self, write: DocumentWrite) -> None:
        self.commit_unit([write])

    def commit_unit(
        self,
        writes: Sequence[DocumentWrite],
        removes: Sequence[DocumentPath] = (),
        audited: t.Optional[AuditEntry] = None,
    ) -> None:
        refuse_moved(self._identity.known, self._address)
        acts = [self._put_message(join_path(write.path), encode_document(write.content, write.version)) for write in writes]
        acts += [self._delete_message(join_path(path)) for path in removes]
        for write in writes:
            if isinstance(write.content, MoveRecord):
                acts += self._index_messages(write.path, write.version, write.content)
        if audited is not None:
            acts += [self._put_message(key, value) for key, value in make_line_writes(self.snapshot, audited, self._identity.genesis_hash).items()]
        self._writer.write_unit(self.snapshot.unchanged_comparisons(), acts, self._fences)

    def remove_closed(self, entries: Sequence[RawDocument]) -> None:
        refuse_moved(self._identity.known, self._address)
        self.prefetch_paths([entry.path for entry in entries])
        acts: list[Message] = []
        for entry in entries:
            found, record = self.snapshot.get_key(join_path(entry.path)), entry.record
            if found is not None:
                check_unchanged(entry, found.value, describe_key(self._client, entry.path))
                keys = (join_path(entry.path), *(closed_keys(entry.path, record) if record else ()))
                acts += map(self._delete_message, keys)
        if acts:
            self._writer.write_unit(self.snapshot.unchanged_comparisons(), acts, self._fences)

    def read_part(self, chain: str, until: str, after: t.Optional[ChainPart]) -> tuple[t.Optional[ChainPart], t.Optional[str]]:
        return read_part(self.snapshot, chain, until, self._identity.genesis_hash, after)

    def remove_part(self, part: ChainPart) -> None:
        refuse_moved(self._identity.known, self._address)
        head = make_part_removal(self.snapshot, part, self._identity.genesis_hash)
        if head is not None:
            lines = delete_range(*(self._prefix + line_key(part.chain, number) for number in (part.begin, part.end + 1)))
            acts = [lines, self._put_message(head_key(part.chain), head.encode_head())]
            self._writer.write_unit(self.snapshot.unchanged_comparisons(), acts, self._fences)

    def _index_messages(self, path: DocumentPath, version: int, record: MoveRecord) -> list[Message]:
        """Return the index entries of a record: the holder of its domain, and the keys by which a closed record is found."""
        acts = [self._put_message(*found_by) for found_by in (self._begin_index(path) | closed_keys(path, record)).items()] if path[:2] == CLOSED else []
        key = holder_key(record.domain.uuid.lower())
        if holds_domain(record):
            return [*acts, self._put_message(key, document_key(path))] if version == 1 else acts
        return [*acts, self._delete_message(key)] if self._read_text(key) == document_key(path) else acts

    def _begin_index(self, path: DocumentPath) -> dict[str, str]:
        """Return the key with which the index by domain begins, if there is none."""
        if self._read_text(BEGIN_KEY) is not None:
            return {}
        folder = f"{self._prefix}{join_path((*CLOSED, ''))}"
        closed = self._client.read_range(range_read(folder, range_end(folder), limit=1, keys_only=True)).found
        return {BEGIN_KEY: domain_index.first_month(path, bool(closed))}

    def _read_text(self, key: str) -> t.Optional[str]:
        found = self.snapshot.get_key(key)
        return found.value.decode("utf-8", "replace") if found else None

    def _put_message(self, key: str, value: t.Union[str, bytes]) -> Message:
        return put_key(self._prefix + key, value)

    def _delete_message(self, key: str) -> Message:
        return delete_key(self._prefix + key)


def holder_key(domain_uuid: str) -> str:
    """Return the key with the record that holds a domain."""
    return f"{HOLDERS}/{domain_uuid}"


def month_key(record_id: str) -> str:
    """Return the key with the location of a closed record."""
    return f"{MONTHS}/{record_id}"


def closed_keys(path: DocumentPath, record: MoveRecord) -> dict[str, str]:
    """Return the keys by which this closed record is found, with their values."""
    key, month = document_key(path), domain_index.month_of(path)
    by_domain = {f"{domain_index.FOLDER}/{domain}/{key}": month for domain in domain_index.index_keys(record)}
    return {month_key(key): month, f"{CLOSED_AT}/{record.updated_at}/{key}": "", **by_domain}
