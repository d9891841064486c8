# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Where displaced domains are at home: on the host from which the oldest drain or evacuation took them, over however many hops since."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s

from .._ledger.places import same_host
from .._ledger.store import Body

ENABLED = "enabled"


@dataclass(frozen=True)
class Home:
    """C(host) is the entry of the host that a domain is at home on; C(record) the oldest move from there, null where the document says it."""

    host: Body
    record: t.Optional[Body]


def since(hosts: Iterable[Body]) -> t.Optional[str]:
    """Return from when on records can displace a domain from one of these hosts; null where all hosts are enabled."""
    return min((host["since"] for host in hosts if host["state"] != ENABLED and host.get("since")), default=None)


def homes(hosts: Sequence[Body], documents: Iterable[Body], records: Iterable[Body]) -> dict[str, Home]:
    """Return the home of each displaced domain by UUID, also of those that are there again.

    :arg hosts: all entries of the ledger.
    :arg documents: of all domains. An origin that is written in there is older than any record given.
    :arg records: moves and evacuations that put their domain elsewhere.
    """
    found: dict[str, Home] = {}
    for record in sorted(records, key=lambda one: one["created_at"]):
        source = next((host for host in hosts if same_host(place_of(host), record["source"])), None)
        if source is not None and _displaces(record, source):
            found.setdefault(record["domain"]["uuid"].lower(), Home(source, record))
    for document in documents:
        origin = (document.get("protected") or {}).get("origin")
        source = next((host for host in hosts if host["name"] == origin), None) if origin else None
        if source is not None:
            found[document["uuid"]] = Home(source, None)
    return found


def is_at(document: t.Optional[Body], host: Body) -> bool:
    """Whether the domain is on that host by the ledger, and nowhere else."""
    places = (document or {}).get("possible_hosts") or []
    return bool(places) and all(same_host(place, place_of(host)) for place in places)


def place_of(host: Body) -> Body:
    """Return a host's entry as an end of a record."""
    return {"host": host["name"], "host_id": host.get("host_id"), "host_uuid": host.get("host_uuid")}


def _displaces(record: Body, source: Body) -> bool:
    """Whether the record took its domain from a host that was in maintenance or dead: not what a person moved from one that was in service."""
    if record["type"] == s.EVACUATION and record["status"] == s.DONE:
        return True
    return bool(source["state"] != ENABLED and source.get("since") and record["created_at"] >= source["since"] and record["status"] in (s.COMPLETED, s.DONE))
