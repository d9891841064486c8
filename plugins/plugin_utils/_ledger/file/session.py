# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""One access to a file ledger: its lock is held, a unit that a crash left behind is finished, then documents are read and written."""

from __future__ import annotations

import contextlib
import typing as t
from collections.abc import Callable, Iterator, Sequence

from ..access import Access
from ..access import Write as DocumentWrite
from ..audit import line_for, read_link
from ..encoding import encode
from ..identity import Identity, refuse_moved
from ..layout import SET_ASIDE, Place
from ..selection import select
from ..store import Body, Document, Stored
from . import creation, records
from .audit_file import AuditFile
from .disk_errors import reported
from .folder import Folder
from .journal import Journal, Unit, Write
from .locks import GATE_NAME, LOCK_NAME, LOCK_SECONDS, flocked
from .shelf import Shelf

Step = Callable[[str], None]


class Session(Access):
    """:arg step: called with the name of each step of a unit after it was made; tests end the process there."""

    def __init__(self, root: Folder, identity: Identity, report: Callable[[str], None], step: Step) -> None:
        self.root = root
        self.shelf = Shelf(root, report)
        self.journal = Journal(root)
        self.audit = AuditFile(root, report)
        self._genesis = identity.genesis
        self._step = step

    def read(self, place: Place) -> t.Optional[Document]:
        return self.shelf.read(place)

    def read_all(self, parts: Sequence[str]) -> Iterator[Document]:
        return self.shelf.read_all(parts)

    def holder(self, domain_uuid: str) -> t.Optional[Stored]:
        return records.holder(self.shelf, domain_uuid)

    def find(self, record_id: str) -> t.Optional[Stored]:
        return records.find(self.shelf, record_id)

    def every_record(self) -> Iterator[Body]:
        yield from records.open_records(self.shelf)
        yield from records.closed_records(self.root.path, select(), lambda sentence: None)

    def set_aside(self) -> list[str]:
        return self.shelf.folders(SET_ASIDE)

    def write(self, place: Place, version: int, body: Body) -> None:
        with self.root.sub(*place[:-1], create=True) as folder:
            folder.write(place[-1], encode(body, version))

    def commit(
        self,
        writes: Sequence[DocumentWrite],
        removes: Sequence[Place] = (),
        record: t.Optional[Body] = None,
        old_status: t.Optional[str] = None,
    ) -> None:
        line = self._previous_line()
        if record is not None:
            line = line_for(record, old_status, self._head(line))[0]
        texts = tuple(Write(tuple(place), version, encode(body, version).decode("ascii")) for place, version, body in writes)
        unit = Unit(texts, tuple(tuple(place) for place in removes), line)
        self._step("begin")
        self.journal.write(unit)
        self._step("journal")
        self._apply(unit)

    def recover(self) -> None:
        """Finish what a crash interrupted. Needs the exclusive lock."""
        if not self.journal.is_pending():
            return
        unit = self.journal.last()
        if unit is None:
            self.journal.clear()
        else:
            self._apply(unit)

    def _apply(self, unit: Unit) -> None:
        for write in unit.writes:
            self._apply_write(write)
            self._step(f"write {write.place[0]}")
        for place in unit.removes:
            with contextlib.suppress(FileNotFoundError), self.root.sub(*place[:-1]) as folder:
                if folder.remove(place[-1]):
                    folder.sync()
            self._step(f"remove {place[0]}")
        if unit.line:
            self.audit.append_once(unit.line)
            self._step("audit")
        self.journal.mark_applied()
        self._step("applied")

    def _apply_write(self, write: Write) -> None:
        # A mark that did not reach the disk lets a unit be applied again: what was written since must stay.
        present = self.shelf.read(write.place)
        if present is None or present.version < write.version:
            with self.root.sub(*write.place[:-1], create=True) as folder:
                folder.write(write.place[-1], write.text.encode("ascii"))

    def _previous_line(self) -> t.Optional[str]:
        """Return the last line that was written, which is put back first where the file has lost it."""
        last = self.journal.last()
        if last is None or last.line is None:
            self.audit.mend()
            return None
        self.audit.append_once(last.line)
        return last.line

    def _head(self, line: t.Optional[str]) -> str:
        link = read_link(line) if line else self.audit.last()
        return link.own if link else self._genesis


@contextlib.contextmanager
def _held(root: Folder, exclusive: bool) -> Iterator[None]:
    """Hold the ledger's lock. Whoever waits for it stands in the gate: readers, of whom one always comes before the last one goes, keep no writer out."""
    with contextlib.ExitStack() as stack:
        with flocked(root, GATE_NAME, True, LOCK_SECONDS):
            stack.enter_context(flocked(root, LOCK_NAME, exclusive, LOCK_SECONDS))
        yield


@contextlib.contextmanager
def session(path: str, identity: Identity, exclusive: bool, report: Callable[[str], None], step: Step) -> Iterator[Session]:
    """Open the ledger's folder and hold its lock.

    Raises L(InvalidState) where it is to be written, and is not the ledger any more that it was; L(TimedOut), and what L(reported) makes of any C(OSError).
    """
    with reported(path), Folder.at(path) as root:
        current = Session(root, identity, report, step)
        while True:
            with _held(root, exclusive):
                if exclusive:
                    refuse_moved(identity, path)
                    creation.check_unchanged(root, identity)
                    current.recover()
                if exclusive or not current.journal.is_pending():
                    yield current
                    return
            with _held(root, exclusive=True):
                current.recover()
