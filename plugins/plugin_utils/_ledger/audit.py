# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The audit chain: a line for each transition and each foreign act, with the hash of the previous line, so that a changed or missing line is detected.

When a ledger is copied, its chains end. They are kept line by line under a seal, and the new chains continue from that seal.
"""

from __future__ import annotations

import datetime
import json
import typing as t
from collections.abc import Iterable, Iterator

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import format_time
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import ForeignAct
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal, InvalidState
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import SCHEMA, MoveRecord

from .document_bytes import Unreadable, canonical_json, compute_digest, decode_document, encode_document
from .documents import DomainEntry


def genesis_hash(ledger_id: str, seal: t.Optional[str] = None) -> str:
    """Return the value that takes the place of the hash before the first line. It binds the chain to its ledger.

    :arg seal: the digest of the chains of the ledger's former locations, to which it also binds the chain.
    """
    return compute_digest(ledger_id) if seal is None else compute_digest(ledger_id, seal)


class AuditEntry(t.NamedTuple):
    """What a line says of a domain.

    :arg content: by key; C(domain) among them.
    """

    domain_uuid: str
    content: JsonObject


def audit_transition(record: MoveRecord, old_status: t.Optional[str]) -> AuditEntry:
    """Return what the line of the record's latest transition says."""
    content: JsonObject = {
        "at": record.updated_at,
        "id": record.id,
        "domain": encode(record.domain),
        "generation": record.generation,
        "from": old_status,
        "to": record.status,
        "by": record.last_writer,
    }
    return AuditEntry(record.domain.uuid, content)


def audit_foreign_act(domain: DomainEntry, act: ForeignAct) -> AuditEntry:
    """Return what the line of an act without a record says: C(from) and C(to) are the states of the domain."""
    content: JsonObject = {
        "at": act.at,
        "id": None,
        "domain": {"uuid": domain.uuid, "name": domain.name},
        "generation": act.generation,
        "act": act.act,
        "source": encode(act.source),
        "host": encode(act.host),
        "from": act.before,
        "to": act.state,
        "by": act.by,
    }
    return AuditEntry(domain.uuid, content)


def make_audit_line(said: AuditEntry, previous_hash: str) -> tuple[str, str]:
    """Return the line, without its end, and its hash."""
    entry: JsonObject = {**said.content, "prev": previous_hash}
    line_hash = compute_digest(canonical_json(entry))
    return canonical_json({**entry, "hash": line_hash}), line_hash


@dataclass(frozen=True)
class AuditLink:
    """The values of a line that the chain needs, and its time."""

    previous: str
    own: str
    intact: bool
    at: str


def read_link(line: t.Union[str, bytes]) -> t.Optional[AuditLink]:
    """Return a line's link, or None if it is not an audit line."""
    try:
        entry = json.loads(line)
        if not isinstance(entry, dict) or not isinstance(entry.get("prev"), str) or not isinstance(entry.get("hash"), str):
            return None
        own = entry.pop("hash")
        return AuditLink(previous=entry["prev"], own=own, intact=own == compute_digest(canonical_json(entry)), at=str(entry.get("at")))
    except (ValueError, RecursionError, Internal):
        return None


def verify_lines(lines: Iterable[bytes], first: str, head: t.Optional[str], begin: int = 1) -> list[str]:
    """Return the problems of a chain.

    :arg first: the hash the first line has to name.
    :arg head: the hash of the last line that was ever written; None if that is not known.
    :arg begin: the number of the first line.
    """
    problems: list[str] = []
    expected = first
    for number, line in enumerate(lines, begin):
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


# Separates the number of the location from the name of the chain. No current chain has it in its name.
_HOME_SEPARATOR = "-"


class ArchivedChain(t.NamedTuple):
    """A chain that has ended.

    :arg name: the number of the location in which it was written, and its name at that location, e.g. C(1-file).
    :arg first: the hash that its first line follows.
    :arg last: the hash of its last line; C(first) if it has no lines.
    :arg lost: the lines after which an end was lost, as far as known.
    """

    name: str
    first: str
    lines: int
    last: str
    lost: tuple[int, ...] = ()

    def encode_ends(self) -> bytes:
        """Return the document with its start and end."""
        return encode_document({"schema": SCHEMA, "first": self.first, "lines": self.lines, "last": self.last, "lost": list(self.lost)}, 1)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever written to it."""
        return not self.lines and self.first == self.last and not self.lost


def archived_name(home: int, chain: str) -> str:
    """Return the name of a chain after its ledger was moved from that location."""
    return f"{home}{_HOME_SEPARATOR}{chain}"


# How far the clocks of control nodes differ at most.
_CLOCK_TOLERANCE = datetime.timedelta(days=1)


class ChainPart(t.NamedTuple):
    """Lines with which a chain begins, and which can be archived.

    :arg chain: its name.
    :arg begin: the number of the first line, C(end) of the last one.
    :arg first: the hash that the first line follows.
    :arg last: the hash of the last line.
    """

    chain: str
    begin: int
    end: int
    first: str
    last: str
    lines: tuple[bytes, ...]

    def as_archived(self, home: int) -> ArchivedChain:
        """Return it as it is kept in an archive.

        :arg home: the number of the ledger's location.
        """
        return ArchivedChain(f"{archived_name(home, self.chain)}{_HOME_SEPARATOR}{self.begin:012d}", self.first, len(self.lines), self.last)


def cut_part(chain: str, numbered: Iterable[tuple[int, bytes]], first: str, until: str) -> tuple[t.Optional[ChainPart], t.Optional[str]]:
    """Return the part of a chain with the lines from before a time, and what is wrong with the line after it.

    :arg numbered: the lines from the first one on, with their numbers.
    :arg first: the hash that the first line follows.
    :arg until: in the form of records.
    """
    found: list[bytes] = []
    begin, end, last, problem = 0, 0, first, None
    for number, line in numbered:
        link = read_link(line)
        if link is None or not link.intact or link.previous != last or (found and number != end + 1):
            problem = f"Line {number} was changed, or lines before it are missing. The lines from there on stay in the ledger. Run ledger_info with verify."
            break
        if link.at >= until:
            problem = _describe_future(number, link.at)
            break
        begin, end, last = begin or number, number, link.own
        found.append(line)
    return ChainPart(chain, begin, end, first, last, tuple(found)) if found else None, problem


def _describe_future(number: int, at: str) -> t.Optional[str]:
    """Return what is wrong with a line from the future, which keeps older lines after it in the ledger; None for any other line."""
    if at <= format_time(datetime.datetime.now(datetime.UTC) + _CLOCK_TOLERANCE):
        return None
    return f"Line {number} has a time in the future, {at}: a clock was wrong. The lines from there on stay in the ledger until then."


def is_archived(chain: str) -> bool:
    """Whether that is the name of a chain that has ended."""
    return _HOME_SEPARATOR in chain


def decode_chain(name: str, data: bytes) -> t.Optional[ArchivedChain]:
    """Return what L(ArchivedChain.encode_ends) wrote; None for anything else."""
    try:
        body = decode_document(data).body
    except Unreadable:
        return None
    first, lines, last, lost = (body.get(key) for key in ("first", "lines", "last", "lost"))
    if not isinstance(first, str) or not isinstance(last, str) or not isinstance(lines, int) or not isinstance(lost, list):
        return None
    return ArchivedChain(name, first, lines, last, tuple(number for number in lost if isinstance(number, int)))


def require_readable(chains: t.Mapping[str, t.Optional[ArchivedChain]]) -> Iterator[ArchivedChain]:
    """Yield the chains. Raises L(InvalidState) if the document with its start and end is damaged."""
    for name, chain in chains.items():
        if chain is None:
            raise InvalidState(
                f"The audit chain {name} cannot be read: the document with its start and end is damaged.", "Restore that document from a backup."
            )
        yield chain


def compute_seal(chains: Iterable[ArchivedChain]) -> str:
    """Return a digest of the chains: it changes if one is changed, removed or added."""
    return compute_digest(*(canonical_json(list(chain)) for chain in sorted(chains)))


_ARCHIVE_DIFFERS = "The audit chains differ from those that were archived: one was changed, removed or added."
_COPY_DIFFERS = "Audit chains of former locations: They differ from those that were copied with the ledger: one was changed, removed or added."


def verify_archive(
    chains: t.Mapping[str, t.Optional[ArchivedChain]], lines: t.Callable[[str], Iterator[bytes]], seal: t.Optional[str], is_archive: bool = False
) -> list[str]:
    """Return what is wrong with the chains that have ended.

    :arg chains: by name; None if the document with its start and end is damaged.
    :arg seal: their digest when the ledger was copied, or when they were archived; None if it never was.
    :arg is_archive: whether they are those of an archive.
    """
    problems = []
    for name, chain in chains.items():
        if chain is None:
            problems.append(f"Audit chain {name}: The document with its start and end is damaged.")
        else:
            problems += [f"Audit chain {name}: {problem}" for problem in _verify_chain(chain, lines(name))]
    if compute_seal(chain for chain in chains.values() if chain) != (seal or compute_seal([])):
        problems.append(_ARCHIVE_DIFFERS if is_archive else _COPY_DIFFERS)
    return problems


def _verify_chain(chain: ArchivedChain, lines: Iterator[bytes]) -> list[str]:
    return [*verify_lines(lines, chain.first, chain.last), *lost_end_problems(chain.lost)]


def lost_end_problems(lost: Iterable[int]) -> list[str]:
    """Return a sentence for each lost end of a chain."""
    return [f"After line {number} its end was lost: further lines may be missing there." for number in lost]
