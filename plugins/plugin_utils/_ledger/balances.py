# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""How the document of a balance run is written: over the version that was read, with no host in two open runs, and each of its ends once."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.balance_runs import BalanceRun
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Internal, InvalidState
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import SCHEMA

from .changes import DocumentWrite, Transaction
from .documents import Document
from .rules import BALANCES, check_uuid, document_overtaken_error, document_path


def describe_run(run: BalanceRun) -> str:
    """Return a description by which a person finds the run."""
    return f"the balance run {run.id} ({run.state}, begun {run.created_at} by {run.created_by})"


def write_run(transaction: Transaction, run: BalanceRun, version: t.Optional[int]) -> Document:
    """Write the document. See L(Ledger.put_balance_run)."""
    new = _kept_form(run)
    path = document_path(BALANCES, new.id)
    present = transaction.read_document(path)
    if (present.version if present else None) != version:
        raise document_overtaken_error(f"the balance run {new.id}", present.body if present else None)
    if present:
        _check_successor(present.balance_run, new)
    elif new.is_open:
        _refuse_shared_hosts(transaction, new)
    document = Document(encode(new), (version or 0) + 1)
    transaction.write_document(DocumentWrite(path, document.version, new))
    return document


def _kept_form(run: BalanceRun) -> BalanceRun:
    """Return the run as it is kept. A value that could not be read back is an error here: L(ShapeError)."""
    kept = replace(run, id=check_uuid(run.id, "ID of the balance run"), schema=SCHEMA if run.schema is ABSENT else run.schema)
    return decode(BalanceRun, encode(kept))


def _check_successor(old: BalanceRun, new: BalanceRun) -> None:
    if old.measured is not ABSENT:
        raise InvalidState(f"Failed to change {describe_run(old)}: it is finished and measured.", "Begin a new one.")
    if new.what_was_planned != old.what_was_planned or (new.is_open and not old.is_open):
        raise Internal(f"Failed to change {describe_run(old)}: what was planned must not change, and it must not be opened again.")


def _refuse_shared_hosts(transaction: Transaction, new: BalanceRun) -> None:
    """Raise L(Conflict) if a host of the run is in another open one. In both stores, no such run can be written until this unit is."""
    wanted = set(new.hosts)
    for document in transaction.read_all(BALANCES):
        other = document.balance_run
        shared = [host for host in other.hosts if host in wanted]
        if other.is_open and shared:
            raise shared_hosts_error(other, shared)


def shared_hosts_error(other: BalanceRun, shared: t.Sequence[str]) -> Conflict:
    """Return the error for a run over hosts that another open run has."""
    what = describe_run(other)
    return Conflict(
        f"{', '.join(shared)} cannot be balanced twice at the same time: {what} has {'it' if len(shared) == 1 else 'them'}. Nothing was changed.",
        "Wait until that run has ended, then plan again.",
        run=encode(other),
    )
