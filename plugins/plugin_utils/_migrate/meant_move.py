# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which move a task means that aborts or forces one: by the ID of its record, or by the domain that its host is moving."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument, InvalidState, NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import LedgerInEmergency
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.intervention_request import InterventionRequest
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.source_host import Looked, SourceHost


def find_unsettled(book: LedgerInEmergency, uuid: str) -> list[Stored]:
    """Return the unsettled record that holds the domain, if it has one and the ledger can be used."""
    stored = book.use(lambda ledger: ledger.find_unsettled(uuid))
    return [stored] if stored else []


@dataclass(frozen=True)
class MeantMove:
    """What is known of the move.

    :arg host: the inventory name of the host that the task runs on.
    :arg named: the record of the ID that the task gives.
    :arg looked: what the host has of the move.
    :arg holder: the unsettled record of a live migration of the domain.
    """

    host: str
    named: Stored | None
    looked: Looked
    holder: Stored | None

    @property
    def here(self) -> HostRef:
        """The host that the task runs on."""
        return replace(self.looked.host, host=self.host)

    @property
    def own_holder(self) -> Stored | None:
        """The holder, if it moves the domain away from this host."""
        return self.holder if self.holder and self.is_source_of(self.holder.record) else None

    def is_source_of(self, record: MoveRecord) -> bool:
        """Whether this host is the source of the record. One that names it by an earlier identity is still its, if the domain is here."""
        return record.source.is_same(self.here) or (self.looked.domain is not None and record.source.may_be(self.here))


@dataclass(frozen=True)
class MoveFinder:
    """Finds the move that a request means."""

    request: InterventionRequest
    source: SourceHost
    book: LedgerInEmergency

    def find_move(self) -> MeantMove:
        """Return the move. Raises L(NotFound), L(InvalidArgument), L(InvalidState) or L(Conflict) if no move is meant, or not the one in progress."""
        named = self._read_named()
        looked = self._look(named)
        meant = MeantMove(self.source.name, named, looked, self._find_holder(looked, named))
        self._check_named(meant)
        return meant

    def _read_named(self) -> Stored | None:
        """Return the record of the ID; null without one, or if the ledger cannot be used. Raises L(NotFound) or L(InvalidArgument)."""
        record_id, request = self.request.id, self.request
        if record_id is None:
            return None
        stored = self.book.use(lambda ledger: ledger.read_record(record_id))
        if stored is None:
            if self.book.is_lost:
                return None
            raise NotFound(
                f"The ledger has no record {record_id}.",
                "List its records with the lookup kvmfleet.migration.ledger, or name the ledger that has it. Nothing was changed.",
            )
        record = stored.record
        if record.type != s.LIVE_MIGRATION:
            raise InvalidArgument(f"Record {record_id} is of the type {record.type}, not a live migration.", "Nothing was changed.")
        if (request.uuid and request.uuid != record.domain.uuid) or (request.name and request.name != record.domain.name):
            raise InvalidArgument(f"Record {record_id} is about domain {record.domain.name}, not about {request.label}.", "Nothing was changed.")
        return stored

    def _look(self, named: Stored | None) -> Looked:
        uuid = named.record.domain.uuid if named else self.request.uuid
        return self.source.look_at_move(self.request.act, None if uuid else self.request.name, uuid)

    def _find_holder(self, looked: Looked, named: Stored | None) -> Stored | None:
        """Return the unsettled record of a live migration of the domain. Raises L(Conflict) if a name has several."""
        if looked.record and looked.record.id and not self.request.id:
            return None
        held = [stored for uuid in self._list_uuids(looked, named) for stored in find_unsettled(self.book, uuid) if stored.record.type == s.LIVE_MIGRATION]
        if len(held) > 1:
            named_ids = ", ".join(stored.record.record_id for stored in held)
            raise Conflict(f"The ledger has unsettled records of several domains named {self.request.label}: {named_ids}.", "Specify the domain by its UUID.")
        return held[0] if held else None

    def _list_uuids(self, looked: Looked, named: Stored | None) -> list[str]:
        uuid = looked.domain.uuid if looked.domain else named.record.domain.uuid if named else self.request.uuid
        if uuid:
            return [uuid]
        return [document.domain.uuid for document in self.book.use(lambda ledger: ledger.find_domains(str(self.request.name))) or ()]

    def _check_named(self, meant: MeantMove) -> None:
        """Raise L(Conflict) if another move of the domain is in progress than the one of the ID.

        Raises L(InvalidState) if that one has ended, L(InvalidArgument) if it leaves another host.
        """
        named, looked, holder = meant.named, meant.looked, meant.holder
        record_id, found = self.request.id, looked.record
        if record_id is None:
            return
        newer = found if found and found.id else holder.record if holder else None
        is_other_job = found is not None and newer is None
        if is_other_job or (newer is not None and newer.id != record_id):
            what = "a tool that is not of this collection" if is_other_job else f"record {newer.id if newer else None}"
            raise Conflict(
                f"Record {record_id} is not what moves domain {looked.domain.name if looked.domain else self.request.label} now: it is being moved for {what}.",
                "Check it with migration_info. Nothing was changed.",
                migrations=[looked.migration or encode(newer)],
            )
        if named is None or self._is_closed_and_missing(named):
            return
        record = named.record
        if record.status not in s.UNSETTLED:
            raise InvalidState(
                f"The migration of record {record_id} has ended: {record.status}. {record.last_detail}".rstrip(),
                "Nothing was changed.",
                migrations=[encode(record)],
            )
        if not meant.is_source_of(record):
            raise InvalidArgument(
                f"Record {record_id} moves domain {record.domain.name} away from {record.source.label}, not from {self.source.name}.",
                f"Run the task on {record.source.label}. Nothing was changed.",
            )

    def _is_closed_and_missing(self, named: Stored) -> bool:
        return self.request.missing_ok and named.record.status not in s.UNSETTLED
