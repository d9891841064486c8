# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A record that the ledger has lost and a host remembers: a person says what became of it, and the ledger has it again."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, InvalidArgument, InvalidState
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.transitions import may_follow

from .._ledger.rules import describe
from .._ledger.store import Body, Ledger, Stored


def restored(told: Body, status: str, host: str, said: str, by: str) -> tuple[Body, Body]:
    """Return the record as it is put into the ledger, and as it is then settled.

    Raises L(InvalidState) while the host still acts for it, L(InvalidArgument) for a status that it cannot get.

    :arg told: C(record) and C(watched), as the host remembers them.
    :arg host: who remembers it.
    """
    before = schema.check_record(schema.copied(told["record"]))
    # How an evacuation ended, only the ledger knew.
    if told["watched"] or (before["type"] == s.LIVE_MIGRATION and before["status"] not in s.FINAL):
        raise InvalidState(f"The host {host} remembers {describe(before)} as '{before['status']}'.", "Wait for its end there. Nothing was changed.")
    if not may_follow(before["type"], s.ERROR, status):
        raise InvalidArgument(f"The record {before['id']} cannot become '{status}'.", "Nothing was changed.")
    reason = before["reason"] if before["status"] == status else s.REASON_OPERATOR if status == s.CANCELLED else None
    schema.note(before, "restored", by, f"The ledger did not have it any more. It is what {host} remembers.")
    before.update(status=s.ERROR, reason=None)
    after = schema.copied(before)
    schema.advance(after, status, by, f"Settled by a person: {said}", reason)
    return before, after


def write(ledger: Ledger, stored: t.Optional[Stored], before: Body, after: Body) -> Body:
    """Write it as L(restored) gave it, over what the ledger has of it, if anything.

    Raises L(Conflict) where another record holds the domain, or a later move of it is known.
    """
    if stored is None:
        _check_newest(ledger, before)
        stored = ledger.open_record(before)
    else:
        stored = ledger.update(stored, {**before, "generation": max(stored.record["generation"], before["generation"])})
    # Should this end here, the record is unsettled, and the next run asks its hosts.
    return ledger.update(stored, {**after, "generation": max(stored.record["generation"], after["generation"])}).record


def _check_newest(ledger: Ledger, record: Body) -> None:
    document = ledger.domain(record["domain"]["uuid"])
    if document is not None and record["generation"] <= int(document.body.get("generation") or 0):
        raise Conflict(
            f"The ledger knows of a later move of domain {record['domain']['name']} than the record {record['id']}, and so where the domain is.",
            f"There is nothing to settle; {record['source']['host']} may have a copy of it that nobody needs. Nothing was changed.",
        )
