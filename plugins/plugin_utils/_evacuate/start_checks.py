# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Checks whether a domain of the dead host may be started on this host: its record, its possible hosts, its files, and whether this host sees them."""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.definition_files import FILE_LABELS, describe_file, list_needed_files
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidState, NotSupported, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.libvirt_formats import NotXml, parse_xml
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import DomainRequest
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import (
    NVRAM,
    REPLACEABLE,
    TPM,
    DomainProtection,
    NeededFile,
    SavedDisk,
    SavedFile,
)

from .._ledger.ledger import Ledger
from .._ledger.rules import describe_record
from .._observe.fleet_scan import ImageUsers, list_written
from .evidence import PowerOffEvidence
from .fencing import HOW_TO_CONFIRM
from .fleet_answers import FleetAnswers
from .job import EvacuationJob
from .source import check_still_not_granted

# Statuses of an evacuation in which its destination may have the domain.
_BEGUN_STATUSES = (s.PRE_MIGRATING, s.ERROR)

Image = SavedDisk | SavedFile


def decide_record(job: EvacuationJob, fleet: FleetAnswers) -> None:
    """Decide about the record that holds the domain: it is continued or given up, or it blocks the evacuation (L(Conflict))."""
    record = job.candidate.record
    if record is None:
        return
    destination = fleet.destination
    if job.earlier_evacuation and record.destination.is_same(destination):
        job.rejoin = record.status in _BEGUN_STATUSES
        job.older = None if job.rejoin else record
    elif record.type == s.EVACUATION and record.status in _BEGUN_STATUSES and fleet.has_answered(record.destination):
        raise _unsettled_error(record, f"Run the task on {record.destination.host}, which answers: it settles the record by querying that host.")
    elif record.type in s.MOVE_TYPES and fleet.has_domain_at(job.uuid, record.source):
        # libvirt removes the definition of the source when the guest has arrived. Its owner may have shut it down, or a cold move may be undone there.
        kept, dead = record.source.label, job.source.name
        raise _unsettled_error(
            record,
            f"{kept} answers and has the domain, which is off there. If it has not left {kept}, settle the record as 'failed' with kvmfleet.migration.host. If "
            f"it ran on {dead}, undefine it on {kept} (virsh undefine --keep-nvram, with --keep-tpm too if it has a TPM), and run the task again.",
        )
    elif record.destination.is_same(destination) and record.type in s.MOVE_TYPES and job.uuid in fleet.own_domains:
        raise _unsettled_error(record, "An incomplete copy of the domain is on this host. Run the same migration again, or remove that copy.")
    else:
        job.older = record
        job.has_older_copy = record.type in s.MOVE_TYPES and fleet.has_domain_at(job.uuid, record.destination)


def _unsettled_error(record: MoveRecord, next_step: str) -> Conflict:
    what = describe_record(record)
    return Conflict(f"{what[0].upper()}{what[1:]} is unsettled: status '{record.status}'. Nothing was started.", next_step, record=encode(record))


def has_begun(job: EvacuationJob, where: HostRef) -> bool:
    """Whether an evacuation of the domain from this source to that host has begun and is not settled."""
    earlier = job.earlier_evacuation
    return earlier is not None and earlier.status in _BEGUN_STATUSES and earlier.destination.is_same(where)


def was_started(job: EvacuationJob, fleet: FleetAnswers) -> bool:
    """Whether the evacuation that holds the domain has already started it, although the record does not show it yet."""
    record = job.candidate.record
    return record is not None and record.type == s.EVACUATION and fleet.is_active_at(job.uuid, record.destination)


def check_inactive(job: EvacuationJob, fleet: FleetAnswers) -> None:
    """Raise L(Unsafe) if the domain is active on another host that answers, and no unsettled evacuation has started it on that host."""
    active = fleet.active_on(job.uuid)
    if active and not was_started(job, fleet):
        raise Unsafe(
            f"Domain {job.name} is active on {' and '.join(active)}, which answers. It was not started.",
            f"If it belongs there, protect {active[0]}, which updates the ledger.",
        )


def check_images_free(job: EvacuationJob, users: ImageUsers) -> None:
    """Raise L(Unsafe) if a domain that runs elsewhere uses an image of the domain: somebody has defined it anew, under another UUID. Not all storage has locks.

    :arg users: by the facts of the hosts that answer.
    """
    if job.wanted == domain_states.SHUTOFF:
        return
    disks = list_written(decode(DomainRequest, job.saved.request or {}))
    used = users.find_other(job.uuid, job.source.name, disks)
    if used:
        raise Unsafe(
            f"Domain {job.name} ({job.uuid}) was not started: {used}.",
            f"If that domain has replaced it, undefine it on {job.source.name} when that host is back. If not, stop that domain, and run the task again. "
            "A disk that several guests may write has to be marked as shareable in their definitions.",
        )


def check_absent(job: EvacuationJob, fleet: FleetAnswers) -> None:
    """Raise L(Conflict) if the domain is on this host and no evacuation put it here, or if another domain here has its name."""
    own = fleet.own_domains.get(job.uuid)
    if own and not job.rejoin:
        how = "active" if own.active else "defined"
        raise Conflict(
            f"Domain {job.name} is {how} on this host ({fleet.destination.host}) already, and no evacuation started it here. It was not started.",
            "If it is active, protect this host. If it is left over from an earlier stay, clean up this host first (kvmfleet.migration.evacuation_cleanup).",
        )
    other = next((uuid for uuid, domain in fleet.own_domains.items() if domain.name == job.name and uuid != job.uuid), None)
    if other and not job.rejoin:
        raise Conflict(
            f"{fleet.destination.host} has another domain named {job.name} ({other}). The domain of {job.source.name} was not started.",
            "Rename one of the two, or start the domain on another host.",
        )


def check_covered(job: EvacuationJob, fleet: FleetAnswers, proofs: PowerOffEvidence, source_counts: bool) -> None:
    """Raise L(Unsafe) unless every host that the domain may be on has answered or is off by evidence.

    :arg source_counts: whether the source counts as off, because its evidence is collected later.
    """
    for where in job.candidate.possible_hosts:
        is_source = where.may_be(job.source.host_ref)
        if fleet.has_answered(where) or proofs.has_proof_of(where) or (is_source and source_counts):
            continue
        if is_source:
            raise proofs.missing_error()
        report = proofs.unproved.get(where.host or "")
        why = f" ({report})" if report else ""
        raise Unsafe(
            f"Domain {job.name} may be on {where.host} as well, which does not answer and is not off by evidence{why}. It was not started.",
            f"Give evidence about {where.host}, too, in fencing; or settle the record that names it.",
        )


def check_arrival(job: EvacuationJob, fleet: FleetAnswers, proofs: PowerOffEvidence, arrivals: Mapping[str, Collection[str]]) -> None:
    """Raise L(Unsafe) if the domain may be on a host that is off by its watchdog alone, and may have come there after the reset.

    A host whose watchdog has reset it starts again. While it does not get a lease in that boot, it is not reset once more, and its lease does not show it.

    :arg arrivals: by ID of such a host, the domains that may have come to it after its last renewal, see L(find_late_arrivals).
    """
    for where in job.candidate.possible_hosts:
        found = proofs.list_proofs_of(where)
        if fleet.has_answered(where) or not found or not all(one.is_of_watchdog for one in found):
            continue
        host, record = found[0], job.candidate.record
        if job.uuid in arrivals.get(str(host.host_id), ()) or (record is not None and record.destination.may_be(where)):
            raise Unsafe(
                f"Domain {job.name} may have come to {host.host} after the last renewal of its lease, and then runs there since the reset by the watchdog. "
                "It was not started.",
                f"Find out whether {host.host} is off, e.g. on its console, and confirm that with {HOW_TO_CONFIRM}.",
            )


def check_no_token(job: EvacuationJob, ledger: Ledger, fleet: FleetAnswers, proofs: PowerOffEvidence) -> None:
    """Raise L(Unsafe) if the domain may be on a host that is off, and that may start its guests automatically by a clean-shutdown token when it returns.

    To be called after the proof that these hosts are off: since then none of them can be granted a token or leave one.
    """
    silent = [where for where in job.candidate.possible_hosts if not fleet.has_answered(where) and not where.is_same(job.source.host_ref)]
    for one in [proof for where in silent for proof in proofs.list_proofs_of(where)]:
        check_still_not_granted(ledger, one.host, str(one.host_id))


def check_saved(job: EvacuationJob, accept_fresh: Collection[str] = ()) -> None:
    """Set the reasons why the domain cannot be started before its host returns; raises L(NotSupported) for an impossible state.

    :arg accept_fresh: kinds of files that may be replaced by fresh ones, see L(REPLACEABLE).
    """
    saved = job.saved
    for disk in job.disks:
        if disk.is_needed and not _is_seen_by_others(disk, job):
            job.lost.append(_why_lost(disk))
    _check_files(job, accept_fresh)
    if job.wanted == domain_states.SHUTOFF and not saved.persistent:
        raise NotSupported(f"Domain {job.name} is transient and cannot be off. It was not started.", "Use state: running.")


def _why_lost(disk: SavedDisk) -> str:
    if disk.backing_problem:
        return f"the files that disk {disk.target} ({disk.path}) needs were not known: {disk.backing_problem}"
    below = [*(disk.backing or ()), *(disk.backing_devices or ())]
    built_on = f", built on {', '.join(below)}" if below else ""
    return f"no other host was proved to see disk {disk.target} ({disk.path}{built_on})"


def _check_files(job: EvacuationJob, accept_fresh: Collection[str]) -> None:
    """Sort the files that the domain needs in addition to its disks: proved elsewhere, to be created, or lost with its host."""
    saved = [decode(SavedFile, file) for file in job.saved.files or ()]
    proved = {(file.what, file.path): file for file in saved}
    for needed in _needed_files(job.saved):
        file = proved.get((needed.what, needed.path))
        if needed.kind == "network" or (file is not None and _is_seen_by_others(file, job)):
            job.files += [file] if file else []
        elif needed.what in REPLACEABLE and needed.what in accept_fresh:
            job.fresh.append(needed)
        else:
            job.lost.append(_why_file_is_lost(needed, job))


def _needed_files(saved: DomainProtection) -> list[NeededFile]:
    """Return the files that the saved definition needs. An unreadable definition is refused later, at the start."""
    try:
        found = list_needed_files(parse_xml(saved.definition or ""))
    except NotXml:
        found = []
    listed = {file.what for file in found}
    paths = {NVRAM: saved.nvram, TPM: saved.tpm}
    return found + [NeededFile(what, "file", path) for what in REPLACEABLE if (path := paths[what]) and what not in listed]


def _why_file_is_lost(file: NeededFile, job: EvacuationJob) -> str:
    option = f"; it starts elsewhere with fresh ones if accept_fresh (evacuate_host_accept_fresh) names {file.what}" if file.what in REPLACEABLE else ""
    return f"only {_host_when_saved(job.saved)} is known to have its {describe_file(file.what, file.path)}{option}"


def fresh_warning(job: EvacuationJob, file: NeededFile) -> str:
    """Return the warning for a domain that starts without the former content of a file."""
    return f"Domain {job.name} starts with fresh {FILE_LABELS[file.what]}: the content of {file.path} was on {_host_when_saved(job.saved)} alone."


def _is_seen_by_others(image: Image, job: EvacuationJob) -> bool:
    if image.is_everywhere:
        return True
    # It may have moved since it was saved: then its disks are those that the saving host saw.
    return job.source.host_id in image.seeing_hosts and bool(image.seeing_hosts - {job.source.host_id})


def list_unproved_images(job: EvacuationJob, host_id: str) -> list[str]:
    """Return the disks and files that a host was not proved to see while the source was running."""
    return [name for name, image in _list_images_to_see(job) if host_id not in image.seeing_hosts]


def _list_images_to_see(job: EvacuationJob) -> list[tuple[str, Image]]:
    """Return the disks and files that a host has to see, each with its name for messages."""
    disks: list[tuple[str, Image]] = [(f"disk {disk.target}", disk) for disk in job.disks if disk.is_needed]
    files = [(describe_file(file.what, file.path), file) for file in job.files]
    return [(name, image) for name, image in [*disks, *files] if not image.is_everywhere]


def find_naming_error(job: EvacuationJob, host: str) -> t.Optional[NotSupported]:
    """Return why the saved definition cannot be rewritten for the host that the task runs on, of that name; None if it can."""
    if not job.renamed.problem:
        return None
    return NotSupported(
        f"Domain {job.name} cannot be started on {host}: {job.renamed.problem} It was not started.",
        "Complete the resource maps of both hosts, or start it on another host.",
    )


def check_disks(job: EvacuationJob, fleet: FleetAnswers, unseen: Mapping[str, str]) -> None:
    """Raise L(Unsafe) for a disk or file that this host was never proved to see, or that it does not see now.

    :arg unseen: the reasons, by the names for messages.
    """
    destination = fleet.destination
    for name in list_unproved_images(job, str(destination.host_id)):
        raise Unsafe(
            f"Domain {job.name} cannot be started on {destination.host}: its access to {name} was not proved while the source was running. It was not started.",
            f"Start it on a host with access to all that it needs: {', '.join(_hosts_that_see_all(job, fleet)) or 'there is none'}.",
        )
    if unseen:
        why = "; ".join(f"{name}: {reason}" for name, reason in sorted(unseen.items()))
        raise Unsafe(f"Domain {job.name} cannot be started on {destination.host}: {why}. It was not started.", "Find out why the storage is not available.")


def _hosts_that_see_all(job: EvacuationJob, fleet: FleetAnswers) -> Sequence[str]:
    """Return the names of the other hosts that were proved to see everything that the domain needs."""
    needed = [image.seeing_hosts for _name, image in _list_images_to_see(job)]
    host_ids = frozenset.intersection(*needed) - {job.source.host_id} if needed else ()
    return sorted(entry.name for entry in fleet.entries if entry.host_id in host_ids)


def _host_when_saved(saved: DomainProtection) -> str:
    return str(saved.host.host if saved.host else None)


def check_destination(destination: HostRef, source: HostRef) -> None:
    """Raise L(InvalidState) for a host that has no identity in the ledger, L(Conflict) if it is the source itself."""
    if not destination.host_id or not destination.host_uuid:
        raise InvalidState(f"{destination.host} has no identity in the ledger yet.", "Protect it first (kvmfleet.migration.protect). Nothing was started.")
    if destination.is_same(source):
        raise Conflict(f"{destination.host} is {source.host} itself, the host that is to be evacuated.", "Run the task on another host. Nothing was started.")
