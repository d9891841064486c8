# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The interface of a ledger, independent of its store: records of moves, documents of hosts and domains, locks and an audit chain."""

from __future__ import annotations

import abc
import contextlib
import getpass
import os
import socket
import typing as t
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.balance_runs import BalanceRun
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import ForeignAct
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import MaintenanceRun
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import SCHEMA, MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef

from . import changes
from .audit import ChainPart
from .balances import BALANCE_RUNS
from .brake_document import BrakeDocument
from .changes import LedgerDomains, Transaction
from .contents import LedgerContents, RawDocument
from .documents import Document, DomainEntry, HostEntry, LedgerSettings, Stored
from .host_parts import HostSights, ProtectTime
from .identity import LedgerIdentity
from .maintenance import MAINTENANCE_RUNS
from .parsed import ParsedDocuments
from .rules import BRAKE, DOMAINS, HOSTS, OPEN, PROTECTED, SETTINGS, SIGHT_FOLDERS, SIGHTS, check_domain, check_uuid, document_path
from .run_documents import RunDocuments
from .selection import Selection, make_selection
from .unreadable_hosts import LedgerHosts, check_new_host

if t.TYPE_CHECKING:
    from .etcd.leases import LeaseReader  # pragma: no cover


class Witness:
    """Receives the changes of a ledger's records. This one ignores them."""

    def watch_change(self, before: t.Optional[MoveRecord], after: MoveRecord) -> contextlib.AbstractContextManager[None]:
        """Return a context for the write of a record over C(before); None if the record is new."""
        return contextlib.nullcontext()

    def watch_foreign_act(self, domain: DomainEntry, act: ForeignAct) -> contextlib.AbstractContextManager[None]:
        """Return a context for the write of an act that was done without this collection."""
        return contextlib.nullcontext()

    def watch_run(self, before: t.Optional[MaintenanceRun], after: MaintenanceRun) -> contextlib.AbstractContextManager[None]:
        """Return a context for the write of a maintenance run over C(before); None if the run is new."""
        return contextlib.nullcontext()

    def watch_host(self, after: HostEntry, detail: str) -> contextlib.AbstractContextManager[None]:
        """Return a context for the write of a host that has come into a state of which people have to know."""
        return contextlib.nullcontext()

    def watch_brake(self, before: t.Optional[BrakeDocument], after: BrakeDocument) -> contextlib.AbstractContextManager[None]:
        """Return a context for the write of the brake over C(before); None if the document is new."""
        return contextlib.nullcontext()

    def report_event(self, record: MoveRecord, event: str, by: str, detail: str = "") -> None:
        """Receive an event that is not a line of the record's history, e.g. C(cleanup.started)."""
        return


def describe_process() -> str:
    """Return user, control node and process, e.g. C(root@control pid 4711). In a container, a user may have no name, but a number."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.geteuid())
    return f"{user}@{socket.gethostname()} pid {os.getpid()}"


_T = t.TypeVar("_T")
_AnyRuns = t.Union[RunDocuments[BalanceRun], RunDocuments[MaintenanceRun]]


class Ledger(abc.ABC):
    """Every operation is safe between processes and complete when it returns.

    All may raise L(InvalidArgument) for an ID that is not a UUID, L(TimedOut) if the ledger stays locked, and
    L(Forbidden) or L(Internal) if it cannot be read or written.

    :arg name: the name of the ledger for people: its folder, or its address.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.problems: list[str] = []
        """Sentences on what was found damaged or could not be read; for warnings. Nothing is listed twice."""
        self.witness = Witness()
        self.parsed = ParsedDocuments()

    @property
    def ledger_id(self) -> str:
        """The ledger's UUID, made once with the ledger."""
        return self.identity.ledger_id

    @property
    @abc.abstractmethod
    def identity(self) -> LedgerIdentity:
        """The identity of the ledger, as this process knows it."""

    def open_leases(self) -> t.Optional[LeaseReader]:
        """Return a new reader of the leases of hosts; null for a store without any."""
        return None

    @abc.abstractmethod
    def find_threats(self) -> list[str]:
        """Return a sentence for each thing that will keep the store from being changed, or does so already, such as a lack of room, and what to do."""

    @abc.abstractmethod
    def check_writable(self) -> None:
        """Raise the error that a change would raise now, because the store is full, read-only or cannot be reached. Writes, and changes no document."""

    def report_problem(self, problem: str) -> None:
        """Add a sentence to C(problems), once."""
        if problem not in self.problems:
            self.problems.append(problem)

    def open_record(self, record: MoveRecord) -> Stored:
        """Write a new unsettled record and return it with the domain's next generation, which is higher than its own, at version 1.

        The record given is not changed. Raises L(Conflict), with the record that holds the domain under C(record), while
        another one does.
        """
        with self.witness.watch_change(None, record):
            return self._run_change(lambda transaction: changes.open_record(transaction, record))

    def read_record(self, record_id: str) -> Stored:
        """Return a record, open or closed. Raises L(NotFound), or L(NotSupported) for a newer schema."""
        key = check_uuid(record_id, "record id")
        found = self._run_reading(lambda transaction: transaction.find_record(key))
        if found is None:
            raise NotFound(
                f"The ledger {self.name} has no record {key}.",
                "List its records with the lookup kvmfleet.migration.ledger. If the record was archived, set 'ledger' to the archive.",
            )
        return found

    def find_unsettled(self, domain_uuid: str) -> t.Optional[Stored]:
        """Return the record that holds the domain, or None."""
        key = check_uuid(domain_uuid, "domain UUID")
        return self._run_reading(lambda transaction: transaction.find_holder(key))

    def update_record(self, stored: Stored, record: MoveRecord) -> Stored:
        """Replace the record that was read, and return the new one with its version.

        A status that closes the record moves it to the closed records, and updates the domain's possible hosts. The generation may rise, which
        raises the domain's, and never falls. Raises L(Conflict), with the record as it is now under C(record), when another process
        wrote since; L(InvalidState) for a closed one; L(Internal) for a transition that is not allowed.
        """
        with self.witness.watch_change(stored.record, record):
            return self._run_change(lambda transaction: changes.update_record(transaction, stored, record))

    def list_records(
        self,
        types: t.Optional[Sequence[str]] = None,
        statuses: t.Optional[Sequence[str]] = None,
        host: t.Optional[str] = None,
        domain: t.Optional[str] = None,
        since: t.Optional[str] = None,
        until: t.Optional[str] = None,
        unsettled_only: bool = False,
    ) -> Iterator[MoveRecord]:
        """Yield the records that meet all conditions, in no particular order.

        :arg host: inventory name, host_id or host_uuid of source or destination.
        :arg domain: name or UUID.
        :arg since: RFC 3339; C(updated_at) is not before it.
        :arg until: RFC 3339; C(updated_at) is before it.
        """
        return (document.record for document in self._select_records(make_selection(types, statuses, host, domain, since, until, unsettled_only)))

    def list_record_documents(self, selection: Selection) -> Iterator[Document]:
        """Yield the documents of the selected records as JSON, in no particular order."""
        return self._select_records(selection)

    def list_newer_records(self) -> list[str]:
        """Return the IDs of the open records that a later version wrote: which domains and hosts they are about is not known."""
        newer = self._run_reading(lambda transaction: changes.list_newer(transaction, OPEN))
        return sorted(str(body.get("id")) for body in newer)

    def list_damaged_records(self) -> list[str]:
        """Return the IDs of the records that were damaged, and not restored since: whether they are closed, and which domains they are about, is not known."""
        return self._run_reading(changes.list_damaged_records)

    def list_records_written_after(self, revision: int) -> list[MoveRecord]:
        """Return the records that were written after that revision of etcd, in no particular order; all records of a store without revisions."""
        return list(self.list_records())

    @abc.abstractmethod
    def list_closed_ids(self) -> set[str]:
        """Return the ids of all closed records, of which none is read."""

    @abc.abstractmethod
    def list_closed_since(self, since: str) -> set[str]:
        """Return the ids of records that were closed at that time or later, and of some that were closed up to a day earlier. No record is read.

        :arg since: RFC 3339.
        """

    def read_hosts(self) -> LedgerHosts:
        """Return all hosts, including those whose document cannot be read; each of these is also a problem."""
        found = self._run_reading(lambda transaction: transaction.read_hosts())
        # The reader has reported those of a later version.
        for one in (one for one in found.unreadable if one.newer is None):
            self.report_problem(one.problem)
        return found

    def list_hosts(self) -> list[Document]:
        """Return the documents of all hosts that can be read, by name."""
        return list(self.read_hosts().documents)

    def read_host(self, host_id: str) -> t.Optional[Document]:
        """Return a host's document by its key: its host_id, or its libvirt UUID while no host_id is known."""
        path = document_path(HOSTS, check_uuid(host_id, "host id"))
        return self._run_reading(lambda transaction: transaction.read_document(path))

    def find_host(self, name: t.Optional[str] = None, host_uuid: t.Optional[str] = None) -> t.Optional[Document]:
        """Return the one document that matches the given values, or None. Raises L(Conflict) if several do."""
        return changes.find_only_host(self.list_hosts(), name, host_uuid)

    def check_new_host(self, host: HostRef) -> None:
        """Raise L(Conflict) or L(NotSupported) if a host without an entry has, or may have, a document that cannot be read."""
        check_new_host(self.read_hosts().unreadable, host, is_stated=False)

    def put_host(self, entry: HostEntry, version: t.Optional[int], is_stated: bool = False) -> Document:
        """Write the document of a host as successor of C(version) (None for a new document).

        Raises L(Conflict) if that is not the current version, and as L(check_new_host) for a new document.

        :arg is_stated: whether a person states the state of the host, which may replace a damaged document.
        """
        return self._run_change(lambda transaction: changes.write_host(transaction, entry, version, self.ledger_id, is_stated))

    def read_sights(self, host_id: str) -> dict[str, JsonObject]:
        """Return what a host sees: by ID of the other host, its tokens and devices by path. An entry of version 0.1.0 may have it instead."""
        return self.read_dated_sights(host_id)[0]

    def read_dated_sights(self, host_id: str) -> tuple[dict[str, JsonObject], set[str | None]]:
        """Return what L(read_sights) returns, and the boots in which the host has seen that; None for documents that do not say when."""
        paths = [document_path(folder, check_uuid(host_id, "host id")) for folder in SIGHT_FOLDERS]
        return self._run_reading(lambda transaction: changes.read_dated_sights(transaction, paths))

    def list_sights_of(self, host_id: str) -> dict[str, HostSights]:
        """Return, by ID of the host that sees it, which tokens and devices of this host it sees, and others. Entries of version 0.1.0 may have more."""
        seen_id = check_uuid(host_id, "host id")
        return self._run_reading(lambda transaction: changes.list_sights_of(transaction, seen_id))

    def put_sights(self, sights: HostSights, digit: str) -> None:
        """Write what a host sees of those hosts whose ID begins with the digit."""
        path = document_path((*SIGHTS, digit), check_uuid(sights.host_id, "host id"))
        self._run_change(lambda transaction: changes.write_part(transaction, path, replace(sights, schema=SCHEMA)))

    def list_protect_times(self) -> dict[str, ProtectTime]:
        """Return when hosts were protected last, by the key of their entry."""
        return {document.protect_time.host_key: document.protect_time for document in self._run_reading(lambda access: list(access.read_all(PROTECTED)))}

    def put_protect_time(self, protect: ProtectTime) -> None:
        """Write when a host was protected."""
        path = document_path(PROTECTED, check_uuid(protect.host_key, "host key"))
        self._run_change(lambda transaction: changes.write_part(transaction, path, replace(protect, schema=SCHEMA)))

    def list_domains(self) -> list[Document]:
        """Return all domains' documents, by name."""
        return self._by_name(DOMAINS)

    def read_domain(self, uuid: str) -> t.Optional[Document]:
        """Return a domain's document, or None."""
        path = document_path(DOMAINS, check_uuid(uuid, "domain UUID"))
        return self._run_reading(lambda transaction: transaction.read_document(path))

    def find_domains(self, name: str) -> list[Document]:
        """Return the documents of all domains of that name."""
        return [document for document in self.list_domains() if document.domain.name == name]

    def put_domain(self, entry: DomainEntry, version: t.Optional[int], act: t.Optional[ForeignAct] = None) -> Document:
        """Write the document of a domain as successor of C(version) (None for a new document). Raises L(Conflict) if that is not the current version.

        Its C(generation) is the ledger's own: the value in the entry is replaced by the stored one.

        :arg act: what was done without this collection and is found out now. It is added to the document and, in the same unit, to the audit.
        """
        new = check_domain(entry)
        with self.witness.watch_foreign_act(new, act) if act else contextlib.nullcontext():
            return self._run_change(lambda transaction: changes.write_domain(transaction, new, version, act))

    def read_settings(self) -> t.Optional[Document]:
        """Return the settings of the ledger, or None."""
        path = document_path(SETTINGS, self.ledger_id)
        return self._run_reading(lambda transaction: transaction.read_document(path))

    def put_settings(self, settings: LedgerSettings, version: t.Optional[int]) -> Document:
        """Write the settings as successor of C(version) (None for the first ones). Raises L(Conflict) if that is not the current version."""
        kept = replace(settings, ledger_id=self.ledger_id, schema=SCHEMA if settings.schema is ABSENT else settings.schema)
        return self._run_change(lambda transaction: changes.write_settings(transaction, kept, version))

    def has_damaged_settings(self) -> bool:
        """Whether settings were set aside; those that were written afterwards do not count."""
        return self._has_set_aside(SETTINGS)

    def read_brake(self) -> t.Optional[Document]:
        """Return the state of the brake on reactions to events, or None."""
        path = document_path(BRAKE, self.ledger_id)
        return self._run_reading(lambda transaction: transaction.read_document(path))

    def put_brake(self, brake: BrakeDocument, before: t.Optional[Document]) -> Document:
        """Write the state of the brake as successor of the document that was read (None for the first one). Raises L(Conflict) if it was overtaken."""
        kept = replace(brake, ledger_id=self.ledger_id, schema=SCHEMA if brake.schema is ABSENT else brake.schema)
        with self.witness.watch_brake(before.brake if before else None, kept):
            return self._run_change(lambda transaction: changes.write_brake(transaction, kept, before.version if before else None))

    def has_damaged_brake(self) -> bool:
        """Whether a state of the brake was set aside; one that was written afterwards does not count."""
        return self._has_set_aside(BRAKE)

    def read_domains(self) -> LedgerDomains:
        """Return all domains, including those whose document cannot be read."""
        return self._run_reading(changes.read_domains)

    def list_maintenance_runs(self) -> list[Document]:
        """Return the documents of all maintenance runs, from the oldest on."""
        return self._list_runs(MAINTENANCE_RUNS)

    def read_maintenance_run(self, run_id: str) -> Document:
        """Return the document of a maintenance run. Raises L(NotFound)."""
        return self._read_run(MAINTENANCE_RUNS, run_id)

    def put_maintenance_run(self, run: MaintenanceRun, before: t.Optional[Document]) -> Document:
        """Write a maintenance run as successor of the document that was read (None for a new run).

        Raises L(Conflict) if another process wrote it since, and if a host is in another open run; L(InvalidState) for a finished one.
        """
        with self.witness.watch_run(before.maintenance_run if before else None, run):
            return self._run_change(lambda transaction: MAINTENANCE_RUNS.write_run(transaction, run, before.version if before else None))

    def list_balance_runs(self) -> list[Document]:
        """Return the documents of all balance runs, from the oldest on."""
        return self._list_runs(BALANCE_RUNS)

    def read_balance_run(self, run_id: str) -> Document:
        """Return the document of a balance run. Raises L(NotFound)."""
        return self._read_run(BALANCE_RUNS, run_id)

    def put_balance_run(self, run: BalanceRun, before: t.Optional[Document]) -> Document:
        """Write a balance run as successor of the document that was read (None for a new run).

        Raises L(Conflict) if another process wrote it since, and if a host is in another open run; L(InvalidState) for a measured one.
        """
        return self._run_change(lambda transaction: BALANCE_RUNS.write_run(transaction, run, before.version if before else None))

    def _list_runs(self, runs: _AnyRuns) -> list[Document]:
        return runs.sort_by_age(self._run_reading(lambda transaction: list(transaction.read_all(runs.folder))))

    def _read_run(self, runs: _AnyRuns, run_id: str) -> Document:
        path = runs.find_path(run_id)
        found = self._run_reading(lambda transaction: transaction.read_document(path))
        if found is None:
            raise NotFound(f"The ledger {self.name} has no {runs.noun} {run_id}.", f"List them with {runs.listed_by}.")
        return found

    @abc.abstractmethod
    def hold_lock(self, key: str, timeout_seconds: float = 30) -> contextlib.AbstractContextManager[None]:
        """Hold the exclusive lock of that name, e.g. C(host-<uuid>). Raises L(TimedOut) if it is not obtained in time."""

    @abc.abstractmethod
    def open_contents(self) -> contextlib.AbstractContextManager[LedgerContents]:
        """Return the contents of the ledger byte by byte. Other processes may change them during this."""

    @abc.abstractmethod
    def examine_contents(self, act: Callable[[LedgerContents], _T]) -> _T:
        """Call the function with the contents of the ledger at one moment, and return its result."""

    def verify_audit(self) -> list[str]:
        """Return the problems of the chain of audit lines; empty if it is intact."""
        return self.examine_contents(lambda contents: contents.audit_problems())

    def remove_closed(self, entries: Sequence[RawDocument]) -> None:
        """Remove closed records that were archived; one that is gone already is ignored. Raises L(Conflict) for one with other bytes.

        :arg entries: few enough for one transaction, see L(split_batches).
        """
        self._run_change(lambda transaction: transaction.remove_closed(entries))

    @property
    def chains(self) -> Sequence[str]:
        """The names of the audit chains whose lines can be archived; none in a store that keeps its audit in one file."""
        return ()

    def read_part(self, chain: str, until: str, after: t.Optional[ChainPart] = None) -> tuple[t.Optional[ChainPart], t.Optional[str]]:
        """Return lines with which an audit chain begins, and what is wrong with the line after them.

        :arg until: in the form of records; the part ends before the first line that is not older, and before the last line of the chain.
        :arg after: the part that comes before, if it is still there.
        """
        return self._run_reading(lambda transaction: transaction.read_part(chain, until, after))

    def remove_part(self, part: ChainPart) -> None:
        """Remove lines that were archived; the chain begins after them. Raises L(Conflict) if it does not begin with them."""
        self._run_change(lambda transaction: transaction.remove_part(part))

    @abc.abstractmethod
    def begin_move(self, to: str, by: str) -> None:
        """Close the ledger, which is copied elsewhere: no process writes it from now on. Raises L(Conflict) while a record is unsettled."""

    def finish_move(self) -> None:
        """Mark the copy as finished."""
        self._replace_identity(self.identity.finish_move())

    def reopen_ledger(self) -> None:
        """Open the ledger again after an abandoned copy."""
        self._replace_identity(self.identity.cancel_move())

    @abc.abstractmethod
    def _replace_identity(self, after: LedgerIdentity) -> None:
        """Replace the identity that this process knows. Raises L(InvalidState) if another process wrote one since."""

    @abc.abstractmethod
    def _run_reading(self, act: Callable[[Transaction], _T]) -> _T:
        """Call the function with a read-only access, and return its result."""

    @abc.abstractmethod
    def _run_change(self, act: Callable[[Transaction], _T]) -> _T:
        """Call the function with an access, and again with a new one if another process came first; return its result."""

    @abc.abstractmethod
    def _select_records(self, selection: Selection) -> Iterator[Document]:
        """Yield the documents of the selected records, each once."""

    def _has_set_aside(self, folder: Sequence[str]) -> bool:
        """Whether the document of that kind under the ID of the ledger was set aside."""
        names = self._run_reading(lambda transaction: transaction.aside_names())
        return any(name.startswith(f"{folder[0]}-{self.ledger_id}-") for name in names)

    def _by_name(self, folder: Sequence[str]) -> list[Document]:
        documents = self._run_reading(lambda transaction: list(transaction.read_all(folder)))
        return sorted(documents, key=lambda document: str(document.body.get("name")))
