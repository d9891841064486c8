# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a drain has done, host by host, from what the hosts and the ledger say afterwards; and whether a host may be switched off."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._records.hosts import same_host
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.statuses import COMPLETED, UNSETTLED

from . import facts as read
from .policy import LEAVE

Body = Mapping[str, t.Any]
Document = dict[str, t.Any]

NOT_STARTED = "Its move was not started."
NOT_ASKED = "It was not asked to shut down."
HELD_BACK = "It was not asked to shut down: other domains of this host find no place, so it cannot be drained."


def host_result(
    source: str,
    plan: Body,
    facts: Mapping[str, Body],
    outcomes: Sequence[Body],
    records: Sequence[Body],
    problems: Sequence[str] = (),
    refusals: t.Optional[Mapping[str, str]] = None,
    check_mode: bool = False,
) -> Document:
    """Return C({plan, moved, shut_down, failed, skipped, safe_to_reboot, ...}) of one host that was drained.

    :arg facts: C(kvmfleet_host) by name, of this host and of those that took domains, read after the moves.
    :arg outcomes: the records that C(live_migrate) returned on this host.
    :arg records: unsettled records of the fleet, read after the moves.
    :arg refusals: why a move or a shutdown failed, by the domain's UUID, for moves that may have no record.
    :arg problems: what else failed on this host, e.g. the message of a task.
    :arg check_mode: nothing was moved: what is planned is neither moved nor failed.
    """
    share = {key: [entry for entry in plan[key] if entry["source"] == source] for key in ("moves", "shutdowns", "unplaced", "skipped")}
    by_uuid = {record["domain"]["uuid"]: record for record in outcomes}
    whys = refusals or {}
    if check_mode:
        judged = [{**_left(move, whys[move["uuid"]]), "status": "refused"} for move in share["moves"] if move["uuid"] in whys]
    else:
        judged = [_judge(move, facts, by_uuid.get(move["uuid"]), whys.get(move["uuid"], NOT_STARTED)) for move in share["moves"]]
    stops = _stops(source, share, facts, whys, check_mode)
    failed = [_left(entry, entry["reason"]) for entry in share["unplaced"]] + [entry for entry in [*judged, *stops] if "error" in entry]
    if not check_mode:
        failed += _late(source, share, facts)
    blockers = reasons_to_wait(source, facts, records)
    return {
        "plan": {**share, "created_at": plan["created_at"], "predicted_seconds": plan["predicted_seconds"].get(source, 0)},
        "moved": [entry for entry in judged if "error" not in entry],
        "shut_down": [entry for entry in stops if "error" not in entry],
        "failed": failed,
        "skipped": [{key: entry[key] for key in ("name", "uuid", "reason")} for entry in share["skipped"]],
        "safe_to_reboot": not blockers,
        "blockers": blockers,
        "problems": list(problems),
        "predicted_seconds": plan["predicted_seconds"].get(source, 0),
        "actual_seconds": _span([by_uuid[entry["uuid"]] for entry in judged if entry["uuid"] in by_uuid]),
    }


def reasons_to_wait(host: str, facts: Mapping[str, Body], records: Iterable[Body]) -> list[str]:
    """Return why the host may not be rebooted: a domain active there in any state, a definition there that would start a domain which is
    active elsewhere, or an unsettled record that names it."""
    here = facts.get(host)
    if not here:
        return [f"{host} does not answer."]
    blockers = [f"{domain['name']} is {_state(domain)} here." for domain in here["domains"] if domain["active"]]
    for domain in here["domains"]:
        elsewhere = [] if domain["active"] or not domain["autostart"] else _active_elsewhere(domain["uuid"], host, facts)
        if elsewhere:
            blockers.append(f"{domain['name']} would start here by itself, and is active on {', '.join(elsewhere)}.")
    return blockers + [
        f"Record {record['id']} of {record['domain']['name']} is unsettled ({record['status']})." for record in records if _names(record, host, here)
    ]


def _judge(move: Body, facts: Mapping[str, Body], record: t.Optional[Body], why: str) -> Document:
    """Return what became of a move: moved when its record says so and both hosts agree."""
    arrived = record["destination"].get("host") if record else None
    entry: Document = {
        "name": move["name"],
        "uuid": move["uuid"],
        "destination": arrived or move["destination"],
        "status": str(record["status"]) if record else "not started",
        "predicted_seconds": move["predicted_seconds"],
        "actual_seconds": _elapsed_seconds(record),
        "downtime_ms": record["result"]["downtime_ms"] if record else None,
    }
    problem = _disagreement(entry, move["source"], facts, record)
    return {**entry, "error": f"{problem} {_detail(record) if record else why}".strip()} if problem else {**entry, "status": COMPLETED}


def _stops(source: str, share: Body, facts: Mapping[str, Body], whys: Mapping[str, str], check_mode: bool) -> list[Document]:
    """Return what became of the domains that were to be shut down: off when their host says so. In check mode only those that were refused."""
    held_back = HELD_BACK if share["unplaced"] else NOT_ASKED
    if check_mode:
        return [{**_left(entry, whys[entry["uuid"]]), "status": "refused"} for entry in share["shutdowns"] if entry["uuid"] in whys]
    return [_stopped(entry, source, facts, whys.get(entry["uuid"], held_back)) for entry in share["shutdowns"]]


def _stopped(entry: Body, source: str, facts: Mapping[str, Body], why: str) -> Document:
    """Return what became of one domain that was to be shut down."""
    if not facts.get(source):
        return {**_left(entry, f"{source} did not answer, so it is not known whether it is off."), "status": "unknown"}
    here = read.find(facts[source], entry["uuid"])
    elsewhere = _active_elsewhere(entry["uuid"], source, facts)
    if here and here["active"]:
        return {**_left(entry, f"It is still {_state(here)}. {why}"), "status": "not shut down"}
    if elsewhere:
        return {**_left(entry, f"It is active on {', '.join(elsewhere)}. {why}"), "status": "not shut down"}
    return {"name": entry["name"], "uuid": entry["uuid"], "status": "shut down"}


def _disagreement(entry: Body, source: str, facts: Mapping[str, Body], record: t.Optional[Body]) -> t.Optional[str]:
    """Return what speaks against the move having been completed, or None."""
    silent = [host for host in (source, entry["destination"]) if not facts.get(host)]
    if silent:
        return f"{' and '.join(silent)} did not answer, so the move is not verified."
    left, there = read.find(facts[source], entry["uuid"]), read.find(facts[entry["destination"]], entry["uuid"])
    if left and left["active"]:
        return f"It is still {_state(left)} on {source}."
    if not there or not there["active"]:
        return f"It is not active on {entry['destination']}."
    if record is not None and record["status"] != COMPLETED:
        return f"It is {_state(there)} on {entry['destination']}, but its record is not settled."
    return None


def _late(source: str, share: Body, facts: Mapping[str, Body]) -> list[Document]:
    planned = {entry["uuid"] for key in ("moves", "shutdowns", "unplaced") for entry in share[key]}
    planned |= {entry["uuid"] for entry in share["skipped"] if entry["drain"] == LEAVE}
    here = facts[source]["domains"] if facts.get(source) else []
    return [_left(domain, "It came here after the plan was made.") for domain in here if domain["active"] and domain["uuid"] not in planned]


def _left(entry: Body, error: str) -> Document:
    return {"name": entry["name"], "uuid": entry["uuid"], "destination": None, "status": "unplaced", "error": error}


def _detail(record: Body) -> str:
    reason = f" ({record['reason']})" if record.get("reason") else ""
    detail = next((line["detail"] for line in reversed(record["history"]) if line.get("detail")), "")
    return f"Its move ended {record['status']}{reason}. {detail}".strip()


def _elapsed_seconds(record: t.Optional[Body]) -> t.Optional[float]:
    value = record["result"].get("elapsed_ms") if record else None
    return None if value is None else round(value / 1000, 1)


def _span(records: Sequence[Body]) -> float:
    """Return the seconds from the first record's beginning to the last one's end, by the control node's and the hosts' clocks."""
    if not records:
        return 0.0
    first = min(read.instant(record["created_at"]) for record in records)
    last = max(read.instant(record["updated_at"]) for record in records)
    return max(0.0, round((last - first).total_seconds(), 1))


def _state(domain: Body) -> str:
    return f"{domain['state']} ({domain['reason']})" if domain["reason"] else str(domain["state"])


def _active_elsewhere(uuid: str, host: str, facts: Mapping[str, Body]) -> list[str]:
    return sorted(name for name, other in facts.items() if name != host and (read.find(other, uuid) or {}).get("active"))


def _names(record: Body, host: str, facts: Body) -> bool:
    return record["status"] in UNSETTLED and any(_is_end(record[end], host, facts) for end in ("source", "destination"))


def _is_end(end: Body, host: str, facts: Body) -> bool:
    return end.get("host") == host or same_host(end, facts)
