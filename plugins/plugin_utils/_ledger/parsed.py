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


class ParsedDocuments:
    """What one task has read of a ledger. Its documents must not be modified."""

    def __init__(self) -> None:
        self._found: dict[DocumentPath, tuple[bytes, Document]] = {}

    def find(self, path: DocumentPath, data: bytes) -> t.Optional[Document]:
        """Return the document that was parsed from exactly these bytes, or None."""
        known = self._found.get(path)
        return known[1] if known is not None and known[0] == data else None

    def keep(self, path: DocumentPath, data: bytes, document: Document) -> None:
        """Keep a document, if it is of a kind that is read often."""
        if path[:-1] in _FOLDERS:
            self._found[path] = (data, document)
