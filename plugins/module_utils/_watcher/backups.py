# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""How a move waits for a job that occupies its domain, e.g. a backup, and how the checkpoints of a domain follow it to its destination."""

from __future__ import annotations

import typing as t

from .._libvirt.interface import Host
from .._model.errors import Conflict, KvmfleetError, Unreachable
from .._model.record_parts import Checkpoint
from .._model.watched_moves import StartOrder
from .journal import Journal

POLL_SECONDS = 2.0


class BusyWait:
    """Waits until no other job occupies the domain of a move, for as long as the order permits. A move whose order permits no wait is not held up."""

    def __init__(self, order: StartOrder, journal: Journal, open_source: t.Callable[[], Host], clock: t.Callable[[], float]) -> None:
        self._order = order
        self._journal = journal
        self._open_source = open_source
        self._clock = clock
        self._polled_at: t.Optional[float] = None
        self._began_at: t.Optional[float] = None
        self._job = ""

    @property
    def is_held_up(self) -> bool:
        """Whether a job occupied the domain at the last poll."""
        return bool(self._job)

    def poll_domain(self) -> str:
        """Look for a job, at most every C(POLL_SECONDS). Return the reason why the move waits no longer for it; empty if it may wait, or need not."""
        now = self._clock()
        if not self._order.busy_wait_seconds or (self._polled_at is not None and now - self._polled_at < POLL_SECONDS):
            return ""
        self._polled_at = now
        self._job = self._find_job()
        if not self._job:
            self._began_at = None
            self._journal.wait_for(None)
            return ""
        self._began_at = now if self._began_at is None else self._began_at
        if now - self._began_at < self._order.busy_wait_seconds:
            self._journal.wait_for(f"waits for {self._job}, for up to {self._order.busy_wait_seconds} s")
            return ""
        return f"Domain {self._order.name} still has {self._job} after {now - self._began_at:.0f} s. Nothing was started."

    def _find_job(self) -> str:
        try:
            host = self._open_source()
        except KvmfleetError:
            # The start of the move reports a source that does not answer.
            return ""
        try:
            return host.find_other_job(self._order.uuid)
        except KvmfleetError:
            return ""
        finally:
            host.close()


def redefine_checkpoints(host: Host, uuid: str, checkpoints: t.Sequence[Checkpoint]) -> None:
    """Define the checkpoints of a domain on the host that it has arrived on, each after its parent. What is defined already is replaced by the same.

    libvirt compares each with the bitmaps of the images. Raises L(Conflict) that names those that cannot be used, after the others were defined, and
    L(Unreachable).
    """
    refused = {one.name: why for one, why in ((one, _redefine_checkpoint(host, uuid, one)) for one in checkpoints) if why}
    if refused:
        raise Conflict(f"{', '.join(refused)} cannot be used at the destination: {next(iter(refused.values()))}", "Begin a new chain with a full backup.")


def _redefine_checkpoint(host: Host, uuid: str, checkpoint: Checkpoint) -> str:
    """Define a checkpoint; return why it is refused, empty if it is not. Raises L(Unreachable)."""
    try:
        host.redefine_checkpoint(uuid, checkpoint)
    except Unreachable:
        raise
    except KvmfleetError as error:
        return error.message
    return ""
