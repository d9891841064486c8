# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The file that the audit lines are appended to, and its repair after a crash in the middle of a line."""

from __future__ import annotations

import os
import typing as t
from collections.abc import Callable, Iterator

from ..audit import Link, read_link
from .folder import Folder, write_all

_TAIL_BYTES = 65536


def lines_in(folder: Folder, name: str) -> Iterator[bytes]:
    """Yield all lines of a file without their ends, a torn one included; none where the file is missing."""
    try:
        fd = folder.open(name, os.O_RDONLY)
    except FileNotFoundError:
        return
    with open(fd, "rb") as file:
        yield from (line.rstrip(b"\n") for line in file)


class AuditFile:
    """:arg report: takes a sentence on what was repaired."""

    NAME = "audit.jsonl"

    def __init__(self, root: Folder, report: Callable[[str], None]) -> None:
        self._root = root
        self._report = report

    def last(self) -> t.Optional[Link]:
        """Return the link of the last whole line, or None."""
        whole = self._tail().rpartition(b"\n")[0]
        return read_link(whole.rpartition(b"\n")[2]) if whole else None

    def append_once(self, line: str) -> None:
        """Write the line, durably, unless it is the last one already; a torn end is cut off first."""
        self.mend()
        link, last = read_link(line), self.last()
        if link is None or last is None or link.own != last.own:
            self._append(line.encode("utf-8") + b"\n")

    def mend(self) -> bool:
        """Cut off what follows the last whole line; return whether there was anything."""
        torn = len(self._tail().rpartition(b"\n")[2])
        if not torn:
            return False
        fd = self._root.open(self.NAME, os.O_RDWR)
        try:
            os.ftruncate(fd, os.fstat(fd).st_size - torn)
            os.fsync(fd)
        finally:
            os.close(fd)
        self._report(f"The last line of {self._path} was torn by a crash ({torn} bytes) and was repaired.")
        return True

    @property
    def _path(self) -> str:
        return os.path.join(self._root.path, self.NAME)

    def _tail(self) -> bytes:
        try:
            fd = self._root.open(self.NAME, os.O_RDONLY)
        except FileNotFoundError:
            return b""
        try:
            size = os.fstat(fd).st_size
            return os.pread(fd, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
        finally:
            os.close(fd)

    def _append(self, data: bytes) -> None:
        fd = self._root.open(self.NAME, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            write_all(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
