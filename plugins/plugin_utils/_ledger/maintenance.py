# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""How the document of a maintenance run is written: over the version that was read, by no process of an earlier term, and with no host in two open runs."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Internal, InvalidState
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import FINISHED, MaintenanceRun
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import SCHEMA

from .changes import DocumentWrite, Transaction
from .documents import Document
from .rules import MAINTENANCE, check_uuid, document_path


def describe_run(run: MaintenanceRun) -> str:
    """Return a description by which a person finds the run."""
    return f"the maintenance run {run.id} ({run.state}, begun {run.created_at} by {run.created_by})"


def write_run(transaction: Transaction, run: MaintenanceRun, version: t.Optional[int]) -> Document:
    """Write the document. See L(Ledger.put_maintenance_run)."""
    new = _kept_form(run)
    path = document_path(MAINTENANCE, new.id)
    present = transaction.read_document(path)
    if (present.version if present else None) != version:
        raise run_overtaken_error(new, present.maintenance_run if present else None)
    if present:
        _check_successor(present.maintenance_run, new)
    if new.is_open and not (present and present.maintenance_run.is_open):
        _refuse_shared_hosts(transaction, new)
    document = Document(encode(new), (version or 0) + 1)
    transaction.write_document(DocumentWrite(path, document.version, new))
    return document


def _kept_form(run: MaintenanceRun) -> MaintenanceRun:
    """Return the run as it is kept. A value that could not be read back is an error here: L(ShapeError)."""
    kept = replace(run, id=check_uuid(run.id, "ID of the maintenance run"), schema=SCHEMA if run.schema is ABSENT else run.schema)
    return decode(MaintenanceRun, encode(kept))


def _check_successor(old: MaintenanceRun, new: MaintenanceRun) -> None:
    if old.state == FINISHED:
        raise InvalidState(f"Failed to change {describe_run(old)}: it is finished.", "Begin a new one.")
    if new.term < old.term or new.host_names != old.host_names:
        raise Internal(f"Failed to change {describe_run(old)}: its term must not decrease, and its hosts must not change.")


def _refuse_shared_hosts(transaction: Transaction, new: MaintenanceRun) -> None:
    """Raise L(Conflict) if a host of the run is in another open one. In both stores, no such run can be written until this unit is."""
    wanted = set(new.host_names)
    for document in transaction.read_all(MAINTENANCE):
        other = document.maintenance_run
        shared = [host for host in other.host_names if host in wanted]
        if other.id != new.id and other.is_open and shared:
            raise shared_hosts_error(other, shared)


def shared_hosts_error(other: MaintenanceRun, shared: t.Sequence[str]) -> Conflict:
    """Return the error for a run over hosts that another open run has."""
    what = describe_run(other)
    return Conflict(
        f"{', '.join(shared)} cannot be maintained twice at the same time: {what} has {'it' if len(shared) == 1 else 'them'}. Nothing was changed.",
        f"Wait for that run, run its command again if it was interrupted, or end it: kvmfleet.migration.maintenance -e run={other.id} -e request=stop.",
        run=encode(other),
    )


def run_overtaken_error(run: MaintenanceRun, current: t.Optional[MaintenanceRun]) -> Conflict:
    """Return the error for a change to a run that another process wrote after it was read."""
    now = f"it is now '{current.state}', written at {current.updated_at}" if current else "it is not in the ledger"
    return Conflict(f"Failed to change the maintenance run {run.id}: another process wrote it meanwhile, {now}.", "Read the run again and repeat the decision.")
