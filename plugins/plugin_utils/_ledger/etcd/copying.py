# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The contents of a ledger in etcd, byte by byte, and a prefix to which a ledger is copied.

Every transaction compares the marker of this run, so that none succeeds after another run has taken over.
"""

from __future__ import annotations

import contextlib
import itertools
import shlex
import typing as t
from collections.abc import Iterable, Iterator, Sequence

from .. import audit
from ..audit import ArchivedChain
from ..contents import LedgerContents, RawDocument
from ..copying import CopyTarget, TargetState, changed_error, split_batches, taken_over_error
from ..domain_index import FOLDER, FROM_THE_FIRST, month_of, read_begin
from ..identity import COPYING_NAME, IDENTITY_NAME, LedgerIdentity
from ..rules import CLOSED, OPEN, DocumentPath, document_key, holds_domain
from .chains import HEADS, LINES, end_chains, head_key, verify_chains
from .client import Client
from .connection import EtcdAddress, EtcdOptions
from .messages import KeyValue, Message, delete_key, delete_prefix, has_value, is_empty, key_read, put_key, range_end
from .reader import Snapshot, describe_key, join_path
from .transaction import BEGIN_KEY, CLOSED_KEYS, HOLDERS, EtcdIdentity, check_identity, closed_keys, first_values, holder_key, read_prefix


class EtcdContents(LedgerContents):
    """:arg identity: None for a copy that is unfinished, which has no chains of its own yet."""

    def __init__(self, client: Client, snapshot: Snapshot, identity: t.Optional[EtcdIdentity]) -> None:
        self._client = client
        self._snapshot = snapshot
        self._identity = identity

    def list_paths(self, folder: DocumentPath) -> Iterator[DocumentPath]:
        return (tuple(key.split("/")) for key, _found in self._snapshot.each_key(f"{join_path(folder)}/", keys_only=True, counts=False))

    def read_documents(self, folder: DocumentPath) -> Iterator[RawDocument]:
        return (RawDocument(tuple(key.split("/")), found.value) for key, found in self._read_keys(join_path(folder)))

    def read_chains(self) -> Iterator[tuple[ArchivedChain, Iterator[bytes]]]:
        for ended in audit.require_readable(self._read_archive()):
            yield ended, self._read_lines(ended.name)
        for name, own in self._own_chains():
            if not own.is_empty:
                yield own, self._read_lines(name)

    def audit_problems(self) -> list[str]:
        if self._identity is None:
            return []
        return [
            *verify_chains(self._snapshot, self._identity.genesis_hash),
            *audit.verify_archive(self._read_archive(), self._read_lines, self._identity.known.seal),
        ]

    def describe_location(self, path: DocumentPath) -> str:
        return describe_key(self._client, path)

    def index_problems(self) -> Iterator[str]:
        found = {key: value.value.decode("utf-8", "replace") for folder in (*CLOSED_KEYS, HOLDERS) for key, value in self._read_keys(folder)}
        for key, value, consequence in self._expected_keys():
            if found.get(key) != value:
                restore = f"Restore it: 'etcdctl put {self._client.address.prefix}{key} {shlex.quote(value)}'."
                yield f"{describe_key(self._client, (key,))} is missing or wrong: {consequence}. {restore}"

    def _expected_keys(self) -> Iterator[tuple[str, str, str]]:
        """Yield the keys that must exist in addition to the documents, with their values, and the consequence of a missing one."""
        known = self._snapshot.get_key(BEGIN_KEY)
        begin = read_begin(known.value if known else None)
        for entry in self.read_documents(CLOSED):
            if record := entry.record:
                is_indexed = begin is not None and month_of(entry.path) >= begin
                keys = {key: value for key, value in closed_keys(entry.path, record).items() if is_indexed or not key.startswith(f"{FOLDER}/")}
                yield from ((key, value, "queries by it do not find the closed record") for key, value in keys.items())
        for entry in self.read_documents(OPEN):
            if (record := entry.record) and holds_domain(record):
                yield holder_key(record.domain.uuid.lower()), document_key(entry.path), "a second record of its domain could be opened"

    def _read_keys(self, folder: str) -> Iterator[tuple[str, KeyValue]]:
        return self._snapshot.each_key(f"{folder}/", counts=False)

    def _own_chains(self) -> Iterator[tuple[str, ArchivedChain]]:
        return end_chains(self._snapshot, self._identity.known.home, self._identity.genesis_hash) if self._identity else iter(())

    def _read_archive(self) -> dict[str, t.Optional[ArchivedChain]]:
        names = {key.rpartition("/")[2]: found.value for key, found in self._read_keys(HEADS)}
        return {name: audit.decode_chain(name, data) for name, data in names.items() if audit.is_archived(name)}

    def _read_lines(self, name: str) -> Iterator[bytes]:
        return (found.value for _key, found in self._read_keys(f"{LINES}/{name}"))


class EtcdTarget(CopyTarget):
    """:arg options: the options of the connection to the cluster."""

    def __init__(self, address: EtcdAddress, options: EtcdOptions) -> None:
        super().__init__(str(address))
        self._client = Client(address, options)
        self._prefix = address.prefix

    def read_state(self) -> TargetState:
        there = read_prefix(self._client)
        if there.known is not None:
            return TargetState(identity=check_identity(self._client, there).known)
        copying = there.copying.value if there.copying else None
        return TargetState(copying=copying, foreign=there.first.key if there.first and copying is None else None)

    def mark_copy(self, marker: bytes, seen: TargetState) -> None:
        key = f"{self._prefix}{COPYING_NAME}"
        before = is_empty(self._prefix, range_end(self._prefix)) if seen.copying is None else has_value(key, seen.copying)
        if not self._client.run_transaction([before], [put_key(key, marker)], []).succeeded and not self._has_value(COPYING_NAME, marker):
            raise changed_error(self.name)
        self._marker = marker

    @contextlib.contextmanager
    def open_contents(self) -> Iterator[LedgerContents]:
        yield EtcdContents(self._client, Snapshot(self._client, at_one_revision=False), None)

    def write_documents(self, entries: Iterable[RawDocument]) -> None:
        for batch in split_batches(entries, lambda entry: len(entry.data)):
            self._write_messages([act for entry in batch for act in self._document_messages(entry)])

    def write_chain(self, chain: ArchivedChain, lines: Iterable[bytes]) -> None:
        self.remove_chain(chain.name)
        numbered = ((f"{LINES}/{chain.name}/{number:012d}", line) for number, line in zip(itertools.count(1), lines))
        for batch in split_batches(numbered, lambda line: len(line[1])):
            self._write_messages([self._put_message(*line) for line in batch])
        self._write_messages([self._put_message(head_key(chain.name), chain.encode_ends())])

    def remove_document(self, path: DocumentPath) -> None:
        found = self._client.read_range(key_read(f"{self._prefix}{join_path(path)}")).found
        keys = [key for each in found for key in _index_keys(RawDocument(path, each.value))]
        self._write_messages([delete_key(f"{self._prefix}{key}") for key in (join_path(path), *keys)])

    def remove_chain(self, name: str) -> None:
        self._write_messages([delete_prefix(f"{self._prefix}{LINES}/{name}/"), delete_key(f"{self._prefix}{head_key(name)}")])

    def finish_copy(self, identity: LedgerIdentity) -> None:
        values = first_values(self._client, identity) | {BEGIN_KEY: FROM_THE_FIRST.encode("ascii")}
        acts = [*(self._put_message(key, value) for key, value in values.items()), delete_key(f"{self._prefix}{COPYING_NAME}")]
        if not self._send_messages(acts) and not self._has_value(IDENTITY_NAME, identity.data):
            raise taken_over_error(self.name)

    def _document_messages(self, entry: RawDocument) -> Iterator[Message]:
        yield self._put_message(join_path(entry.path), entry.data)
        yield from (self._put_message(key, value.encode("ascii")) for key, value in _index_keys(entry).items())

    def _put_message(self, key: str, value: bytes) -> Message:
        return put_key(f"{self._prefix}{key}", value)

    def _write_messages(self, acts: Sequence[Message]) -> None:
        if not self._send_messages(acts):
            raise taken_over_error(self.name)

    def _send_messages(self, acts: Sequence[Message]) -> bool:
        return self._client.run_transaction([has_value(f"{self._prefix}{COPYING_NAME}", self._marker)], list(acts), []).succeeded

    def _has_value(self, key: str, value: bytes) -> bool:
        found = self._client.read_range(key_read(f"{self._prefix}{key}")).found
        return bool(found) and found[0].value == value


def _index_keys(entry: RawDocument) -> dict[str, str]:
    """Return the keys by which the document is found, with their values."""
    record = entry.record if entry.path[:2] == CLOSED else None
    return closed_keys(entry.path, record) if record else {}
