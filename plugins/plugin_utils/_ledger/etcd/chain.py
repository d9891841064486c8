# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The chain of audit lines in etcd: a key a line, written in the transaction of its transition, and one that says where the chain ends."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidState, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import SCHEMA

from ..audit import line_for
from ..encoding import Damaged, Newer, decode, encode
from ..store import Body
from .snapshot import Snapshot

HEAD = "audit.head.json"
LINES = "audit/"


class Head(t.NamedTuple):
    """:arg lines: how many there are.

    :arg last: the hash of the last of them; None where there is none.
    """

    lines: int
    last: t.Optional[str]


def head(snapshot: Snapshot) -> Head:
    """Return where the chain ends. Raises L(InvalidState) for a damaged end, L(NotSupported) for one of a newer schema."""
    found = snapshot.get(HEAD)
    if found is None:
        return Head(0, None)
    try:
        body = decode(found.value).body
    except Newer as error:
        raise NotSupported(f"The audit of this ledger is of a later version: {error}.", "Update the collection on this control node.") from error
    except Damaged as error:
        raise InvalidState(f"The key {found.key} could not be read: {error}. Nothing was changed.", "Restore it from a backup.") from error
    if not isinstance(body.get("lines"), int) or not isinstance(body.get("last"), str):
        raise InvalidState(f"The key {found.key} does not say where the audit ends. Nothing was changed.", "Restore it from a backup.")
    return Head(body["lines"], body["last"])


def appended(snapshot: Snapshot, record: Body, old_status: t.Optional[str], genesis: str) -> list[tuple[str, bytes]]:
    """Return the keys to write for the record's latest transition, with their values."""
    before = head(snapshot)
    line, own = line_for(record, old_status, before.last or genesis)
    number = before.lines + 1
    end = {"schema": SCHEMA, "lines": number, "last": own}
    return [(f"{LINES}{number:012d}", line.encode("utf-8")), (HEAD, encode(end, number))]


def lines(snapshot: Snapshot) -> Iterator[bytes]:
    """Yield all lines, in order."""
    return (found.value for _key, found in snapshot.each(LINES))
