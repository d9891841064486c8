# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Copies a ledger to another store. At any time one ledger can be written, or none until the same task runs again, but never two.

The target is marked as a copy; the ledger is closed; all bytes are copied, read back and compared; the copy becomes the ledger; the closed one names it.
After an error before the copy has become the ledger, the old ledger is opened again. Two runs never do this at the same time: the lock of the ledger prevents
it, and so does the marker, which each run writes anew, for a run that was suspended and lost the lock.
"""

from __future__ import annotations

import abc
import contextlib
import typing as t
from collections.abc import Callable, Iterable, Iterator

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Internal, InvalidArgument, InvalidState, KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord

from .audit import ArchivedChain, compute_seal
from .contents import Fingerprint, LedgerContents, LedgerProblems, RawDocument, compute_fingerprint, find_problems, join_problems
from .identity import LedgerIdentity, copying_marker, decode_marker, refuse_moved
from .ledger import Ledger
from .rules import OPEN, DocumentPath, refuse_unsettled

_T = t.TypeVar("_T")
# A transaction of etcd holds 128 changes and 1.5 MiB; each document takes up to five changes.
_MAX_BATCH_DOCUMENTS = 25
_MAX_BATCH_BYTES = 2**19


class TargetState(t.NamedTuple):
    """The contents of a target; all None if it is empty.

    :arg identity: the identity of a ledger.
    :arg copying: the marker of an unfinished copy.
    :arg foreign: the name of other data.
    """

    identity: t.Optional[LedgerIdentity] = None
    copying: t.Optional[bytes] = None
    foreign: t.Optional[str] = None


class CopyTarget(abc.ABC):
    """A target of a copy. After L(mark_copy), each write raises L(Conflict) if another run has marked the target.

    :arg name: its folder, or its address.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._marker = b""

    @abc.abstractmethod
    def read_state(self) -> TargetState:
        """Return the contents of the target. Changes nothing."""

    @abc.abstractmethod
    def mark_copy(self, marker: bytes, seen: TargetState) -> None:
        """Mark the target as a copy of this run. Raises L(Conflict) if the target has changed since its state was read."""

    @abc.abstractmethod
    def open_contents(self) -> contextlib.AbstractContextManager[LedgerContents]:
        """Return the current contents of the copy."""

    @abc.abstractmethod
    def write_documents(self, entries: Iterable[RawDocument]) -> None:
        """Write documents."""

    @abc.abstractmethod
    def write_chain(self, chain: ArchivedChain, lines: Iterable[bytes]) -> None:
        """Write an audit chain of a former location, and overwrite an incomplete one."""

    @abc.abstractmethod
    def remove_document(self, path: DocumentPath) -> None:
        """Remove a document."""

    @abc.abstractmethod
    def remove_chain(self, name: str) -> None:
        """Remove an audit chain."""

    @abc.abstractmethod
    def finish_copy(self, identity: LedgerIdentity) -> None:
        """Make the copy a ledger, in one step."""


def split_batches(items: Iterable[_T], size: Callable[[_T], int]) -> Iterator[list[_T]]:
    """Yield the items in lists that fit into one transaction.

    :arg size: of an item, in bytes.
    """
    batch: list[_T] = []
    total = 0
    for item in items:
        if batch and (len(batch) >= _MAX_BATCH_DOCUMENTS or total + size(item) > _MAX_BATCH_BYTES):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size(item)
    if batch:
        yield batch


def changed_error(name: str) -> Conflict:
    """Return the error for a target that has changed since its state was read."""
    return Conflict(f"Something was written to {name} meanwhile. Nothing was changed.", "Check what is there, then run the task again.")


def taken_over_error(name: str) -> Conflict:
    """Return the error for a run whose copy was taken over."""
    return Conflict(f"The copy at {name} was taken over by another run, or removed.", "Let the other run finish, or run the task again.")


COPY_LOCK = "ledger-copy"
# In etcd the lock of a run that died ends within 15 s. A repeated task waits for this.
COPY_LOCK_SECONDS = 20.0

Step = Callable[[str], None]


def no_step(_name: str) -> None:
    """Do nothing after a step."""


class CopyOutcome(t.NamedTuple):
    """What was done, or would be done.

    :arg changed: false if it was done before.
    :arg problems: the problems of the audit, which was copied unchanged.
    """

    changed: bool
    problems: tuple[str, ...] = ()


def copy_ledger(source: Ledger, target: CopyTarget, by: str, force: bool = False, check: bool = False, step: Step = no_step) -> CopyOutcome:
    """Move the ledger to the target.

    :arg source: opened with C(moved), so that an interrupted copy can continue.
    :arg by: who does it, as records name it.
    :arg force: whether to copy an audit that has problems, as it is.
    :arg check: change nothing, and return or raise the expected result.
    :arg step: called after each step with its name; for tests.

    Raises L(Conflict) for unsettled records, L(InvalidArgument) for a target that is not empty, L(InvalidState) for a damaged ledger and for one that was moved
    elsewhere or is an archive.
    """
    if source.identity.archive_of is not None:
        refuse_moved(source.identity, source.name)
    if check:
        return _plan_copy(source, target, force)[0]
    try:
        with source.hold_lock(COPY_LOCK, COPY_LOCK_SECONDS):
            return _run_copy(source, target, by, force, step)
    except KvmfleetError as error:
        if not _is_closed(source.identity):
            raise
        stays = f"{error.message} The ledger {source.name} stays closed until this copy is finished or abandoned."
        again = f"Run the same task again. If {target.name} is permanently lost, first provide an empty one at the same address: the copy then begins anew."
        raise type(error)(stays, f"{error.next_step or ''} {again}".strip(), **error.result) from error


def _is_closed(identity: LedgerIdentity) -> bool:
    """Whether the ledger waits for the end of a copy."""
    return identity.moved is not None and not identity.moved.finished


def _run_copy(source: Ledger, target: CopyTarget, by: str, force: bool, step: Step) -> CopyOutcome:
    outcome, seen = _plan_copy(source, target, force)
    if not outcome.changed:
        return outcome
    if not _is_copy(seen, source.identity):
        target.mark_copy(copying_marker(source.ledger_id, source.name, by), seen)
        step("marked")
        if source.identity.moved is None:
            source.begin_move(target.name, by)
        step("closed")
        target.finish_copy(_fill_target(source, target, by, step))
        step("finished")
    source.finish_move()
    step("left")
    return outcome


def _plan_copy(source: Ledger, target: CopyTarget, force: bool) -> tuple[CopyOutcome, TargetState]:
    """Return what to do, and what is at the target."""
    moved = source.identity.moved
    if moved and moved.to != target.name:
        refuse_moved(source.identity, source.name)
    seen = target.read_state()
    if moved and _is_copy(seen, source.identity):
        return CopyOutcome(not moved.finished), seen
    _check_target(source, target, seen)
    problems, open_records = source.examine_contents(_inspect_contents)
    if problems.documents:
        raise InvalidState(f"The ledger {source.name} is damaged: {join_problems(problems.documents)} Nothing was copied.", problems=problems.all_problems)
    refuse_unsettled(source.name, open_records)
    if problems.audit and not force:
        raise InvalidState(
            f"The audit of the ledger {source.name} does not verify: {join_problems(problems.audit)} Nothing was copied.",
            "Keep a backup, and find out what changed the audit. With 'force: true' the audit is copied as it is, with its problems.",
            problems=problems.all_problems,
        )
    return CopyOutcome(True, problems.audit), seen


def _inspect_contents(contents: LedgerContents) -> tuple[LedgerProblems, list[MoveRecord]]:
    """Return the problems of the ledger; without problems, its open records."""
    problems = find_problems(contents)
    return problems, [] if problems.documents else [record for entry in contents.read_documents(OPEN) if (record := entry.record)]


def _is_copy(seen: TargetState, identity: LedgerIdentity) -> bool:
    """Whether the target is that ledger, copied."""
    return seen.identity is not None and (seen.identity.ledger_id, seen.identity.home) == (identity.ledger_id, identity.home + 1)


def _check_target(source: Ledger, target: CopyTarget, seen: TargetState) -> None:
    """Raise an error of the collection unless the target is empty, or an unfinished copy of this ledger."""
    other = "Name an empty or a new folder, or an unused prefix, with 'to'."
    if seen.identity and seen.identity.data == source.identity.data:
        raise InvalidArgument(f"{source.name} and {target.name} are the same ledger. Nothing was changed.", other)
    if seen.identity:
        raise InvalidArgument(f"{target.name} already contains a ledger ({seen.identity.ledger_id}). Nothing was changed.", other)
    if seen.foreign:
        raise InvalidArgument(f"{target.name} contains other data (e.g. {seen.foreign!r}). Nothing was changed.", other)
    if source.identity.moved and source.identity.moved.finished:
        raise InvalidState(
            f"The ledger {source.name} was moved to {target.name}, but is no longer there. Nothing was changed.",
            f"Restore it at {target.name} from a backup: the ledger that is left here ends with the copy, and the hosts may know more.",
        )
    marked = decode_marker(seen.copying) if seen.copying is not None else None
    if marked is not None and marked.ledger_id != source.ledger_id:
        raise InvalidArgument(
            f"{target.name} holds an unfinished copy of the ledger {marked.source or None} ({marked.ledger_id or None}). Nothing was changed.", other
        )


def _fill_target(source: Ledger, target: CopyTarget, by: str, step: Step) -> LedgerIdentity:
    """Copy and compare all bytes, and return the identity of the copy. Any error opens the source again."""
    try:
        with source.open_contents() as ours, target.open_contents() as theirs:
            wanted = compute_fingerprint(ours)
            _transfer_contents(ours, target, wanted, compute_fingerprint(theirs), step)
            if compute_fingerprint(theirs) != wanted:
                raise Internal(f"The data read back from {target.name} differ from the ledger {source.name}.", "Check whether other processes write there.")
            step("compared")
            return source.identity.make_copy(source.name, by, compute_seal(chain for chain, _lines in ours.read_chains()))
    except KvmfleetError as error:
        source.reopen_ledger()
        given_up = f"{error.message} The copy was abandoned, and the ledger {source.name} stays in use."
        raise type(error)(given_up, error.next_step, **error.result) from error


def _transfer_contents(ours: LedgerContents, target: CopyTarget, wanted: Fingerprint, there: Fingerprint, step: Step) -> None:
    """Write what the target lacks, and remove leftovers of an earlier attempt."""

    def changed_documents() -> Iterator[RawDocument]:
        for entry in ours.read_all_documents():
            if there.get(entry.path) != wanted.get(entry.path):
                step("document")
                yield entry

    target.write_documents(changed_documents())
    for chain, lines in ours.read_chains():
        if there.get(chain.name) != wanted[chain.name]:
            target.write_chain(chain, lines)
            step("chain")
    for key in there.keys() - wanted.keys():
        if isinstance(key, str):
            target.remove_chain(key)
        else:
            target.remove_document(key)
    step("copied")
