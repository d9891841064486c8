# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The rules of a ledger, independent of its store.

They state where documents are stored, what a document of each kind must contain, which record holds a domain, and what a change must not modify.
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Json, JsonObject, ShapeError, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Internal, InvalidArgument, InvalidState
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import SCHEMA, MoveRecord, read_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import HOST_STATES, check_transition

from .document_bytes import Damaged
from .documents import Document, DomainEntry, HostEntry
from .selection import PreFilter

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LOCK_KEY = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")


def is_uuid(value: Json) -> bool:
    """Whether the value is the text of a UUID, in lower case, with hyphens."""
    return isinstance(value, str) and _UUID.fullmatch(value) is not None


def check_uuid(value: Json, what: str) -> str:
    """Return the UUID in lower case. Raises L(InvalidArgument), naming C(what) it should have been, for anything else."""
    lowered = value.lower() if isinstance(value, str) else value
    if not is_uuid(lowered):
        raise InvalidArgument(f"The {what} {value!r} is not a UUID.", "Give it as 8-4-4-4-12 hexadecimal digits.")
    return str(lowered)


def canonical_name(named: str) -> str:
    """Return the name or UUID of a domain or a host as the ledger has it: a UUID in lower case."""
    lowered = named.lower()
    return lowered if is_uuid(lowered) else named


def check_lock_key(key: Json) -> str:
    """Return the name of a lock. Raises L(InvalidArgument) unless it is made of a-z, 0-9, dot, hyphen and underscore."""
    if not isinstance(key, str) or not _LOCK_KEY.fullmatch(key):
        raise InvalidArgument(f"{key!r} cannot name a lock.", "Use up to 100 of a-z, 0-9, '.', '-', '_'.")
    return key


DocumentPath = tuple[str, ...]

OPEN = ("migrations", "open")
CLOSED = ("migrations", "closed")
DOMAINS = ("domains",)
HOSTS = ("hosts",)
# What hosts see of those whose ID begins with a digit: a folder for each digit, in which each host that sees one of them has a document.
SIGHTS = ("sights",)
SIGHT_FOLDERS = tuple((*SIGHTS, digit) for digit in "0123456789abcdef")
# When hosts were protected.
PROTECTED = ("protected",)
# One document, under the ID of the ledger.
SETTINGS = ("settings",)
# One document, under the ID of the ledger.
BRAKE = ("brake",)
MAINTENANCE = ("maintenance",)
BALANCES = ("balances",)
SET_ASIDE = ("set_aside",)

_PATH = re.compile(
    r"(migrations/open|migrations/closed/[0-9]{4}/[0-9]{2}|domains|hosts|sights/[0-9a-f]|protected|settings|brake|maintenance|balances)/[0-9a-f-]{36}\.json"
)
_ID_KEYS = {
    "migrations": "id",
    "domains": "uuid",
    "hosts": "host_key",
    "sights": "host_id",
    "protected": "host_key",
    "settings": "ledger_id",
    "brake": "ledger_id",
    "maintenance": "id",
    "balances": "id",
}


def document_path(folder: Sequence[str], key: str) -> DocumentPath:
    """Return the location of the document of that (checked) key in the ledger."""
    return (*folder, f"{key}.json")


def is_document_path(parts: Sequence[str]) -> bool:
    """Whether this is the location of a document."""
    path = "/".join(parts)
    return _PATH.fullmatch(path) is not None and path.split("/") == list(parts)


def sights_path(host_id: str, seen_id: str) -> DocumentPath:
    """Return the location of what a host sees of another. Raises L(InvalidArgument) for an ID that is not a UUID."""
    return document_path((*SIGHTS, check_uuid(seen_id, "host_id")[0]), check_uuid(host_id, "host_id"))


def closed_record_path(record: MoveRecord) -> DocumentPath:
    """Return the location of a closed record: the month in which it was closed."""
    return document_path((*CLOSED, record.updated_at[:4], record.updated_at[5:7]), record.record_id.lower())


def document_key(location: DocumentPath) -> str:
    """Return the key of the document."""
    return location[-1].removesuffix(".json")


def aside_name(location: DocumentPath, moment: int) -> str:
    """Return the name under which this document is set aside."""
    return f"{location[0]}-{document_key(location)}-{moment}.json"


def may_be_selected(location: DocumentPath, text: bytes, prefilter: PreFilter) -> bool:
    """Whether the document may be selected: its canonical text passes, or its name may be wrong."""
    return prefilter.may_match(text) or document_key(location).encode() not in text.lower()


def check_document(location: DocumentPath, document: Document) -> None:
    """Raise L(Damaged) unless that document can have that location."""
    key, body = document_key(location), document.body
    if not is_uuid(key):
        raise Damaged("its name is not a UUID")
    if str(body.get(_ID_KEYS[location[0]])).lower() != key:
        raise Damaged("its name is that of another document")
    try:
        _read_content(location[0], document)
    except Internal as error:
        raise Damaged(error.message) from error
    except ShapeError as error:
        raise Damaged(f"its {error.path} is missing or invalid") from error


def _read_content(kind: str, document: Document) -> None:
    """Read the content as that of a document in that folder. Raises L(Internal) or L(ShapeError)."""
    if kind == "migrations":
        _record = document.record
    elif kind == "hosts":
        _host = document.host
    elif kind == "sights":
        _sights = document.sights
    elif kind == "protected":
        _time = document.protect_time
    elif kind == "settings":
        _settings = document.settings
    elif kind == "brake":
        _brake = document.brake
    elif kind == "maintenance":
        _run = document.maintenance_run
    elif kind == "balances":
        _balance = document.balance_run
    elif document.domain.generation is ABSENT:
        raise ShapeError("generation", "there")


# The maximum number of records that a sentence names.
_MAX_NAMED = 5
_TIMESTAMP = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])-[0-9]{2}T[0-9:]{8}\.[0-9]{3}Z")


def holds_domain(record: MoveRecord) -> bool:
    """Whether this record prevents another record of the domain; an evacuation that was superseded by a newer one does not."""
    return record.is_unsettled and not record.superseded_by


def map_holders(records: Iterable[MoveRecord]) -> dict[str, MoveRecord]:
    """Return those of the records that hold their domains, by the UUID of the domain."""
    return {record.domain.uuid.lower(): record for record in records if holds_domain(record)}


def describe_record(record: MoveRecord) -> str:
    """Return a description by which a person finds the record: its type, id, domain and hosts."""
    return f"the {record.type} record {record.id} of domain '{record.domain.name}' ({record.source.label} to {record.destination.label})"


def _describe_writer(record: MoveRecord) -> str:
    """Return who wrote the last line of the record's history."""
    return str(record.last_writer) if record.history else "an unknown process"


def check_new(record: MoveRecord) -> MoveRecord:
    """Return the record in its stored form. Raises L(InvalidArgument) or L(Internal) unless it can be opened."""
    kept = _check_form(record)
    if not record.is_unsettled:
        raise Internal(f"Failed to open {describe_record(record)}: its status is '{record.status}', which is not an unsettled one.")
    return kept


def check_change(old: MoveRecord, new: MoveRecord) -> MoveRecord:
    """Return C(new) as it is kept. Raises L(InvalidState) if C(old) is closed, L(Internal) if C(new) is not an allowed successor of it."""
    kept = _check_form(new)
    if old.status in s.CLOSED:
        raise InvalidState(f"Failed to change {describe_record(old)}: it is closed as '{old.status}'.", "Open a new record for a new move.", record=encode(old))
    for what, before, after in (("id", old.id, new.id), ("type", old.type, new.type), ("domain", old.domain.uuid, new.domain.uuid)):
        if before != after:
            raise Internal(f"Failed to change {describe_record(old)}: its {what} must not change to {after!r}.")
    # A process that takes a move over raises it, on the source host first.
    if new.generation < old.generation:
        raise Internal(f"Failed to change {describe_record(old)}: its generation must not decrease to {new.generation}.")
    check_transition(old.type, old.status, new.status)
    # A watcher does not know that an evacuation has taken its domain over.
    return replace(kept, superseded_by=old.superseded_by or kept.superseded_by)


def refuse_unsettled(ledger: str, records: Iterable[MoveRecord]) -> None:
    """Raise L(Conflict) if records are unsettled, with their names and how to settle them."""
    unsettled = [record for record in records if record.is_unsettled]
    if not unsettled:
        return
    named = "; ".join(f"{describe_record(record)}, '{record.status}' since {record.updated_at}" for record in unsettled[:_MAX_NAMED])
    more = f"; and {len(unsettled) - _MAX_NAMED} more" if len(unsettled) > _MAX_NAMED else ""
    raise Conflict(
        f"The ledger {ledger} has {len(unsettled)} unsettled record{'s' if len(unsettled) > 1 else ''}: {named}{more}. Nothing was changed.",
        "Wait for moves that are under way, or run their tasks again, which settles them. A person settles records that stay in 'error', with the module host: "
        f"'settle: {{id: {unsettled[0].id}, status: completed}}' or another status.",
        records=encode(unsettled),
    )


def domain_held_error(existing: MoveRecord) -> Conflict:
    """Return the error for a second record of one domain."""
    what = describe_record(existing)
    return Conflict(
        f"{what[0].upper()}{what[1:]} still holds the domain: status '{existing.status}' since {existing.updated_at}, by {_describe_writer(existing)}.",
        "Wait for it, run the same task again to adopt it, or abort it.",
        record=encode(existing),
    )


def overtaken_error(current: MoveRecord) -> Conflict:
    """Return the error for a change to a record that another process wrote after it was read."""
    return Conflict(
        f"Failed to change {describe_record(current)}: {_describe_writer(current)} wrote it at {current.updated_at}, its status is now '{current.status}'.",
        "Read the record again and repeat the decision.",
        record=encode(current),
    )


def document_overtaken_error(what: str, current: t.Optional[JsonObject]) -> Conflict:
    """Return the error for a change to a host's or domain's document that has changed since it was read."""
    now = "it is not there" if current is None else f"it is now {_summarize_document(current)}"
    return Conflict(f"Failed to change {what}: another process wrote it meanwhile, {now}.", "Run the task again.")


def _summarize_document(body: JsonObject) -> str:
    return ", ".join(f"{key} {body[key]!r}" for key in ("state", "reason", "since", "by", "updated_at") if body.get(key)) or "another one"


def _check_form(record: MoveRecord) -> MoveRecord:
    # Values that could not be read back are not written.
    kept = read_record(encode(record))
    check_uuid(record.id, "record id")
    check_uuid(record.domain.uuid, "domain UUID")
    if not _TIMESTAMP.fullmatch(record.updated_at):
        raise Internal(f"The record {record.id} cannot be written: its updated_at is {record.updated_at!r}.")
    return kept


def check_host(entry: HostEntry, ledger_id: str) -> HostEntry:
    """Return the host's entry as it is kept, with its C(host_key). Raises L(InvalidArgument), or L(Conflict) for another ledger's."""
    name, key = entry.name, entry.host_id or entry.host_uuid
    if not key:
        raise InvalidArgument(f"The host {name!r} has neither a host_id nor a libvirt UUID.", "Ask the host for one of them first.")
    host_id = check_uuid(entry.host_id, "host_id") if entry.host_id else None
    host_uuid = check_uuid(entry.host_uuid, "host_uuid") if entry.host_uuid else None
    if not name:
        raise InvalidArgument(f"The host {key} has no name.", "Give it its inventory name.")
    if entry.state not in HOST_STATES:
        raise InvalidArgument(f"The host {name!r} cannot have the state {entry.state!r}.", f"Use one of {', '.join(HOST_STATES)}.")
    if entry.ledger_id and entry.ledger_id != ledger_id:
        raise Conflict(f"The host {name!r} belongs to the ledger {entry.ledger_id}, but this one is {ledger_id}.", "Use that ledger.", document=encode(entry))
    schema = SCHEMA if entry.schema is ABSENT else entry.schema
    return replace(entry, schema=schema, host_id=host_id, host_uuid=host_uuid, ledger_id=ledger_id, host_key=host_id or host_uuid or key)


def check_domain(entry: DomainEntry) -> DomainEntry:
    """Return the domain's entry as it is kept. Raises L(InvalidArgument) for one without UUID or name."""
    uuid = check_uuid(entry.uuid, "domain UUID")
    if not entry.name:
        raise InvalidArgument(f"The domain {uuid} has no name.", "Give it the name that libvirt has for it.")
    return replace(entry, schema=SCHEMA if entry.schema is ABSENT else entry.schema, uuid=uuid)
