# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whether a domain of the dead host may be started on this one, by its record, the places that it may be on, and its disks."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, InvalidState, NotSupported, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.sight import is_needed
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import hypervisor as h
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.hosts import may_be_host

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


def check_saved(job: Job) -> None:
    """Fill in why the domain cannot be started anywhere before its host returns; raise L(NotSupported) for a state that it cannot have."""
    saved = job.saved
    if saved.get("tpm"):
        job.lost.append(f"its emulated TPM is in {saved['tpm']} of {_host(saved)}, and would be an empty one elsewhere")
    for disk in saved.get("disks") or ():
        if is_needed(disk) and not _seen_by_others(disk, job):
            job.lost.append(f"no other host was proved to see disk {disk['target']} ({disk['path']})")
    if job.wanted == h.SHUTOFF and not saved.get("persistent"):
        raise NotSupported(f"Domain {job.name} is transient and cannot be off. It was not started.", "Use state: running.")


def _seen_by_others(disk: Body, job: Job) -> bool:
    if disk["kind"] == "network":
        return True
    seen_by = set(disk.get("seen_by") or ())
    # Since it was saved it may have moved: then its disks are where that host saw them.
    return job.source.host_id in seen_by and bool(seen_by - {job.source.host_id})


def unproved_for(job: Job, host_id: str) -> list[str]:
    """Return the targets of the disks that a host was not proved to see while all was well."""
    disks = [disk for disk in job.saved.get("disks") or () if is_needed(disk) and disk["kind"] != "network"]
    return [str(disk["target"]) for disk in disks if host_id not in (disk.get("seen_by") or ())]


def check_disks(job: Job, here: Body, unseen: Mapping[str, str]) -> None:
    """Raise L(Unsafe) for a disk that this host was never proved to see, or that it does not see now."""
    for target in unproved_for(job, str(here["host_id"])):
        raise Unsafe(
            f"Domain {job.name} cannot be started on {here['host']}: that it sees disk {target} was not proved when all was well. It was not started.",
            f"Start it on a host that sees all its disks ({', '.join(_seeing(job)) or 'there is none'}).",
        )
    if unseen:
        why = "; ".join(f"disk {target}: {reason}" for target, reason in sorted(unseen.items()))
        raise Unsafe(f"Domain {job.name} cannot be started on {here['host']}: {why}. It was not started.", "See why the storage is not there.")


def _seeing(job: Job) -> Sequence[str]:
    needed = [set(disk.get("seen_by") or ()) for disk in job.saved.get("disks") or () if is_needed(disk) and disk["kind"] != "network"]
    return sorted(set.intersection(*needed) - {job.source.host_id}) if needed else ()


def _host(saved: Mapping[str, t.Any]) -> str:
    return str((saved.get("host") or {}).get("host"))


def check_destination(here: Body, source: Body) -> None:
    """Raise L(InvalidState) for a host that has no identity in the ledger, L(Conflict) where it is the source itself."""
    if not here.get("host_id") or not here.get("host_uuid"):
        raise InvalidState(f"{here['host']} has no identity in the ledger yet.", "Protect it first (kvmfleet.migration.protect). Nothing was started.")
    if same_host(here, source):
        raise Conflict(f"{here['host']} is {source['host']} itself, the host that is to be evacuated.", "Run the task on another host. Nothing was started.")
