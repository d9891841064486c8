# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Finding records among the files of a ledger: the open ones, and the closed ones in the folders of their months."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterator

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import NotSupported

from ..keys import is_uuid
from ..layout import CLOSED, OPEN, Place, key_of, place_of
from ..rules import holds_domain
from ..selection import Selection
from ..store import Body, Stored
from .folder import Folder
from .shelf import Shelf


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


def closed_since(path: str, selection: Selection) -> set[str]:
    """Return the ids of the closed records that were written since, by the names and times of their files."""
    found: set[str] = set()
    with Folder.at(path) as root:
        shelf = Shelf(root, lambda sentence: None)
        for year in shelf.folders(CLOSED):
            for month in shelf.folders((*CLOSED, year)):
                if selection.wants_month(year, month):
                    with root.sub(*CLOSED, year, month) as folder:
                        found.update(key for name in folder.each_name(selection.screen.written_since) if is_uuid(key := key_of((name,))))
    return found


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
