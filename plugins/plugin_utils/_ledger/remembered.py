# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Compares the moves and evacuations that hosts remember with the ledger.

This reveals a ledger that was set back, for example by an old backup. A person can restore a lost record.
"""

from __future__ import annotations

import dataclasses
import functools
import typing as t
from collections.abc import Callable, Iterable, Iterator, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent, Json, JsonObject, decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument, InvalidState, NotFound, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, read_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import may_follow

from .._settings.variables import Settings
from .documents import Document, Stored
from .ledger import Ledger
from .rules import describe_record


def remembered_by_fleet(settings: Settings, own_name: str, own: t.Optional[Sequence[JsonObject]]) -> Iterator[tuple[str, t.Optional[Sequence[JsonObject]]]]:
    """Yield by name what this host remembers, and what every other host of the fleet with facts remembers.

    The age of the facts does not matter: a started move stays a fact, and is compared with the current ledger.

    :arg own: the answer of the host that the task runs on.
    """
    yield own_name, own
    for name in settings.fleet():
        facts = settings.facts(name) if name != own_name else None
        if facts is not None:
            yield name, t.cast("t.Optional[Sequence[JsonObject]]", facts.get("remembered"))


# A host receives a record only in a later status. After a crash, the ledger is therefore never behind a host that remembers the same generation.
BEFORE_A_HOST_KNOWS = (s.ACCEPTED, s.SCHEDULED)

Remembered = Iterable[tuple[str, t.Optional[Sequence[JsonObject]]]]


@dataclass(frozen=True)
class RememberedMove:
    """A move or evacuation as a host remembers it: the part of its record that can be compared with a ledger.

    :arg remembered_by: the name of that host.
    :arg ledger_status: the status that the ledger has of the same move, if it is unsettled there. Absent before the comparison.
    """

    id: str
    generation: int
    type: str
    status: str
    domain: DomainRef
    source: HostRef
    destination: HostRef
    ledger_id: t.Optional[str]
    remembered_by: t.Union[str, Absent] = ABSENT
    ledger_status: t.Union[str, Absent, None] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


def read_remembered(document: JsonObject) -> RememberedMove:
    """Return the move of a JSON document. Raises L(ShapeError) for any other."""
    return decode(RememberedMove, document)


def find_missing_records(ledger: t.Optional[Ledger], reports: Remembered) -> list[RememberedMove]:
    """Return the moves that hosts remember and the ledger lacks, or of which it has an older state than any crash can explain.

    A move or evacuation raises its domain's generation in the ledger before a host receives it. A ledger with neither the record nor its generation was
    therefore set back; if it has since given the generation to another record, it has found the domain by itself.

    :arg reports: what each host remembers, by its name; None if that is unknown.
    """
    if ledger is None:
        return []
    comparison = _Comparison(ledger)
    return [comparison.with_status(one) for one in _records_of_ledger(ledger, reports) if comparison.is_behind(one)]


def find_left_behind(ledger: Ledger, reports: Remembered, host_id: t.Optional[str]) -> list[RememberedMove]:
    """Return the evacuations away from a host that others remember and the ledger does not, unless the domain has returned since.

    The ledger may have the current location of a domain from other sources, but it no longer knows what is left of the domain on that host.
    """
    away = [one for one in _records_of_ledger(ledger, reports) if one.type == s.EVACUATION and host_id and one.source.host_id == host_id]
    comparison = _Comparison(ledger)
    return [comparison.with_status(one) for one in away if comparison.is_behind(one) or comparison.may_have_left_a_copy(one)]


def find_left_under_others(ledger: Ledger, reports: Remembered, host_id: t.Optional[str], is_elsewhere: Callable[[str], bool]) -> list[RememberedMove]:
    """Return the evacuations away from a host that others remember of another ledger, as of the former one of a fleet that has lost it.

    This ledger cannot tell whether the domain has returned since: it may have taken the copy for the domain.

    :arg is_elsewhere: whether another host has the domain of that UUID, and it is not active on this one.
    """
    others = [one for one in _records_of_others(ledger, reports) if one.type == s.EVACUATION]
    return [one for one in others if host_id and one.source.host_id == host_id and is_elsewhere(one.domain.uuid)]


def find_former_generations(ledger: Ledger, reports: Remembered) -> dict[str, int]:
    """Return the highest generation of each domain, by UUID, that hosts remember of other ledgers.

    The generations of a new ledger begin again, and until its next boot a host begins no record of a domain whose generation is not higher than the last one.
    """
    found = dict[str, int]()
    for one in _records_of_others(ledger, reports):
        found[one.domain.uuid] = max(one.generation, found.get(one.domain.uuid, 0))
    return found


def _records_of_ledger(ledger: Ledger, reports: Remembered) -> list[RememberedMove]:
    """Return the records of this ledger that hosts remember."""
    return _list_records(reports, lambda ledger_id: ledger_id == ledger.ledger_id)


def _records_of_others(ledger: Ledger, reports: Remembered) -> list[RememberedMove]:
    """Return the records of other ledgers that hosts remember."""
    return _list_records(reports, lambda ledger_id: ledger_id != ledger.ledger_id)


def _list_records(reports: Remembered, is_wanted: Callable[[Json], bool]) -> list[RememberedMove]:
    """Return the records that hosts remember of the ledgers whose IDs are wanted, each once, with the host in C(remembered_by)."""
    found = dict[str, RememberedMove]()
    for host, records in reports:
        for one in records or ():
            if is_wanted(one.get("ledger_id")):
                move = dataclasses.replace(read_remembered(one), remembered_by=host)
                found.setdefault(move.id, move)
    return list(found.values())


class _Comparison:
    """The comparison with one ledger. Documents of a later version are ignored."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def with_status(self, move: RememberedMove) -> RememberedMove:
        """Return the move with the status that the ledger has of it."""
        return dataclasses.replace(move, ledger_status=self.status_of(move))

    def is_behind(self, move: RememberedMove) -> bool:
        """Whether the ledger lacks the move, or has an older state than a crash can explain."""
        try:
            document = self._ledger.read_domain(move.domain.uuid)
            known = _generation_of(document)
            if (document and document.domain.last_record == move.id) or move.generation < known:
                return False
            # Its document can be lost, or of an old backup.
            newest = max(known, _find_newest(self._ledger, move.domain.uuid)) if move.generation > known else known
            if move.generation < newest:
                return False
            return self.status_of(move) in BEFORE_A_HOST_KNOWS if move.generation == newest else self._is_unknown(move.id)
        except NotSupported:
            return False

    def may_have_left_a_copy(self, evacuation: RememberedMove) -> bool:
        """Whether the ledger lacks the evacuation, and does not have the domain on its source again."""
        try:
            document = self._ledger.read_domain(evacuation.domain.uuid)
            is_back = document is not None and document.domain.is_only_on(evacuation.source)
            return not is_back and self._is_unknown(evacuation.id)
        except NotSupported:
            return False

    def status_of(self, move: RememberedMove) -> t.Optional[str]:
        """Return the status that the ledger has of the same move, if it is unsettled there."""
        record = self._unsettled_records.get(move.id)
        return record.status if record and record.generation == move.generation else None

    def _is_unknown(self, record_id: str) -> bool:
        try:
            self._ledger.read_record(record_id)
        except NotFound:
            return True
        return False

    @functools.cached_property
    def _unsettled_records(self) -> dict[str, MoveRecord]:
        return {record.record_id: record for record in self._ledger.list_records(unsettled_only=True)}


def missing_text(one: RememberedMove) -> str:
    """Return the message for a record that the ledger lacks, with the next step for a person."""
    return f"{_describe_record(one)} {_next_step(one)}"


def copy_text(one: RememberedMove) -> str:
    """Return the message for an evacuation of L(find_left_behind) after which the ledger has the domain from another source."""
    source, name = one.source.host, one.domain.name
    return (
        f"{_describe_record(one)} The ledger has since recorded where the domain is. What {source} has of it is left over: "
        "check that it runs elsewhere, then remove it "
        f"from there (virsh undefine --keep-nvram {name}, with --keep-tpm too if it has a TPM; its disks stay)."
    )


def other_ledger_text(one: RememberedMove) -> str:
    """Return the message for an evacuation of L(find_left_under_others)."""
    source, name = one.source.host, one.domain.name
    return (
        f"{one.remembered_by} remembers the evacuation of domain {name} from {source} to {one.destination.host} under another ledger ({one.ledger_id}), and "
        f"nothing shows that the domain has returned. If that ledger still exists, use it. If not, find out which host has the right definition (virsh list "
        f"--all), and undefine the domain on the other one (virsh undefine --keep-nvram {name}, with --keep-tpm too if it has a TPM; its disks stay): on "
        f"{source} if the domain was not brought back there."
    )


def check_known(name: str, uuid: t.Optional[str], missing: Iterable[RememberedMove]) -> None:
    """Raise L(Conflict) if the ledger lacks a record of the domain: its location, and whether it may be moved or started, are unknown."""
    own = [one for one in missing if one.domain.uuid == uuid]
    if own:
        raise Conflict(f"{' '.join(map(_describe_record, own))} Domain {name} was neither moved nor started.", " ".join(map(_next_step, own)))


def _describe_record(one: RememberedMove) -> str:
    move = "evacuation" if one.type == s.EVACUATION else "move"
    ends = f"{one.source.host} to {one.destination.host}"
    lack = f"of which the ledger says '{one.ledger_status}'" if one.ledger_status else "which the ledger does not have"
    return (
        f"{one.remembered_by} remembers the {move} of domain {one.domain.name} from {ends} (record {one.id}, '{one.status}'), {lack}: "
        "the ledger was set back, as by an old backup."
    )


def _next_step(one: RememberedMove) -> str:
    source, destination = one.source.host, one.destination.host
    if one.type == s.EVACUATION:
        choice, kept = f"done}} (or failed, where it is not on {destination})", f", and nothing of it is removed from {source}"
    else:
        choice, kept = f"completed}} (or failed, where it is still on {source})", ""
    return (
        f"Find out where domain {one.domain.name} is (virsh list --all), then settle the record by kvmfleet.migration.host on {one.remembered_by}: "
        f"settle: {{id: {one.id}, status: {choice}, and a reason. Until then, a task that sees this record neither moves nor starts the domain{kept}."
    )


def restore_record(recalled: JsonObject, status: str, host: str, statement: str, by: str) -> tuple[MoveRecord, MoveRecord]:
    """Return the record as it is restored to the ledger, and as it is then settled.

    Raises L(InvalidState) while the host still acts on it, L(InvalidArgument) for an impossible status, L(Conflict) for one that says that the domain is not
    on the host, although it runs there.

    :arg recalled: C(record) and C(watched), as the host remembers them, and C(running), whether the domain runs there.
    :arg host: the host that remembers it.
    """
    known = read_record(recalled["record"])
    # Only the ledger knew how an evacuation ended.
    if recalled["watched"] or (known.type in s.MOVE_TYPES and known.status not in s.FINAL):
        raise InvalidState(f"The host {host} remembers {describe_record(known)} as '{known.status}'.", "Wait for its end there. Nothing was changed.")
    if not may_follow(known.type, s.ERROR, status):
        raise InvalidArgument(f"The record {known.id} cannot become '{status}'.", "Nothing was changed.")
    # A survivor remembers its evacuations, and a source its moves.
    is_evacuation = known.type == s.EVACUATION
    if recalled.get("running") and (status in (s.FAILED, s.CANCELLED)) == is_evacuation:
        raise Conflict(
            f"Domain {known.domain.name} is running on {host}, and '{status}' says that it is not there.",
            f"Settle it as '{s.DONE if is_evacuation else s.FAILED}'. Nothing was changed.",
        )
    reason = known.reason if known.status == status else s.REASON_OPERATOR if status == s.CANCELLED else None
    noted = known.note("restored", by, f"The ledger did not have it any more. It is what {host} remembers.")
    before = dataclasses.replace(noted, status=s.ERROR, reason=None)
    return before, before.advance(status, by, f"Settled by a person: {statement}", reason)


def write_restored(ledger: Ledger, stored: t.Optional[Stored], before: MoveRecord, after: MoveRecord, check: bool = False) -> MoveRecord:
    """Write the record that L(restore_record) returned. It replaces the ledger's version, if there is one.

    Raises L(Conflict) if another record holds the domain, or a later move of it is known.

    :arg check: write nothing.
    """
    if stored is None:
        _check_newest(ledger, before)
    if check:
        return after
    if stored is None:
        # It gets its own generation again.
        stored = ledger.open_record(dataclasses.replace(before, generation=before.generation - 1))
    else:
        stored = ledger.update_record(stored, before.raise_generation(stored.record.generation))
    # If this process ends here, the record is unsettled, and the next run queries its hosts.
    return ledger.update_record(stored, after.raise_generation(stored.record.generation)).record


def _check_newest(ledger: Ledger, record: MoveRecord) -> None:
    if record.generation <= max(_generation_of(ledger.read_domain(record.domain.uuid)), _find_newest(ledger, record.domain.uuid)):
        raise Conflict(
            f"The ledger has a later move of domain {record.domain.name} than the record {record.id}, which shows where the domain is.",
            f"There is nothing to settle; {record.source.host} may have a copy of it that is no longer needed. Nothing was changed.",
        )


def _generation_of(document: t.Optional[Document]) -> int:
    return (document.domain.generation or 0) if document else 0


def _find_newest(ledger: Ledger, domain_uuid: str) -> int:
    """Return the generation of the newest record of a domain. Older ones can be in an archive, but not that one."""
    return max((record.generation for record in ledger.list_records(domain=domain_uuid)), default=0)
