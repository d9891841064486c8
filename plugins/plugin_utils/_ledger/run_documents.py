# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""How the documents of runs are written, whatever their kind: over the version that was read, and with no host in two open runs of one kind."""

from __future__ import annotations

import abc
import typing as t
from collections.abc import Sequence
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.balance_runs import BalanceRun
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import FINISHED, STOPPED, MaintenanceRun
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import SCHEMA

from .changes import DocumentWrite, Transaction, list_newer
from .documents import Document
from .rules import DocumentPath, check_uuid, document_overtaken_error, document_path

# No run with one of these states is open, whichever kind it is of.
_ENDED = (STOPPED, FINISHED)


def refuse_newer_runs(transaction: Transaction, folder: DocumentPath) -> None:
    """Raise L(NotSupported) if a run in the folder that a later version wrote may be open: which hosts it has is not known."""
    newer = [str(body.get("id")) for body in list_newer(transaction, folder) if body.get("state") not in _ENDED]
    if newer:
        documents = ", ".join("/".join(document_path(folder, run_id)) for run_id in newer)
        raise NotSupported(
            f"A run may be open that a later version of the collection wrote ({documents}), and which hosts it has is not known. Nothing was changed.",
            "Update the collection on this control node.",
        )


_Run = t.TypeVar("_Run", BalanceRun, MaintenanceRun)


class RunDocuments(abc.ABC, t.Generic[_Run]):
    """The documents of one kind of run.

    C(noun) is what a person calls such a run, and C(participle) what it does to its hosts; C(next_step) is what to do about hosts that are in another open run
    C({id}). C(folder) is where the documents are, and C(listed_by) what lists them.
    """

    noun: t.ClassVar[str]
    participle: t.ClassVar[str]
    next_step: t.ClassVar[str]
    folder: t.ClassVar[DocumentPath]
    listed_by: t.ClassVar[str]

    @abc.abstractmethod
    def read_run(self, document: Document) -> _Run:
        """Return the run in a document of this kind. Raises L(ShapeError) for any other document."""

    @abc.abstractmethod
    def check_successor(self, old: _Run, new: _Run) -> None:
        """Raise L(InvalidState) for a run that must not change any more, and L(Internal) for a change that no run may have."""

    def exclusive_hosts(self, dummy_new: _Run, dummy_other: _Run) -> Sequence[str]:
        """Return the hosts of a new run that must not be in any run beside the other one, although they share none."""
        return ()

    def refuse_beside_others(self, dummy_transaction: Transaction, dummy_new: _Run) -> None:
        """Raise L(Conflict) if the run must not be open beside an open run of another kind."""
        return

    def make_overtaken_error(self, run: _Run, current: Document | None) -> Conflict:
        """Return the error for a change to a run that another process wrote after it was read."""
        return document_overtaken_error(f"the {self.noun} {run.id}", current.body if current else None)

    def make_shared_hosts_error(self, other: _Run, shared: Sequence[str]) -> Conflict:
        """Return the error for a run over hosts that another open run has."""
        held = f"{self.describe_run(other)} has {'it' if len(shared) == 1 else 'them'}"
        return Conflict(
            f"{', '.join(shared)} cannot be {self.participle} twice at the same time: {held}. Nothing was changed.",
            self.next_step.format(id=other.id),
            run=encode(other),
        )

    def noun_of(self, dummy_run: _Run) -> str:
        """Return what a person calls this run."""
        return self.noun

    def describe_run(self, run: _Run) -> str:
        """Return a description by which a person finds the run."""
        return f"the {self.noun_of(run)} {run.id} ({run.state}, begun {run.created_at} by {run.created_by})"

    def find_path(self, run_id: str) -> DocumentPath:
        """Return where the document of the run is. Raises L(InvalidArgument) for an ID that is not a UUID."""
        return document_path(self.folder, self._check_id(run_id))

    def sort_by_age(self, documents: Sequence[Document]) -> list[Document]:
        """Return the documents from the oldest on."""
        return sorted(documents, key=lambda document: ((run := self.read_run(document)).created_at, run.id))

    def write_run(self, transaction: Transaction, run: _Run, version: int | None) -> Document:
        """Write the document over the version that was read; None for a new one. See L(Ledger.put_maintenance_run)."""
        new = self._kept_form(run)
        path = self.find_path(new.id)
        present = transaction.read_document(path)
        if (present.version if present else None) != version:
            raise self.make_overtaken_error(new, present)
        old = self.read_run(present) if present else None
        if old:
            self.check_successor(old, new)
        if new.is_open and not (old and old.is_open):
            refuse_newer_runs(transaction, self.folder)
            self._refuse_shared_hosts(transaction, new)
            self.refuse_beside_others(transaction, new)
        document = Document(encode(new), (version or 0) + 1)
        transaction.write_document(DocumentWrite(path, document.version, new))
        return document

    def _check_id(self, run_id: str) -> str:
        return check_uuid(run_id, f"ID of the {self.noun}")

    def _kept_form(self, run: _Run) -> _Run:
        """Return the run as it is kept. A value that could not be read back is an error here: L(ShapeError)."""
        kept = replace(run, id=self._check_id(run.id), schema=SCHEMA if run.schema is ABSENT else run.schema)
        return decode(type(run), encode(kept))

    def _refuse_shared_hosts(self, transaction: Transaction, new: _Run) -> None:
        """Raise L(Conflict) if a host of the run is in another open one. In both stores, no such run can be written until this unit is."""
        wanted = set(new.host_names)
        for document in transaction.read_all(self.folder):
            other = self.read_run(document)
            shared = [host for host in other.host_names if host in wanted] or self.exclusive_hosts(new, other)
            if other.id != new.id and other.is_open and shared:
                raise self.make_shared_hosts_error(other, shared)
