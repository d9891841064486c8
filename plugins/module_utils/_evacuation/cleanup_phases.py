# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The host's half of C(evacuation_cleanup): who this host is, what may be removed from it, and removing it."""

from __future__ import annotations

import contextlib
import os
import typing as t

from .._errors import Conflict, Internal, Unsafe
from .._facts import host_phases
from .._facts.identity import read_host_id
from .._facts.remembered import remembered
from .._hypervisor.cleaning import open_cleaning_host
from .._hypervisor.storage import innermost, read_mounts
from .._module import require_local, require_root
from .._patience import patient
from .belonging import check_belongs
from .cleanup import CLEAN
from .cleanup_expiry import expire as expire_quarantine
from .cleanup_expiry import list_quarantined
from .cleanup_survey import CleaningHost, Survey
from .quarantine import Item, Quarantine, Step, is_moved

Json = t.Dict[str, t.Any]
Work = t.Mapping[str, t.Any]

KEEP = "keep"
_SAVE, _DISK = "managed_save", "disk"


@patient
def identify(uri: str, work: Work) -> Json:
    """Return who this host is, and C(remembered), what it remembers of moves.

    Raises L(Forbidden) without root, L(NotSupported) for another host's URI, L(Conflict) for another ledger's host.
    """
    require_root()
    require_local(uri)
    check_belongs(work["ledger_id"])
    return {**host_phases.read(uri, work), "remembered": remembered()}


@patient
def survey(uri: str, work: Work) -> Json:
    """Return C(plans): for each domain what may be done. Changes nothing.

    :arg work: C(host_id) that this host has to have; C(uris) of the others; C(domains), see L(Survey.plans).
    """
    with _looking(uri, work) as (_host, look):
        return {"changed": False, "plans": look.plans(work["domains"])}


def clean(uri: str, work: Work) -> Json:
    """Look at one domain once more, and remove its copy; C(plan), and where it is C(clean) C(done): C(quarantined), C(kept), C(restore), C(undefined).

    :arg work: as of L(survey), with one domain; C(storage).
    """
    with _looking(uri, work) as (host, look):
        (plan,) = look.plans(work["domains"])
        if plan["kind"] != CLEAN:
            return {"changed": False, "plan": plan}
        done = Cleaner(host, work["host_id"], Quarantine(plan["record"])).clean(plan, work["storage"])
        return {"changed": done.pop("changed"), "plan": plan, "done": done}


def quarantined(_uri: str, work: Work) -> Json:
    """Return what was put aside on this host: C(quarantined), C(kept); see L(list_quarantined). Changes nothing."""
    require_root()
    _check_host(work["host_id"])
    return {"changed": False, **list_quarantined()}


def expire(uri: str, work: Work) -> Json:
    """Delete what was put aside for the records in C(due): C(deleted), C(kept)."""
    with _looking(uri, {**work, "uris": {}}) as (_host, look):
        answer = expire_quarantine(work["due"], look.users_of, work["check"])
        return {"changed": bool(answer["deleted"]), **answer}


PHASES: t.Dict[str, t.Callable[[str, Work], Json]] = {
    "identify": identify,
    "survey": survey,
    "clean": clean,
    "quarantined": quarantined,
    "expire": expire,
}


@contextlib.contextmanager
def _looking(uri: str, work: Work) -> t.Iterator[t.Tuple[CleaningHost, Survey]]:
    require_root()
    _check_host(work["host_id"])
    host = open_cleaning_host(require_local(uri))
    try:
        yield host, Survey(host, work["host_id"], work["uris"], open_cleaning_host, _put_aside)
    finally:
        host.close()


def _check_host(host_id: str) -> None:
    now = read_host_id()
    if now is None or now != host_id:
        raise Conflict(f"The task began on the host {host_id}, and this one is {now}. Nothing was touched.", "Run the task again.")


def _put_aside(record_id: str) -> t.FrozenSet[str]:
    """Return the files that an earlier run has put aside for this record already."""
    manifest = Quarantine(record_id).read()
    return frozenset(item["from"] for item in manifest["items"] if is_moved(item)) if manifest else frozenset()


class Cleaner:
    """Removes the copy of one domain, each step so that it can be done again after a crash.

    :arg step: called after the domain was undefined; tests end the process there.
    """

    def __init__(self, host: CleaningHost, host_id: str, quarantine: Quarantine, step: Step = lambda name: None) -> None:
        self._host = host
        self._host_id = host_id
        self._quarantine = quarantine
        self._step = step
        self._mounts = {mount.path for mount in read_mounts()}

    def clean(self, plan: Json, storage: str) -> Json:
        """Do what the plan allows, verify it, and return C(changed), C(undefined), C(quarantined), C(kept), C(restore). Raises L(Internal), L(Unsafe)."""
        try:
            return self._clean(plan, [disk for disk in plan["disks"] if disk["quarantine"] and storage != KEEP])
        except OSError as error:
            raise Internal(
                f"The cleanup of domain {plan['name']} was interrupted: {error.strerror or error} ({error.filename}). Its record stays, no file was lost.",
                "Repair this on the host and run the task again: it goes on from there.",
            ) from error

    def _clean(self, plan: Json, disks: t.Sequence[Json]) -> Json:
        if not plan["present"] and not disks and self._quarantine.read() is None:
            return {"changed": False, "undefined": False, "quarantined": [], "kept": [_kept(disk) for disk in plan["disks"]], "restore": None}
        definition = self._host.whole_definition(plan["uuid"], True) if plan["present"] else None
        manifest = self._quarantine.begin(plan, self._host_id, definition, self._items(plan, disks))
        # The saved memory first: undefining would delete it, or refuse.
        moved = [self._quarantine.move(item) for item in manifest["items"] if item["kind"] == _SAVE]
        self._forget(plan)
        allowed = {disk["path"] for disk in disks}
        problems = {item["from"]: self._move_disk(item, item["from"] in allowed) for item in manifest["items"] if item["kind"] == _DISK}
        manifest = self._quarantine.finish()
        self._verify(plan, manifest["items"])
        there = {item["from"] for item in manifest["items"]}
        return {
            "changed": bool(plan["present"] or any(moved) or allowed & there),
            "undefined": manifest["definition"] is not None,
            "quarantined": [{"target": item["target"], "path": item["from"], "quarantine": item["to"]} for item in manifest["items"]],
            "kept": [_kept(disk, problems.get(disk["path"], "")) for disk in plan["disks"] if disk["path"] not in there],
            "restore": manifest["restore"],
        }

    def _items(self, plan: Json, disks: t.Sequence[Json]) -> t.List[Item]:
        saves = [(_SAVE, None, plan["managed_save"])] if plan["managed_save"] else []
        files = [*saves, *((_DISK, disk["target"], disk["path"]) for disk in disks)]
        return [self._quarantine.item(kind, target, path, self._mount_of(path)) for kind, target, path in files]

    def _mount_of(self, path: str) -> str:
        return innermost(os.path.realpath(path), self._mounts)

    def _forget(self, plan: Json) -> None:
        self._host.forget(plan["uuid"])
        if self._host.view(plan["uuid"]).present:
            raise Internal(
                f"Domain {plan['name']} is still defined on this host although it was undefined. None of its disks was touched.",
                "Look at it, and run the task again.",
            )
        if plan["present"]:
            self._step("undefine")

    def _move_disk(self, item: Item, allowed: bool) -> str:
        """Put a disk aside, unless that was done before; return why it was not, and then the manifest does not name it any more."""
        if is_moved(item):
            return ""
        try:
            if allowed:
                self._quarantine.move(item)
                return ""
            problem = "it was to be put aside by an earlier run, and may not be any more"
        except Unsafe as error:
            problem = error.message
        except OSError as error:
            problem = f"it could not be moved to {item['to']}: {error.strerror}"
        self._quarantine.drop(item)
        return problem

    def _verify(self, plan: Json, items: t.Sequence[Item]) -> None:
        lost = [item["from"] for item in items if not is_moved(item)]
        if lost or self._host.view(plan["uuid"]).present:
            what = f"{lost[0]} is not where it was put" if lost else "the domain is defined here again"
            raise Internal(
                f"The cleanup of domain {plan['name']} could not be verified: {what}. Its record stays as it is.", "Look at it, and run the task again."
            )


def _kept(disk: Json, problem: str = "") -> Json:
    reason = problem or disk["reason"] or "storage is 'keep'"
    return {"target": disk["target"], "path": disk["path"], "reason": reason, "only_copy": disk["only_copy"] or bool(problem)}
