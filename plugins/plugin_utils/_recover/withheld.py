# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which evacuations withhold a host's release and its return into service."""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.hosts import may_be_host

from .._hosts.identity import Identity
from .._ledger.store import Body


def withholding(records: Iterable[Body], identity: Identity) -> list[Body]:
    """Return the evacuations of this host that are not closed: of each a copy is here that may not be started.

    Identity is the host_id. A record without one is taken for this host's by its libvirt UUID or name: those permit nothing, but they forbid.
    """
    is_open = s.UNSETTLED | s.TOMBSTONE
    found = [record for record in records if record["type"] == s.EVACUATION and record["status"] in is_open and _is_of(record["source"], identity)]
    return sorted(found, key=lambda record: (str(record["domain"].get("name")), record["created_at"]))


def keeping_out(records: Iterable[Body], identity: Identity) -> list[Body]:
    """Return the records for which the host stays in maintenance: those that withhold its release, and every unsettled one that names it."""
    listed = list(records)
    named = [
        record
        for record in listed
        if record["status"] in s.UNSETTLED and not record["superseded_by"] and any(_is_of(record[end], identity) for end in ("source", "destination"))
    ]
    known = {record["id"] for record in named}
    return named + [record for record in withholding(listed, identity) if record["id"] not in known]


def forgotten(missing: Iterable[Body], identity: Identity) -> list[Body]:
    """Return those of the records that the ledger has lost (see L(missing_records)) that name this host: what belongs on it is not known."""
    return [one for one in missing if any(_is_of(one[end], identity) for end in ("source", "destination"))]


def summary(record: Body) -> Body:
    """Return what a result tells of a record that is in the way; one that the ledger has lost has no reason."""
    told = {key: record.get(key) for key in ("id", "type", "status", "reason")}
    return {**told, "domain": record["domain"], "source": record["source"]["host"], "destination": record["destination"]["host"]}


def _is_of(end: Body, identity: Identity) -> bool:
    return may_be_host(end, {**identity.as_dict(), "host": identity.name})
