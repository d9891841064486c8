# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Records of moves, whatever keeps them: opened, changed and closed in one unit with the document of their domain."""

from __future__ import annotations

import copy

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s

from .access import Access, Write
from .keys import check_uuid
from .layout import DOMAINS, OPEN, closed_place, place_of
from .places import changed_domain, new_domain
from .rules import check_change, check_new, held, overtaken
from .store import Body, Document, Stored


def open_record(current: Access, record: Body) -> Stored:
    """Write the record and the domain's next generation. See L(Ledger.open_record)."""
    check_new(record)
    record_id, domain_uuid = record["id"].lower(), record["domain"]["uuid"].lower()
    current.expect(record_id, domain_uuid)
    existing = current.holder(domain_uuid)
    if existing:
        raise held(existing.record)
    same = current.find(record_id)
    if same:
        raise Conflict(f"A record {record_id} is in the ledger already.", "Open a record with a new id.", record=same.record)
    domain, version = _domain_of(current, record)
    opened = {**copy.deepcopy(record), "generation": domain["generation"]}
    writes = [(place_of(OPEN, record_id), 1, opened), (place_of(DOMAINS, domain_uuid), version, domain)]
    current.commit(writes, record=opened)
    return Stored(opened, 1)


def _domain_of(current: Access, record: Body) -> tuple[Body, int]:
    """Return the domain's document with the next generation, and its next version."""
    domain_uuid = record["domain"]["uuid"].lower()
    present = current.read(place_of(DOMAINS, domain_uuid))
    if present is None:
        present = Document({**new_domain(record), "generation": last_generation(current, domain_uuid)}, 0)
    body = changed_domain(present.body, record, None)
    return {**body, "generation": present.body["generation"] + 1}, present.version + 1


def last_generation(current: Access, domain_uuid: str) -> int:
    """Return the last generation given to a domain that has no document.

    That is 0, unless its document was damaged and set aside: then all its records say it.
    """
    if not any(name.startswith(f"{DOMAINS[0]}-{domain_uuid}-") for name in current.set_aside()):
        return 0
    return max((record["generation"] for record in current.every_record() if record["domain"]["uuid"].lower() == domain_uuid), default=0)


def _as_read(current: Access, stored: Stored) -> Body:
    """Return the record as it is now. Raises L(Conflict) unless it is at the version that was read."""
    record_id = check_uuid(stored.record["id"], "record id")
    current.expect(record_id, check_uuid(stored.record["domain"]["uuid"], "domain UUID"))
    now = current.find(record_id)
    if now is None:
        raise Conflict(f"The record {record_id} is not in the ledger any more.", "See what the ledger has under set_aside.", record=None)
    if now.version != stored.version:
        raise overtaken(now.record)
    return now.record


def update(current: Access, stored: Stored, record: Body) -> Stored:
    """Write the record over the one that was read. See L(Ledger.update)."""
    old = _as_read(current, stored)
    new = copy.deepcopy(record)
    check_change(old, new)
    version = stored.version + 1
    place = place_of(OPEN, new["id"].lower())
    if (new["status"], new["generation"]) == (old["status"], old["generation"]):
        current.write(place, version, new)
        return Stored(new, version)
    writes, removes = [(place, version, new)], []
    if new["status"] in s.CLOSED:
        writes, removes = [(closed_place(new), version, new)], [place]
    writes += _domain_change(current, new, old["status"])
    current.commit(writes, removes, new, old["status"])
    return Stored(new, version)


def _domain_change(current: Access, record: Body, old_status: str) -> list[Write]:
    """Return the write of the domain's document that the transition asks for, if any."""
    place = place_of(DOMAINS, record["domain"]["uuid"].lower())
    present = current.read(place)
    if present is None:
        present = Document({**new_domain(record), "generation": record["generation"]}, 0)
    body = changed_domain(present.body, record, old_status)
    body["generation"] = max(body["generation"], record["generation"])
    if record["status"] not in s.CLOSED and all(body[key] == present.body.get(key) for key in ("possible_hosts", "name", "generation")):
        return []
    return [(place, present.version + 1, body)]
