# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a reader of the ledger may ask for: a term and conditions, answered with a list."""

from __future__ import annotations

import contextlib
import gc
import typing as t
from collections.abc import Sequence
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s

from .query import check_query, query
from .selection import select
from .store import Body, Ledger

_RECORD_TYPES = {"migrations": s.LIVE_MIGRATION, "evacuations": s.EVACUATION}
_CONDITIONS = {
    "migrations": {"status", "host", "domain", "since", "until", "forced"},
    "evacuations": {"status", "host", "domain", "since", "until", "forced"},
    "hosts": {"host"},
    "domains": {"host", "domain"},
}


@dataclass(frozen=True)
class Wanted:
    """The conditions, none of which has to be given; texts as the lookup's options of the same names."""

    status: t.Optional[Sequence[str]] = None
    host: t.Optional[str] = None
    domain: t.Optional[str] = None
    since: t.Optional[str] = None
    until: t.Optional[str] = None
    forced: t.Optional[bool] = None
    query: t.Optional[str] = None
    include_definitions: bool = False


def check_wanted(terms: Sequence[str], wanted: Wanted) -> None:
    """Raise L(InvalidArgument) for an unknown term, for a condition that one of the terms does not have, and for a bad value."""
    if not terms:
        raise InvalidArgument("Nothing was asked for.", f"Give one or more of {', '.join(_CONDITIONS)}.")
    for term in terms:
        if not isinstance(term, str) or term not in _CONDITIONS:
            raise InvalidArgument(f"The ledger has no {term!r}.", f"Give one or more of {', '.join(_CONDITIONS)}.")
        for name in ("status", "host", "domain", "since", "until", "forced"):
            if getattr(wanted, name) is not None and name not in _CONDITIONS[term]:
                raise InvalidArgument(f"'{name}' cannot be used with {term}.", f"With {term} use: {', '.join(sorted(_CONDITIONS[term]))}.")
    select(statuses=wanted.status, since=wanted.since, until=wanted.until)
    if wanted.query is not None:
        check_query(wanted.query)


def read(ledger: Ledger, term: str, wanted: Wanted) -> list[t.Any]:
    """Return what the ledger has for a (checked) term and meets the conditions, always as a list."""
    with _collector_paused():
        found = _documents(ledger, term, wanted)
    if wanted.query is None:
        return found
    selected = query(found, wanted.query)
    if selected is None:
        return []
    return selected if isinstance(selected, list) else [selected]


@contextlib.contextmanager
def _collector_paused() -> t.Iterator[None]:
    """Keep Python's collector from looking for cycles, over and over, among ever more documents that have none: it takes as long as reading them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _documents(ledger: Ledger, term: str, wanted: Wanted) -> list[Body]:
    if term == "hosts":
        return [document.body for document in ledger.hosts() if _is_host(document.body, wanted.host)]
    if term == "domains":
        return [_shown(document.body, wanted) for document in ledger.domains() if _is_domain(document.body, wanted)]
    found = ledger.records(types=[_RECORD_TYPES[term]], statuses=wanted.status, host=wanted.host, domain=wanted.domain, since=wanted.since, until=wanted.until)
    wanted_ones = (record for record in found if wanted.forced is None or bool(record.get("forced")) is wanted.forced)
    return sorted(wanted_ones, key=lambda record: (record["created_at"], record["id"]))


def _is_host(body: Body, host: t.Optional[str]) -> bool:
    return host is None or host in (body["name"], body["host_id"], body["host_uuid"])


def _is_domain(body: Body, wanted: Wanted) -> bool:
    places = body["possible_hosts"]
    at_host = wanted.host is None or any(wanted.host in (place.get("host"), place.get("host_id"), place.get("host_uuid")) for place in places)
    return at_host and (wanted.domain is None or wanted.domain in (body["name"], body["uuid"]))


def _shown(body: Body, wanted: Wanted) -> Body:
    if wanted.include_definitions or not body.get("protected"):
        return body
    return {**body, "protected": {key: value for key, value in body["protected"].items() if key != "definition"}}
