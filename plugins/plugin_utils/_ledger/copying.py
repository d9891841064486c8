# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Moving a ledger to another place: at any moment there is one that can be written, or none until the same is run again, never two.

The place is marked as a copy; the ledger is closed; all bytes are copied, read back and compared; the copy becomes the ledger; the closed one says so.
What goes wrong before the copy is the ledger opens the old one again. Two runs never do this at once: the ledger's lock sees to that, and the marker,
which each run writes anew, for one that was held up and lost the lock.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterator

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Internal, InvalidArgument, InvalidState, KvmfleetError

from .archive import seal_of
from .contents import Contents, Entry, fingerprint
from .document_ledger import DocumentLedger
from .encoding import decode
from .identity import Identity, copying_marker, marked_body, refuse_moved
from .layout import OPEN
from .rules import refuse_unsettled
from .store import Body
from .target import Seen, Target
from .verifying import Problems, problems_of, told

LOCK = "ledger-copy"
# In etcd the lock of a run that died ends within 15 s: the same task again waits for that.
LOCK_SECONDS = 20.0

Step = Callable[[str], None]


def _no_step(_name: str) -> None:
    return None


class Outcome(t.NamedTuple):
    """What was done, or would be.

    :arg changed: false where it was done before.
    :arg problems: what is wrong with the audit, which was copied as it is.
    """

    changed: bool
    problems: tuple[str, ...] = ()


def copy(source: DocumentLedger, target: Target, by: str, force: bool = False, check: bool = False, step: Step = _no_step) -> Outcome:
    """Move the ledger to the target.

    :arg source: opened with C(moved), so that what was broken off can go on.
    :arg by: who does it, as records name it.
    :arg force: whether to copy an audit that has problems, as it is.
    :arg check: change nothing, and return or raise what would come of it.
    :arg step: called after each step with its name; for tests.

    Raises L(Conflict) for unsettled records, L(InvalidArgument) for a target that is not empty, L(InvalidState) for what is damaged and for a ledger
    that was moved elsewhere.
    """
    if check:
        return _planned(source, target, force)[0]
    try:
        with source.locked(LOCK, LOCK_SECONDS):
            return _run(source, target, by, force, step)
    except KvmfleetError as error:
        if not _is_closed(source.identity):
            raise
        stays = f"{error.message} The ledger {source.name} stays closed until this copy is finished or given up."
        raise type(error)(stays, f"{error.next_step or ''} Run the same task again.".strip(), **error.result) from error


def _is_closed(identity: Identity) -> bool:
    """Whether the ledger waits for the end of a copy."""
    return identity.moved is not None and not identity.moved["finished"]


def _run(source: DocumentLedger, target: Target, by: str, force: bool, step: Step) -> Outcome:
    outcome, seen = _planned(source, target, force)
    if not outcome.changed:
        return outcome
    if not _is_copy(seen, source.identity):
        target.mark(copying_marker(source.ledger_id, source.name, by), seen)
        step("marked")
        if source.identity.moved is None:
            source.leave(target.name, by)
        step("closed")
        target.finish(_filled(source, target, by, step))
        step("finished")
    source.left()
    step("left")
    return outcome


def _planned(source: DocumentLedger, target: Target, force: bool) -> tuple[Outcome, Seen]:
    """Return what is to be done, and what is at the target."""
    moved = source.identity.moved
    if moved and moved["to"] != target.name:
        refuse_moved(source.identity, source.name)
    seen = target.look()
    if moved and _is_copy(seen, source.identity):
        return Outcome(not moved["finished"]), seen
    _check_target(source, target, seen)
    problems, open_records = source.examine(_looked_through)
    if problems.documents:
        raise InvalidState(f"The ledger {source.name} is damaged: {told(problems.documents)} Nothing was copied.", problems=problems.all)
    refuse_unsettled(source.name, open_records)
    if problems.audit and not force:
        raise InvalidState(
            f"The audit of the ledger {source.name} does not verify: {told(problems.audit)} Nothing was copied.",
            "Keep a backup, and see what became of it. With 'force: true' the audit is copied as it is, with its problems.",
            problems=problems.all,
        )
    return Outcome(True, problems.audit), seen


def _looked_through(contents: Contents) -> tuple[Problems, list[Body]]:
    """Return what is wrong with the ledger, and where nothing is its open records."""
    problems = problems_of(contents)
    return problems, [] if problems.documents else [decode(entry.data).body for entry in contents.entries(OPEN)]


def _is_copy(seen: Seen, identity: Identity) -> bool:
    """Whether the target is that ledger, copied."""
    return seen.identity is not None and (seen.identity.ledger_id, seen.identity.home) == (identity.ledger_id, identity.home + 1)


def _check_target(source: DocumentLedger, target: Target, seen: Seen) -> None:
    """Raise an error of the collection unless the target is empty, or an unfinished copy of this ledger."""
    other = "Name an empty or a new folder, or an unused prefix, with 'to'."
    if seen.identity and seen.identity.data == source.identity.data:
        raise InvalidArgument(f"{source.name} and {target.name} are the same ledger. Nothing was changed.", other)
    if seen.identity:
        raise InvalidArgument(f"{target.name} holds a ledger already ({seen.identity.ledger_id}). Nothing was changed.", other)
    if seen.foreign:
        raise InvalidArgument(f"{target.name} holds other things (e.g. {seen.foreign!r}). Nothing was changed.", other)
    if source.identity.moved and source.identity.moved["finished"]:
        raise InvalidState(
            f"The ledger {source.name} was moved to {target.name}, and is not there any more. Nothing was changed.",
            f"Restore it at {target.name} from a backup: what is left here is as old as the move, and the hosts may know more.",
        )
    marked = marked_body(seen.copying) if seen.copying is not None else None
    if marked is not None and marked.get("ledger_id") != source.ledger_id:
        raise InvalidArgument(
            f"{target.name} holds an unfinished copy of the ledger {marked.get('from')} ({marked.get('ledger_id')}). Nothing was changed.", other
        )


def _filled(source: DocumentLedger, target: Target, by: str, step: Step) -> Identity:
    """Copy and compare all bytes, and return what the copy is known by. Whatever error ends that opens the source again."""
    try:
        with source.contents() as ours, target.contents() as theirs:
            wanted = fingerprint(ours)
            _transfer(ours, target, wanted, fingerprint(theirs), step)
            if fingerprint(theirs) != wanted:
                raise Internal(f"What was read back from {target.name} is not what the ledger {source.name} has.", "See whether others write there.")
            step("compared")
            return source.identity.arrived(source.name, by, seal_of(chain for chain, _lines in ours.chains()))
    except KvmfleetError as error:
        source.stay()
        given_up = f"{error.message} The copy was given up, and the ledger {source.name} goes on as before."
        raise type(error)(given_up, error.next_step, **error.result) from error


def _transfer(ours: Contents, target: Target, wanted: t.Mapping[t.Any, str], there: t.Mapping[t.Any, str], step: Step) -> None:
    """Write what the target has not, and remove what it has besides, out of an earlier attempt."""

    def missing() -> Iterator[Entry]:
        for entry in ours.all_entries():
            if there.get(entry.place) != wanted.get(entry.place):
                step("document")
                yield entry

    target.put(missing())
    for chain, lines in ours.chains():
        if there.get(chain.name) != wanted[chain.name]:
            target.put_chain(chain, lines)
            step("chain")
    for key in there.keys() - wanted.keys():
        if isinstance(key, str):
            target.remove_chain(key)
        else:
            target.remove(key)
    step("copied")
