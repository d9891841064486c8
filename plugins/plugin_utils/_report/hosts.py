# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The hosts of a report: what left and what arrived, what the ledger says about them, and whether they may be rebooted."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

from .._ledger.places import same_host
from .._ledger.store import Body
from .outcomes import COMPLETED, EVACUATED, NOT_MOVED, UNDER_WAY

ARRIVED = (COMPLETED, EVACUATED)
_OFF = ("shut off", "off")
# So many domains are named before the rest is counted.
_NAMED = 6


def hosts_of(moves: Sequence[Body], entries: Sequence[Body], unsettled: Sequence[Body], domains: Sequence[Body], drains: Mapping[str, Body]) -> list[Body]:
    """Return the hosts by name: those of moves, of the ledger, and of drains.

    :arg entries: the ledger's hosts that the report is about.
    :arg unsettled: all unsettled records of the ledger, whatever the report is about.
    :arg domains: the ledger's domains, without definitions.
    :arg drains: C(drain_host_result), where a drain has just asked the hosts themselves.
    """
    by_name = {str(entry["name"]): entry for entry in entries}
    named = {str(move[end]) for move in moves for end in ("source", "destination") if move[end] is not None}
    return [
        {
            "name": name,
            **_entry(by_name.get(name)),
            **_traffic(name, moves),
            **verdict(name, by_name.get(name, {"name": name}), unsettled, domains, drains.get(name)),
        }
        for name in sorted(named | set(by_name) | set(drains))
    ]


def _entry(entry: t.Optional[Body]) -> Body:
    """Return what a person wrote about the host; nulls for one that has no entry."""
    return {key: (entry or {}).get(key) for key in ("host_id", "state", "reason", "since")}


def _traffic(name: str, moves: Sequence[Body]) -> Body:
    away = [move for move in moves if move["source"] == name]
    return {
        "left": sum(1 for move in away if move["outcome"] in ARRIVED),
        "arrived": sum(1 for move in moves if move["destination"] == name and move["outcome"] in ARRIVED),
        "not_moved": sum(1 for move in away if move["outcome"] in NOT_MOVED),
        "under_way": sum(1 for move in moves if name in (move["source"], move["destination"]) and move["outcome"] == UNDER_WAY),
    }


def verdict(name: str, entry: Body, unsettled: Sequence[Body], domains: Sequence[Body], drain: t.Optional[Body]) -> Body:
    """Return C(safe_to_reboot) (true, false, or null where only the host itself could tell), C(judged_by) and C(reasons).

    Only a drain has asked the host; the ledger alone can forbid, and never permits.
    """
    here = {"host": name, "host_id": entry.get("host_id"), "host_uuid": entry.get("host_uuid")}
    holding = [record for record in unsettled if same_host(record["source"], here) or same_host(record["destination"], here)]
    if drain is not None:
        told = [str(reason) for reason in drain.get("blockers") or []]
        since = [_unsettled(record) for record in holding if not any(record["id"] in reason for reason in told)]
        return _judged(drain.get("safe_to_reboot") is True and not holding, "drain", told + since)
    staying = sorted(str(domain["name"] or domain["uuid"]) for domain in domains if _may_run(domain, here))
    reasons = [_unsettled(record) for record in holding] + ([_staying(staying)] if staying else [])
    if reasons:
        return _judged(False, "ledger", reasons)
    return _judged(None, "ledger", ["The ledger knows of nothing here. Only the host can tell: a drain asks it."])


def _judged(is_safe: t.Optional[bool], judged_by: str, reasons: list[str]) -> Body:
    return {"safe_to_reboot": is_safe, "judged_by": judged_by, "reasons": reasons}


def _unsettled(record: Body) -> str:
    return f"{record['domain']['name'] or record['domain']['uuid']} has an unsettled record, its status is '{record['status']}'."


def _staying(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"By the ledger {len(names)} {'domain' if len(names) == 1 else 'domains'} may run here: {', '.join(names[:_NAMED])}{more}."


def _may_run(domain: Body, here: Body) -> bool:
    state = (domain.get("protected") or {}).get("state")
    return state not in _OFF and any(same_host(place, here) for place in domain["possible_hosts"])
