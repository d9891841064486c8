# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Writing a host's entry by compare and set: read again and changed again where another process was faster."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict

from .._ledger.store import Body, Document, Ledger

TRIES = 5


def change_entry(ledger: Ledger, find: t.Callable[[], t.Optional[Document]], change: t.Callable[[t.Optional[Body]], Body]) -> Body:
    """Return the entry as it is written; nothing is written where the change changes nothing. Raises L(Conflict) where others are always faster.

    :arg find: returns the entry as it is now.
    :arg change: returns the entry as it is to be, and changes nothing itself.
    """
    for rest in reversed(range(TRIES)):
        found = find()
        after = change(found.body if found else None)
        if found is not None and after == found.body:
            return after
        try:
            return ledger.put_host(after, found.version if found else None).body
        except Conflict as error:
            # Another refusal than that of a version stays one.
            if not rest or (found is not None and _version(find()) == found.version):
                raise Conflict(error.message, error.next_step) from error
    raise AssertionError("unreachable")


def _version(document: t.Optional[Document]) -> t.Optional[int]:
    return document.version if document else None
