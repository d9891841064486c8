# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Records of moves in a file ledger: opened, changed and closed in one unit with the document of their domain."""

from __future__ import annotations

import copy
import typing as t
from collections.abc import Callable, Iterator

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s

from .folder import Folder
from .keys import check_uuid
from .places import changed_domain, new_domain
from .rules import check_change, check_new, held, holds_domain, overtaken
from .selection import Selection, select
from .session import Session
from .shelf import CLOSED, DOMAINS, OPEN, SET_ASIDE, Place, Shelf, place_of
from .store import Body, Document, Stored


def open_records(shelf: Shelf) -> list[Body]:
    """Return all open records."""
    return [document.body for document in shelf.read_all(OPEN)]


def closed_records(path: str, selection: Selection, report: Callable[[str], None]) -> Iterator[Body]:
    """Yield the closed records that the selection wants, reading no other month's."""
    with Folder.at(path) as root:
        shelf = Shelf(root, report)
        for year in shelf.folders(CLOSED):
            for month in shelf.folders((*CLOSED, year)):
                if selection.wants_month(year, month):
                    found = (document.body for document in shelf.read_all((*CLOSED, year, month), None, selection.screen))
                    yield from (record for record in found if selection.wants(record))


def holder(shelf: Shelf, domain_uuid: str) -> t.Optional[Stored]:
    """Return the record that holds the domain. Raises L(NotSupported) where one of a newer schema might."""
    newer: list[Body] = []
    for document in shelf.read_all(OPEN, newer):
        record = document.body
        if record["domain"]["uuid"].lower() == domain_uuid and holds_domain(record):
            return Stored(record, document.version)
    for body in newer:
        domain = body.get("domain")
        if not isinstance(domain, dict) or str(domain.get("uuid", domain_uuid)).lower() == domain_uuid:
            raise NotSupported(
                f"The record {body.get('id')} of a later version may hold the domain {domain_uuid}; nothing was changed.",
                "Update the collection on this control node.",
            )
    return None


def find(shelf: Shelf, record_id: str) -> t.Optional[Stored]:
    """Return the record of that id, wherever it lies."""
    for place in _places(shelf, record_id):
        document = shelf.read(place)
        if document:
            return Stored(document.body, document.version)
    return None


def _places(shelf: Shelf, record_id: str) -> Iterator[Place]:
    yield place_of(OPEN, record_id)
    for year in reversed(shelf.folders(CLOSED)):
        for month in reversed(shelf.folders((*CLOSED, year))):
            yield place_of((*CLOSED, year, month), record_id)


def _closed_place(record: Body) -> Place:
    year, month = record["updated_at"][:4], record["updated_at"][5:7]
    return place_of((*CLOSED, year, month), record["id"].lower())


def open_record(current: Session, record: Body) -> Stored:
    """Write the record and the domain's next generation. See L(Ledger.open_record)."""
    check_new(record)
    record_id, domain_uuid = record["id"].lower(), record["domain"]["uuid"].lower()
    existing = holder(current.shelf, domain_uuid)
    if existing:
        raise held(existing.record)
    same = find(current.shelf, record_id)
    if same:
        raise Conflict(f"A record {record_id} is in the ledger already.", "Open a record with a new id.", record=same.record)
    domain, version = _domain_of(current, record)
    opened = {**copy.deepcopy(record), "generation": domain["generation"]}
    writes = [(place_of(OPEN, record_id), 1, opened), (place_of(DOMAINS, domain_uuid), version, domain)]
    current.commit(writes, record=opened)
    return Stored(opened, 1)


def _domain_of(current: Session, record: Body) -> tuple[Body, int]:
    """Return the domain's document with the next generation, and its next version."""
    domain_uuid = record["domain"]["uuid"].lower()
    present = current.shelf.read(place_of(DOMAINS, domain_uuid))
    if present is None:
        present = Document({**new_domain(record), "generation": last_generation(current, domain_uuid)}, 0)
    body = changed_domain(present.body, record, None)
    return {**body, "generation": present.body["generation"] + 1}, present.version + 1


def last_generation(current: Session, domain_uuid: str) -> int:
    """Return the last generation given to a domain that has no document.

    That is 0, unless its document was damaged and set aside: then all its records say it.
    """
    if not any(name.startswith(f"{DOMAINS[0]}-{domain_uuid}-") for name in current.shelf.folders(SET_ASIDE)):
        return 0
    found = open_records(current.shelf) + list(closed_records(current.root.path, select(), lambda sentence: None))
    return max((record["generation"] for record in found if record["domain"]["uuid"].lower() == domain_uuid), default=0)


def _as_read(current: Session, stored: Stored) -> Body:
    """Return the record as it is now. Raises L(Conflict) unless it is at the version that was read."""
    record_id = check_uuid(stored.record["id"], "record id")
    now = find(current.shelf, record_id)
    if now is None:
        raise Conflict(f"The record {record_id} is not in the ledger any more.", "See the ledger's folder set_aside.", record=None)
    if now.version != stored.version:
        raise overtaken(now.record)
    return now.record


def update(current: Session, stored: Stored, record: Body) -> Stored:
    """Write the record over the one that was read. See L(Ledger.update)."""
    old = _as_read(current, stored)
    new = copy.deepcopy(record)
    check_change(old, new)
    version = stored.version + 1
    place = place_of(OPEN, new["id"].lower())
    if (new["status"], new["generation"]) == (old["status"], old["generation"]):
        current.write(place, version, new)
        return Stored(new, version)
    writes, removes = [(place, version, new)], []
    if new["status"] in s.CLOSED:
        writes, removes = [(_closed_place(new), version, new)], [place]
    writes += _domain_change(current, new, old["status"])
    current.commit(writes, removes, new, old["status"])
    return Stored(new, version)


def _domain_change(current: Session, record: Body, old_status: str) -> list[tuple[Place, int, Body]]:
    """Return the write of the domain's document that the transition asks for, if any."""
    place = place_of(DOMAINS, record["domain"]["uuid"].lower())
    present = current.shelf.read(place)
    if present is None:
        present = Document({**new_domain(record), "generation": record["generation"]}, 0)
    body = changed_domain(present.body, record, old_status)
    body["generation"] = max(body["generation"], record["generation"])
    if record["status"] not in s.CLOSED and all(body[key] == present.body.get(key) for key in ("possible_hosts", "name", "generation")):
        return []
    return [(place, present.version + 1, body)]
