# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The index by which the closed records of one domain are found, by its UUID and by each of its names, independent of the store.

An entry is written before its record, or with it, so that each record has its entries. An entry proves nothing: what it names is read and must match.
The index begins with a month. Records of earlier months were closed by a version without an index, and are searched as before.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord

from .document_bytes import compute_digest
from .rules import CLOSED, DocumentPath, document_key, document_path

FOLDER = "by_domain"
# The name of what contains the first month of the index, as yyyy/mm.
BEGIN = "begin"
FROM_THE_FIRST = "0000/00"
_KEY_LENGTH = 32
_ENTRY = re.compile(r"([0-9]{4})/([0-9]{2})/([0-9a-f-]{36})")
_MONTH = re.compile(r"[0-9]{4}/[0-9]{2}")


def index_key(domain: str) -> str:
    """Return the key of a domain's UUID or name in the index."""
    return compute_digest(domain)[:_KEY_LENGTH]


def index_keys(record: MoveRecord) -> list[str]:
    """Return the keys by which a record is found."""
    return sorted({index_key(text) for text in (record.domain.uuid, record.domain.name) if text})


def make_entry(path: DocumentPath) -> str:
    """Return the entry for a closed record at that location."""
    return "/".join((*path[len(CLOSED) : -1], document_key(path)))


def read_entry(text: str) -> t.Optional[DocumentPath]:
    """Return the location that an entry names, or None for a damaged entry."""
    found = _ENTRY.fullmatch(text)
    return document_path((*CLOSED, found[1], found[2]), found[3]) if found else None


def month_of(path: DocumentPath) -> str:
    """Return the month of a closed record, as yyyy/mm."""
    return "/".join(path[len(CLOSED) : -1])


def first_month(path: DocumentPath, has_closed: bool) -> str:
    """Return with which month a new index begins: other records may have been closed in the month of this one.

    :arg path: of the record that is closed now.
    :arg has_closed: whether the ledger has closed records.
    """
    if not has_closed:
        return FROM_THE_FIRST
    year, month = map(int, month_of(path).split("/"))
    return f"{year + month // 12:04d}/{month % 12 + 1:02d}"


def read_begin(data: t.Optional[bytes]) -> t.Optional[str]:
    """Return the first month of the index; None if there is no index, or if the month cannot be read."""
    text = data.decode("ascii", "replace").strip() if data is not None else ""
    return text if _MONTH.fullmatch(text) else None


def hole_problem(location: str, path: DocumentPath, begin: str) -> str:
    """Return the sentence about a closed record without its entry.

    :arg location: of the entries, for a person.
    :arg begin: the location of the first month, for a person.
    """
    return (
        f"{location} lacks the closed record {document_key(path)} of {month_of(path)}: queries for its domain do not find it. "
        f"Remove {begin}: such queries then read all records, and the index begins again with the next month."
    )
