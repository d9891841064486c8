# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Documents that a task reads again and again, the hosts and the open records: each is parsed again only if its bytes have changed."""

from __future__ import annotations

import typing as t

from .documents import Document
from .rules import HOSTS, OPEN, DocumentPath

_FOLDERS = (HOSTS, OPEN)


class Parsed(t.NamedTuple):
    """A document with the bytes that it was parsed from.

    :arg revision: at which these bytes were written; 0 in a store without revisions.
    """

    data: bytes
    document: Document
    revision: int


class ParsedDocuments:
    """What one task has read of a ledger. Its documents must not be modified."""

    def __init__(self) -> None:
        self._found: dict[DocumentPath, Parsed] = {}

    def find(self, path: DocumentPath, data: bytes) -> t.Optional[Document]:
        """Return the document that was parsed from exactly these bytes, or None."""
        known = self._found.get(path)
        return known.document if known is not None and known.data == data else None

    def keep(self, path: DocumentPath, data: bytes, document: Document, revision: int = 0) -> None:
        """Keep a document, if it is of a kind that is read often."""
        if path[:-1] in _FOLDERS:
            self._found[path] = Parsed(data, document, revision)

    def list_folder(self, folder: t.Sequence[str]) -> dict[DocumentPath, Parsed]:
        """Return what was read of a folder, each as it was read last."""
        return {path: known for path, known in self._found.items() if path[:-1] == tuple(folder)}
