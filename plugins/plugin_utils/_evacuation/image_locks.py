# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which images the domains of an evacuation would write, and what a lock on one of them forbids: its own domain, and no other."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import leases, locks
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.sight import lockable
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.clock import utc_now

from .._fencing.evidence import FENCE_AGENT, TASKS, Evidence
from .._ledger.store import Body
from .job import Job

_NOT_FENCED = "accept_locked counts once a fence agent, or a tasks file, has proved that the host is off: a person's word is not enough for both."
_FIND_OUT = (
    "Find out who holds the lock (lslocks, qemu-img info) and end that; the domain may still run somewhere. Some storage (NFS 3) keeps the locks of a host that"
    f" is gone. {locks.FREE_KEPT} accept_locked overrides this check, but not QEMU's own."
)


def images_of(jobs: Iterable[Job]) -> list[str]:
    """Return the paths of the images that these domains write and QEMU locks."""
    return sorted({path for job in jobs for path in lockable(job.disks)})


@dataclass
class Acceptance:
    """A person's decision that images may be locked, C(accept_locked): it counts once fencing has proved that the source is off, and for images named alone.

    :arg by: who runs the task.
    """

    option: t.Optional[Mapping[str, t.Any]]
    by: str
    _images: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        given = self.option or {}
        self._images = frozenset(given.get("images") or ())
        if self.option is not None and not (self._images and str(given.get("reason") or "").strip()):
            raise InvalidArgument("accept_locked names no image, or has no reason.", "Say which images, and how a person knows. Nothing was started.")

    def check_known(self, known: Iterable[str]) -> None:
        """Raise L(InvalidArgument) for an image that no domain of the source has."""
        strange = sorted(self._images - set(known))
        if strange:
            raise InvalidArgument(
                f"accept_locked names {', '.join(strange)}, which no domain that may be on the dead host writes.", "Nothing was started. Correct it."
            )

    def of(self, job: Job) -> list[str]:
        """Return the accepted images of a domain."""
        return [path for path in lockable(job.disks) if path in self._images]

    def document(self, job: Job, found: Mapping[str, Body]) -> list[Body]:
        """Return what the domain's record keeps of it: nothing where no accepted image was locked."""
        held = [path for path in self.of(job) if found.get(path, {}).get("state") == locks.LOCKED]
        option = self.option or {}
        return [{"kind": "accepted_locks", "images": held, "by": option.get("by") or self.by, "reason": option.get("reason"), "at": utc_now()}] if held else []


def is_fenced(evidence: t.Optional[Evidence]) -> bool:
    """Whether that says more than a person's word does: an agent, or a tasks file, has seen that the host is off."""
    return evidence is not None and evidence["kind"] in (FENCE_AGENT, TASKS)


def wait_seconds(jobs: Iterable[Job], option: t.Optional[int]) -> int:
    """Return how long the locks of these domains' images are waited for: what was asked for, else as long as their storage keeps those of a dead host."""
    if option is not None:
        return option
    return leases.lease_seconds(disk for job in jobs for disk in job.disks if lockable([disk]))


def ending(jobs: Iterable[Job]) -> list[str]:
    """Return the images of which a dead host's locks end by themselves, so that waiting helps."""
    return sorted({path for job in jobs for disk in job.disks if not leases.is_kept(disk) for path in lockable([disk])})


def refuse_locked(jobs: Iterable[Job], found: Mapping[str, Body], waited_seconds: int, acceptance: Acceptance, fenced: bool) -> None:
    """Give each job an L(Unsafe) whose image is locked after the wait, unless that is accepted.

    :arg found: by path, C(state) and C(why).
    :arg fenced: the source is off by L(is_fenced) evidence.
    """
    for job in jobs:
        accepted = acceptance.of(job)
        held = [path for path in lockable(job.disks) if found[path]["state"] == locks.LOCKED and not (fenced and path in accepted)]
        if held:
            job.error = Unsafe(_message(job, held, waited_seconds), _NOT_FENCED if set(held) & set(accepted) else _FIND_OUT)


def _message(job: Job, held: list[str], waited_seconds: int) -> str:
    return f"Domain {job.name} was not started: {', '.join(held)} is still open for writing {waited_seconds} s after {job.source.name} was fenced."
