# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The chain of audit lines: one a transition, each with the hash of the one before, so that a changed or missing line shows."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Iterable
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Internal

from .encoding import canonical, digest
from .store import Body


def genesis(ledger_id: str, seal: t.Optional[str] = None) -> str:
    """Return what stands for the hash of the line before the first: it binds the chain to its ledger.

    :arg seal: what the chains of the ledger's former places come to, which it binds the chain to as well.
    """
    return digest(ledger_id) if seal is None else digest(ledger_id, seal)


def line_for(record: Body, old_status: t.Optional[str], previous_hash: str) -> tuple[str, str]:
    """Return the line, without its end, of the record's latest transition, and the line's hash."""
    last = record["history"][-1] if record["history"] else {}
    entry = {
        "at": record["updated_at"],
        "id": record["id"],
        "domain": record["domain"],
        "generation": record["generation"],
        "from": old_status,
        "to": record["status"],
        "by": last.get("by"),
        "prev": previous_hash,
    }
    line_hash = digest(canonical(entry))
    return canonical({**entry, "hash": line_hash}), line_hash


@dataclass(frozen=True)
class Link:
    """What the chain needs to know of a line."""

    previous: str
    own: str
    intact: bool


def read_link(line: t.Union[str, bytes]) -> t.Optional[Link]:
    """Return a line's link, or None where it is no audit line at all."""
    try:
        entry = json.loads(line)
        if not isinstance(entry, dict) or not isinstance(entry.get("prev"), str) or not isinstance(entry.get("hash"), str):
            return None
        own = entry.pop("hash")
        return Link(previous=entry["prev"], own=own, intact=own == digest(canonical(entry)))
    except (ValueError, RecursionError, Internal):
        return None


def verify_lines(lines: Iterable[bytes], first: str, head: t.Optional[str]) -> list[str]:
    """Return what is wrong with a chain.

    :arg first: the hash the first line has to name.
    :arg head: the hash of the last line that was ever written; None where that is not known.
    """
    problems: list[str] = []
    expected = first
    for number, line in enumerate(lines, 1):
        link = read_link(line)
        if link is None:
            problems.append(f"Line {number} is not an audit line: it was torn or changed.")
            continue
        if not link.intact:
            problems.append(f"Line {number} was changed: its hash does not match what it says.")
        if link.previous != expected:
            problems.append(f"Before line {number} a line is missing or was changed: it follows a line that is not there.")
        expected = link.own
    if head is not None and expected != head:
        problems.append("The end is missing: the last line is not the one that was written last.")
    return problems
