# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Keeping in the ledger which domains were displaced from a host, until they are back."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s

from .._ledger.places import same_host
from .._ledger.store import Body, Ledger
from .homes import Home, homes, is_at, place_of, since

TRIES = 5


@dataclass
class Displaced:
    """The domains of one host that are elsewhere, those that are back, and whether the ledger was changed, or would be."""

    changed: bool = False
    displaced: list[Body] = field(default_factory=list)
    returned: list[Body] = field(default_factory=list)


def keep(ledger: Ledger, host: Body, write: bool) -> Displaced:
    """Write the origin of each domain that was displaced from the host, and remove that of those that are back.

    An origin is kept with what C(protect) has saved of a domain; one that was never protected is only told.
    Raises L(Conflict) where a document is always changed by others.
    """
    documents = {document.body["uuid"]: document.body for document in ledger.domains()}
    known = homes([one.body for one in ledger.hosts()], documents.values(), _records(ledger))
    mine = {uuid: home for uuid, home in known.items() if same_host(place_of(home.host), place_of(host))}
    result = Displaced()
    for uuid, home in mine.items():
        document = documents.get(uuid)
        is_back = is_at(document, host)
        if _set_origin(ledger, uuid, None if is_back else host["name"], write):
            result.changed = True
        (result.returned if is_back else result.displaced).append(_entry(uuid, home, document))
    for entries in (result.displaced, result.returned):
        entries.sort(key=lambda entry: (str(entry["name"]), entry["uuid"]))
    return result


def _records(ledger: Ledger) -> list[Body]:
    found = {record["id"]: record for record in ledger.records(types=[s.EVACUATION], statuses=[s.DONE])}
    begin = since(document.body for document in ledger.hosts())
    if begin:
        found |= {record["id"]: record for record in ledger.records(statuses=[s.COMPLETED, s.DONE], since=begin)}
    return list(found.values())


def _set_origin(ledger: Ledger, uuid: str, origin: t.Optional[str], write: bool) -> bool:
    """Return whether the origin was another one. A document that others write meanwhile is read and changed again."""
    for rest in reversed(range(TRIES)):
        found = ledger.domain(uuid)
        protected = (found.body.get("protected") or None) if found else None
        if found is None or protected is None or protected.get("origin") == origin:
            return False
        if not write:
            return True
        try:
            ledger.put_domain({**found.body, "protected": {**protected, "origin": origin}}, found.version)
            return True
        except Conflict:
            if not rest:
                raise
    raise AssertionError("unreachable")


def _entry(uuid: str, home: Home, document: t.Optional[Body]) -> Body:
    record = home.record
    return {
        "uuid": uuid,
        "name": document["name"] if document else record["domain"].get("name") if record else None,
        "since": record["created_at"] if record else None,
        "possible_hosts": [place.get("host") for place in (document or {}).get("possible_hosts") or []],
        "remembered": bool((document or {}).get("protected")),
    }
