# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The audit in etcd: a key a line, written in the transaction of its transition; in chains by domain, so that two moves seldom meet in one."""

from __future__ import annotations

import itertools
import typing as t
from collections.abc import Iterator

from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import SCHEMA

from ..archive import Chain, is_archived, lost_ends
from ..archive import name_of as name_in_archive
from ..audit import line_for, read_link, verify_lines
from ..encoding import Unreadable, decode, digest, encode
from ..store import Body
from .messages import KeyValue
from .snapshot import Snapshot

CHAINS = 64
HEADS = "audit.heads"
LINES = "audit"


class Head(t.NamedTuple):
    """Where a chain ends.

    :arg last: the hash of the last line, or what the first one follows.
    :arg lost: after which lines the end was lost and was guessed from the lines that were there.
    """

    lines: int
    last: str
    lost: tuple[int, ...] = ()

    def encoded(self) -> bytes:
        """Return the head as it is kept."""
        return encode({"schema": SCHEMA, "lines": self.lines, "last": self.last, "lost": list(self.lost)}, self.lines + 1)


def name_of(domain_uuid: str) -> str:
    """Return the chain that all lines of a domain are in."""
    return f"{int(digest(domain_uuid.lower())[:8], 16) % CHAINS:02d}"


def head_key(chain: str) -> str:
    """Return the key that says where a chain ends."""
    return f"{HEADS}/{chain}"


def heads(genesis: str) -> dict[str, bytes]:
    """Return the heads of a new ledger: of all chains, so that a missing one shows."""
    return {head_key(chain): Head(0, _first(genesis, chain)).encoded() for chain in _names()}


def appended(snapshot: Snapshot, record: Body, old_status: t.Optional[str], genesis: str) -> dict[str, bytes]:
    """Return the keys to write for the record's latest transition, with their values."""
    chain = name_of(record["domain"]["uuid"])
    before = _head(snapshot.get(head_key(chain))) or _guessed(snapshot, chain, genesis)
    line, own = line_for(record, old_status, before.last)
    number = before.lines + 1
    return {f"{LINES}/{chain}/{number:012d}": line.encode("utf-8"), head_key(chain): before._replace(lines=number, last=own).encoded()}


def verified(snapshot: Snapshot, genesis: str) -> list[str]:
    """Return what is wrong with the chains."""
    heads_there = {key.rpartition("/")[2]: _head(found) for key, found in snapshot.each(f"{HEADS}/")}
    groups = itertools.groupby(snapshot.each(f"{LINES}/"), key=lambda entry: entry[0].split("/")[1])
    problems, seen = [], set()
    for chain, entries in groups:
        seen.add(chain)
        if not is_archived(chain):
            problems += _verified(chain, (found.value for _key, found in entries), heads_there.get(chain), genesis)
    for chain in _names():
        if chain not in seen:
            problems += _verified(chain, iter(()), heads_there.get(chain), genesis)
    return problems


def ended(snapshot: Snapshot, home: int, genesis: str) -> Iterator[tuple[str, Chain]]:
    """Yield each chain by its name, and as it is kept once the ledger has left this place.

    :arg home: the number of the place.
    """
    snapshot.fetch(*map(head_key, _names()))
    for name in _names():
        head = _head(snapshot.get(head_key(name))) or _guessed(snapshot, name, genesis)
        yield name, Chain(name_in_archive(home, name), _first(genesis, name), head.lines, head.last, head.lost)


def _names() -> Iterator[str]:
    return (f"{number:02d}" for number in range(CHAINS))


def _verified(chain: str, lines: Iterator[bytes], head: t.Optional[Head], genesis: str) -> list[str]:
    problems = verify_lines(lines, _first(genesis, chain), head.last if head else None)
    if head is None:
        problems.append("The key that says where it ends is missing or damaged.")
    else:
        problems += lost_ends(head.lost)
    return [f"Audit chain {chain}: {problem}" for problem in problems]


def _first(genesis: str, chain: str) -> str:
    return digest(genesis, chain)


def _head(found: t.Optional[KeyValue]) -> t.Optional[Head]:
    """Return the head, or None where it is missing or damaged: a spoilt audit stops no move, and shows."""
    try:
        body = decode(found.value).body if found else {}
    except Unreadable:
        return None
    lines, last, lost = body.get("lines"), body.get("last"), body.get("lost")
    if not isinstance(lines, int) or not isinstance(last, str) or not isinstance(lost, list):
        return None
    return Head(lines, last, tuple(number for number in lost if isinstance(number, int)))


def _guessed(snapshot: Snapshot, chain: str, genesis: str) -> Head:
    """Return a head for a chain that lost it, by the lines that are there."""
    number, last = 0, _first(genesis, chain)
    for key, found in snapshot.each(f"{LINES}/{chain}/", counts=False):
        link = read_link(found.value)
        number, last = _number_in(key, number), link.own if link else last
    return Head(number, last, (number,))


def _number_in(key: str, before: int) -> int:
    text = key.rpartition("/")[2]
    return int(text) if text.isdecimal() else before
