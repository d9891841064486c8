# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The conditions for the release of a returned host: its evacuations must have ended, and its cleanup must have found no obstacle."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Sequence
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Json, JsonObject, Maybe, ShapeError, decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef

from .._ledger.host_entries import HostIdentity
from .._ledger.leftovers import is_superseded, list_uncleaned_hosts
from .._ledger.remembered import RememberedMove
from .._ledger.rules import holds_domain


@dataclass(frozen=True)
class RecordSummary:
    """A record that is an obstacle. One that the ledger has lost has no reason."""

    id: t.Optional[str]
    type: str
    status: str
    reason: t.Optional[str]
    domain: DomainRef
    source: t.Optional[str]
    destination: t.Optional[str]


@dataclass(frozen=True)
class Obstacles:
    """Records that prevent the return of a host.

    :arg withheld: its evacuations that are not closed, and superseded records.
    :arg lost: records that name it and that the ledger has lost.
    :arg unsettled: all records of the ledger for which the host stays in maintenance.
    """

    withheld: list[MoveRecord]
    lost: list[RememberedMove]
    unsettled: list[MoveRecord]

    @classmethod
    def from_records(cls, records: Iterable[MoveRecord], missing: Iterable[RememberedMove], identity: HostIdentity) -> Obstacles:
        """Return the obstacles for the host with this identity.

        :arg missing: what the ledger has lost, see L(find_missing_records).
        """
        listed = list(records)
        return cls(find_withholding(listed, identity), find_forgotten(missing, identity), find_keeping_out(listed, identity))

    @property
    def withheld_by(self) -> list[RecordSummary]:
        """The records that forbid the release."""
        return [*map(summarize_record, self.withheld), *map(summarize_record, self.lost)]

    @property
    def open_records(self) -> list[RecordSummary]:
        """The records that keep the host in maintenance."""
        return [*map(summarize_record, self.unsettled), *map(summarize_record, self.lost)]


def find_withholding(records: Iterable[MoveRecord], identity: HostIdentity) -> list[MoveRecord]:
    """Return the records that may have left a copy here that must not be started: evacuations of this host that are not closed, and superseded records.

    Identity is the host_id. A record without one is matched by libvirt UUID or name, which never permit anything but may forbid.
    """
    found = [record for record in records if _withholds(record, identity.host_ref)]
    return sorted(found, key=lambda record: (str(record.domain.name), record.created_at))


def _withholds(record: MoveRecord, host: HostRef) -> bool:
    if is_superseded(record):
        return any(where.may_be(host) for where in list_uncleaned_hosts(record))
    return record.type == s.EVACUATION and record.status in s.UNSETTLED | s.TOMBSTONE and record.source.may_be(host)


def find_keeping_out(records: Iterable[MoveRecord], identity: HostIdentity) -> list[MoveRecord]:
    """Return the records for which the host stays in maintenance: those that withhold its release, and every unsettled one that names it."""
    listed = list(records)
    named = [record for record in listed if holds_domain(record) and any(end.may_be(identity.host_ref) for end in record.ends)]
    known = {record.id for record in named}
    return named + [record for record in find_withholding(listed, identity) if record.id not in known]


def find_forgotten(missing: Iterable[RememberedMove], identity: HostIdentity) -> list[RememberedMove]:
    """Return the records that name this host and that the ledger has lost (see L(find_missing_records)): the domains that belong on it are not known."""
    return [one for one in missing if any(end.may_be(identity.host_ref) for end in (one.source, one.destination))]


def summarize_record(record: MoveRecord | RememberedMove) -> RecordSummary:
    """Return the entry of a result for a record that is an obstacle."""
    reason = record.reason if isinstance(record, MoveRecord) else None
    return RecordSummary(record.id, record.type, record.status, reason, record.domain, record.source.host, record.destination.host)


@dataclass(frozen=True)
class NotedDomain:
    """A domain that is to be started again, as C(boot_guard) returns it.

    :arg why: the reasons.
    :arg boot_id: the boot in which a drain has shut it down last.
    """

    uuid: str
    name: t.Optional[str]
    why: tuple[str, ...]
    boot_id: Maybe[str] = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class GuardState:
    """The boot guard of a host, and its present boot.

    :arg installed: whether all of its files are there.
    :arg held: since when and why the boot is held; null if it is not. C(released): when and by whom it was released; null if it was not.
    """

    installed: bool
    boot_id: Maybe[str] = ABSENT
    held: Maybe[JsonObject] = ABSENT
    released: Maybe[JsonObject] = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class GuardAnswer:
    """The state of the boot guard of a host, and its identity.

    :arg damaged: paths of notes that cannot be read.
    """

    changed: bool
    guard: GuardState
    to_start: tuple[NotedDomain, ...]
    damaged: tuple[str, ...]
    extra: JsonObject = field(default_factory=dict)

    @property
    def has_guard(self) -> bool:
        """Whether the boot guard is installed, or holds this boot, or held it, although some of its files are missing."""
        return self.guard.installed or bool(self.guard.held or self.guard.released)


@dataclass(frozen=True)
class _CleanedDomain:
    """A domain in the result of C(evacuation_cleanup).

    :arg superseded: the IDs of older records that were completed with its own.
    """

    record: str
    name: Maybe[str] = ABSENT
    superseded: Maybe[tuple[str, ...]] = ABSENT
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class _MissingRecord:
    id: str
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class _CleanupResult:
    """What C(evacuation_cleanup) has returned."""

    cleaned: tuple[_CleanedDomain, ...]
    superseded: tuple[_CleanedDomain, ...]
    refused: tuple[_CleanedDomain, ...]
    missing_records: tuple[_MissingRecord, ...]
    extra: JsonObject = field(default_factory=dict)

    @property
    def completed_records(self) -> frozenset[str]:
        """The IDs of the records that the cleanup has completed."""
        older = (record for entry in self.cleaned for record in entry.superseded or ())
        return frozenset([*older, *(entry.record for entry in (*self.cleaned, *self.superseded))])


@dataclass(frozen=True)
class CleanedHost:
    """A host on which C(evacuation_cleanup) was run before its release.

    :arg lost: names of domains whose evacuation from the host the ledger has lost.
    :arg predicted: IDs of records that the cleanup would complete; empty unless it ran in check mode.
    """

    host: str
    lost: tuple[str, ...] = ()
    predicted: frozenset[str] = frozenset()
    check_mode: bool = False

    @classmethod
    def from_cleanup(cls, host: str, cleanup: Json, check_mode: bool) -> CleanedHost:
        """Return the host from the result of its cleanup. Raises L(InvalidArgument) for any other value."""
        try:
            result = decode(_CleanupResult, cleanup)
        except ShapeError as error:
            raise InvalidArgument("'_work.recover' must have the result of evacuation_cleanup.", "Only the roles of this collection may set _work.") from error
        missing = {record.id for record in result.missing_records}
        lost = tuple(str(entry.name) for entry in result.refused if entry.record in missing)
        return cls(host, lost, result.completed_records if check_mode else frozenset(), check_mode)

    def check_nothing_lost(self) -> None:
        """Raise L(Unsafe) if the ledger has lost evacuations of the host. Their leftovers would start automatically at one of the next boots."""
        if self.lost:
            raise Unsafe(
                f"The ledger lacks the evacuations of {', '.join(self.lost)} from {self.host}. Nothing was released or started there.",
                "Settle the records or remove the leftovers, as described for each domain; then run recover again.",
            )

    def check_guarded(self, has_guard: bool, withheld: Sequence[RecordSummary]) -> None:
        """Raise L(Unsafe) for a host without boot guard that has open evacuations."""
        if withheld and not has_guard and not self.check_mode:
            names = ", ".join(str(record.domain.name) for record in withheld)
            raise Unsafe(
                f"{self.host} has no boot guard, and its evacuations of {names} are open. No guest was started.",
                "Run recover again when evacuation_cleanup refuses none of them, or settle the records with the module host.",
            )

    def can_release(self, has_guard: bool) -> bool:
        """Whether the boot guard releases the host: there is one, and the cleanup was not only predicted."""
        return has_guard and not self.predicted

    def without_predicted(self, records: Iterable[RecordSummary]) -> list[RecordSummary]:
        """Return the records without those that the cleanup would complete."""
        return [record for record in records if record.id not in self.predicted]
