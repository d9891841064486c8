# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whether a domain of the dead host may be started on this one, by its record, the places that it may be on, and its disks."""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, InvalidState, NotSupported, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.sight import is_everywhere, is_needed
from ansible_collections.kvmfleet.migration.plugins.module_utils._facts.needed_files import NAMES, REPLACEABLE, name_of, needed_files
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import hypervisor as h
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.hosts import may_be_host
from ansible_collections.kvmfleet.migration.plugins.module_utils._xml import NotXml, parse_xml

from .._ledger.places import same_host
from .._ledger.rules import describe
from .._ledger.store import Body
from .evidence import Proofs
from .fleet import Fleet
from .job import Job

# Statuses of an evacuation in which its destination may have the domain.
_BEGUN = (s.PRE_MIGRATING, s.ERROR)


def decide_record(job: Job, fleet: Fleet) -> None:
    """Say what becomes of the record that holds the domain: it is joined, or given up, or it stands in the way (L(Conflict))."""
    record = job.candidate.record
    if record is None:
        return
    here, source = fleet.here, job.source.place
    if record["type"] == s.EVACUATION and same_host(record["destination"], here) and same_host(record["source"], source):
        job.rejoin = record["status"] in _BEGUN
        job.older = None if job.rejoin else record
    elif record["type"] == s.EVACUATION and record["status"] in _BEGUN and fleet.answered(record["destination"]):
        raise _held(record, f"Run the task on {record['destination']['host']}, which answers: it settles the record by asking there.")
    elif same_host(record["destination"], here) and record["type"] == s.LIVE_MIGRATION and job.uuid in fleet.own_domains:
        raise _held(record, "What has arrived here of it is in the way. Run the same migration again, or remove it.")
    else:
        job.older = record


def _held(record: Body, next_step: str) -> Conflict:
    what = describe(record)
    return Conflict(f"{what[0].upper()}{what[1:]} is unsettled: status '{record['status']}'. Nothing was started.", next_step, record=record)


def has_begun(job: Job, where: Body) -> bool:
    """Whether an evacuation of the domain from this source to that host has begun and is not settled."""
    record = job.candidate.record
    if record is None or record["type"] != s.EVACUATION or record["status"] not in _BEGUN:
        return False
    return same_host(record["destination"], where) and same_host(record["source"], job.source.place)


def was_started(job: Job, fleet: Fleet) -> bool:
    """Whether the evacuation that holds the domain has started it already, though nobody has written so yet."""
    record = job.candidate.record
    return record is not None and record["type"] == s.EVACUATION and fleet.is_active_at(job.uuid, record["destination"])


def check_inactive(job: Job, fleet: Fleet) -> None:
    """Raise L(Unsafe) where the domain is active on another host that answers, and no unsettled evacuation has started it there."""
    active = fleet.active_on(job.uuid)
    if active and not was_started(job, fleet):
        raise Unsafe(
            f"Domain {job.name} is active on {' and '.join(active)}, which answers. It was not started.",
            f"Where it is meant to be there, protect {active[0]}, so that the ledger knows.",
        )


def check_absent(job: Job, fleet: Fleet) -> None:
    """Raise L(Conflict) where the domain is on this host and no evacuation put it here."""
    own = fleet.own_domains.get(job.uuid)
    if own and not job.rejoin:
        how = "active" if own["active"] else "defined"
        raise Conflict(
            f"Domain {job.name} is {how} here ({fleet.here['host']}) already, and no evacuation has put it here. It was not started.",
            "Is it left over from an earlier stay, clean this host up first (kvmfleet.migration.evacuation_cleanup); where it is active, protect this host.",
        )


def check_covered(job: Job, fleet: Fleet, proofs: Proofs, source_counts: bool) -> None:
    """Raise L(Unsafe) unless every host that the domain may be on has answered or is off by evidence.

    :arg source_counts: the evidence about the source is yet to be taken.
    """
    for where in job.candidate.places:
        is_source = may_be_host(where, job.source.place)
        if fleet.answered(where) or proofs.covers(where) or (is_source and source_counts):
            continue
        raise Unsafe(
            f"Domain {job.name} may be on {where.get('host')} as well, which does not answer and is not off by evidence. It was not started.",
            f"Give evidence about {where.get('host')}, too, in fencing; or settle the record that names it.",
        )


def check_saved(job: Job, accept_fresh: Collection[str] = ()) -> None:
    """Fill in why the domain cannot be started anywhere before its host returns; raise L(NotSupported) for a state that it cannot have.

    :arg accept_fresh: kinds of files of which a fresh one is accepted, see L(REPLACEABLE).
    """
    saved = job.saved
    for disk in saved.get("disks") or ():
        if is_needed(disk) and not _seen_by_others(disk, job):
            job.lost.append(_why_lost(disk))
    _check_files(job, accept_fresh)
    if job.wanted == h.SHUTOFF and not saved.get("persistent"):
        raise NotSupported(f"Domain {job.name} is transient and cannot be off. It was not started.", "Use state: running.")


def _why_lost(disk: Body) -> str:
    if disk.get("backing_problem"):
        return f"what disk {disk['target']} ({disk['path']}) is built on was not known: {disk['backing_problem']}"
    below = [*(disk.get("backing") or ()), *(disk.get("backing_devices") or ())]
    built_on = f", built on {', '.join(below)}" if below else ""
    return f"no other host was proved to see disk {disk['target']} ({disk['path']}{built_on})"


def _check_files(job: Job, accept_fresh: Collection[str]) -> None:
    """Sort what the domain needs beside its disks: proved elsewhere, to be made afresh, or lost with its host."""
    proved = {(file["what"], file["path"]): file for file in job.saved.get("files") or ()}
    for needed in _needed_files(job.saved):
        file = proved.get((needed["what"], needed["path"]))
        if needed["kind"] == "network" or (file is not None and _seen_by_others(file, job)):
            job.files += [file] if file else []
        elif needed["what"] in REPLACEABLE and needed["what"] in accept_fresh:
            job.fresh.append(needed)
        else:
            job.lost.append(_why_file_is_lost(needed, job))


def _needed_files(saved: Mapping[str, t.Any]) -> list[Body]:
    """Return what the saved definition needs. One that cannot be read is refused where it would be started."""
    try:
        found: list[Body] = needed_files(parse_xml(str(saved.get("definition") or "")))
    except NotXml:
        found = []
    told = {file["what"] for file in found}
    return found + [{"what": what, "kind": "file", "path": saved[what]} for what in REPLACEABLE if saved.get(what) and what not in told]


def _why_file_is_lost(file: Body, job: Job) -> str:
    option = f"; it starts elsewhere with fresh ones where accept_fresh names {file['what']}" if file["what"] in REPLACEABLE else ""
    return f"only {_host(job.saved)} is known to have its {name_of(file)}{option}"


def fresh_warning(job: Job, file: Body) -> str:
    """Return what a person should know of a domain that starts without what it had kept in a file."""
    return f"Domain {job.name} starts with fresh {NAMES[file['what']]}: what it had kept in {file['path']} was on {_host(job.saved)} alone."


def _seen_by_others(image: Body, job: Job) -> bool:
    if is_everywhere(image):
        return True
    seen_by = set(image.get("seen_by") or ())
    # Since it was saved it may have moved: then its disks are where that host saw them.
    return job.source.host_id in seen_by and bool(seen_by - {job.source.host_id})


def unproved_for(job: Job, host_id: str) -> list[str]:
    """Return what a host was not proved to see while all was well: disks, and files that the domain needs beside them."""
    return [name for name, image in _to_be_seen(job) if host_id not in (image.get("seen_by") or ())]


def _to_be_seen(job: Job) -> list[tuple[str, Body]]:
    """Return the disks and files that a host has to see, each with what a message calls it."""
    disks = [(f"disk {disk['target']}", disk) for disk in job.saved.get("disks") or () if is_needed(disk)]
    return [(name, image) for name, image in [*disks, *((name_of(file), file) for file in job.files)] if not is_everywhere(image)]


def check_disks(job: Job, here: Body, unseen: Mapping[str, str]) -> None:
    """Raise L(Unsafe) for a disk or file that this host was never proved to see, or that it does not see now.

    :arg unseen: why, by what a message calls it.
    """
    for name in unproved_for(job, str(here["host_id"])):
        raise Unsafe(
            f"Domain {job.name} cannot be started on {here['host']}: that it sees {name} was not proved when all was well. It was not started.",
            f"Start it on a host that sees all it needs ({', '.join(_seeing(job)) or 'there is none'}).",
        )
    if unseen:
        why = "; ".join(f"{name}: {reason}" for name, reason in sorted(unseen.items()))
        raise Unsafe(f"Domain {job.name} cannot be started on {here['host']}: {why}. It was not started.", "See why the storage is not there.")


def _seeing(job: Job) -> Sequence[str]:
    needed = [set(image.get("seen_by") or ()) for _name, image in _to_be_seen(job)]
    return sorted(set.intersection(*needed) - {job.source.host_id}) if needed else ()


def _host(saved: Mapping[str, t.Any]) -> str:
    return str((saved.get("host") or {}).get("host"))


def check_destination(here: Body, source: Body) -> None:
    """Raise L(InvalidState) for a host that has no identity in the ledger, L(Conflict) where it is the source itself."""
    if not here.get("host_id") or not here.get("host_uuid"):
        raise InvalidState(f"{here['host']} has no identity in the ledger yet.", "Protect it first (kvmfleet.migration.protect). Nothing was started.")
    if same_host(here, source):
        raise Conflict(f"{here['host']} is {source['host']} itself, the host that is to be evacuated.", "Run the task on another host. Nothing was started.")
