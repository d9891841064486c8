# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The tombstones that evacuations left for one host: which tombstone of a domain is in force, and its contents. Pure functions over records.

A tombstone is an evacuation from the host that is C(done), or a superseded record of which the host is either end: the definition that it may have left on the
host is left over too.
"""

from __future__ import annotations

import typing as t
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.cleanup import CleanupQuestion, QuarantinedDisk
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent, JsonObject, ShapeError, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import DomainProtection, SavedDisk

from .._ledger.documents import DomainEntry
from .._ledger.ledger import Ledger
from .._ledger.leftovers import list_begun, list_leftovers
from .._ledger.remembered import RememberedMove

# The wanted state of an evacuation that only defines the domain.
_DEFINED_STATES = ("defined", "shut off")


@dataclass(frozen=True)
class CleanedDomain:
    """A domain that was cleaned from the host, or would be; see L(CleanupPlan) and L(CleanupDone).

    :arg record: the ID of its record; C(superseded) are the IDs of older ones, for which this host was cleaned with it.
    """

    uuid: str
    name: str
    record: t.Optional[str]
    where: t.Optional[str]
    nvram: t.Optional[str]
    tpm: t.Optional[str]
    undefined: bool
    restore: t.Optional[str]
    quarantined: tuple[QuarantinedDisk, ...]
    superseded: tuple[t.Optional[str], ...]


@dataclass(frozen=True)
class UncleanedDomain:
    """A domain of which nothing was removed from the host, and why."""

    uuid: str
    name: str
    record: t.Optional[str]
    reason: str


@dataclass(frozen=True)
class KeptImage:
    """A disk, or the quarantine of a record, that was kept, and why.

    :arg only_copy: whether it may be the only copy of its data.
    :arg paths: of a quarantine, where its files are.
    """

    uuid: t.Optional[str]
    name: t.Optional[str]
    record: t.Optional[str]
    target: t.Optional[str]
    path: t.Optional[str]
    only_copy: bool
    reason: t.Union[str, Absent] = ABSENT
    paths: t.Union[tuple[str, ...], Absent] = ABSENT


@dataclass(frozen=True)
class Tombstone:
    """The newest tombstone of a domain on this host, and the C(older) ones, which are closed with it."""

    record: MoveRecord
    older: list[MoveRecord] = field(default_factory=list)

    @property
    def uuid(self) -> str:
        """The domain."""
        return self.record.domain.uuid.lower()

    @property
    def name(self) -> str:
        """The domain's name, as the record has it."""
        return self.record.domain.name or self.uuid

    def list_uncleaned(self, reason: str) -> UncleanedDomain:
        """Return its entry in the result if it is not cleaned."""
        return UncleanedDomain(self.uuid, self.name, self.record.id, reason)


@dataclass(frozen=True)
class LostTombstone:
    """A tombstone that the ledger has lost, as a host remembers it."""

    move: RememberedMove

    @property
    def uuid(self) -> str:
        """The domain."""
        return self.move.domain.uuid.lower()

    @property
    def name(self) -> str:
        """The domain's name, as the host remembers it."""
        return self.move.domain.name or self.uuid

    def list_uncleaned(self, reason: str) -> UncleanedDomain:
        """Return its entry in the result if it is not cleaned."""
        return UncleanedDomain(self.uuid, self.name, self.move.id, reason)


def find_tombstones(ledger: Ledger, host_id: t.Optional[str]) -> list[Tombstone]:
    """Return the tombstones of this host, by its own ID alone: a record or a host without an ID matches nothing."""
    found: defaultdict[str, list[MoveRecord]] = defaultdict(list)
    for record in list_leftovers(ledger, host_id):
        found[record.domain.uuid.lower()].append(record)
    newest_first = (sorted(records, key=lambda record: record.generation, reverse=True) for records in found.values())
    return sorted((Tombstone(records[0], records[1:]) for records in newest_first), key=lambda tombstone: (tombstone.name, tombstone.uuid))


def find_begun(ledger: Ledger, host_id: t.Optional[str]) -> list[Tombstone]:
    """Return the evacuations from this host whose results are not known yet."""
    return [Tombstone(record) for record in list_begun(ledger, host_id)]


def build_question(tombstone: Tombstone | LostTombstone, ledger: Ledger, cleaned_host: HostRef) -> CleanupQuestion:
    """Return the question to the host about the domain."""
    document = ledger.read_domain(tombstone.uuid)
    move = tombstone.record if isinstance(tombstone, Tombstone) else tombstone.move
    expected = document.domain.possible_hosts if document else (move.destination,)
    return CleanupQuestion(
        tombstone.uuid,
        tombstone.name,
        str(move.id),
        defined=isinstance(move, MoveRecord) and move.wanted_state in _DEFINED_STATES,
        came_back=_has_come_back(move, expected, ledger, cleaned_host),
        expected=tuple(encode(host) for host in expected if not host.is_same(cleaned_host)),
        saved=_readable_disks(_saved_disks(move, document.domain.saved if document else None, cleaned_host)),
        fenced=bool(document and _is_on_fenced_hosts(move, document.domain, ledger, cleaned_host)) or ABSENT,
        missing=bool(document and document.domain.is_missing) or ABSENT,
    )


def _has_come_back(move: MoveRecord | RememberedMove, expected: Sequence[HostRef], ledger: Ledger, cleaned_host: HostRef) -> bool:
    """Whether a record that is newer than the tombstone put the domain on this host again, and the ledger has it nowhere else."""
    if not expected or not all(host.is_same(cleaned_host) for host in expected):
        return False
    newest = _find_newest_end(move.domain.uuid, ledger)
    if newest is None or newest.generation <= move.generation:
        return False
    return newest.destination.host_id == cleaned_host.host_id or newest.destination.is_same(cleaned_host)


def _is_on_fenced_hosts(move: MoveRecord | RememberedMove, domain: DomainEntry, ledger: Ledger, cleaned_host: HostRef) -> bool:
    """Whether the newest record that ended took the domain from this host to others, each host that it may be on is fenced, and the ledger has its definition.

    It cannot run here then, and is started elsewhere, or here, by that definition. An evacuation whose result is not known took it nowhere.
    """
    newest = _find_newest_end(move.domain.uuid, ledger)
    if newest is None or newest.generation < move.generation or not newest.destination.is_known:
        return False
    if any(host.may_be(cleaned_host) for host in (newest.destination, *domain.possible_hosts)):
        return False
    return bool(domain.saved and domain.saved.definition and domain.possible_hosts) and all(_is_fenced(host, ledger) for host in domain.possible_hosts)


def _is_fenced(host: HostRef, ledger: Ledger) -> bool:
    found = ledger.read_host(host.host_id) if host.host_id else None
    return found is not None and found.host.state == s.FENCED


def _find_newest_end(domain: str, ledger: Ledger) -> MoveRecord | None:
    """Return the newest record by which the domain has arrived at a host."""
    ended = [record for record in ledger.list_records(domain=domain) if record.status in (s.COMPLETED, s.DONE)]
    return max(ended, key=lambda record: record.generation, default=None)


def _readable_disks(documents: Sequence[JsonObject]) -> tuple[SavedDisk, ...]:
    """Return the disks of a document. If one of them is damaged, none counts as saved, and all of them are kept."""
    try:
        return decode(tuple[SavedDisk, ...], list(documents))
    except ShapeError:
        return ()


def _saved_disks(move: MoveRecord | RememberedMove, saved: DomainProtection | None, cleaned_host: HostRef) -> Sequence[JsonObject]:
    """Return the disks as they were saved on this host; what was saved later on another host does not apply."""
    before = move.before.disks if isinstance(move, MoveRecord) else None
    if isinstance(before, tuple) and move.source.host_id == cleaned_host.host_id:
        return [dict(disk) for disk in before]
    is_here = saved is not None and (saved.host.host_id if saved.host else None) == cleaned_host.host_id
    return saved.disks or () if saved and is_here else ()
