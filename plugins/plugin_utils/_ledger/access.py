# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""One access to a ledger, whatever keeps it: documents are read, then one unit of changes is made, whole or not at all."""

from __future__ import annotations

import abc
import typing as t
from collections.abc import Iterator, Sequence

from .layout import Place
from .store import Body, Document, Stored

Write = tuple[Place, int, Body]


class Access(abc.ABC):
    """What is read here is what is there until the unit is made: nobody writes in between, or the unit is not made."""

    def expect(self, record_id: str, domain_uuid: str) -> None:
        """Hear what the unit is about, so that it can be read at once."""
        return

    @abc.abstractmethod
    def read(self, place: Place) -> t.Optional[Document]:
        """Return the document, or None where there is none or it was damaged. Raises L(NotSupported) for a newer schema."""

    @abc.abstractmethod
    def read_all(self, parts: Sequence[str]) -> Iterator[Document]:
        """Yield all documents of a folder that can be read."""

    @abc.abstractmethod
    def holder(self, domain_uuid: str) -> t.Optional[Stored]:
        """Return the record that holds the domain. Raises L(NotSupported) where one of a newer schema might."""

    @abc.abstractmethod
    def find(self, record_id: str) -> t.Optional[Stored]:
        """Return the record of that id, open or closed. Raises L(NotSupported) for a newer schema."""

    @abc.abstractmethod
    def every_record(self) -> Iterator[Body]:
        """Yield all records, open and closed."""

    @abc.abstractmethod
    def set_aside(self) -> list[str]:
        """Return the names of documents that were damaged, as L(name_aside) made them."""

    @abc.abstractmethod
    def write(self, place: Place, version: int, body: Body) -> None:
        """Write one document for itself, without a line of audit."""

    @abc.abstractmethod
    def commit(
        self,
        writes: Sequence[Write],
        removes: Sequence[Place] = (),
        record: t.Optional[Body] = None,
        old_status: t.Optional[str] = None,
    ) -> None:
        """Do all of it or nothing; with a line of audit where a C(record) made a transition."""
