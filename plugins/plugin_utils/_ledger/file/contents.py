# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a file ledger keeps, byte by byte."""

from __future__ import annotations

import contextlib
import os
import typing as t
from collections.abc import Iterator

from .. import archive
from ..archive import Chain
from ..audit import Link, read_link, verify_lines
from ..contents import Contents, Entry
from ..identity import Identity
from ..layout import CLOSED, Place
from .audit_file import AuditFile, lines_in
from .folder import NOT_A_FILE, Folder
from .journal import Journal

ARCHIVE = "audit.archive"
LINES = ".jsonl"
ENDS = ".json"
_OWN = "file"


class FileContents(Contents):
    """:arg identity: None for a copy that is unfinished, which has no chain of its own yet."""

    def __init__(self, root: Folder, identity: t.Optional[Identity]) -> None:
        self._root = root
        self._identity = identity

    def places(self, folder: Place) -> Iterator[Place]:
        for parts in self._months() if folder == CLOSED else (folder,):
            yield from ((*parts, name) for name in self._names(parts) if name.endswith(".json") and not name.startswith("."))

    def entries(self, folder: Place) -> Iterator[Entry]:
        for place in self.places(folder):
            with contextlib.suppress(FileNotFoundError):
                yield Entry(place, self._read(place))

    def chains(self) -> Iterator[tuple[Chain, Iterator[bytes]]]:
        for chain in archive.readable(self._archived()):
            yield chain, self._lines(chain.name)
        if self._identity and not (own := self._own_chain(self._identity)).is_empty:
            yield own, lines_in(self._root, AuditFile.NAME)

    def audit_problems(self) -> list[str]:
        if self._identity is None:
            return []
        link = self._last_written()
        own = verify_lines(lines_in(self._root, AuditFile.NAME), self._identity.genesis, link.own if link else None)
        return [*(f"{self.where((AuditFile.NAME,))}: {problem}" for problem in own), *archive.verified(self._archived(), self._lines, self._identity.seal)]

    def where(self, place: Place) -> str:
        return os.path.join(self._root.path, *place)

    def _months(self) -> Iterator[Place]:
        return ((*CLOSED, year, month) for year in self._names(CLOSED) for month in self._names((*CLOSED, year)))

    def _names(self, parts: Place) -> list[str]:
        try:
            with self._root.sub(*parts) as folder:
                return folder.names()
        except FileNotFoundError:
            return []

    def _read(self, place: Place) -> bytes:
        try:
            with self._root.sub(*place[:-1]) as folder:
                return folder.read(place[-1])
        except OSError as error:
            if error.errno not in NOT_A_FILE:
                raise
            return b""

    def _archived(self) -> dict[str, t.Optional[Chain]]:
        names = [name.removesuffix(ENDS) for name in self._names((ARCHIVE,)) if name.endswith(ENDS) and not name.startswith(".")]
        return {name: archive.chain_in(name, self._read((ARCHIVE, f"{name}{ENDS}"))) for name in names}

    def _lines(self, name: str) -> Iterator[bytes]:
        with self._root.sub(ARCHIVE) as folder:
            yield from lines_in(folder, f"{name}{LINES}")

    def _own_chain(self, identity: Identity) -> Chain:
        link = self._last_written() or AuditFile(self._root, lambda sentence: None).last()
        count = sum(1 for dummy in lines_in(self._root, AuditFile.NAME))
        return Chain(archive.name_of(identity.home, _OWN), identity.genesis, count, link.own if link else identity.genesis)

    def _last_written(self) -> t.Optional[Link]:
        last = Journal(self._root).last()
        return read_link(last.line) if last and last.line else None
