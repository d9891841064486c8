# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Selects the records of a query. Cheap tests exclude most records and whole months before a document is parsed."""

from __future__ import annotations

import datetime
import functools
import json
import re
import typing as t
from collections.abc import Iterable, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import SCHEMA, MoveRecord

_UPDATED_AT = re.compile(rb'"updated_at":"([^"]*)"')
_THIS_SCHEMA = f'"schema":{SCHEMA},'.encode("ascii")
# A file is as old as its record, apart from the difference of two hosts' clocks.
_CLOCKS_SECONDS = 86400.0

Texts = t.Optional[Iterable[str]]


def search_texts(key: str, values: Texts) -> tuple[bytes, ...]:
    """Return texts, one of which is in the text of each record whose C(key) has one of the values; for any key if C(key) is empty."""
    before = f"{json.dumps(key)}:" if key else ""
    return tuple(f"{before}{json.dumps(value)}".encode("ascii") for value in sorted(values or ()))


@dataclass(frozen=True)
class PreFilter:
    """A cheap test. A record that passes may be selected; a record that does not pass is never selected.

    :arg needed: the canonical text of the record has one of each of these tuples in it.
    :arg since: RFC 3339, in the form of records; C(until) likewise.
    """

    needed: tuple[tuple[bytes, ...], ...] = ()
    since: t.Optional[str] = None
    until: t.Optional[str] = None

    @property
    def written_since(self) -> t.Optional[float]:
        """The Unix time before which no selected record can have been written; None without such a limit."""
        return None if self.since is None else datetime.datetime.fromisoformat(self.since).timestamp() - _CLOCKS_SECONDS

    def may_match(self, text: bytes) -> bool:
        """Whether the record of that canonical text may be selected; one of another schema passes, and its reader reports it."""
        if _THIS_SCHEMA not in text:
            return True
        return all(any(needle in text for needle in one_of) for one_of in self.needed) and self._is_in_time(text)

    def _is_in_time(self, text: bytes) -> bool:
        if self.since is None and self.until is None:
            return True
        stamps = (stamp.decode("utf-8", "replace") for stamp in _UPDATED_AT.findall(text))
        return any((self.since is None or stamp >= self.since) and (self.until is None or stamp < self.until) for stamp in stamps)


_STATUSES = s.UNSETTLED | s.TOMBSTONE | s.CLOSED


def _parse_moment(value: t.Optional[str], what: str) -> t.Optional[str]:
    """Return an RFC 3339 time, or a date (its first moment in UTC), in the format of records."""
    if value is None:
        return None
    try:
        moment = datetime.datetime.fromisoformat(str(value))
        moment = (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).astimezone(datetime.UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidArgument(f"'{what}' is {value!r}, which is not a time.", "Write it as 2026-11-21 or 2026-11-21T03:00:00Z.") from error
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def _check_values(values: t.Optional[Sequence[str]], known: t.Collection[str], what: str) -> t.Optional[frozenset[str]]:
    if values is None:
        return None
    unknown = sorted(str(value) for value in values if value not in known)
    if unknown:
        raise InvalidArgument(f"{unknown[0]!r} is not a {what} of a record.", f"Use one or more of: {', '.join(sorted(known))}.")
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
        """Whether a closed record could be selected."""
        return not self.unsettled_only and (self.statuses is None or bool(self.statuses & s.CLOSED))

    def includes_month(self, year: str, month: str) -> bool:
        """Whether a record closed in that month could be selected."""
        start = f"{year}-{month}"
        return not (self.since and start < self.since[:7]) and not (self.until and f"{start}-01T00:00:00.000Z" >= self.until)

    @functools.cached_property
    def prefilter(self) -> PreFilter:
        """The test that excludes most records before they are parsed."""
        kinds = ((search_texts("type", self.types), self.types), (search_texts("status", self.statuses), self.statuses))
        named = ((search_texts("", [name]), name) for name in (self.domain, self.host) if name is not None)
        return PreFilter(tuple(texts for texts, given in (*kinds, *named) if given is not None), self.since, self.until)

    def matches(self, record: MoveRecord) -> bool:
        """Whether the record meets all conditions."""
        return (
            (self.types is None or record.type in self.types)
            and (self.statuses is None or record.status in self.statuses)
            and (not self.unsettled_only or record.is_unsettled)
            and (self.since is None or record.updated_at >= self.since)
            and (self.until is None or record.updated_at < self.until)
            and (self.domain is None or self.domain in (record.domain.name, record.domain.uuid))
            and (self.host is None or self._has_host(record))
        )

    def _has_host(self, record: MoveRecord) -> bool:
        return any(self.host in (end.host, end.host_id, end.host_uuid) for end in record.ends)


def make_selection(
    types: t.Optional[Sequence[str]] = None,
    statuses: t.Optional[Sequence[str]] = None,
    host: t.Optional[str] = None,
    domain: t.Optional[str] = None,
    since: t.Optional[str] = None,
    until: t.Optional[str] = None,
    unsettled_only: bool = False,
) -> Selection:
    """Return the selection. Raises L(InvalidArgument) for an unknown type or status and for an invalid time."""
    return Selection(
        types=_check_values(types, s.TYPES, "type"),
        statuses=_check_values(statuses, _STATUSES, "status"),
        host=host,
        domain=domain,
        since=_parse_moment(since, "since"),
        until=_parse_moment(until, "until"),
        unsettled_only=unsettled_only,
    )
