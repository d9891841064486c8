# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Decisions of a person where no host can prove anything.

A clean-shutdown token is revoked, a host is declared lost, a host whose identity contradicts its entry is declared to be the same host, a record is settled.
"""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Json, JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument, InvalidState, NotFound, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import ENABLED, FENCED, may_follow

from .documents import DiscardDecision, Document, HostEntry, Stored
from .host_entries import HostIdentity, find_entry_by_uuid, find_host_entry, recorded_grant, with_grant, with_identity
from .ledger import Ledger
from .leftovers import is_left_on, is_superseded, list_leftovers, without_host
from .rules import describe_record, holds_domain


def entry_without_token(entry: HostEntry, reason: str, by: str, **more: Json) -> HostEntry | None:
    """Return the entry of a host whose clean-shutdown token is revoked, None if it holds none.

    :arg more: further values to keep with the decision.
    """
    grant = recorded_grant(entry)
    if grant is None:
        return None
    return with_decision(with_grant(entry, None), "revoke_token", reason, by, token_id=grant.id, **more)


def check_not_granted(entry: HostEntry) -> None:
    """Raise L(Unsafe) for a host that may hold a clean-shutdown token, unless a person decided that the host will not return."""
    if recorded_grant(entry) is None or entry.discarded:
        return
    raise Unsafe(
        f"{entry.name} may hold a clean-shutdown token, with which it would start its guests automatically when it returns. Nothing was started.",
        "Revoke the token on a host that sees its shared storage: kvmfleet.migration.host with name, revoke_token and reason. If the host will never return, "
        "set source_discarded instead.",
    )


def discarded_entry(entry: HostEntry, reason: str, by: str) -> HostEntry | None:
    """Return the entry of a host that will not return; None if the entry already states this. The host is never a destination again."""
    if entry.discarded:
        return None
    after = with_decision(entry, "source_discarded", reason, by)
    since = utc_now() if after.state == ENABLED else after.since or None
    return replace(after, state=FENCED, reason=reason, by=by, since=since, discarded=DiscardDecision(utc_now(), by, reason))


def check_not_discarded(entry: HostEntry) -> None:
    """Raise L(Unsafe) for a host that a person declared discarded: no record lists its remaining definitions any more."""
    discarded = entry.discarded
    if discarded:
        raise Unsafe(
            f"{entry.name} was discarded at {discarded.at} by {discarded.by} ({discarded.reason}): the records of what was evacuated from it are "
            "closed, and it is no longer recorded which of its guests are leftovers.",
            "Undefine the domains there that now run elsewhere (virsh undefine --keep-nvram, with --keep-tpm too for those with a TPM), then return "
            "the host to the fleet: kvmfleet.migration.host with adopt_identity and a reason. Nothing was changed.",
        )


def with_decision(entry: HostEntry, decision: str, reason: str, by: str, **more: Json) -> HostEntry:
    """Return the entry with a decision of a person, and further values to keep with it."""
    note = {"at": utc_now(), "by": by, "decision": decision, "reason": reason, **more}
    return replace(entry, decisions=(*(entry.decisions or ()), note))


@dataclass(frozen=True)
class Adoption:
    """The changes of a person's decision.

    C(entry) is the host's entry as it was read, C(after) the new one; C(host_id) is the ID to write to the host, null if it has it; C(renamed) are the new
    entries of other hosts of that name.
    """

    entry: Document
    after: HostEntry
    host_id: t.Optional[str]
    renamed: list[tuple[Document, HostEntry]]


def plan_adoption(ledger: Ledger, identity: HostIdentity, reason: str, by: str) -> t.Optional[Adoption]:
    """Return what is to be changed, None if name and identities agree and the host was not discarded.

    Raises L(NotFound) if the host is not in the ledger, L(Conflict) if the host has an ID of its own that is not the ledger's: the file on the host
    decides which of the two is right, and is never overwritten.
    """
    try:
        known = find_host_entry(ledger, identity)
        if known is None:
            raise NotFound(f"The ledger has no host that {identity.name} could be.", "The first task of this module with a state creates the entry of a host.")
        if not known.host.discarded and known.host.name == identity.name:
            return None
        conflict = f"{identity.name} was discarded, and is back." if known.host.discarded else f"The ledger has {identity.name} as {known.host.name}."
        return _make_adoption(ledger, known, identity, {"reason": reason, "by": by, "conflict": conflict})
    except Conflict as conflict:
        found = _find_candidate(ledger, identity)
        if found is None or (found.host.host_id and identity.host_id and found.host.host_id != identity.host_id):
            raise
        return _make_adoption(ledger, found, identity, {"reason": reason, "by": by, "conflict": conflict.message})


def write_adoption(ledger: Ledger, change: Adoption) -> HostEntry:
    """Write the entries, those of other hosts first, so that no two have one name. Return that of the host. Raises L(Conflict) if one has changed."""
    for document, entry in change.renamed:
        ledger.put_host(entry, document.version)
    # An entry under the libvirt UUID moves to the host_id automatically if the UUID is the same.
    replaces = change.entry.host.host_key in (change.after.host_id, change.after.host_uuid)
    return ledger.put_host(change.after, change.entry.version if replaces else None).host


def _find_candidate(ledger: Ledger, identity: HostIdentity) -> t.Optional[Document]:
    found = ledger.read_host(identity.host_id) if identity.host_id else None
    return found or find_entry_by_uuid(ledger, identity) or ledger.find_host(name=identity.name)


def _make_adoption(ledger: Ledger, found: Document, identity: HostIdentity, decision: t.Mapping[str, str]) -> Adoption:
    before, now = found.host, utc_now()
    identified = replace(with_identity(before, identity), host_id=before.host_id or identity.host_id, discarded=ABSENT)
    note: JsonObject = {"at": now, **decision, "before": _shown_identity(before), "after": _shown_identity(identified)}
    after = replace(identified, adopted=(*(before.adopted or ()), note))
    others = [document for document in ledger.list_hosts() if _is_other_of_name(document.host, after)]
    renamed = [(other, replace(other.host, name=f"{other.host.name} (until {now})")) for other in others]
    return Adoption(found, after, after.host_id if after.host_id != identity.host_id else None, renamed)


def _shown_identity(entry: HostEntry) -> JsonObject:
    return {"name": entry.name, "machine_id": entry.machine_id or None, "host_uuid": entry.host_uuid}


def _is_other_of_name(other: HostEntry, adopted: HostEntry) -> bool:
    return other.name == adopted.name and other.host_key not in (adopted.host_id, adopted.host_uuid)


REASON_SOURCE_DISCARDED = "source_discarded"


def has_lost_source(record: MoveRecord, entries: Iterable[HostEntry]) -> bool:
    """Whether a person declared the source of an unsettled move discarded: only that host could be asked how the move ended."""
    return record.type in s.MOVE_TYPES and record.is_unsettled and any(entry.discarded and entry.host_ref.is_same(record.source) for entry in entries)


def settle_record(stored: Stored, status: str, statement: str, by: str, is_source_gone: bool = False) -> MoveRecord | None:
    """Return the record with the status that a person gives it, None if it already has that status.

    :arg is_source_gone: see L(has_lost_source).

    Raises L(InvalidState) for a record that can still be settled by querying the hosts, or is closed; L(InvalidArgument) for a status that it cannot get.
    """
    record = stored.record
    if record.status == status and status != s.ERROR:
        return None
    is_discarded = record.status == s.DONE and status == s.COMPLETED
    if not (record.status == s.ERROR or is_source_gone or is_discarded or (is_superseded(record) and status == s.FAILED)):
        raise InvalidState(
            f"{_capitalized_description(record)} has the status '{record.status}': a person settles one that is 'error', a move whose source was discarded, "
            "one that was given up for a newer one (as 'failed'), or one that is 'done', and whose source will not return or has the domain again (as "
            "'completed').",
            _ask_hosts_step(record),
        )
    if not may_follow(record.type, record.status, status):
        raise InvalidArgument(f"{_capitalized_description(record)} cannot become '{status}' from '{record.status}'.", "Nothing was changed.")
    reason = REASON_SOURCE_DISCARDED if is_discarded else s.REASON_OPERATOR if status == s.CANCELLED else None
    return _settled_by_person(record, status, statement, by, reason)


def list_discarded(ledger: Ledger, host_id: str | None, statement: str, by: str) -> Iterator[tuple[Stored, MoveRecord]]:
    """Yield the records that withhold a host which will not return, and unsettled evacuations to it, each as read and as changed."""
    for record in [*list_leftovers(ledger, host_id), *_list_evacuations_to(ledger, host_id)]:
        stored = ledger.read_record(record.record_id)
        # An evacuation to the host that is done by now has left a copy on its source.
        if is_left_on(stored.record, str(host_id)) or _is_open_to(stored.record, str(host_id)):
            yield stored, without_host(stored.record, str(host_id), by, _settled_text(statement), REASON_SOURCE_DISCARDED)


def _list_evacuations_to(ledger: Ledger, host_id: str | None) -> list[MoveRecord]:
    """Return the evacuations to this host whose results are not known, and that no newer record has taken over from."""
    records = ledger.list_records(types=[s.EVACUATION], unsettled_only=True) if host_id else ()
    return [record for record in records if host_id and _is_open_to(record, host_id)]


def _is_open_to(record: MoveRecord, host_id: str) -> bool:
    return record.type == s.EVACUATION and holds_domain(record) and record.destination.host_id == host_id


def _ask_hosts_step(record: MoveRecord) -> str:
    return f"{settling_step(record)} Nothing was changed.".lstrip()


def settling_step(record: MoveRecord) -> str:
    """Return what settles an unsettled record by its hosts; empty for any other."""
    source, destination = record.source.label, record.destination.label
    if not record.is_unsettled:
        return ""
    if record.type in s.MOVE_TYPES:
        return (
            f"Run the task that moved the domain again, or settle the record with kvmfleet.migration.host on {source}: both ask the hosts of the move. If"
            f" {source} will not return, find out where the domain is. If it runs nowhere, evacuate {source}, which replaces the record. If it runs on"
            f" {destination}, confirm by source_discarded of kvmfleet.migration.host that {source} will not return, and then settle the record as 'completed'."
        )
    return (
        f"If {source} is back, recover it while {destination} answers, which settles the record; if {source} is off, evacuate it again. "
        f"If {destination} is dead, evacuate {destination}; if it will not return, confirm that by source_discarded of kvmfleet.migration.host."
    )


def _settled_by_person(record: MoveRecord, status: str, statement: str, by: str, reason: str | None) -> MoveRecord:
    return record.advance(status, by, _settled_text(statement), reason)


def _settled_text(statement: str) -> str:
    return f"Settled by a person: {statement}"


def _capitalized_description(record: MoveRecord) -> str:
    what = describe_record(record)
    return f"{what[0].upper()}{what[1:]}"
