# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The ledger as a folder of JSON files on the control node."""

from __future__ import annotations

import contextlib
import os
import typing as t
from collections.abc import Iterator, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import SCHEMA

from . import creation, file_hosts, file_records
from .audit import genesis, read_link, verify_lines
from .disk_errors import reported
from .file_records import closed_records, open_records
from .keys import check_lock_key, check_uuid
from .locks import flocked
from .rules import check_domain, document_overtaken
from .selection import Selection, select
from .session import Session, Step, session
from .shelf import DOMAINS, HOSTS, place_of
from .store import Body, Document, Ledger, Stored

_LOCKS = "locks"


def _no_step(_name: str) -> None:
    return None


class FileLedger(Ledger):
    """:arg path: the folder; made, with mode 0700, where it is missing and C(create).

    :arg step: called after each step of a unit with its name; for tests.
    """

    def __init__(self, path: str, create: bool = True, step: Step = _no_step) -> None:
        super().__init__()
        self.path = os.path.abspath(path)
        self._step = step
        with reported(self.path):
            self._ledger_id = creation.ensure(self.path, create)

    @property
    def ledger_id(self) -> str:
        return self._ledger_id

    def _session(self, exclusive: bool) -> contextlib.AbstractContextManager[Session]:
        return session(self.path, genesis(self._ledger_id), exclusive, self.report, self._step)

    # Records

    def open_record(self, record: Body) -> Stored:
        with self._session(exclusive=True) as current:
            return file_records.open_record(current, record)

    def get(self, record_id: str) -> Stored:
        key = check_uuid(record_id, "record id")
        with self._session(exclusive=False) as current:
            found = file_records.find(current.shelf, key)
        if found is None:
            raise NotFound(f"The ledger {self.path} has no record {key}.", "List its records with the lookup kvmfleet.migration.ledger.")
        return found

    def unsettled_of(self, domain_uuid: str) -> t.Optional[Stored]:
        key = check_uuid(domain_uuid, "domain UUID")
        with self._session(exclusive=False) as current:
            return file_records.holder(current.shelf, key)

    def update(self, stored: Stored, record: Body) -> Stored:
        with self._session(exclusive=True) as current:
            return file_records.update(current, stored, record)

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

    def _open_records(self) -> list[Body]:
        with self._session(exclusive=False) as current:
            return open_records(current.shelf)

    def _records(self, selection: Selection) -> Iterator[Body]:
        found = self._open_records()
        yield from (record for record in found if selection.wants(record))
        if selection.reads_closed:
            # Closed ones never change, so they need no lock; one that was closed meanwhile was seen as an open one.
            seen = {record["id"] for record in found}
            with reported(self.path):
                yield from (record for record in closed_records(self.path, selection, self.report) if record["id"] not in seen)

    # Hosts

    def hosts(self) -> list[Document]:
        with self._session(exclusive=False) as current:
            return sorted(current.shelf.read_all(HOSTS), key=lambda document: str(document.body.get("name")))

    def host(self, host_id: str) -> t.Optional[Document]:
        key = check_uuid(host_id, "host id")
        with self._session(exclusive=False) as current:
            return current.shelf.read(place_of(HOSTS, key))

    def find_host(self, name: t.Optional[str] = None, host_uuid: t.Optional[str] = None) -> t.Optional[Document]:
        return file_hosts.only_one(self.hosts(), name, host_uuid)

    def put_host(self, body: Body, version: t.Optional[int]) -> Document:
        with self._session(exclusive=True) as current:
            return file_hosts.put(current, body, version, self._ledger_id)

    # Domains

    def domains(self) -> list[Document]:
        with self._session(exclusive=False) as current:
            return sorted(current.shelf.read_all(DOMAINS), key=lambda document: str(document.body.get("name")))

    def domain(self, uuid: str) -> t.Optional[Document]:
        key = check_uuid(uuid, "domain UUID")
        with self._session(exclusive=False) as current:
            return current.shelf.read(place_of(DOMAINS, key))

    def find_domains(self, name: str) -> list[Document]:
        return [document for document in self.domains() if document.body.get("name") == name]

    def put_domain(self, body: Body, version: t.Optional[int]) -> Document:
        new = check_domain({"schema": SCHEMA, **body})
        key = new["uuid"]
        with self._session(exclusive=True) as current:
            present = current.shelf.read(place_of(DOMAINS, key))
            if (present.version if present else None) != version:
                raise document_overtaken(f"the document of domain '{new['name']}' ({key})", present.body if present else None)
            generation = present.body["generation"] if present else file_records.last_generation(current, key)
            document = Document({**new, "generation": generation}, (version or 0) + 1)
            current.write(place_of(DOMAINS, key), document.version, document.body)
            return document

    # Locks and audit

    @contextlib.contextmanager
    def locked(self, key: str, timeout_seconds: float = 30) -> Iterator[None]:
        name = f"{check_lock_key(key)}.lock"
        with contextlib.ExitStack() as stack:
            with reported(self.path):
                root = stack.enter_context(creation.Folder.at(self.path))
                folder = stack.enter_context(root.sub(_LOCKS, create=True))
                stack.enter_context(flocked(folder, name, True, timeout_seconds))
            yield

    def verify_audit(self) -> list[str]:
        with self._session(exclusive=False) as current:
            last = current.journal.last()
            link = read_link(last.line) if last and last.line else None
            return verify_lines(current.audit.lines(), genesis(self._ledger_id), link.own if link else None)
