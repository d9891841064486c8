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

from .encoding import canonical, digest
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
    value = json.loads(text)
    writes = tuple(Write(tuple(write["place"]), write["version"], write["text"]) for write in value["writes"])
    return Unit(writes, tuple(tuple(place) for place in value["removes"]), value["line"])


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
        """Return the last unit, applied or not; None where there is none or it is torn."""
        checksum, _newline, text = self._read()[len(_PENDING) :].decode("utf-8", "replace").partition("\n")
        if not text or checksum != digest(text):
            return None
        return _parse(text)

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
