# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The folder of an archive. It has the form of a file ledger that is only read, with closed records and audit chains that have ended."""

from __future__ import annotations

import contextlib
import itertools
import os
import typing as t
from collections.abc import Iterator, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Internal, InvalidArgument, InvalidState

from ..audit import ArchivedChain, compute_seal
from ..contents import RawDocument
from ..domain_index import FROM_THE_FIRST
from ..identity import IDENTITY_NAME, LedgerIdentity
from . import folder
from .copying import ARCHIVE, ENDS, LINES, FileContents, FileTarget, closed_at, index_document, write_parts
from .folder import LOCK_NAME, LOCK_SECONDS, Folder, hold_file_lock, report_disk_errors
from .index import DomainIndex
from .journal import read_lines


class ArchiveFolder:
    """:arg path: the folder; it need not exist yet."""

    def __init__(self, path: str) -> None:
        self.name = os.path.abspath(path)
        self._identity: t.Optional[LedgerIdentity] = None
        self._chains: dict[str, ArchivedChain] = {}

    def read_identity(self, ledger: LedgerIdentity) -> t.Optional[LedgerIdentity]:
        """Return the identity of the archive; None for a folder that is missing or empty. Changes nothing.

        Raises L(InvalidArgument) if the folder has anything else than an archive of this ledger.
        """
        seen, other = FileTarget(self.name).read_state(), "Name an archive of this ledger, or an empty or new folder, with 'to'."
        if seen.foreign or seen.copying:
            what = "an unfinished copy of a ledger" if seen.copying else f"other data (e.g. {seen.foreign!r})"
            raise InvalidArgument(f"{self.name} contains {what}. Nothing was changed.", other)
        if seen.identity and seen.identity.archive_of is None:
            raise InvalidArgument(f"{self.name} is a ledger ({seen.identity.ledger_id}), and no archive. Nothing was changed.", other)
        if seen.identity and seen.identity.ledger_id != ledger.ledger_id:
            archive_of = f"{seen.identity.archive_of} ({seen.identity.ledger_id})"
            raise InvalidArgument(f"{self.name} is an archive of another ledger, {archive_of}. Nothing was changed.", other)
        return seen.identity

    def open_archive(self, ledger: LedgerIdentity, name: str, until: str, by: str) -> LedgerIdentity:
        """Begin the archive of a ledger, or continue it, and return its identity.

        Raises as L(read_identity), and L(InvalidState) if its audit chains were changed.

        :arg name: of the ledger; C(until) and C(by) as L(ArchiveOrigin) has them.
        """
        with report_disk_errors(self.name):
            folder.make_folder(self.name)
            with Folder.open_path(self.name) as root, hold_file_lock(root, LOCK_NAME, True, LOCK_SECONDS):
                before = self.read_identity(ledger)
                os.fchmod(root.fd, 0o700)
                self._chains = _read_chains(root, before)
                newest = max(until, before.content.archive.until) if before and before.content.archive else until
                after = self._write_identity(root, ledger.make_archive(name, newest, by, compute_seal(self._chains.values()), before))
                if DomainIndex(root).read_begin() is None:
                    DomainIndex(root).write_begin(FROM_THE_FIRST)
                return after

    def add_documents(self, entries: Sequence[RawDocument]) -> None:
        """Write closed records durably, and read them back. Raises L(InvalidState) if the archive has another record in the place of one."""
        with self._hold_archive() as root:
            for entry in entries:
                is_there = _has_document(root, entry)
                index_document(root, entry)
                if not is_there:
                    _write_document(root, entry)
            folder.sync_file_system(root)
            wrong = next((entry for entry in entries if _read_document(root, entry) != entry.data), None)
            if wrong is not None:
                raise self._make_comparison_error(wrong.path)

    def add_chain(self, chain: ArchivedChain, lines: Sequence[bytes]) -> None:
        """Write audit lines durably, and read them back. What the archive has is never replaced: after a ledger was set back, its lines can be others."""
        # The hashes of its first and its last line tell its lines, under any name.
        if any(one[1:] == chain[1:] for one in self._chains.values()):
            return
        chain = chain._replace(name=self._find_free_name(chain.name))
        with self._hold_archive() as root:
            write_parts(root, (ARCHIVE, f"{chain.name}{LINES}"), (line + b"\n" for line in lines))
            with root.open_folder(ARCHIVE) as parent:
                parent.write_file(f"{chain.name}{ENDS}", chain.encode_ends())
                folder.sync_file_system(parent)
                if list(read_lines(parent, f"{chain.name}{LINES}")) != list(lines):
                    raise self._make_comparison_error((ARCHIVE, chain.name))
            self._chains[chain.name] = chain
            self._reseal(root)

    def finish_run(self) -> LedgerIdentity:
        """Return the identity of the archive after all writes of a run: its version is higher than that of any backup from before."""
        with self._hold_archive() as root:
            return self._reseal(root)

    def _find_free_name(self, name: str) -> str:
        names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
        return next(one for one in names if one not in self._chains)

    @contextlib.contextmanager
    def _hold_archive(self) -> Iterator[Folder]:
        with report_disk_errors(self.name), Folder.open_path(self.name) as root, hold_file_lock(root, LOCK_NAME, True, LOCK_SECONDS):
            if self._identity is None or folder.read_if_present(root) != self._identity.data:
                raise Conflict(f"The archive {self.name} was changed by another process meanwhile.", "Let it end, then run the task again.")
            yield root

    def _reseal(self, root: Folder) -> LedgerIdentity:
        return self._write_identity(root, t.cast(LedgerIdentity, self._identity).reseal_archive(compute_seal(self._chains.values())))

    def _write_identity(self, root: Folder, identity: LedgerIdentity) -> LedgerIdentity:
        root.write_file(IDENTITY_NAME, identity.data)
        self._identity = identity
        return identity

    def _make_comparison_error(self, path: Sequence[str]) -> Internal:
        return Internal(f"The data read back from {os.path.join(self.name, *path)} differ from the ledger. They stay in the ledger.", "Check that disk.")


def _read_chains(root: Folder, identity: t.Optional[LedgerIdentity]) -> dict[str, ArchivedChain]:
    """Return the sealed chains of the archive. One that was written before its run died is still in the ledger, and is removed here."""
    there = {chain.name: chain for chain, _lines in FileContents(root, None).read_chains()}
    seal = identity.seal if identity else compute_seal([])
    for dropped in (None, *there):
        sealed = {name: chain for name, chain in there.items() if name != dropped}
        if compute_seal(sealed.values()) == seal:
            _remove_chain(root, dropped)
            return sealed
    raise InvalidState(
        f"The audit chains in the archive {root.path} are not those that were archived. Nothing was changed.",
        "Restore the archive from a backup, or name a new folder with 'to'.",
    )


def _remove_chain(root: Folder, name: t.Optional[str]) -> None:
    if name is not None:
        with root.open_folder(ARCHIVE) as parent:
            parent.remove_file(f"{name}{ENDS}")
            parent.remove_file(f"{name}{LINES}")


def _read_document(root: Folder, entry: RawDocument) -> t.Optional[bytes]:
    try:
        with root.open_folder(*entry.path[:-1]) as parent:
            return folder.read_if_present(parent, entry.path[-1])
    except FileNotFoundError:
        return None


def _has_document(root: Folder, entry: RawDocument) -> bool:
    """Whether the archive has the record. Raises L(InvalidState) if it has another one there; what a crash of the control node has left may be torn."""
    there = _read_document(root, entry)
    if there is not None and there != entry.data and RawDocument(entry.path, there).record is not None:
        raise InvalidState(
            f"{os.path.join(root.path, *entry.path)} is another record than the ledger has. The one in the ledger was not removed.",
            "Compare the two; name a new folder with 'to' if both are right.",
        )
    return there == entry.data


def _write_document(root: Folder, entry: RawDocument) -> None:
    """Write a record, not synced. Readers hold no lock, so that they must not meet a part of it."""
    *parents, name = entry.path
    temporary = f".{name}.tmp"
    write_parts(root, (*parents, temporary), [entry.data], closed_at(entry))
    with root.open_folder(*parents) as parent:
        os.rename(temporary, name, src_dir_fd=parent.fd, dst_dir_fd=parent.fd)
