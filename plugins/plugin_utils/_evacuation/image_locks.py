# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which images the domains of an evacuation would write, and what a lock on one of them forbids: its own domain, and no other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import locks
from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.sight import lockable

from .._ledger.store import Body
from .job import Job


def images_of(jobs: Iterable[Job]) -> list[str]:
    """Return the paths of the images that these domains write and QEMU locks."""
    return sorted({path for job in jobs for path in lockable(job.disks)})


def refuse_locked(jobs: Iterable[Job], found: Mapping[str, Body], waited_seconds: int) -> None:
    """Give each job an L(Unsafe) whose image is locked after the wait.

    :arg found: by path, C(state) and C(why).
    """
    for job in jobs:
        held = [path for path in lockable(job.disks) if found[path]["state"] == locks.LOCKED]
        if held:
            job.error = Unsafe(
                f"Domain {job.name} was not started: {', '.join(held)} is still open for writing {waited_seconds} s after {job.source.name} was fenced.",
                "Find out who holds the lock (lslocks, qemu-img info) and end that; the domain may still run somewhere.",
            )
