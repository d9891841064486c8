# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The tombstones that evacuations left for one host: which one of a domain acts, and what it says. Pure functions over records.

A tombstone is an evacuation from the host that is C(done); and one to the host that was given up for a newer one while the host was dead, so that what it
may have defined there is left over just so.
"""

from __future__ import annotations

import typing as t
from collections import defaultdict
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s

from .._ledger.places import same_host
from .._ledger.store import Body, Ledger

# What an evacuation that only defines the domain writes as the state it wants.
_NOT_STARTED = ("defined", "shut off")


@dataclass(frozen=True)
class Tombstone:
    """The newest tombstone of a domain on this host, and the C(older) ones, which it stands for too."""

    record: Body
    older: list[Body] = field(default_factory=list)

    @property
    def uuid(self) -> str:
        """The domain."""
        return str(self.record["domain"]["uuid"]).lower()

    @property
    def name(self) -> str:
        """The domain's name, as the record has it."""
        return str(self.record["domain"].get("name") or self.uuid)

    def said(self) -> Body:
        """Return what every list of the result says of it."""
        return {"uuid": self.uuid, "name": self.name, "record": self.record["id"]}


def tombstones(ledger: Ledger, host_id: t.Optional[str]) -> list[Tombstone]:
    """Return those of this host, by its own ID alone: a record without one, and a host without one, match nothing."""
    found: defaultdict[str, list[Body]] = defaultdict(list)
    for record in ledger.records(types=[s.EVACUATION], statuses=[s.DONE, s.PRE_MIGRATING, s.ERROR]):
        if host_id and (is_done_from(record, host_id) or is_given_up(record, host_id)):
            found[str(record["domain"]["uuid"]).lower()].append(record)
    newest_first = (sorted(records, key=lambda record: record["generation"], reverse=True) for records in found.values())
    return sorted((Tombstone(records[0], records[1:]) for records in newest_first), key=lambda tombstone: (tombstone.name, tombstone.uuid))


def unfinished(ledger: Ledger, host_id: t.Optional[str]) -> list[Tombstone]:
    """Return the evacuations from this host that are on their way, by its own ID alone: nobody knows yet what they come to."""
    records = ledger.records(types=[s.EVACUATION], unsettled_only=True)
    return [Tombstone(record) for record in records if host_id and record["source"]["host_id"] == host_id and not record["superseded_by"]]


def is_done_from(record: Body, host_id: str) -> bool:
    """Whether the record is C(done), and this host is its source."""
    return bool(record["status"] == s.DONE and record["source"]["host_id"] == host_id)


def is_given_up(record: Body, host_id: str) -> bool:
    """Whether a newer record has taken over from this one, whose destination this host is."""
    return bool(record["status"] in (s.PRE_MIGRATING, s.ERROR) and record["superseded_by"] and record["destination"]["host_id"] == host_id)


def ending(record: Body) -> str:
    """Return the status that the record gets once its host was cleaned."""
    return s.COMPLETED if record["status"] == s.DONE else s.FAILED


def question(tombstone: Tombstone, ledger: Ledger, here: Body) -> Body:
    """Return what the host has to know of the domain, see L(Survey.plans)."""
    document = ledger.domain(tombstone.uuid)
    expected = (document.body.get("possible_hosts") or []) if document else [tombstone.record["destination"]]
    return {
        **tombstone.said(),
        "defined": tombstone.record.get("wanted_state") in _NOT_STARTED,
        "came_back": _came_back(tombstone, expected, ledger, here),
        "expected": [place for place in expected if not same_host(place, here)],
        "saved": _saved_disks(tombstone.record, document.body if document else {}, here),
    }


def _came_back(tombstone: Tombstone, expected: list[Body], ledger: Ledger, here: Body) -> bool:
    """Whether a record that is newer than the tombstone put the domain on this host again, and the ledger has it nowhere else."""
    if not expected or not all(same_host(place, here) for place in expected):
        return False
    ended = [record for record in ledger.records(domain=tombstone.record["domain"]["uuid"]) if record["status"] in (s.COMPLETED, s.DONE)]
    newer = [record for record in ended if record["generation"] > tombstone.record["generation"]]
    newest = max(newer, key=lambda record: record["generation"], default=None)
    return newest is not None and bool(newest["destination"]["host_id"] == here["host_id"] or same_host(newest["destination"], here))


def _saved_disks(record: Body, document: Body, here: Body) -> list[Body]:
    """Return the disks as they were saved of this host; what was saved of another one since says nothing of this one."""
    before = (record.get("before") or {}).get("disks")
    if isinstance(before, list) and record["source"]["host_id"] == here["host_id"]:
        return before
    protected = document.get("protected") or {}
    host = protected.get("host") or {}
    return protected.get("disks") or [] if host.get("host_id") == here["host_id"] else []
