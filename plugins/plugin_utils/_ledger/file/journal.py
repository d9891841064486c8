# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The unit of change over several documents: written here whole and durably first, then applied, and applied again after a crash."""

from __future__ import annotations

import contextlib
import json
import os
import typing as t
from dataclasses import asdict, dataclass

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidState

from ..encoding import canonical, digest
from ..layout import is_place
from .folder import Folder, write_all

NAME = "journal"
_PENDING = b"pending\n"
_APPLIED = b"applied\n"


@dataclass(frozen=True)
class Write:
    """A document to be written: its place below the ledger, its version, its whole text."""

    place: tuple[str, ...]
    version: int
    text: str


@dataclass(frozen=True)
class Unit:
    """What is done together or not at all.

    :arg line: the last audit line after this unit, its own or the one before; None before the first.
    """

    writes: tuple[Write, ...]
    removes: tuple[tuple[str, ...], ...] = ()
    line: t.Optional[str] = None


def _parse(text: str) -> Unit:
    """Return the unit of a text. Raises C(ValueError) for what L(Journal.write) never wrote, whatever its checksum."""
    try:
        value = json.loads(text)
        writes = tuple(Write(_place(write["place"]), write["version"], write["text"]) for write in value["writes"])
        unit = Unit(writes, tuple(map(_place, value["removes"])), value["line"])
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if not all(_is_whole(write) for write in unit.writes) or not (unit.line is None or _is_line(unit.line)):
        raise ValueError("a document or the audit line is none")
    return unit


def _place(parts: t.Sequence[t.Any]) -> tuple[str, ...]:
    # A unit names nothing else, for what it names is written or removed.
    if not is_place(parts):
        raise ValueError(f"{'/'.join(parts)!r} is no place of a document")
    return tuple(parts)


def _is_whole(write: Write) -> bool:
    return isinstance(write.version, int) and write.version > 0 and isinstance(write.text, str) and write.text.isascii()


def _is_line(line: t.Any) -> bool:
    return isinstance(line, str) and line.isascii() and "\n" not in line


class Journal:
    """One file, overwritten by each unit and kept after it: a mark says whether it was applied.

    It is not replaced by a rename, which would cost a sync more: a torn text fails its checksum and was never begun.
    """

    def __init__(self, root: Folder) -> None:
        self._root = root

    def is_pending(self) -> bool:
        """Whether a unit may wait to be applied (it may also turn out to be torn)."""
        return self._read()[: len(_PENDING)] == _PENDING

    def last(self) -> t.Optional[Unit]:
        """Return the last unit, applied or not; None where there is none or it is torn. Raises L(InvalidState) for what is whole and no unit."""
        checksum, _newline, text = self._read()[len(_PENDING) :].decode("utf-8", "replace").partition("\n")
        if not text or checksum != digest(text):
            return None
        try:
            return _parse(text)
        except ValueError as error:
            raise InvalidState(
                f"The journal {os.path.join(self._root.path, NAME)} is whole, and is none that this version writes ({error}). Nothing was changed.",
                "Update the collection on this control node, or restore that file from a backup.",
            ) from error

    def write(self, unit: Unit) -> None:
        """Make the unit durable. From here on it happened."""
        text = canonical(asdict(unit))
        fd = self._root.open(NAME, os.O_RDWR | os.O_CREAT)
        try:
            is_new = os.fstat(fd).st_size == 0
            os.ftruncate(fd, 0)
            write_all(fd, _PENDING + digest(text).encode("ascii") + b"\n" + text.encode("utf-8"))
            os.fsync(fd)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(fd, 0)
            raise
        finally:
            os.close(fd)
        if is_new:
            self._root.sync()

    def mark_applied(self) -> None:
        """Say that the unit was applied. Not synced: to apply it once more does no harm."""
        fd = self._root.open(NAME, os.O_RDWR)
        try:
            os.pwrite(fd, _APPLIED, 0)
        finally:
            os.close(fd)

    def clear(self) -> None:
        """Drop a torn unit, which was never begun."""
        fd = self._root.open(NAME, os.O_RDWR)
        try:
            os.ftruncate(fd, 0)
        finally:
            os.close(fd)

    def _read(self) -> bytes:
        try:
            return self._root.read(NAME)
        except FileNotFoundError:
            return b""
