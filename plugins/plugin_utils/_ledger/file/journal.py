# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The unit of change of several documents: it is written to the journal first, completely and durably, then applied, and applied again after a crash.

The audit file gets the line of each unit. If a crash left an incomplete last line, the file is repaired.
"""

from __future__ import annotations

import contextlib
import json
import os
import typing as t
from collections.abc import Callable, Iterator

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidState

from ..audit import AuditLink, read_link
from ..document_bytes import canonical_json, compute_digest
from ..rules import is_document_path
from .folder import Folder, write_all

JOURNAL_NAME = "journal"
_PENDING = b"pending\n"
_APPLIED = b"applied\n"


@dataclass(frozen=True)
class JournalWrite:
    """A document to be written: its path below the ledger, its version, its whole text."""

    path: tuple[str, ...]
    version: int
    text: str


@dataclass(frozen=True)
class JournalUnit:
    """Writes that are done together or not at all.

    :arg line: the last audit line after this unit, its own or the one before; None before the first.
    """

    writes: tuple[JournalWrite, ...]
    removes: tuple[tuple[str, ...], ...] = ()
    line: t.Optional[str] = None


def _encode_unit(unit: JournalUnit) -> JsonObject:
    writes: list[Json] = [{"place": list(write.path), "version": write.version, "text": write.text} for write in unit.writes]
    removes: list[Json] = [list(path) for path in unit.removes]
    return {"writes": writes, "removes": removes, "line": unit.line}


def _parse_unit(text: str) -> JournalUnit:
    """Return the unit of a text. Raises C(ValueError) for what L(Journal.write_unit) never wrote, even with a correct checksum."""
    try:
        value = json.loads(text)
        writes = tuple(JournalWrite(_check_path(write["place"]), write["version"], write["text"]) for write in value["writes"])
        unit = JournalUnit(writes, tuple(map(_check_path, value["removes"])), value["line"])
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if not all(_is_whole(write) for write in unit.writes) or not (unit.line is None or _is_line(unit.line)):
        raise ValueError("a document or the audit line is invalid")
    return unit


def _check_path(parts: t.Sequence[str]) -> tuple[str, ...]:
    # A unit names nothing else, because the named files are written or removed.
    if not is_document_path(parts):
        raise ValueError(f"{'/'.join(parts)!r} is not the path of a document")
    return tuple(parts)


def _is_whole(write: JournalWrite) -> bool:
    return isinstance(write.version, int) and write.version > 0 and isinstance(write.text, str) and write.text.isascii()


def _is_line(line: Json) -> bool:
    return isinstance(line, str) and line.isascii() and "\n" not in line


class Journal:
    """One file, which each unit overwrites and which is kept: a mark states whether the unit was applied.

    It is not replaced by a rename, which would need another sync: a torn text fails its checksum, and its unit never took effect.
    """

    def __init__(self, root: Folder) -> None:
        self._root = root

    def is_pending(self) -> bool:
        """Whether a unit may wait to be applied (it may also turn out to be torn)."""
        return self._read_file()[: len(_PENDING)] == _PENDING

    def read_last(self) -> t.Optional[JournalUnit]:
        """Return the last unit, applied or not; None if it is missing or torn. Raises L(InvalidState) for a complete text that is not a unit."""
        checksum, _newline, text = self._read_file()[len(_PENDING) :].decode("utf-8", "replace").partition("\n")
        if not text or checksum != compute_digest(text):
            return None
        try:
            return _parse_unit(text)
        except ValueError as error:
            raise self.make_foreign_error(error) from error

    def make_foreign_error(self, why: Exception) -> InvalidState:
        """Return the error for a complete unit that this version cannot apply."""
        return InvalidState(
            f"The journal {os.path.join(self._root.path, JOURNAL_NAME)} is complete, but this version does not write such journals"
            f" ({why}). Nothing was changed.",
            "Update the collection on this control node, or restore that file from a backup.",
        )

    def write_unit(self, unit: JournalUnit) -> None:
        """Make the unit durable. From now on it takes effect."""
        text = canonical_json(_encode_unit(unit))
        fd = self._root.open_file(JOURNAL_NAME, os.O_RDWR | os.O_CREAT)
        try:
            is_new = os.fstat(fd).st_size == 0
            os.ftruncate(fd, 0)
            write_all(fd, _PENDING + compute_digest(text).encode("ascii") + b"\n" + text.encode("utf-8"))
            os.fsync(fd)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(fd, 0)
            raise
        finally:
            os.close(fd)
        if is_new:
            self._root.sync_names()

    def mark_applied(self) -> None:
        """Mark the unit as applied. Not synced: it is safe to apply it again."""
        fd = self._root.open_file(JOURNAL_NAME, os.O_RDWR)
        try:
            os.pwrite(fd, _APPLIED, 0)
        finally:
            os.close(fd)

    def drop_torn(self) -> None:
        """Drop a torn unit, which never took effect."""
        fd = self._root.open_file(JOURNAL_NAME, os.O_RDWR)
        try:
            os.ftruncate(fd, 0)
        finally:
            os.close(fd)

    def _read_file(self) -> bytes:
        try:
            return self._root.read_file(JOURNAL_NAME)
        except FileNotFoundError:
            return b""


_TAIL_BYTES = 65536


def read_lines(folder: Folder, name: str) -> Iterator[bytes]:
    """Yield all lines of a file without their ends, a torn one included; none if the file is missing."""
    try:
        fd = folder.open_file(name, os.O_RDONLY)
    except FileNotFoundError:
        return
    with open(fd, "rb") as file:
        yield from (line.rstrip(b"\n") for line in file)


class AuditFile:
    """:arg report: receives a sentence about a repair."""

    NAME = "audit.jsonl"

    def __init__(self, root: Folder, report: Callable[[str], None]) -> None:
        self._root = root
        self._report = report

    def read_last_link(self) -> t.Optional[AuditLink]:
        """Return the link of the last whole line, or None."""
        whole = self._read_tail().rpartition(b"\n")[0]
        return read_link(whole.rpartition(b"\n")[2]) if whole else None

    def append_once(self, line: str) -> None:
        """Write the line, durably, unless it is the last one already; a torn end is cut off first."""
        self.repair_end()
        link, last = read_link(line), self.read_last_link()
        if link is None or last is None or link.own != last.own:
            self._append_line(line.encode("utf-8") + b"\n")

    def repair_end(self) -> bool:
        """Cut off everything after the last complete line. Return whether anything was cut off."""
        torn = len(self._read_tail().rpartition(b"\n")[2])
        if not torn:
            return False
        fd = self._root.open_file(self.NAME, os.O_RDWR)
        try:
            os.ftruncate(fd, os.fstat(fd).st_size - torn)
            os.fsync(fd)
        finally:
            os.close(fd)
        self._report(f"The last line of {self._file_path} was torn by a crash ({torn} bytes) and was repaired.")
        return True

    @property
    def _file_path(self) -> str:
        return os.path.join(self._root.path, self.NAME)

    def _read_tail(self) -> bytes:
        try:
            fd = self._root.open_file(self.NAME, os.O_RDONLY)
        except FileNotFoundError:
            return b""
        try:
            size = os.fstat(fd).st_size
            return os.pread(fd, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
        finally:
            os.close(fd)

    def _append_line(self, data: bytes) -> None:
        fd = self._root.open_file(self.NAME, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            write_all(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
