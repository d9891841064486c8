# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A ledger as documents: what a store of files and a store of keys have in common, each bringing its own way of access."""

from __future__ import annotations

import abc
import contextlib
import re
import typing as t
from collections.abc import Callable, Iterator, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import SCHEMA

from . import host_changes, record_changes
from .access import Access
from .contents import Contents
from .identity import Identity
from .keys import check_uuid
from .layout import DOMAINS, HOSTS, place_of
from .rules import check_domain, document_overtaken
from .selection import Selection, select
from .store import Body, Document, Ledger, Stored

_T = t.TypeVar("_T")
_DAMAGED_DOMAIN = re.compile(r"domains-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-.*")


class DocumentLedger(Ledger):
    """:arg name: what people call the ledger by: its folder, or its address."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    @property
    @abc.abstractmethod
    def identity(self) -> Identity:
        """What the ledger is known by, as this process knows it."""

    @property
    def ledger_id(self) -> str:
        return self.identity.ledger_id

    @abc.abstractmethod
    def contents(self) -> contextlib.AbstractContextManager[Contents]:
        """Return what the ledger keeps, byte by byte, and may be changed by others meanwhile."""

    @abc.abstractmethod
    def examine(self, act: Callable[[Contents], _T]) -> _T:
        """Call it with what the ledger keeps at one moment, and return its answer."""

    @abc.abstractmethod
    def leave(self, to: str, by: str) -> None:
        """Close the ledger, which is copied elsewhere: nobody writes it from here on. Raises L(Conflict) while a record is unsettled."""

    def left(self) -> None:
        """Say that the copy is finished."""
        self._become(self.identity.gone())

    def stay(self) -> None:
        """Open the ledger again, where the copy was given up."""
        self._become(self.identity.back())

    @abc.abstractmethod
    def _become(self, after: Identity) -> None:
        """Write that identity in place of the one that this process knows. Raises L(InvalidState) where another process wrote one since."""

    def verify_audit(self) -> list[str]:
        return self.examine(lambda contents: contents.audit_problems())

    @abc.abstractmethod
    def _read(self, act: Callable[[Access], _T]) -> _T:
        """Call it with an access that is only read from, and return its answer."""

    @abc.abstractmethod
    def _change(self, act: Callable[[Access], _T]) -> _T:
        """Call it with an access, and once more with a new one where another process came first; return its answer."""

    @abc.abstractmethod
    def _records(self, selection: Selection) -> Iterator[Body]:
        """Yield the records that the selection wants, each once."""

    # Records

    def open_record(self, record: Body) -> Stored:
        with self.witness.change(None, record):
            return self._change(lambda current: record_changes.open_record(current, record))

    def get(self, record_id: str) -> Stored:
        key = check_uuid(record_id, "record id")
        found = self._read(lambda current: current.find(key))
        if found is None:
            raise NotFound(f"The ledger {self.name} has no record {key}.", "List its records with the lookup kvmfleet.migration.ledger.")
        return found

    def unsettled_of(self, domain_uuid: str) -> t.Optional[Stored]:
        key = check_uuid(domain_uuid, "domain UUID")
        return self._read(lambda current: current.holder(key))

    def update(self, stored: Stored, record: Body) -> Stored:
        with self.witness.change(stored.record, record):
            return self._change(lambda current: record_changes.update(current, stored, record))

    def records(
        self,
        types: t.Optional[Sequence[str]] = None,
        statuses: t.Optional[Sequence[str]] = None,
        host: t.Optional[str] = None,
        domain: t.Optional[str] = None,
        since: t.Optional[str] = None,
        until: t.Optional[str] = None,
        unsettled_only: bool = False,
    ) -> Iterator[Body]:
        return self._records(select(types, statuses, host, domain, since, until, unsettled_only))

    # Hosts

    def hosts(self) -> list[Document]:
        return self._by_name(HOSTS)

    def host(self, host_id: str) -> t.Optional[Document]:
        place = place_of(HOSTS, check_uuid(host_id, "host id"))
        return self._read(lambda current: current.read(place))

    def find_host(self, name: t.Optional[str] = None, host_uuid: t.Optional[str] = None) -> t.Optional[Document]:
        return host_changes.only_one(self.hosts(), name, host_uuid)

    def put_host(self, body: Body, version: t.Optional[int]) -> Document:
        return self._change(lambda current: host_changes.put(current, body, version, self.ledger_id))

    # Domains

    def domains(self) -> list[Document]:
        return self._by_name(DOMAINS)

    def domain(self, uuid: str) -> t.Optional[Document]:
        place = place_of(DOMAINS, check_uuid(uuid, "domain UUID"))
        return self._read(lambda current: current.read(place))

    def find_domains(self, name: str) -> list[Document]:
        return [document for document in self.domains() if document.body.get("name") == name]

    def put_domain(self, body: Body, version: t.Optional[int]) -> Document:
        new = check_domain({"schema": SCHEMA, **body})
        return self._change(lambda current: _put_domain(current, new, version))

    def damaged_domains(self) -> list[str]:
        names = self._read(lambda current: current.set_aside())
        found = {match[1] for match in map(_DAMAGED_DOMAIN.fullmatch, names) if match}
        return sorted(found - {document.body["uuid"] for document in self.domains()}) if found else []

    def _by_name(self, folder: Sequence[str]) -> list[Document]:
        documents = self._read(lambda current: list(current.read_all(folder)))
        return sorted(documents, key=lambda document: str(document.body.get("name")))


def _put_domain(current: Access, new: Body, version: t.Optional[int]) -> Document:
    key = new["uuid"]
    place = place_of(DOMAINS, key)
    present = current.read(place)
    if (present.version if present else None) != version:
        raise document_overtaken(f"the document of domain '{new['name']}' ({key})", present.body if present else None)
    generation = present.body["generation"] if present else record_changes.last_generation(current, key)
    document = Document({**new, "generation": generation}, (version or 0) + 1)
    current.write(place, document.version, document.body)
    return document
