# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Queries of the ledger: a term with conditions, and a JMESPath expression over the answer. The answer is always a list."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord

from .archive_notes import describe_archived
from .documents import Document, DomainEntry, HostEntry, pause_collector
from .host_parts import ProtectTime
from .ledger import Ledger
from .rules import canonical_name
from .selection import make_selection
from .sights import with_time

try:
    import jmespath
except ImportError as error:
    _import_error: t.Optional[ImportError] = error
else:
    _import_error = None


class Query(t.Protocol):
    """A compiled expression."""

    def search(self, value: Json) -> Json:
        """Return what the expression selects of a value."""


def to_plain(value: Json) -> Json:
    """Return the value in Python's own types: JMESPath's functions identify a type by its name, and templating returns subclasses."""
    if isinstance(value, t.Mapping):
        # A value that was not checked yet can have other keys than text.
        return {t.cast(str, to_plain(key)): to_plain(item) for key, item in value.items()}
    if isinstance(value, str):
        return "".join(value)
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    for kind in (bool, int, float):
        if isinstance(value, kind):
            return kind(value)
    return value


def run_query(documents: Json, expression: Json) -> Json:
    """Return the result of the expression. Raises L(InvalidArgument) for a bad one, L(NotSupported) if the library is missing."""
    compiled = check_query(expression)
    try:
        # The library's own errors also mean invalid values.
        return compiled.search(to_plain(documents))
    except (RecursionError, ValueError) as error:
        raise _query_error(str(expression), error) from error


def check_query(expression: Json) -> Query:
    """Return the expression, compiled. Raises as L(run_query)."""
    if _import_error is not None:
        raise NotSupported(
            f"JMESPath queries need the Python library jmespath on the control node ({_import_error}).",
            "Install it where ansible-playbook runs: 'pip install jmespath'.",
        ) from _import_error
    if not isinstance(expression, str):
        raise InvalidArgument(f"The query {expression!r} is not a text.", "Give a JMESPath expression.")
    try:
        return t.cast("Query", jmespath.compile("".join(expression)))
    except (RecursionError, ValueError) as error:
        raise _query_error(expression, error) from error


def _query_error(expression: str, error: Exception) -> InvalidArgument:
    reason = " ".join(str(error).split()).rstrip(".")
    return InvalidArgument(f"Failed to run the JMESPath query {str(expression)!r}: {reason}.", "See https://jmespath.org for the syntax.")


_RECORD_TYPES = {"migrations": s.MOVE_TYPES, "evacuations": (s.EVACUATION,)}
_TERM_CONDITIONS = {
    "migrations": {"status", "host", "domain", "since", "until", "forced"},
    "evacuations": {"status", "host", "domain", "since", "until", "forced"},
    "hosts": {"host"},
    "domains": {"host", "domain"},
    "maintenance_runs": {"host"},
    "balance_runs": {"host"},
}


@dataclass(frozen=True)
class Conditions:
    """The conditions, all of them optional; the texts are those of the lookup's options with these names."""

    status: t.Optional[Sequence[str]] = None
    host: t.Optional[str] = None
    domain: t.Optional[str] = None
    since: t.Optional[str] = None
    until: t.Optional[str] = None
    forced: t.Optional[bool] = None
    query: t.Optional[str] = None
    include_definitions: bool = False


def read_conditions(options: JsonObject) -> Conditions:
    """Return the conditions in validated options, which have all their names."""
    named = t.cast("dict[str, t.Any]", to_plain({name: options[name] for name in Conditions.__dataclass_fields__}))
    named.update({name: canonical_name(named[name]) for name in ("host", "domain") if named[name] is not None})
    return Conditions(**named)


def check_conditions(terms: Sequence[str], conditions: Conditions) -> None:
    """Raise L(InvalidArgument) for an unknown term, for a condition that a term does not support, and for an invalid value."""
    if not terms:
        raise InvalidArgument("No query is given.", f"Give one or more of {', '.join(_TERM_CONDITIONS)}.")
    for term in terms:
        if not isinstance(term, str) or term not in _TERM_CONDITIONS:
            raise InvalidArgument(f"The ledger has no {term!r}.", f"Give one or more of {', '.join(_TERM_CONDITIONS)}.")
        for name in ("status", "host", "domain", "since", "until", "forced"):
            if getattr(conditions, name) is not None and name not in _TERM_CONDITIONS[term]:
                raise InvalidArgument(f"'{name}' cannot be used with {term}.", f"With {term} use: {', '.join(sorted(_TERM_CONDITIONS[term]))}.")
    make_selection(statuses=conditions.status, since=conditions.since, until=conditions.until)
    if conditions.query is not None:
        check_query(conditions.query)


def read_term(ledger: Ledger, term: str, conditions: Conditions) -> list[Json]:
    """Return the documents for a (checked) term that meet the conditions, always as a list; documents in their stored form."""
    with pause_collector():
        found = _read_documents(ledger, term, conditions)
    if conditions.query is None:
        return list(found)
    selected = run_query(found, conditions.query)
    if selected is None:
        return []
    return selected if isinstance(selected, list) else [selected]


def find_archived(ledger: Ledger, terms: Sequence[str], conditions: Conditions) -> t.Optional[str]:
    """Return a sentence if records that meet the conditions may be in archives; None otherwise. Evacuations are never archived."""
    selection = make_selection(statuses=conditions.status, since=conditions.since)
    return describe_archived(ledger, selection.since) if "migrations" in terms and selection.reads_closed else None


def read_records(ledger: Ledger, term: str, conditions: Conditions) -> list[MoveRecord]:
    """Return the records of a (checked) term that meet the conditions, from the oldest on."""
    with pause_collector():
        records = [document.record for document in _select_records(ledger, term, conditions)]
    return sorted(records, key=lambda record: (record.created_at, record.record_id))


def _read_documents(ledger: Ledger, term: str, conditions: Conditions) -> list[JsonObject]:
    if term == "hosts":
        times = ledger.list_protect_times()
        return [_add_time(document, times) for document in ledger.list_hosts() if matches_host(document.host, conditions.host)]
    if term == "domains":
        return [_hide_definition(document.body, conditions) for document in ledger.list_domains() if _matches_domain(document.domain, conditions)]
    if term == "maintenance_runs":
        return [document.body for document in ledger.list_maintenance_runs() if conditions.host in (None, *document.maintenance_run.host_names)]
    if term == "balance_runs":
        return [document.body for document in ledger.list_balance_runs() if conditions.host in (None, *document.balance_run.hosts)]
    documents = ((document.record.created_at, document.record.record_id, document.body) for document in _select_records(ledger, term, conditions))
    return [body for _created_at, _id, body in sorted(documents, key=lambda one: one[:2])]


def _select_records(ledger: Ledger, term: str, conditions: Conditions) -> Iterator[Document]:
    """Yield documents one by one: a list of them would have each record twice, as JSON and decoded."""
    selection = make_selection(_RECORD_TYPES[term], conditions.status, conditions.host, conditions.domain, conditions.since, conditions.until)
    found = ledger.list_record_documents(selection)
    return (document for document in found if conditions.forced is None or bool(document.record.forced) is conditions.forced)


def matches_host(entry: HostEntry, host: t.Optional[str]) -> bool:
    """Whether the host has that name, host_id or host_uuid, or none is wanted."""
    return host is None or host in (entry.name, entry.host_id, entry.host_uuid)


def _add_time(document: Document, times: t.Mapping[str, ProtectTime]) -> JsonObject:
    """Return the host's document with the time at which the host was protected last."""
    body, protect = document.body, times.get(str(document.host.host_key))
    protected = with_time(document.host, protect).protected
    if protect is None or not protected or protected.at != protect.at:
        return body
    return {**body, "protected": {**t.cast("JsonObject", body.get("protected") or {}), "at": protect.at, "by": protect.by or None}}


def _matches_domain(entry: DomainEntry, conditions: Conditions) -> bool:
    hosts = entry.possible_hosts
    at_host = conditions.host is None or any(conditions.host in (host.host, host.host_id, host.host_uuid) for host in hosts)
    return at_host and (conditions.domain is None or conditions.domain in (entry.name, entry.uuid))


def _hide_definition(body: JsonObject, conditions: Conditions) -> JsonObject:
    protected = body.get("protected")
    if conditions.include_definitions or not isinstance(protected, dict):
        return body
    return {**body, "protected": {key: value for key, value in protected.items() if key != "definition"}}
