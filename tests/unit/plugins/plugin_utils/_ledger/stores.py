# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The two stores as a test meets them: opening a ledger any number of times, and touching what it keeps behind its back."""

from __future__ import annotations

import abc
import dataclasses
import typing as t
from pathlib import Path

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.copying import CopyTarget
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.document_bytes import encode_document
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.client import Client
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.connection import EtcdAddress, EtcdOptions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.copying import EtcdTarget
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.messages import (
    delete_key,
    delete_prefix,
    key_read,
    put_key,
    range_end,
    range_read,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.store import EtcdLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.transaction import closed_keys
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.copying import FileTarget
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.folder import Folder
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.index import DomainIndex
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.rules import closed_record_path


class Store(abc.ABC):
    """What a ledger is kept in. Documents are named by their path, e.g. C(hosts/<uuid>.json)."""

    @abc.abstractmethod
    def open(self, create: bool = True, moved: bool = False) -> Ledger:
        """Return a new access to the ledger, as another process has it."""

    @abc.abstractmethod
    def target(self) -> CopyTarget:
        """Return the place as one that a ledger is copied to."""

    @abc.abstractmethod
    def read(self, path: str) -> t.Optional[bytes]:
        """Return what is kept there, or None."""

    @abc.abstractmethod
    def write(self, path: str, data: bytes) -> None:
        """Put something there."""

    @abc.abstractmethod
    def remove(self, path: str) -> None:
        """Remove what is kept there."""

    @abc.abstractmethod
    def names(self, folder: str = "") -> list[str]:
        """Return the paths of all that is kept below."""

    @abc.abstractmethod
    def lines(self) -> list[str]:
        """Return the lines of the audit, without their ends."""

    @abc.abstractmethod
    def set_lines(self, lines: list[str]) -> None:
        """Put other lines in their place."""

    def put_closed(self, record: MoveRecord, at: str) -> MoveRecord:
        """Keep a record as one that was closed at that time."""
        record = dataclasses.replace(record, status="completed", created_at=at, updated_at=at)
        self.write(f"migrations/closed/{at[:4]}/{at[5:7]}/{record.id}.json", encode_document(record, 6))
        return record


class FileStore(Store):
    """A folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, create: bool = True, moved: bool = False) -> FileLedger:
        return FileLedger(str(self.folder), create, moved=moved)

    def target(self) -> FileTarget:
        return FileTarget(str(self.folder))

    def read(self, path: str) -> t.Optional[bytes]:
        file = self.folder / path
        return file.read_bytes() if file.is_file() else None

    def write(self, path: str, data: bytes) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    def remove(self, path: str) -> None:
        (self.folder / path).unlink()

    def put_closed(self, record: MoveRecord, at: str) -> MoveRecord:
        kept = super().put_closed(record, at)
        with Folder.open_path(str(self.folder)) as root:
            DomainIndex(root).add_record(closed_record_path(kept), kept)
        return kept

    def names(self, folder: str = "") -> list[str]:
        return sorted(str(file.relative_to(self.folder)) for file in (self.folder / folder).rglob("*") if file.is_file())

    def lines(self) -> list[str]:
        return (self.read("audit.jsonl") or b"").decode().splitlines()

    def set_lines(self, lines: list[str]) -> None:
        self.write("audit.jsonl", "".join(f"{line}\n" for line in lines).encode())


class EtcdStore(Store):
    """The keys under a prefix."""

    def __init__(self, address: EtcdAddress, options: EtcdOptions) -> None:
        self.address = address
        self.options = options
        self.client = Client(address, options)

    def open(self, create: bool = True, moved: bool = False) -> EtcdLedger:
        return EtcdLedger(self.address, self.options, create, moved)

    def target(self) -> EtcdTarget:
        return EtcdTarget(self.address, self.options)

    def read(self, path: str) -> t.Optional[bytes]:
        found = self.client.read_range(key_read(self.address.prefix + path)).found
        return found[0].value if found else None

    def write(self, path: str, data: bytes) -> None:
        self.client.run_transaction([], [put_key(self.address.prefix + path, data)], [])

    def remove(self, path: str) -> None:
        self.client.run_transaction([], [delete_key(self.address.prefix + path)], [])

    def names(self, folder: str = "") -> list[str]:
        start = f"{self.address.prefix}{folder}{'/' if folder else ''}"
        return [found.key[len(self.address.prefix) :] for found in self.client.read_range(range_read(start, range_end(start))).found]

    def put_closed(self, record: MoveRecord, at: str) -> MoveRecord:
        kept = super().put_closed(record, at)
        for key, value in closed_keys(closed_record_path(kept), kept).items():
            self.write(key, value.encode())
        return kept

    def clear(self) -> None:
        """Remove everything."""
        self.client.run_transaction([], [delete_prefix(self.address.prefix)], [])

    def lines(self) -> list[str]:
        start = f"{self.address.prefix}audit/"
        return [found.value.decode() for found in self.client.read_range(range_read(start, range_end(start))).found]

    def set_lines(self, lines: list[str]) -> None:
        """For one chain, of one domain."""
        names = self.names("audit")
        self.client.run_transaction([], [delete_key(f"{self.address.prefix}{name}") for name in names], [])
        for number, line in enumerate(lines, 1):
            self.write(f"{names[0].rpartition('/')[0]}/{number:012d}", line.encode())
