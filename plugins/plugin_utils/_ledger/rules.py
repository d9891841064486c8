# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a ledger allows, whatever keeps it: who holds a domain, what a change may not touch, and how a refusal is worded."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterable

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, Internal, InvalidArgument, InvalidState
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import check_record, is_unsettled
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.transitions import check_transition

from .keys import check_uuid
from .shape import HOST_STATES, is_places
from .store import Body

# So many records are named in a sentence.
_NAMED = 5
_TIME = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])-[0-9]{2}T[0-9:]{8}\.[0-9]{3}Z")


def holds_domain(record: Body) -> bool:
    """Whether nobody else may open a record of this domain; an evacuation that was given up for a newer one does not count."""
    return is_unsettled(record) and not record["superseded_by"]


def describe(record: Body) -> str:
    """Return what a person needs to find the record: its type, id, domain and hosts."""
    domain, source, destination = record["domain"], record["source"], record["destination"]
    return f"the {record['type']} record {record['id']} of domain '{domain.get('name')}' ({source['host']} to {destination['host']})"


def last_writer(record: Body) -> str:
    """Return who wrote the last line of the record's history."""
    return str(record["history"][-1].get("by")) if record["history"] else "an unknown process"


def check_new(record: Body) -> None:
    """Raise L(InvalidArgument) or L(Internal) unless the record can be opened."""
    _check_shape(record)
    if not is_unsettled(record):
        raise Internal(f"Failed to open {describe(record)}: its status is '{record['status']}', which is not an unsettled one.")


def check_change(old: Body, new: Body) -> None:
    """Raise L(InvalidState) where C(old) is closed, L(Internal) where C(new) is no allowed successor of it."""
    _check_shape(new)
    if old["status"] in s.CLOSED:
        raise InvalidState(f"Failed to change {describe(old)}: it is closed as '{old['status']}'.", "Open a new record for a new move.", record=old)
    for what, before, after in (
        ("id", old["id"], new["id"]),
        ("type", old["type"], new["type"]),
        ("domain", old["domain"]["uuid"], new["domain"]["uuid"]),
    ):
        if before != after:
            raise Internal(f"Failed to change {describe(old)}: its {what} may not become {after!r}.")
    # Who takes a move over raises it, on the source host first.
    if new["generation"] < old["generation"]:
        raise Internal(f"Failed to change {describe(old)}: its generation may not fall to {new['generation']}.")
    check_transition(old["type"], old["status"], new["status"])


def refuse_unsettled(ledger: str, records: Iterable[Body]) -> None:
    """Raise L(Conflict), naming them and how to settle them, where records are unsettled."""
    unsettled = [record for record in records if is_unsettled(record)]
    if not unsettled:
        return
    named = "; ".join(f"{describe(record)}, '{record['status']}' since {record['updated_at']}" for record in unsettled[:_NAMED])
    more = f"; and {len(unsettled) - _NAMED} more" if len(unsettled) > _NAMED else ""
    raise Conflict(
        f"The ledger {ledger} has {len(unsettled)} unsettled record{'s' if len(unsettled) > 1 else ''}: {named}{more}. Nothing was changed.",
        "Wait for moves that are under way, or run their tasks again, which settles them. What stays in 'error' a person settles with the module host: "
        f"'settle: {{id: {unsettled[0]['id']}, status: completed}}' or another status.",
        records=unsettled,
    )


def held(existing: Body) -> Conflict:
    """Return the refusal of a second record of one domain."""
    what = describe(existing)
    return Conflict(
        f"{what[0].upper()}{what[1:]} still holds the domain: status '{existing['status']}' since {existing['updated_at']}, by {last_writer(existing)}.",
        "Wait for it, run the same task again to adopt it, or abort it.",
        record=existing,
    )


def overtaken(current: Body) -> Conflict:
    """Return the refusal of a change to a record that was read before another process wrote it."""
    return Conflict(
        f"Failed to change {describe(current)}: {last_writer(current)} wrote it at {current['updated_at']}, its status is now '{current['status']}'.",
        "Read it again and decide anew.",
        record=current,
    )


def document_overtaken(what: str, current: t.Optional[Body]) -> Conflict:
    """Return the refusal of a change to a host's or domain's document that is not the one that was read."""
    now = "it is not there" if current is None else f"it is now {_facts(current)}"
    return Conflict(f"Failed to change {what}: another process wrote it meanwhile, {now}.", "Run the task again.")


def _facts(body: Body) -> str:
    return ", ".join(f"{key} {body[key]!r}" for key in ("state", "reason", "since", "by", "updated_at") if body.get(key)) or "another one"


def _check_shape(record: Body) -> None:
    check_record(record)
    check_uuid(record["id"], "record id")
    check_uuid(record["domain"]["uuid"], "domain UUID")
    if not _TIME.fullmatch(record["updated_at"]):
        raise Internal(f"The record {record['id']} cannot be written: its updated_at is {record['updated_at']!r}.")


def check_host(body: Body, ledger_id: str) -> Body:
    """Return the host's document as it is kept, with its C(host_key). Raises L(InvalidArgument), or L(Conflict) for another ledger's."""
    host_id, host_uuid = (check_uuid(body[key], key) if body.get(key) else None for key in ("host_id", "host_uuid"))
    if not host_id and not host_uuid:
        raise InvalidArgument(f"The host {body.get('name')!r} has neither a host_id nor a libvirt UUID.", "Ask the host for one of them first.")
    if not isinstance(body.get("name"), str) or not body["name"]:
        raise InvalidArgument(f"The host {host_id or host_uuid} has no name.", "Give it its inventory name.")
    if body.get("state") not in HOST_STATES:
        raise InvalidArgument(f"The host {body['name']!r} cannot have the state {body.get('state')!r}.", f"Use one of {', '.join(HOST_STATES)}.")
    if body.get("ledger_id") not in (None, ledger_id):
        raise Conflict(f"The host {body['name']!r} belongs to the ledger {body['ledger_id']}, this one is {ledger_id}.", "Use that ledger.", document=body)
    return {**body, "host_id": host_id, "host_uuid": host_uuid, "ledger_id": ledger_id, "host_key": host_id or host_uuid}


def check_domain(body: Body) -> Body:
    """Return the domain's document as it is kept. Raises L(InvalidArgument) for one without UUID, name or possible hosts."""
    uuid = check_uuid(body.get("uuid"), "domain UUID")
    if not isinstance(body.get("name"), str) or not body["name"]:
        raise InvalidArgument(f"The domain {uuid} has no name.", "Give it the name that libvirt has for it.")
    if not is_places(body.get("possible_hosts")):
        raise InvalidArgument(f"The domain {body['name']!r} ({uuid}) has no list of possible hosts.", "Name at least the host it is on.")
    return {**body, "uuid": uuid}
