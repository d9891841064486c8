# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What the screen of the fleet is made from: the answers of the hosts, and what the ledger says of the present."""

from __future__ import annotations

import contextlib
import dataclasses
import typing as t
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, JsonObject, Maybe, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, KvmfleetError, NotFound, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import MaintenanceRun
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import record_in

from .._action import progress_line
from .._drain.answers import TaskResult
from .._ledger.brake_document import UNREADABLE, BrakeDocument
from .._ledger.documents import Document, DomainEntry, HostEntry
from .._ledger.host_entries import list_entries
from .._ledger.ledger import Ledger
from .._ledger.sights import with_protect_times
from .._maintenance.drill_verdict import last_verdict
from .._maintenance.findings import list_findings
from .._observe.checked_fleet import CheckedFleet, read_check
from .._observe.damaged import damaged_lines
from .._observe.fleet_scan import HostLook
from .._observe.unstarted import UnstartedDomain, list_unstarted


@dataclass(frozen=True)
class HostAnswer(TaskResult):
    """What C(migration_info) has returned on one host."""

    migrations: Maybe[tuple[JsonObject, ...]] = ABSENT
    unverified_reasons: Maybe[JsonObject] = ABSENT

    @property
    def is_silent(self) -> bool:
        """Whether the host did not answer."""
        return bool(self.unreachable) or self.migrations is ABSENT

    @property
    def why_silent(self) -> str:
        """The reason, without what Ansible puts before the message of a connection."""
        return self.message.removeprefix("Task failed: ") or "no reason is known"


@dataclass(frozen=True)
class SeenDomains(TaskResult):
    """What C(look) has returned for one host: nothing if it does not answer."""

    seen: Maybe[HostLook] = ABSENT


@dataclass(frozen=True)
class StatusWork:
    """What the playbook passes.

    :arg step: C(note) or C(look); absent for the whole screen.
    :arg answers: of C(migration_info), by host; C(looks), those of C(look).
    :arg versions: of the documents of domains before the hosts were asked.
    """

    step: Maybe[str] = ABSENT
    answers: Maybe[Mapping[str, HostAnswer]] = ABSENT
    looks: Maybe[Mapping[str, SeenDomains]] = ABSENT
    versions: Maybe[Mapping[str, int]] = ABSENT


@dataclass(frozen=True)
class LedgerContent:
    """What the ledger says of the present; C(error) if it cannot be read, C(is_missing) if there is none.

    :arg records: that are open, of moves and of evacuations; C(runs) are the open maintenance runs.
    :arg check: the last fleet check on this control node.
    :arg drill: the last drill with a verdict.
    :arg run_findings: the runs that need a person, a line on each.
    :arg brake: the state of the brake on reactions; null if no reaction has ever asked it, or if it cannot be read, which is a problem then.
    :arg waiting: the last records of domains that wait for a person, because they were on too many hosts when these died.
    :arg unstarted: the other domains that run on no host since the evacuation of theirs.
    """

    error: t.Optional[str] = None
    ledger: t.Optional[Ledger] = None
    records: tuple[MoveRecord, ...] = ()
    hosts: tuple[HostEntry, ...] = ()
    documents: Mapping[str, Document] = dataclasses.field(default_factory=dict)
    problems: tuple[str, ...] = ()
    runs: tuple[MaintenanceRun, ...] = ()
    check: t.Optional[CheckedFleet] = None
    waiting: tuple[MoveRecord, ...] = ()
    unstarted: tuple[UnstartedDomain, ...] = ()
    drill: t.Optional[MaintenanceRun] = None
    run_findings: tuple[str, ...] = ()
    brake: t.Optional[BrakeDocument] = None
    is_missing: bool = False

    @property
    def name(self) -> str | None:
        """The name of the ledger, if it was opened."""
        return self.ledger.name if self.ledger else None

    @property
    def domains(self) -> list[DomainEntry]:
        """All domains."""
        return [document.domain for document in self.documents.values()]


@dataclass(frozen=True)
class MoveInFlight:
    """A move that has not ended: its record, the host that reports it, and whether it is watched; null for what is not known."""

    record: MoveRecord
    host: t.Optional[str]
    watched: t.Optional[bool]

    @property
    def line(self) -> str:
        """The move with its figures; without them if no host reports it: those in the record are as old as the record."""
        is_stale = self.host is None and bool(self.record.progress.memory_total_bytes)
        last = f"{self.record.progress.percent} % when its host last answered; not known now" if is_stale else None
        by_other = "  not started by this collection" if self.record.id is None and self.watched is not None else ""
        return f"{progress_line(self.record, last)}{by_other}"

    def as_json(self) -> JsonObject:
        """Return the move without its samples and history."""
        keys = ("id", "type", "status", "domain", "source", "destination", "progress", "updated_at")
        return {**{key: encode(getattr(self.record, key)) for key in keys}, "host": self.host, "watched": self.watched, "line": self.line}


def read_content(open_it: t.Callable[[], Ledger]) -> LedgerContent:
    """Return the present content of the ledger. Only L(InvalidArgument) is raised: any other error is part of the content."""
    ledger = None
    try:
        ledger = open_it()
        # The documents are read first: a record that is opened or closed later raises the version of the document of its domain.
        domains = ledger.read_domains()
        documents = {document.domain.uuid: document for document in domains.documents}
        records = tuple(ledger.list_records(statuses=sorted(s.UNSETTLED | s.TOMBSTONE)))
        hosts = tuple(with_protect_times(ledger, list_entries(ledger)))
        damaged, brake = list(damaged_lines(ledger, domains.damaged)), _read_brake(ledger, bool(domains.damaged or domains.newer))
        waiting = tuple(_list_waiting(ledger, documents.values(), records))
        named = {record.domain.uuid for record in (*records, *waiting) if record.status not in s.TOMBSTONE}
        unstarted = tuple(list_unstarted(ledger, hosts, (document.domain for document in documents.values()), named))
        all_runs, check = [document.maintenance_run for document in ledger.list_maintenance_runs()], read_check(ledger.ledger_id)
        runs, problems = tuple(run for run in all_runs if run.is_open), (*ledger.problems, *damaged, *ledger.find_threats())
        drill, findings = last_verdict(all_runs), tuple(text for _run, text in list_findings(all_runs, hosts))
        return LedgerContent(None, ledger, records, hosts, documents, problems, runs, check, waiting, unstarted, drill, findings, brake)
    except InvalidArgument:
        raise
    except KvmfleetError as error:
        return LedgerContent(error=str(error), ledger=ledger, is_missing=ledger is None and isinstance(error, NotFound))


def _read_brake(ledger: Ledger, has_unreadable: bool) -> BrakeDocument | None:
    """Return the state of the brake, without what is over since the documents of all domains can be read."""
    with contextlib.suppress(NotSupported):
        if found := ledger.read_brake():
            return dataclasses.replace(found.brake, incidents=tuple(one for one in found.brake.incidents if has_unreadable or one.kind != UNREADABLE))
    return None


def _list_waiting(ledger: Ledger, documents: Iterable[Document], records: Sequence[MoveRecord]) -> Iterator[MoveRecord]:
    """Yield the last closed record of each domain that waits for a person. Only a domain that was restarted before can wait.

    :arg records: those that are not closed. A domain that has a later one was started elsewhere, or is about to be.
    """
    for domain in (document.domain for document in documents):
        if domain.restarts and domain.last_record:
            with contextlib.suppress(NotFound, NotSupported):
                record = ledger.read_record(domain.last_record).record
                if record.status == s.CONFLICT and record.reason == s.REASON_RESTART_LIMIT and not _is_followed(record, records):
                    yield record


def _is_followed(record: MoveRecord, others: Iterable[MoveRecord]) -> bool:
    return any(one.domain.uuid == record.domain.uuid and one.generation > record.generation for one in others)


def read_move(host: str, migration: JsonObject, open_records: Sequence[MoveRecord]) -> MoveInFlight:
    """Return a migration that a host reports, with the ledger's record of it if the user may not read the one on the host.

    The name of a host in the inventory is used where libvirt's record has its own name.
    """
    record, watched = decode(MoveRecord, record_in(migration)), migration.get("watched")
    own = next((one for one in open_records if watched is None and one.status in s.UNSETTLED and one.domain.uuid == record.domain.uuid), None)
    if own and own.source.host == host:
        record = dataclasses.replace(own, status=record.status, progress=record.progress)
    elif record.id is None:
        record = dataclasses.replace(record, source=dataclasses.replace(record.source, host=host))
    return MoveInFlight(record, host, watched if isinstance(watched, bool) else None)
