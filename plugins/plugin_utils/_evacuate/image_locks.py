# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The locks that QEMU holds on the images of the domains: reading them on this host, waiting for those of a dead host, and a person's decision about them."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import qemu_locks
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject, decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.evidence import Evidence
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import lockable_paths

from .evidence import PowerOffEvidence
from .fleet_answers import FoundLocks, LockState
from .job import EvacuationContext, EvacuationJob

_NOT_FENCED = "accept_locked counts once a fence agent, or a tasks file, has proved that the host is off: the confirmation of a person is not enough for both."
_FIND_HOLDER = (
    "Find out which process holds the lock (lslocks, qemu-img info) and stop it; the domain may still run. Some storage (NFS 3) keeps the locks of a host that"
    f" is gone. {qemu_locks.FREE_KEPT_LOCKS} accept_locked overrides this check, but not QEMU's own."
)


def list_images(jobs: Iterable[EvacuationJob]) -> list[str]:
    """Return the paths of the images that these domains write and QEMU locks."""
    return sorted({path for job in jobs for path in lockable_paths(job.disks_here)})


@dataclass
class AcceptedLocks:
    """A person's decision that images may be locked, C(accept_locked): valid only for the named images, and only after fencing has proved that the source is
    off. The images are named as the definition that was saved names them, whatever each survivor calls them.

    :arg by: who runs the task.
    """

    option: t.Optional[JsonObject]
    by: str
    _images: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        given = self.option or {}
        self._images = frozenset(t.cast("Sequence[str]", given.get("images") or ()))
        if self.option is not None and not (self._images and str(given.get("reason") or "").strip()):
            raise InvalidArgument(
                "accept_locked names no image, or has no reason.", "Give the images, and how a person knows that nobody writes to them. Nothing was started."
            )

    def check_known(self, known: Iterable[str]) -> None:
        """Raise L(InvalidArgument) for an image that no domain of the source has."""
        strange = sorted(self._images - set(known))
        if strange:
            raise InvalidArgument(
                f"accept_locked names {', '.join(strange)}, which no domain that may be on the dead host writes.", "Nothing was started. Correct it."
            )

    def list_accepted(self, job: EvacuationJob) -> list[str]:
        """Return the accepted images of a domain, as the host that the task runs on calls them."""
        pairs = zip(job.disks, job.disks_here, strict=True)
        return [here.path for saved, here in pairs if here.is_lockable and saved.path in self._images]

    def build_evidence(self, job: EvacuationJob, found: Mapping[str, LockState]) -> list[JsonObject]:
        """Return the part that the domain's record keeps: nothing if no accepted image was locked."""
        held = [path for path in self.list_accepted(job) if path in found and found[path].state == qemu_locks.LOCKED]
        option = self.option or {}
        return [{"kind": "accepted_locks", "images": held, "by": option.get("by") or self.by, "reason": option.get("reason"), "at": utc_now()}] if held else []


def is_fenced(evidence: t.Optional[Evidence]) -> bool:
    """Whether the evidence comes from an agent or a tasks file, and not only from a person."""
    return evidence is not None and not evidence.is_of_person


def seconds_to_wait(jobs: Iterable[EvacuationJob], option: t.Optional[int]) -> int:
    """Return how long to wait for the locks of these domains' images: the given time, or as long as their storage keeps locks of a dead host."""
    if option is not None:
        return option
    return qemu_locks.lease_seconds(disk for job in jobs for disk in job.disks if disk.is_lockable)


def list_expiring_images(jobs: Iterable[EvacuationJob]) -> list[str]:
    """Return the images of which a dead host's locks end by themselves, so that waiting helps."""
    return sorted({disk.path for job in jobs for disk in job.disks_here if disk.is_lockable and not qemu_locks.has_kept_locks(disk)})


def refuse_locked_images(jobs: Iterable[EvacuationJob], found: Mapping[str, LockState], waited_seconds: int, acceptance: AcceptedLocks, fenced: bool) -> None:
    """Set L(Unsafe) for each job whose image is still locked after the wait, unless that is accepted.

    :arg found: by path.
    :arg fenced: whether the source is off by L(is_fenced) evidence.
    """
    for job in jobs:
        accepted = acceptance.list_accepted(job)
        held = [path for path in lockable_paths(job.disks_here) if found[path].state == qemu_locks.LOCKED and not (fenced and path in accepted)]
        if held:
            job.error = Unsafe(_locked_message(job, held, waited_seconds), _NOT_FENCED if set(held) & set(accepted) else _FIND_HOLDER)


def _locked_message(job: EvacuationJob, held: list[str], waited_seconds: int) -> str:
    saved = {here.path: saved.path for saved, here in zip(job.disks, job.disks_here, strict=True)}
    named = [path if saved[path] == path else f"{path} ({saved[path]} on {job.source.name})" for path in held]
    return f"Domain {job.name} was not started: {', '.join(named)} is still open for writing {waited_seconds} s after {job.source.name} was fenced."


@dataclass(frozen=True)
class ImageLocks:
    """The locks as the host that the task runs on finds them.

    :arg check: check mode, which takes no lock and waits for none.
    """

    context: EvacuationContext
    proofs: PowerOffEvidence
    acceptance: AcceptedLocks
    check: bool

    def check_images(self, starting: Sequence[EvacuationJob], seen: Mapping[str, LockState], seen_since: bool, waits: bool = True) -> dict[str, LockState]:
        """Return what is known of the images' locks. A domain whose image is locked after the wait is not started.

        :arg seen: what the survey has read.
        :arg seen_since: whether the source was off before the survey. Then free locks are not checked again, except for locks that outlive their host (NFS 3):
          some of them are visible only if a lock is tried, which has to wait for the proof.
        """
        wait = seconds_to_wait(starting, self.context.options.lock_wait_seconds) if waits and not self.check else 0
        found = {path: seen[path] for path in list_images(starting)}
        kept = sorted(set(list_images(starting)) - set(list_expiring_images(starting)))
        found |= self._probe_locks(kept if seen_since else list_images(starting), 0)
        held = {path for path, one in found.items() if one.state == qemu_locks.LOCKED}
        # Waiting for locks that outlive their host would be useless, and delay all other domains.
        if wait and held.intersection(list_expiring_images(starting)):
            found |= self._probe_locks(list_expiring_images(starting), wait)
        fenced = is_fenced(self.proofs.of_source) or (self.check and self.proofs.can_fence)
        refuse_locked_images(starting, found, wait, self.acceptance, fenced)
        return found

    def _probe_locks(self, paths: list[str], seconds: int) -> Mapping[str, LockState]:
        work: JsonObject = {"paths": paths, "wait_seconds": seconds, "may_take": not self.check}
        return decode(FoundLocks, self.context.phase("locks", work)).locks if paths else {}
