# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which records count at a host: those that book room there, and those whose move is going on."""

from __future__ import annotations

import datetime
import typing as t
from collections.abc import Iterable, Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.hosts import same_host

STARTED = frozenset({s.PREPARING, s.RUNNING, s.RUNNING_POST_COPY})
# Scheduled is the booking. Two that were only accepted must not refuse each other the last room.
_BOOKED = s.UNSETTLED - {s.ACCEPTED}
_ARRIVED = frozenset({s.COMPLETED, s.DONE})

Body = Mapping[str, t.Any]


def towards(records: Iterable[Body], here: Body) -> dict[str, Body]:
    """Return, by domain UUID, the records whose domain is at this host, or on its way there, though the facts may not show it.

    That is every record that has booked this destination, and where a domain has none, its newest one if it arrived here. Whether a guest came before or after
    the facts were gathered is not asked of clocks: ended records are given only where they are news.

    :arg here: the host, as a place of records.
    """
    booked: dict[str, Body] = {}
    newest: dict[str, Body] = {}
    for record in records:
        uuid = record["domain"]["uuid"]
        if record["status"] in _BOOKED:
            if same_host(record["destination"], here):
                booked[uuid] = record
        elif record["status"] in _ARRIVED and (uuid not in newest or _order(record) > _order(newest[uuid])):
            newest[uuid] = record
    arrived = {uuid: record for uuid, record in newest.items() if same_host(record["destination"], here)}
    return {**arrived, **booked}


def _order(record: Body) -> tuple[int, str]:
    """Return by what a domain's records follow each other: their generation rises, whoever writes them."""
    generation = record.get("generation")
    return generation if isinstance(generation, int) else 0, str(record.get("updated_at"))


def started(records: Iterable[Body], end: str, here: Body) -> frozenset[str]:
    """Return the UUIDs of domains whose live migration has begun.

    :arg end: C(destination) for those towards this host, C(source) for those away from it.
    """
    moving = (record for record in records if record["status"] in STARTED and record.get("type") == s.LIVE_MIGRATION)
    return frozenset(record["domain"]["uuid"] for record in moving if same_host(record[end], here))


def instant(stamp: t.Any) -> t.Optional[datetime.datetime]:
    """Return the point in time; None for what is no RFC 3339 stamp with a zone."""
    try:
        at = datetime.datetime.fromisoformat(stamp) if isinstance(stamp, str) else None
    except ValueError:
        return None
    return at if at is not None and at.tzinfo is not None else None
