# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Where a domain may be, as its document says; both hosts of an unsettled record come on top of that."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.hosts import same_host

from .store import Body

Places = list[Body]


def possible_after(record: Body, old_status: str, before: Places) -> Places:
    """Return the possible hosts after the record went from C(old_status) to its own (DESIGN: The evacuation's rules)."""
    if record["type"] == s.LIVE_MIGRATION:
        return _after_move(record, before)
    return _after_evacuation(record, old_status, before)


def _after_move(record: Body, before: Places) -> Places:
    if record["status"] == s.COMPLETED:
        return [dict(record["destination"])]
    if record["status"] in (s.FAILED, s.CANCELLED):
        return [dict(record["source"])]
    return before


def _after_evacuation(record: Body, old_status: str, before: Places) -> Places:
    destination, status = record["destination"], record["status"]
    others = [place for place in before if not same_host(place, destination)]
    if status == s.PRE_MIGRATING:
        return [*others, dict(destination)]
    if status == s.FAILED and old_status != s.ACCEPTED:
        return others
    if status == s.DONE or (status == s.COMPLETED and not _was_done(record)):
        return [dict(destination)]
    return before


def _was_done(record: Body) -> bool:
    # After 'done' the domain may have moved on: its later moves say where it is.
    return any(entry.get("status") == s.DONE for entry in record["history"])


def new_domain(record: Body) -> Body:
    """Return the document of a domain that the ledger did not know."""
    domain = record["domain"]
    return {
        "schema": record["schema"],
        "uuid": domain["uuid"].lower(),
        "name": domain.get("name"),
        "possible_hosts": [dict(record["source"])],
        "generation": 0,
        "last_record": None,
        "updated_at": record["updated_at"],
    }


def changed_domain(body: Body, record: Body, old_status: t.Optional[str]) -> Body:
    """Return the domain's document after the record's transition."""
    before = body.get("possible_hosts") or []
    places = before if old_status is None else possible_after(record, old_status, before)
    last = record["id"] if record["status"] in s.CLOSED else body.get("last_record")
    name = record["domain"].get("name") or body.get("name")
    return {**body, "name": name, "possible_hosts": places, "last_record": last, "updated_at": record["updated_at"]}
