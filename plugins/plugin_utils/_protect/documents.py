# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A domain's document after its host was asked. Decides only; writes nothing."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.clock import utc_now

from .._ledger.places import same_host
from .._ledger.rules import describe
from .._ledger.store import Body
from .known import Known

SAVED = "saved"
UNCHANGED = "unchanged"
CONFLICT = "conflict"
SKIPPED = "skipped"

# What is kept of a domain; a change of one of them is written.
KEPT = ("definition", "persistent", "autostart", "state", "request", "policy", "nvram", "tpm", "disks", "files")
_NOWHERE = "Find out where the guest runs, shut down the copy that is not wanted, and settle the record with kvmfleet.migration.host."


@dataclass(frozen=True)
class Judgement:
    """What becomes of a domain: C(kind); C(why), a sentence, where it is not saved; C(body) its document otherwise, C(changed) what differs in it."""

    kind: str
    why: str = ""
    body: Body = field(default_factory=dict)
    changed: tuple[str, ...] = ()


def judge(said: Body, known: Known, here: Body, disks: list[Body], by: str) -> Judgement:
    """Return what becomes of a domain that its host told.

    :arg here: the host, as a place of records.
    :arg disks: its disks, with who sees them.
    """
    alarm = _alarm(said, known, here)
    if alarm:
        return Judgement(CONFLICT, alarm)
    before = known.documents[said["uuid"]].body if said["uuid"] in known.documents else None
    places = _places(said, known, here, before)
    if places is None:
        return Judgement(SKIPPED, _elsewhere(said, known, here, before or {}))
    return _document(said, here, disks, by, before, places)


def missing(known: Known, here: Body, present: t.Collection[str]) -> list[Body]:
    """Return the documents of domains that may be on the host and are not there; one with an unsettled record is on its way."""
    return [
        document.body
        for uuid, document in known.documents.items()
        if uuid not in present and uuid not in known.unsettled and _has(document.body.get("possible_hosts") or [], here)
    ]


def _alarm(said: Body, known: Known, here: Body) -> str:
    """Say why a domain that is active here may be active elsewhere too; empty where nothing says so."""
    if not said["active"]:
        return ""
    record, tombstone = known.unsettled.get(said["uuid"]), known.tombstones.get(said["uuid"])
    what = f"Domain {said['name']} is active on {here['host']}, but "
    if record is not None and not _may_be_active(record, here):
        return f"{what}{describe(record)} is unsettled ('{record['status']}') and gives it to another host. It was not saved. {_NOWHERE}"
    document = known.documents.get(said["uuid"])
    if record is None and tombstone is not None and document is not None and not _has(document.body.get("possible_hosts") or [], here):
        started = tombstone["destination"]["host"]
        return f"{what}{describe(tombstone)} is 'done': it was started on {started} and may run twice. It was not saved. {_NOWHERE}"
    return ""


def _may_be_active(record: Body, here: Body) -> bool:
    if same_host(record["destination"], here):
        return True
    return same_host(record["source"], here) and not (record["type"] == s.EVACUATION and record["status"] != s.ACCEPTED)


def _places(said: Body, known: Known, here: Body, before: t.Optional[Body]) -> t.Optional[list[Body]]:
    """Return where the domain may be, or None where its definition here is but a leftover."""
    ledgers = (before or {}).get("possible_hosts") or []
    if said["uuid"] in known.unsettled:
        record = known.unsettled[said["uuid"]]
        return (ledgers or [here]) if said["active"] or same_host(record["source"], here) else None
    # The host is right about what runs there, whatever was done outside the ledger.
    if said["active"] or before is None or not ledgers:
        return [here]
    return [here if same_host(place, here) else place for place in ledgers] if _has(ledgers, here) else None


def _elsewhere(said: Body, known: Known, here: Body, before: Body) -> str:
    record = known.unsettled.get(said["uuid"])
    if record is not None:
        return f"{describe(record)} is under way"
    names = ", ".join(str(place.get("host")) for place in before.get("possible_hosts") or [])
    return f"by the ledger it is on {names}: the inactive definition on {here['host']} is left over. Started here, it would be taken as this host's"


def _document(said: Body, here: Body, disks: list[Body], by: str, before: t.Optional[Body], places: list[Body]) -> Judgement:
    old = (before or {}).get("protected") or {}
    now = utc_now()
    told = {
        "files": [],
        **said,
        "disks": disks,
        "request": _with_proof(said["request"], disks),
        "state": said["state"] or old.get("state") or ("running" if said["active"] else "shut off"),
    }
    kept = {key: told[key] for key in KEPT}
    changed = [key for key in KEPT if key not in old or _comparable(key, old[key]) != _comparable(key, kept[key])]
    changed += ["host"] if _lasting(old.get("host")) != _lasting(here) else []
    changed += ["name"] if (before or {}).get("name") != said["name"] else []
    changed += ["possible_hosts"] if list(map(_lasting, (before or {}).get("possible_hosts") or [])) != list(map(_lasting, places)) else []
    if before is not None and not changed:
        return Judgement(UNCHANGED, body=before)
    since = old["state_at"] if old.get("state_at") and "state" not in changed else now
    protected = {"origin": None, **old, **kept, "at": now, "by": by, "host": here, "state_at": since}
    base = before or {"uuid": said["uuid"], "last_record": None}
    return Judgement(SAVED, body={**base, "name": said["name"], "possible_hosts": places, "protected": protected, "updated_at": now}, changed=tuple(changed))


def _lasting(where: t.Optional[Body]) -> t.Optional[Body]:
    """Return what of a place is written anew when it changes: libvirt's UUID may be another one at each start of its daemon."""
    return {**where, "host_uuid": None} if where and where.get("host_id") else where


def _with_proof(request: Body, disks: list[Body]) -> Body:
    """Return the request with what the tokens have proved to be shared, whatever its kind of file system says."""
    proved = {disk["target"]: disk["shared"] for disk in disks}
    return {**request, "disks": [{**disk, "shared": proved.get(disk["target"], disk["shared"])} for disk in request["disks"]]}


def _comparable(key: str, value: t.Any) -> t.Any:
    """Leave out what grows by itself: how much of an image is allocated."""
    if key != "request" or not isinstance(value, dict):
        return value
    return {**value, "disks": [{name: part for name, part in disk.items() if name != "bytes"} for disk in value.get("disks") or []]}


def _has(places: list[Body], here: Body) -> bool:
    return any(same_host(place, here) for place in places)
