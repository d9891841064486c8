# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What hosts remember of moves and evacuations beside what the ledger knows: whether the ledger was set back, as by an old backup."""

from __future__ import annotations

import functools
import typing as t
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, NotFound, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s

from .._ledger.places import same_host
from .._ledger.store import Body, Ledger

# A host hears of a record only when it has come further than that: no crash can leave these behind what a host remembers of the same generation.
BEFORE_A_HOST_KNOWS = (s.ACCEPTED, s.SCHEDULED)

Told = Iterable[tuple[str, t.Optional[Sequence[Mapping[str, t.Any]]]]]


def missing_records(ledger: t.Optional[Ledger], told: Told) -> list[Body]:
    """Return what hosts remember and the ledger does not, or of which it knows less than can be after any crash.

    A move or evacuation raises its domain's generation in the ledger before a host hears of it. So a ledger that has neither the record nor
    its generation was set back; where it has given the generation to another record meanwhile, it has found the domain by itself.

    :arg told: what each host remembers, by its name; None for one that could not tell.
    """
    if ledger is None:
        return []
    comparison = _Comparison(ledger)
    return [{**one, "ledger_status": comparison.status_of(one)} for one in _of_ledger(ledger, told) if comparison.is_behind(one)]


def left_behind(ledger: Ledger, told: Told, host_id: t.Optional[str]) -> list[Body]:
    """Return the evacuations away from a host that others remember and the ledger does not, whatever came after them but a return.

    Where a domain has gone since, the ledger may have found by itself; what is left of it on that host, it does not say any more.
    """
    away = [one for one in _of_ledger(ledger, told) if one["type"] == s.EVACUATION and host_id and one["source"]["host_id"] == host_id]
    comparison = _Comparison(ledger)
    return [{**one, "ledger_status": comparison.status_of(one)} for one in away if comparison.is_behind(one) or comparison.may_have_left_a_copy(one)]


def _of_ledger(ledger: Ledger, told: Told) -> list[Body]:
    """Return what hosts remember of this ledger's records, each once, with the host in C(remembered_by)."""
    found = dict[str, Body]()
    for host, records in told:
        for one in records or ():
            if one.get("ledger_id") == ledger.ledger_id:
                found.setdefault(one["id"], {**one, "remembered_by": host})
    return list(found.values())


class _Comparison:
    """One reading of a ledger. What a later version has written is left to that."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def is_behind(self, move: Mapping[str, t.Any]) -> bool:
        """Whether the ledger lacks the move, or knows less of it than a crash can leave."""
        try:
            document = self._ledger.domain(move["domain"]["uuid"])
            known = document.body if document else {}
            newest = int(known.get("generation") or 0)
            if known.get("last_record") == move["id"] or move["generation"] < newest:
                return False
            return self.status_of(move) in BEFORE_A_HOST_KNOWS if move["generation"] == newest else self._is_unknown(move["id"])
        except NotSupported:
            return False

    def may_have_left_a_copy(self, evacuation: Mapping[str, t.Any]) -> bool:
        """Whether the ledger lacks the evacuation, and does not have the domain on its source again."""
        try:
            document = self._ledger.domain(evacuation["domain"]["uuid"])
            places = (document.body.get("possible_hosts") if document else None) or []
            is_back = bool(places) and all(same_host(place, evacuation["source"]) for place in places)
            return not is_back and self._is_unknown(evacuation["id"])
        except NotSupported:
            return False

    def status_of(self, move: Mapping[str, t.Any]) -> t.Optional[str]:
        """Return the status that the ledger has of this very move, if it is unsettled there."""
        record = self._held.get(move["id"])
        return str(record["status"]) if record and record["generation"] == move["generation"] else None

    def _is_unknown(self, record_id: str) -> bool:
        try:
            self._ledger.get(record_id)
        except NotFound:
            return True
        return False

    @functools.cached_property
    def _held(self) -> dict[str, Body]:
        return {str(record["id"]): record for record in self._ledger.records(unsettled_only=True)}


def sentence(one: Body) -> str:
    """Return what is reported of a record that the ledger is behind, and what a person is to do."""
    return f"{_what(one)} {_next_step(one)}"


def sentence_on_copy(one: Body) -> str:
    """Return what is reported of an evacuation of L(left_behind) after which the ledger has found the domain by itself."""
    source, name = one["source"]["host"], one["domain"]["name"]
    return (
        f"{_what(one)} Where the domain is now, the ledger has found since. What {source} has of it is left over: see that it runs elsewhere, then remove it "
        f"from there (virsh undefine {name}; its disks stay)."
    )


def check_known(name: str, uuid: t.Optional[str], missing: Iterable[Body]) -> None:
    """Raise L(Conflict) where the ledger is behind a record of the domain: where that is, and whether it may be moved or started, is not known."""
    own = [one for one in missing if one["domain"]["uuid"] == uuid]
    if own:
        raise Conflict(f"{' '.join(map(_what, own))} Domain {name} was neither moved nor started.", " ".join(map(_next_step, own)))


def _what(one: Body) -> str:
    move = "evacuation" if one["type"] == s.EVACUATION else "move"
    ends = f"{one['source']['host']} to {one['destination']['host']}"
    lack = "which the ledger does not have" if one["ledger_status"] is None else f"of which the ledger says '{one['ledger_status']}'"
    return (
        f"{one['remembered_by']} remembers the {move} of domain {one['domain']['name']} from {ends} (record {one['id']}, '{one['status']}'), {lack}: "
        "the ledger was set back, as by an old backup."
    )


def _next_step(one: Body) -> str:
    source, destination = one["source"]["host"], one["destination"]["host"]
    if one["type"] == s.EVACUATION:
        choice, kept = f"done}} (or failed, where it is not on {destination})", f", and nothing of it is removed from {source}"
    else:
        choice, kept = f"completed}} (or failed, where it is still on {source})", ""
    return (
        f"See where domain {one['domain']['name']} is (virsh list --all), then settle the record by kvmfleet.migration.host on {one['remembered_by']}: "
        f"settle: {{id: {one['id']}, status: {choice}, and a reason. Until then it is neither moved nor started{kept}."
    )
