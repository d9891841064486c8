# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Carries out the decisions of a person about a host that may not return as it was: on the hosts where that matters, and then in the ledger."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, InvalidState, NotFound, Unsafe, printable_line
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import HostNames, Renaming, rename_folders

from .._evacuate.source import find_named, list_candidates
from .._ledger import host_decisions
from .._ledger.documents import Document, HostEntry, MissingNote
from .._ledger.host_decisions import discarded_entry, entry_without_token, list_discarded, with_decision
from .._ledger.host_entries import Grant, HostIdentity, find_entry_by_name, find_host_entry, recorded_grant, shown_entry
from .._ledger.ledger import Ledger
from .._ledger.rules import canonical_name, describe_record
from .._settings.variables import TaskSettings

Result = dict[str, Json]
RunPhase = t.Callable[[str, JsonObject], JsonObject]
# The reason that a person gives, and who that is.
Statement = tuple[str, str]


@dataclass(frozen=True)
class Revocation:
    """The folders in which another host's grant is revoked, and by folder why it is not revoked in others."""

    folders: tuple[str, ...]
    problems: t.Mapping[str, str]
    extra: JsonObject = dataclasses.field(default_factory=dict)


def adopt_identity(ledger: Ledger, identity: HostIdentity | None, name: str, why: Statement, phase: RunPhase, check: bool) -> Result:
    """Confirm that a host whose identity contradicts its entry is that host; return the result of the task.

    :arg identity: that the host reports; None if the task runs on another one.
    :arg phase: runs a phase of the module C(host) there.
    """
    if identity is None:
        raise InvalidArgument(f"adopt_identity is about {name}, but the task runs on another host.", f"Run it on {name} itself. Nothing was changed.")
    change = host_decisions.plan_adoption(ledger, identity, *why)
    if change is None:
        found = find_host_entry(ledger, identity)
        return {"changed": False, "host": found.body if found else None, "records": []}
    after = change.after
    if not check:
        if change.host_id and not identity.host_id and change.entry.host.host_id:
            phase("adopt", {"host_id": change.host_id})
        after = host_decisions.write_adoption(ledger, change)
    diff: Result = {"before": shown_entry(change.entry.host), "after": shown_entry(after)}
    return {"changed": True, "host": encode(after), "records": [], "diff": diff}


def discard_source(ledger: Ledger, name: str, phase: RunPhase | None, check_gone: t.Callable[[HostEntry], list[str]], why: Statement, check: bool) -> Result:
    """Declare that a host will not return; return the result of the task. Raises L(InvalidState) for one that answers.

    :arg phase: runs a phase on that host; None if the task runs on another one.
    :arg check_gone: raises L(InvalidState) if that host answers Ansible; returns warnings if that is not known.
    """
    if phase is not None:
        phase("read", {})
        raise InvalidState(
            f"{name} answers, so it is not gone.",
            f"Clean it with evacuation_cleanup. For a host that will not return, run the task on localhost with name: {name}. Nothing was changed.",
        )
    found = find_entry_by_name(ledger, name)
    warnings = check_gone(found.host)
    changes = list(list_discarded(ledger, found.host.host_id, *why))
    after = discarded_entry(found.host, *why)
    if not check:
        # The entry first: a host whose release nothing prevents any more must be known as discarded.
        entry = ledger.put_host(after, found.version).host if after else found.host
        records = [ledger.update_record(stored, record).record for stored, record in changes]
    else:
        entry, records = after or found.host, [record for _stored, record in changes]
    return {
        "changed": bool(records or after),
        "host": encode(entry),
        "records": encode(records),
        "diff": {"before": shown_entry(found.host), "after": shown_entry(entry)},
        "warnings": warnings,
    }


def give_up_domains(ledger: Ledger, name: str, wanted: t.Collection[str], why: Statement, check: bool) -> Result:
    """Declare that domains were lost with a host that will not return; return the result of the task. All of them are checked before one is written.

    :arg wanted: names or UUIDs.
    """
    found = find_entry_by_name(ledger, name)
    if not found.host.discarded:
        raise InvalidState(
            f"{name} was not discarded, so its domains may come back with it. Nothing was changed.",
            f"If {name} will not return, set source_discarded first. A domain that was deleted on a host that answers is noted when that is protected.",
        )
    lost = _find_lost(ledger, found.host, wanted)
    after = with_decision(found.host, "domains_lost", *why, domains=[document.domain.uuid for document in lost])
    if lost and not check:
        # The entry first: whoever finds a domain given up can read by whom.
        ledger.put_host(after, found.version)
        for document in lost:
            ledger.put_domain(dataclasses.replace(document.domain, missing=MissingNote(utc_now(), why[1], found.host.host_ref)), document.version)
    entry = after if lost else found.host
    return {"changed": bool(lost), "host": encode(entry), "records": [], "diff": {"before": shown_entry(found.host), "after": shown_entry(entry)}}


def _find_lost(ledger: Ledger, host: HostEntry, wanted: t.Collection[str]) -> list[Document]:
    """Return the documents of these domains that are not given up yet. Raises L(InvalidArgument), L(NotFound), L(Conflict) or L(InvalidState)."""
    if not wanted:
        raise InvalidArgument("domains_lost is an empty list.", "Name the domains. Nothing was changed.")
    found = list_candidates(ledger, host.host_ref)
    lost: dict[str, Document] = {}
    for one in map(canonical_name, wanted):
        named = [domain for domain in found if one in (domain.uuid, domain.entry.name)]
        # An earlier run has given it up, after another one of that name was deleted.
        if named and all(domain.entry.is_missing and not domain.record for domain in named):
            continue
        candidate = find_named(found, one, host.host_ref)
        if candidate is None:
            raise NotFound(f"According to the ledger, no domain {one!r} may be on {host.name}.", "Check both names. Nothing was changed.")
        entry, record = candidate.entry, candidate.record
        others = ", ".join(place.label for place in entry.possible_hosts if not place.is_same(host.host_ref))
        if record or others:
            why = f"{describe_record(record)} is not settled" if record else f"it may be on {others} too"
            step = "Settle that first." if record else f"Protect {others}: if it does not have the domain, the ledger notes that."
            raise InvalidState(f"Domain {entry.name} may not be lost: {why}.", f"{step} Nothing was changed.")
        lost[entry.uuid] = candidate.document
    return list(lost.values())


def revoke_token(ledger: Ledger, name: str, target_host: str, phase: RunPhase, why: Statement, check: bool, settings: TaskSettings) -> Result:
    """Revoke a token on the host itself or on storage that it reads, and only then in the ledger. A task that dies in between can be run again."""
    found = find_entry_by_name(ledger, name)
    grant = recorded_grant(found.host)
    removed, unrevoked, more = False, "", dict[str, Json]()
    if name == target_host:
        answer = phase("revoke", {"check": check, "grant": grant.id if grant else None, "withdrawn": grant.for_revocation() if grant else None})
        removed, unrevoked = bool(answer["changed"]), str(answer.get("unrevoked") or "")
    elif grant:
        names = HostNames(found.host.name, settings.resource_maps(found.host.name)), HostNames(target_host, settings.resource_maps(target_host))
        more = {"folders": _revoke_on_storage(grant, Renaming.between(*names), phase, check)}
    after = entry_without_token(found.host, why[0], why[1], **more)
    entry = ledger.put_host(after, found.version).host if after and not check else after or found.host
    return {"changed": bool(after or removed), "host": encode(entry), "records": [], "warnings": [unrevoked] if unrevoked else []}


def _revoke_on_storage(grant: Grant, renaming: Renaming, phase: RunPhase, check: bool) -> list[str]:
    """Return the folders whose revocation the host will find. Raises L(Unsafe) when there is none.

    :arg renaming: from the host that has the grant to the one that revokes it.
    """
    name, target_host = renaming.source, renaming.destination
    not_revoked = f"{name} may hold a clean-shutdown token and would start its guests automatically when it returns. Nothing was changed."
    if not grant.folders:
        raise Unsafe(
            f"The ledger does not know where the token of {name} can be revoked: an earlier version granted it, or the entry was damaged. {not_revoked}",
            f"Start {name} from a rescue system and delete /var/lib/kvmfleet/guard/token.json, so that its next boot is held. Then run the task on {name}."
            " If the host will never return, set source_discarded.",
        )
    named = rename_folders(grant.folders, renaming)
    there = dataclasses.replace(grant, folders={here: grant.folders[folder] for folder, here in named.items()})
    answer = decode(Revocation, phase("revoke_elsewhere", {"grant": there.for_host(), "check": check}))
    if not answer.folders:
        why = "; ".join(f"{folder}: {problem}" for folder, problem in sorted(answer.problems.items()))
        raise Unsafe(
            f"{target_host} sees no storage on which the token of {name} can be revoked ({printable_line(why)}). {not_revoked}",
            f"Run the task on a host that sees one of these folders, or on {name} itself. If {name} will never return, set source_discarded.",
        )
    return [folder for folder, here in named.items() if here in answer.folders]
