# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a ledger is, whatever keeps it: records of moves, documents of hosts and domains, locks and a chain of audit lines."""

from __future__ import annotations

import abc
import contextlib
import typing as t
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Body = dict[str, t.Any]


@dataclass(frozen=True)
class Stored:
    """A record as it was read, with the version that a later change has to name."""

    record: Body
    version: int


@dataclass(frozen=True)
class Document:
    """A host's or a domain's document as it was read, with the version that a later change has to name."""

    body: Body
    version: int


class Witness:
    """Who is told what happens to a ledger's records. This one does nothing with it."""

    def change(self, before: t.Optional[Body], after: Body) -> contextlib.AbstractContextManager[None]:
        """Return what is held while a record is written over C(before); None where it is a new one."""
        return contextlib.nullcontext()

    def tell(self, record: Body, event: str, by: str, detail: str = "") -> None:
        """Hear of an event that is no line of the record's history, e.g. C(cleanup.started)."""
        return


class Ledger(abc.ABC):
    """Every operation is safe between processes and complete when it returns.

    All may raise L(InvalidArgument) for an id that is no UUID, L(TimedOut) where the ledger stays locked, and
    L(Forbidden) or L(Internal) where it cannot be read or written.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        """Sentences on what was found damaged or could not be read; for warnings. Nothing is listed twice."""
        self.witness = Witness()

    def report(self, problem: str) -> None:
        """Add a sentence to C(problems), once."""
        if problem not in self.problems:
            self.problems.append(problem)

    @property
    @abc.abstractmethod
    def ledger_id(self) -> str:
        """The ledger's UUID, made once with the ledger."""

    @abc.abstractmethod
    def open_record(self, record: Body) -> Stored:
        """Write a new unsettled record and return it with the domain's next generation, at version 1.

        The record given is not changed. Raises L(Conflict), with the record that holds the domain under C(record), while
        another one does.
        """

    @abc.abstractmethod
    def get(self, record_id: str) -> Stored:
        """Return a record, open or closed. Raises L(NotFound), or L(NotSupported) for a newer schema."""

    @abc.abstractmethod
    def unsettled_of(self, domain_uuid: str) -> t.Optional[Stored]:
        """Return the record that holds the domain, or None."""

    @abc.abstractmethod
    def update(self, stored: Stored, record: Body) -> Stored:
        """Write the record in place of the one that was read, and return it with its new version.

        A closing status moves it among the closed ones and settles where the domain may be. Its generation may rise, which
        raises the domain's, and never falls. Raises L(Conflict), with the record as it is now under C(record), when another process
        wrote since; L(InvalidState) for a closed one; L(Internal) for a transition that is not allowed.
        """

    @abc.abstractmethod
    def records(
        self,
        types: t.Optional[Sequence[str]] = None,
        statuses: t.Optional[Sequence[str]] = None,
        host: t.Optional[str] = None,
        domain: t.Optional[str] = None,
        since: t.Optional[str] = None,
        until: t.Optional[str] = None,
        unsettled_only: bool = False,
    ) -> Iterator[Body]:
        """Yield the records that meet all conditions, in no promised order.

        :arg host: inventory name, host_id or host_uuid of either end.
        :arg domain: name or UUID.
        :arg since: RFC 3339; C(updated_at) is not before it.
        :arg until: RFC 3339; C(updated_at) is before it.
        """

    @abc.abstractmethod
    def closed_ids(self) -> set[str]:
        """Return the ids of all closed records, of which none is read."""

    @abc.abstractmethod
    def closed_since(self, since: str) -> set[str]:
        """Return the ids of records that were closed at that time or later, perhaps with some of up to a day before; none of them is read.

        :arg since: RFC 3339.
        """

    @abc.abstractmethod
    def hosts(self) -> list[Document]:
        """Return all hosts' documents, by name."""

    @abc.abstractmethod
    def host(self, host_id: str) -> t.Optional[Document]:
        """Return a host's document by its key: its host_id, or its libvirt UUID while no host_id is known."""

    @abc.abstractmethod
    def find_host(self, name: t.Optional[str] = None, host_uuid: t.Optional[str] = None) -> t.Optional[Document]:
        """Return the one document that meets what is given, or None. Raises L(Conflict) where several do."""

    @abc.abstractmethod
    def put_host(self, body: Body, version: t.Optional[int]) -> Document:
        """Write a host's document in place of C(version) (None: there is none yet). Raises L(Conflict) when that is not so."""

    @abc.abstractmethod
    def domains(self) -> list[Document]:
        """Return all domains' documents, by name."""

    @abc.abstractmethod
    def domain(self, uuid: str) -> t.Optional[Document]:
        """Return a domain's document, or None."""

    @abc.abstractmethod
    def find_domains(self, name: str) -> list[Document]:
        """Return the documents of all domains of that name."""

    @abc.abstractmethod
    def put_domain(self, body: Body, version: t.Optional[int]) -> Document:
        """Write a domain's document in place of C(version) (None: there is none yet). Raises L(Conflict) when that is not so.

        Its C(generation) is the ledger's own: what the body says there is replaced by what is stored.
        """

    @abc.abstractmethod
    def damaged_domains(self) -> list[str]:
        """Return the UUIDs of domains that have a document set aside, and none in its place."""

    @abc.abstractmethod
    def locked(self, key: str, timeout_seconds: float = 30) -> contextlib.AbstractContextManager[None]:
        """Hold the exclusive lock of that name, e.g. C(host-<uuid>). Raises L(TimedOut) where it is not had in time."""

    @abc.abstractmethod
    def verify_audit(self) -> list[str]:
        """Return what is wrong with the chain of audit lines; empty where it holds."""
