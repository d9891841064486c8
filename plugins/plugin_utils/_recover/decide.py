# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which of the domains that are to be started again on a returned host may be, and which displaced ones can come home. Decides only."""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Iterable, Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._records.statuses import UNSETTLED

from .._drain.facts import find
from .._ledger.places import same_host

Body = Mapping[str, t.Any]
Facts = Mapping[str, t.Optional[Body]]
Document = dict[str, t.Any]

FENCED = "fenced"


def starts(
    host: str, to_start: Iterable[Body], facts: Facts, documents: Iterable[Body], records: Iterable[Body], entries: Iterable[Body], accepted: Collection[str]
) -> dict[str, list[Document]]:
    """Return C({start, forget, refuse}), lists of C({uuid, name, reason}).

    :arg facts: C(kvmfleet_host) by name of all hosts of the fleet; empty for one that does not answer.
    :arg documents: the ledger's domains.
    :arg entries: the ledger's hosts. One that is fenced need not answer.
    :arg accepted: silent hosts on which a person says that none of these domains runs.
    """
    here = facts[host] or {}
    silent = silent_hosts(facts, entries, accepted)
    by_uuid = {document["uuid"]: document for document in documents}
    held = {record["domain"]["uuid"].lower(): record for record in records if record["status"] in UNSETTLED and not record.get("superseded_by")}
    result: dict[str, list[Document]] = {"start": [], "forget": [], "refuse": []}
    for noted in to_start:
        verdict, reason = _verdict(noted, host, here, facts, by_uuid.get(noted["uuid"]), held.get(noted["uuid"]), silent)
        result[verdict].append({"uuid": noted["uuid"], "name": noted["name"] or noted["uuid"], "reason": reason})
    return result


def silent_hosts(facts: Facts, entries: Iterable[Body], accepted: Collection[str]) -> list[str]:
    """Return the hosts, of the fleet or only in the ledger, that did not answer, and that neither the ledger nor a person says are off."""
    states = {entry["name"]: entry["state"] for entry in entries}
    answering = {known["host_id"] for known in facts.values() if known and known.get("host_id")}
    renamed = {entry["name"] for entry in entries if entry.get("host_id") in answering}
    unheard = {name for name in [*facts, *states] if not facts.get(name)} - renamed
    return sorted(name for name in unheard if states.get(name) != FENCED and name not in accepted)


def _verdict(noted: Body, host: str, here: Body, facts: Facts, document: t.Optional[Body], record: t.Optional[Body], silent: Sequence[str]) -> tuple[str, str]:
    domain = find(here, noted["uuid"])
    if domain is None:
        return "forget", "It is not defined here any more."
    if domain["active"]:
        return "start", "It is active already."
    elsewhere = sorted(name for name, known in facts.items() if name != host and known and (find(known, noted["uuid"]) or {}).get("active"))
    if elsewhere:
        return "forget", f"It is active on {', '.join(elsewhere)}."
    if record is not None:
        return "refuse", f"Its record {record['id']} is not settled ('{record['status']}')."
    places = (document or {}).get("possible_hosts") or []
    others = [str(place.get("host")) for place in places if not same_host(place, _place(host, here))]
    if others and len(others) == len(places):
        return "forget", f"By the ledger it is on {', '.join(others)}."
    if others:
        return "refuse", f"By the ledger it may be on {', '.join(others)} too."
    if silent:
        return "refuse", f"It may run on {', '.join(silent)}, which did not answer. Fence them, or accept them by name (recover_host_accept_silent)."
    return "start", f"It is to be started again ({', '.join(noted['why'])})."


def homeward(host: str, displaced: Iterable[Body], facts: Facts) -> dict[str, list[Document]]:
    """Return C({moves, home, skipped}): from where each displaced domain can be moved to its host, and why others cannot.

    :arg facts: as of L(starts).
    """
    result: dict[str, list[Document]] = {"moves": [], "home": [], "skipped": []}
    for entry in displaced:
        known = {name: domain for name, told in facts.items() if told and (domain := find(told, entry["uuid"]))}
        active = sorted(name for name, domain in known.items() if domain["active"])
        what = {"uuid": entry["uuid"], "name": entry["name"]}
        if active == [host]:
            result["home"].append(what)
        elif len(active) == 1:
            result["moves"].append({**what, "source": active[0]})
        elif active:
            result["skipped"].append({**what, "reason": f"It is active on {' and '.join(active)}."})
        else:
            places = ", ".join(sorted(known)) or ", ".join(map(str, entry["possible_hosts"])) or "no host"
            result["skipped"].append({**what, "reason": f"It is active on no host that answers, and only an active domain is moved. It was left on {places}."})
    return result


def _place(host: str, here: Body) -> dict[str, t.Any]:
    return {"host": host, "host_id": here.get("host_id"), "host_uuid": here.get("host_uuid")}
