# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The state C(fencing_impossible) of a host in the ledger: it begins when no device could switch the host off, and ends with the next evidence.

Nothing depends on the state: every run tries the devices again. It is for people, who have to choose, and a notice is sent when it begins.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.evidence import FENCING_IMPOSSIBLE

from .._ledger.documents import Document, HostEntry, HostFencing
from .._ledger.host_entries import update_entry
from .._ledger.ledger import Ledger


def record_impossible(ledger: Ledger, host_id: str, error: KvmfleetError, by: str) -> None:
    """Write that the host could not be fenced, if that is what the error says, with a notice if that is new.

    :arg error: from L(fence_host), with the attempts.
    """
    if error.result.get("reason") != FENCING_IMPOSSIBLE:
        return
    attempts = decode(HostFencing, {"attempts": error.result["attempts"]}).attempts
    at = utc_now()

    def enter(entry: HostEntry) -> HostEntry:
        known = entry.fencing
        since = known.since if known and known.is_impossible and known.since else at
        return replace(entry, fencing=HostFencing(FENCING_IMPOSSIBLE, since, at, by, attempts))

    document = ledger.read_host(host_id)
    begins = document is not None and not (document.host.fencing and document.host.fencing.is_impossible)
    watched = ledger.witness.watch_host(enter(document.host), str(error)) if document and begins else contextlib.nullcontext()
    with watched:
        _change_entry(ledger, host_id, enter)


def clear_impossible(ledger: Ledger, host_id: str) -> None:
    """Write that there is evidence about the host again."""
    _change_entry(ledger, host_id, lambda entry: replace(entry, fencing=HostFencing()) if entry.fencing and entry.fencing.is_impossible else entry)


def _change_entry(ledger: Ledger, host_id: str, change: Callable[[HostEntry], HostEntry]) -> None:
    found = ledger.read_host(host_id)
    if found is None or change(found.host) == found.host:
        return

    def find() -> Document | None:
        return ledger.read_host(host_id)

    update_entry(ledger, find, lambda entry: change(entry or found.host))
