# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The audit of an etcd ledger: a key for each line, written in the transaction of its transition.

There are several chains, each for some of the domains, so that two moves rarely write to the same one.
"""

from __future__ import annotations

import itertools
import typing as t
from collections.abc import Iterator

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import SCHEMA

from ..audit import ArchivedChain, AuditEntry, ChainPart, cut_part, is_archived, lost_end_problems, make_audit_line, read_link, verify_lines
from ..audit import archived_name as name_in_archive
from ..document_bytes import Unreadable, compute_digest, decode_document, encode_document
from .messages import KeyValue
from .reader import Snapshot

CHAIN_COUNT = 64
HEADS = "audit.heads"
LINES = "audit"


class ChainHead(t.NamedTuple):
    """The end of a chain.

    :arg lines: the number of all lines that were ever written, the archived ones included.
    :arg last: the hash of the last line, or what the first one follows.
    :arg lost: the lines after which the end was lost and was guessed from the remaining lines.
    :arg archived: the number of the lines that were archived, the last of which has the hash C(first).
    """

    lines: int
    last: str
    lost: tuple[int, ...] = ()
    archived: int = 0
    first: t.Optional[str] = None

    def encode_head(self) -> bytes:
        """Return the stored form of the head."""
        archived = {"archived": self.archived, "first": self.first} if self.archived else {}
        return encode_document({"schema": SCHEMA, "lines": self.lines, "last": self.last, "lost": list(self.lost), **archived}, self.lines + 1)


def chain_of_domain(domain_uuid: str) -> str:
    """Return the chain that all lines of a domain are in."""
    return f"{int(compute_digest(domain_uuid.lower())[:8], 16) % CHAIN_COUNT:02d}"


def head_key(chain: str) -> str:
    """Return the key of a chain's end."""
    return f"{HEADS}/{chain}"


def new_heads(genesis: str) -> dict[str, bytes]:
    """Return the heads of a new ledger: of all chains, so that a missing one is detected."""
    return {head_key(chain): ChainHead(0, _first_hash(genesis, chain)).encode_head() for chain in chain_names()}


def make_line_writes(snapshot: Snapshot, audited: AuditEntry, genesis: str) -> dict[str, bytes]:
    """Return the keys to write for a line of audit, with their values."""
    chain = chain_of_domain(audited.domain_uuid)
    before = _decode_head(snapshot.get_key(head_key(chain))) or _guess_head(snapshot, chain, genesis)
    line, own = make_audit_line(audited, before.last)
    number = before.lines + 1
    return {line_key(chain, number): line.encode("utf-8"), head_key(chain): before._replace(lines=number, last=own).encode_head()}


def line_key(chain: str, number: int) -> str:
    """Return the key of a line of a chain."""
    return f"{LINES}/{chain}/{number:012d}"


# The lines that one transaction removes.
_MAX_PART_LINES = 2_000


def read_part(snapshot: Snapshot, chain: str, until: str, genesis: str, after: t.Optional[ChainPart] = None) -> tuple[t.Optional[ChainPart], t.Optional[str]]:
    """Return lines from before that time with which a chain begins, and what is wrong with the line after them. The last line of a chain always stays.

    :arg after: the part that comes before; by default, the chain begins after what was archived.
    """
    head = _decode_head(snapshot.get_key(head_key(chain)))
    if head is None:
        return None, "The key with its end is missing or damaged. Its lines stay in the ledger. Run ledger_info with verify."
    begin, first = (after.end, after.last) if after else (head.archived, head.first or _first_hash(genesis, chain))
    keys = snapshot.each_key(line_key(chain, begin + 1), line_key(chain, min(head.lines, begin + 1 + _MAX_PART_LINES)), counts=False)
    return cut_part(chain, ((_line_number(key, 0), found.value) for key, found in keys), first, until)


def make_part_removal(snapshot: Snapshot, part: ChainPart, genesis: str) -> t.Optional[ChainHead]:
    """Return the head of the chain without this part; None if it was removed before. Raises L(Conflict) if the chain does not begin with it."""
    head = _decode_head(snapshot.get_key(head_key(part.chain)))
    if head and (head.archived, head.first) == (part.end, part.last):
        return None
    if head is None or (head.archived + 1, head.first or _first_hash(genesis, part.chain)) != (part.begin, part.first):
        raise Conflict(f"The audit chain {part.chain} was changed by another process meanwhile. Nothing of it was removed.", "Run the task again.")
    return head._replace(archived=part.end, first=part.last)


def verify_chains(snapshot: Snapshot, genesis: str) -> list[str]:
    """Return what is wrong with the chains."""
    heads_there = {key.rpartition("/")[2]: _decode_head(found) for key, found in snapshot.each_key(f"{HEADS}/")}
    groups = itertools.groupby(snapshot.each_key(f"{LINES}/"), key=lambda entry: entry[0].split("/")[1])
    problems, seen = [], set()
    for chain, entries in groups:
        seen.add(chain)
        if not is_archived(chain):
            problems += _verify_chain(chain, (found.value for _key, found in entries), heads_there.get(chain), genesis)
    for chain in chain_names():
        if chain not in seen:
            problems += _verify_chain(chain, iter(()), heads_there.get(chain), genesis)
    return problems


def end_chains(snapshot: Snapshot, home: int, genesis: str) -> Iterator[tuple[str, ArchivedChain]]:
    """Yield each chain by its name, and as it is kept once the ledger was moved from this location.

    :arg home: the number of the location.
    """
    snapshot.fetch_keys(*map(head_key, chain_names()))
    for name in chain_names():
        head = _decode_head(snapshot.get_key(head_key(name))) or _guess_head(snapshot, name, genesis)
        first = head.first or _first_hash(genesis, name)
        yield name, ArchivedChain(name_in_archive(home, name), first, head.lines - head.archived, head.last, head.lost)


def chain_names() -> Iterator[str]:
    """Yield the names of all chains of a ledger."""
    return (f"{number:02d}" for number in range(CHAIN_COUNT))


def _verify_chain(chain: str, lines: Iterator[bytes], head: t.Optional[ChainHead], genesis: str) -> list[str]:
    first = (head and head.first) or _first_hash(genesis, chain)
    problems = verify_lines(lines, first, head.last if head else None, head.archived + 1 if head else 1)
    if head is None:
        problems.append("The key with its end is missing or damaged.")
    else:
        problems += lost_end_problems(head.lost)
    return [f"Audit chain {chain}: {problem}" for problem in problems]


def _first_hash(genesis: str, chain: str) -> str:
    return compute_digest(genesis, chain)


def _decode_head(found: t.Optional[KeyValue]) -> t.Optional[ChainHead]:
    """Return the head, or None if it is missing or damaged: a damaged audit is reported, and does not prevent moves."""
    try:
        body = decode_document(found.value).body if found else {}
    except Unreadable:
        return None
    lines, last, lost = body.get("lines"), body.get("last"), body.get("lost")
    if not isinstance(lines, int) or not isinstance(last, str) or not isinstance(lost, list):
        return None
    archived, first = body.get("archived"), body.get("first")
    head = ChainHead(lines, last, tuple(number for number in lost if isinstance(number, int)))
    return head._replace(archived=archived, first=first) if isinstance(archived, int) and isinstance(first, str) else head


def _guess_head(snapshot: Snapshot, chain: str, genesis: str) -> ChainHead:
    """Return a head for a chain that lost its head, computed from the existing lines. What is missing before the first one counts as archived."""
    head = ChainHead(0, _first_hash(genesis, chain))
    for key, found in snapshot.each_key(f"{LINES}/{chain}/", counts=False):
        link, number = read_link(found.value), _line_number(key, head.lines)
        if link and not head.lines and number > 1:
            head = head._replace(archived=number - 1, first=link.previous)
        head = head._replace(lines=number, last=link.own if link else head.last)
    return head._replace(lost=(head.lines,))


def _line_number(key: str, before: int) -> int:
    text = key.rpartition("/")[2]
    return int(text) if text.isdecimal() else before
