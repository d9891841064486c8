# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The host half of the module C(evacuation_cleanup): identifies this host, determines what may be removed from it, and removes it."""

from __future__ import annotations

import contextlib
import os
import typing as t

from .._facts.identity import read_identity
from .._facts.mounts import innermost_mount, read_mounts
from .._facts.own_moves import list_remembered
from .._host_identity import check_ledger_id, read_host_id
from .._libvirt.host import open_host
from .._libvirt.interface import Host
from .._model.cleanup import CleanupDone, CleanupPlan, CleanupQuestion, DiskVerdict, FleetReading, KeptDisk, QuarantinedDisk, QuarantinedFile
from .._model.codec import Json, decode, encode
from .._model.errors import Aborted, Conflict, Internal, KvmfleetError, Unsafe
from .._module import Phase, Result, has_lost_task, require_local, require_root
from .._time_limits import limit_questions
from .cleanup_survey import CleanupSurvey
from .cleanup_verdicts import CLEAN
from .quarantine import Quarantine, Step, expire_quarantine, find_unmounted, is_moved, list_quarantined

KEEP = "keep"
_SAVE, _DISK = "managed_save", "disk"


class _Identify(t.TypedDict):
    """The input of L(identify_host)."""

    ledger_id: t.Optional[str]


class _SurveyCopies(t.TypedDict):
    """The input of L(survey_copies)."""

    host_id: str
    uris: t.Mapping[str, str]
    domains: t.Sequence[Json]


class _CleanCopy(t.TypedDict):
    """The input of L(clean_copy)."""

    host_id: str
    uris: t.Mapping[str, str]
    domains: t.Sequence[Json]
    storage: str
    fleet: Json
    uuids: t.Sequence[str]


class _ListPutAside(t.TypedDict):
    """The input of L(list_put_aside)."""

    host_id: str


class _DeleteExpired(t.TypedDict):
    """The input of L(delete_expired)."""

    host_id: str
    due: t.Sequence[str]
    check: bool


@limit_questions
def identify_host(uri: str, work: _Identify) -> Result:
    """Return the identity of this host, and C(remembered), the moves that it remembers.

    Raises L(Forbidden) without root, L(NotSupported) for another host's URI, L(Conflict) for another ledger's host.
    """
    require_root()
    require_local(uri)
    check_ledger_id(work["ledger_id"])
    return {**read_identity(uri, {}), "remembered": list_remembered()}


@limit_questions
def survey_copies(uri: str, work: _SurveyCopies) -> Result:
    """Return C(plans), the permitted cleanup of each domain, and C(fleet), what the other hosts have answered. Changes nothing.

    :arg work: C(host_id) that this host has to have; C(uris) of the others; C(domains), see L(CleanupQuestion).
    """
    with _open_survey(uri, work["host_id"], work["uris"]) as (_host, look):
        plans = look.plan_cleanups(_read_questions(work["domains"]))
        return {"changed": False, "plans": encode(plans), "fleet": encode(look.reading)}


def clean_copy(uri: str, work: _CleanCopy) -> Result:
    """Survey one domain again, and remove its copy. Returns C(plan), and, if it is C(clean), C(done): C(quarantined), C(kept), C(restore), C(undefined).

    Also returns C(fleet), what all other hosts have answered; null if they did not have to be asked again.

    :arg work: as of L(survey_copies), with one domain; C(storage); C(fleet), what they answered before, or null; C(uuids) to ask them about.
    """
    with _open_survey(uri, work["host_id"], work["uris"]) as (host, look):
        earlier = decode(FleetReading, work["fleet"], "fleet") if work["fleet"] else None
        (question,) = _read_questions(work["domains"])
        plan = look.plan_again(question, earlier, work["uuids"])
        found = {"plan": encode(plan), "fleet": encode(look.reading)}
        if plan.kind != CLEAN:
            return {"changed": False, **found}
        # With the task, the lock of this host in the ledger is gone, and other hosts may have taken minutes to answer.
        if has_lost_task():
            raise Aborted(f"The task that was to clean up domain {plan.name} has ended. Nothing was removed.")
        done = encode(CopyCleaner(host, work["host_id"], Quarantine(plan.record)).remove_copy(plan, work["storage"]))
        return {"changed": done.pop("changed"), "done": done, **found}


def list_put_aside(_uri: str, work: _ListPutAside) -> Result:
    """Return the quarantines of this host: C(quarantined), C(kept); see L(list_quarantined). Changes nothing."""
    require_root()
    _check_identity(work["host_id"])
    return {"changed": False, **encode(list_quarantined())}


def delete_expired(uri: str, work: _DeleteExpired) -> Result:
    """Delete the quarantines of the records in C(due): C(deleted), C(kept)."""
    with _open_survey(uri, work["host_id"], {}) as (_host, look):
        answer = expire_quarantine(work["due"], look.find_users, work["check"])
        return {"changed": bool(answer.deleted), **encode(answer)}


PHASES: t.Dict[str, Phase] = {
    "identify": identify_host,
    "survey": survey_copies,
    "clean": clean_copy,
    "quarantined": list_put_aside,
    "expire": delete_expired,
}


@contextlib.contextmanager
def _open_survey(uri: str, host_id: str, uris: t.Mapping[str, str]) -> t.Iterator[t.Tuple[Host, CleanupSurvey]]:
    require_root()
    _check_identity(host_id)
    host = open_host(require_local(uri))
    try:
        yield host, CleanupSurvey(host, host_id, uris, open_host, _list_moved_files)
    finally:
        host.close()


def _check_identity(host_id: str) -> None:
    now = read_host_id()
    if now is None or now != host_id:
        raise Conflict(f"The task started on the host {host_id}, but this host is {now}. Nothing was touched.", "Run the task again.")


def _list_moved_files(record_id: str) -> t.FrozenSet[str]:
    """Return the files that an earlier run has already quarantined for this record."""
    manifest = Quarantine(record_id).read_manifest()
    return frozenset(file.source for file in manifest.items if is_moved(file)) if manifest else frozenset()


def _read_questions(documents: t.Sequence[Json]) -> t.List[CleanupQuestion]:
    return [decode(CleanupQuestion, domain, "domains") for domain in documents]


class CopyCleaner:
    """Removes the copy of one domain. Each step can be repeated after a crash.

    :arg step: called after the domain was undefined; tests end the process at that point.
    """

    def __init__(self, host: Host, host_id: str, quarantine: Quarantine, step: Step = lambda name: None) -> None:
        self._host = host
        self._host_id = host_id
        self._quarantine = quarantine
        self._step = step
        self._mounts = {mount.path for mount in read_mounts()}
        self._has_acted = False

    def remove_copy(self, plan: CleanupPlan, storage: str) -> CleanupDone:
        """Carry out the plan, verify the result, and return what was done. Raises L(Internal), L(Unsafe), with C(changed)."""
        try:
            return self._remove_allowed(plan, [disk for disk in plan.disks if disk.quarantine and storage != KEEP])
        except KvmfleetError as error:
            error.result["changed"] = self._has_acted
            raise
        except OSError as error:
            raise Internal(
                f"The cleanup of domain {plan.name} was interrupted: {error.strerror or error} ({error.filename}). Its record stays, and no file was lost.",
                "Repair this on the host and run the task again; it continues from there.",
                changed=self._has_acted,
            ) from error

    def _remove_allowed(self, plan: CleanupPlan, disks: t.Sequence[DiskVerdict]) -> CleanupDone:
        if not plan.present and not disks and self._quarantine.read_manifest() is None:
            return CleanupDone(False, False, (), tuple(_kept_disk(disk) for disk in plan.disks), None)
        self._check_mounted(plan)
        definition = self._host.read_whole_definition(plan.uuid, True) if plan.present else None
        manifest = self._quarantine.record_files(plan.domain, self._host_id, definition, self._locate_files(plan, disks))
        # The saved memory first: undefining would delete it, or refuse.
        moved = [self._move_file(file) for file in manifest.items if file.kind == _SAVE]
        self._undefine_domain(plan)
        allowed = {disk.path for disk in disks}
        problems = {file.source: self._move_disk(file, file.source in allowed) for file in manifest.items if file.kind == _DISK}
        manifest = self._quarantine.mark_complete()
        self._verify_removal(plan, manifest.items)
        there = {file.source for file in manifest.items}
        return CleanupDone(
            changed=bool(plan.present or any(moved) or allowed & there),
            undefined=manifest.definition is not None,
            quarantined=tuple(QuarantinedDisk(file.target, file.source, file.destination) for file in manifest.items),
            kept=tuple(_kept_disk(disk, problems.get(disk.path, "")) for disk in plan.disks if disk.path not in there),
            restore=manifest.restore,
        )

    def _check_mounted(self, plan: CleanupPlan) -> None:
        """Raise L(Internal) if an earlier run may have moved a file to a file system that is not mounted now. It would be taken for one that nobody moved."""
        manifest = self._quarantine.read_manifest()
        for file in manifest.items if manifest else ():
            mount = find_unmounted(file, self._mounts)
            if mount:
                raise Internal(
                    f"The cleanup of domain {plan.name} cannot be continued: an earlier run may have moved {file.source} to quarantine on {mount}, which is "
                    "not mounted. Its record stays, and this run has changed nothing.",
                    "Mount it and run the task again.",
                )

    def _locate_files(self, plan: CleanupPlan, disks: t.Sequence[DiskVerdict]) -> t.List[QuarantinedFile]:
        save = plan.managed_save
        saves = [self._quarantine.locate_file(_SAVE, None, save, self._mount_of(save))] if save else []
        return [*saves, *(self._quarantine.locate_file(_DISK, disk.target, disk.path, self._mount_of(disk.path)) for disk in disks)]

    def _mount_of(self, path: str) -> str:
        return innermost_mount(os.path.realpath(path), self._mounts)

    def _undefine_domain(self, plan: CleanupPlan) -> None:
        self._host.undefine_inactive(plan.uuid)
        if self._host.view_domain(plan.uuid).present:
            raise Internal(
                f"Domain {plan.name} is still defined on this host although it was undefined. None of its disks was touched.",
                "Check the domain on this host, then run the task again.",
            )
        if plan.present:
            self._has_acted = True
            self._step("undefine")

    def _move_file(self, file: QuarantinedFile) -> bool:
        is_moved_now = self._quarantine.move_file(file)
        self._has_acted |= is_moved_now
        return is_moved_now

    def _move_disk(self, file: QuarantinedFile, allowed: bool) -> str:
        """Move a disk to quarantine, unless that was done before. If it cannot be moved, return why, and remove it from the manifest."""
        if is_moved(file):
            return ""
        try:
            if allowed:
                self._move_file(file)
                return ""
            problem = "an earlier run was to move it to quarantine, and this is no longer allowed"
        except Unsafe as error:
            problem = error.message
        except OSError as error:
            if is_moved(file):
                # Only its new name may not be on disk yet. The next run continues: what is in quarantine must stay in the manifest.
                self._has_acted = True
                raise
            problem = f"it could not be moved to {file.destination}: {error.strerror}"
        self._quarantine.drop_file(file)
        return problem

    def _verify_removal(self, plan: CleanupPlan, files: t.Sequence[QuarantinedFile]) -> None:
        lost = [file.source for file in files if not is_moved(file)]
        if lost or self._host.view_domain(plan.uuid).present:
            what = f"{lost[0]} is not where it was moved to" if lost else "the domain is defined here again"
            raise Internal(
                f"The cleanup of domain {plan.name} could not be verified: {what}. Its record stays as it is.",
                "Check the domain on this host, then run the task again.",
            )


def _kept_disk(disk: DiskVerdict, problem: str = "") -> KeptDisk:
    return KeptDisk(disk.target, disk.path, problem or disk.reason or "storage is 'keep'", disk.only_copy or bool(problem))
