# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which records a query wants, and which months of closed ones it can do without."""

from __future__ import annotations

import datetime
import functools
import typing as t
from collections.abc import Sequence
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import is_unsettled

from .screen import Screen, needles
from .store import Body

_STATUSES = s.UNSETTLED | s.TOMBSTONE | s.CLOSED


def _moment(value: t.Optional[str], what: str) -> t.Optional[str]:
    """Return an RFC 3339 time, or a date (its first moment in UTC), in the form that records have."""
    if value is None:
        return None
    try:
        moment = datetime.datetime.fromisoformat(str(value))
        moment = (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).astimezone(datetime.UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidArgument(f"'{what}' is {value!r}, which is no time.", "Write it as 2026-11-21 or 2026-11-21T03:00:00Z.") from error
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def _known(values: t.Optional[Sequence[str]], known: t.Collection[str], what: str) -> t.Optional[frozenset[str]]:
    if values is None:
        return None
    unknown = sorted(str(value) for value in values if value not in known)
    if unknown:
        raise InvalidArgument(f"{unknown[0]!r} is no {what} of a record.", f"Use one or more of: {', '.join(sorted(known))}.")
    return frozenset(values)


@dataclass(frozen=True)
class Selection:
    """Times are texts in the form of records, compared as such."""

    types: t.Optional[frozenset[str]]
    statuses: t.Optional[frozenset[str]]
    host: t.Optional[str]
    domain: t.Optional[str]
    since: t.Optional[str]
    until: t.Optional[str]
    unsettled_only: bool

    @property
    def reads_closed(self) -> bool:
        """Whether a closed record could be wanted."""
        return not self.unsettled_only and (self.statuses is None or bool(self.statuses & s.CLOSED))

    def wants_month(self, year: str, month: str) -> bool:
        """Whether a record closed in that month could be wanted."""
        start = f"{year}-{month}"
        return not (self.since and start < self.since[:7]) and not (self.until and f"{start}-01T00:00:00.000Z" >= self.until)

    @functools.cached_property
    def screen(self) -> Screen:
        """What tells of most records, unread, that they are not wanted."""
        asked = ((needles("type", self.types), self.types), (needles("status", self.statuses), self.statuses))
        named = ((needles("", [name]), name) for name in (self.domain, self.host) if name is not None)
        return Screen(tuple(texts for texts, given in (*asked, *named) if given is not None), self.since, self.until)

    def wants(self, record: Body) -> bool:
        """Whether the record meets all conditions."""
        return (
            (self.types is None or record["type"] in self.types)
            and (self.statuses is None or record["status"] in self.statuses)
            and (not self.unsettled_only or is_unsettled(record))
            and (self.since is None or record["updated_at"] >= self.since)
            and (self.until is None or record["updated_at"] < self.until)
            and (self.domain is None or self.domain in (record["domain"].get("name"), record["domain"]["uuid"]))
            and (self.host is None or self._has_host(record))
        )

    def _has_host(self, record: Body) -> bool:
        return any(self.host in (record[end]["host"], record[end]["host_id"], record[end]["host_uuid"]) for end in ("source", "destination"))


def select(
    types: t.Optional[Sequence[str]] = None,
    statuses: t.Optional[Sequence[str]] = None,
    host: t.Optional[str] = None,
    domain: t.Optional[str] = None,
    since: t.Optional[str] = None,
    until: t.Optional[str] = None,
    unsettled_only: bool = False,
) -> Selection:
    """Return the selection. Raises L(InvalidArgument) for an unknown type or status and for what is no time."""
    return Selection(
        types=_known(types, s.TYPES, "type"),
        statuses=_known(statuses, _STATUSES, "status"),
        host=host,
        domain=domain,
        since=_moment(since, "since"),
        until=_moment(until, "until"),
        unsettled_only=unsettled_only,
    )
