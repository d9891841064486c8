# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whether a silent host renews its lease in the ledger's etcd. Such a host is on, whatever the evidence says.

A lease that is not renewed shows nothing here, and neither does one that cannot be read.
"""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable, Iterable

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.evidence import AGENT, PERSON, TASKS, Evidence
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import HostLease

from .._ledger.etcd.messages import Overtaken, Refused
from .fence_config import VARIABLE
from .fleet_answers import SourceAnswers

if t.TYPE_CHECKING:
    from .._ledger.etcd.leases import LeaseReader, SeenLease  # pragma: no cover

# How much longer than the pause between two renewals one may take.
_MARGIN_SECONDS = 1.0
_POLL_SECONDS = 0.5

OpenLeases = Callable[[], "LeaseReader | None"]


@dataclass(frozen=True)
class KnownLease:
    """A lease as this task has read it.

    :arg revision: of its key.
    :arg since: when this revision was read first, by the monotonic clock.
    :arg is_renewed: whether an earlier revision was read before; the lease is None if only that is known.
    """

    revision: int
    since: float
    is_renewed: bool
    lease: HostLease | None

    def update(self, seen: SeenLease, now: float) -> KnownLease:
        """Return the lease after it was read again."""
        is_new = seen.revision != self.revision
        return KnownLease(seen.revision, now if is_new else self.since, is_new or self.is_renewed, seen.lease)

    def seconds_left(self, now: float) -> float:
        """Return how long the host may take to show that it is on: to renew the lease, or to let it end if it was renewed lately."""
        if self.lease is None:
            return 0.0
        limit = self.lease.lease_seconds if self.is_renewed else self.lease.renew_seconds
        return self.since + limit + _MARGIN_SECONDS - now


class Renewals:
    """The leases as one task reads them. Not safe between threads.

    :arg open_leases: returns a new reader of the leases; None for a ledger without any.
    """

    def __init__(self, open_leases: OpenLeases, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep) -> None:
        self._open_leases = open_leases
        self._clock = clock
        self._sleep = sleep
        self._reader: LeaseReader | None = None
        self._known: dict[str, KnownLease] = {}
        self._revision = 0
        # The revision of etcd at a reading after there was evidence.
        self._baseline: int | None = None

    def read_leases(self) -> bool:
        """Read the leases; return whether that was possible."""
        self._reader = self._reader or self._open_leases()
        if self._reader is None:
            return False
        try:
            reading = self._reader.read_leases()
        except (KvmfleetError, Refused, Overtaken):
            return False
        if reading.revision < self._revision:
            # etcd was restored from a backup, and counts from there.
            self._known, self._baseline = {}, None
        now, known = self._clock(), self._known
        self._known = {
            host_id: known[host_id].update(seen, now) if host_id in known else KnownLease(seen.revision, now, False, seen.lease)
            for host_id, seen in reading.leases.items()
        }
        self._revision = reading.revision
        self._baseline = reading.revision if self._baseline is None else self._baseline
        return True

    def revision_of(self, host_id: str) -> int | None:
        """Return the revision of the lease of a host; None if none was read."""
        known = self._known.get(host_id)
        return known.revision if known else None

    def note_earlier(self, host_id: str, revision: int | None) -> None:
        """Note the revision that an earlier task has read; a later one is a renewal since then."""
        if revision is not None and host_id not in self._known:
            self._known[host_id] = KnownLease(revision, self._clock(), False, None)

    def note_evidence(self) -> None:
        """Read the leases when there is evidence: what a host sends after this reading contradicts the evidence."""
        self._baseline = None
        self.read_leases()

    def refuse_renewed(self, evidence: Iterable[Evidence]) -> None:
        """Raise L(Unsafe) if a host has certainly sent a renewal after L(note_evidence), by what was read last.

        A renewal names the revision at which etcd acknowledged the one before. If that is later than the reading, so is the renewal, however long it was
        under way. See L(confirm_reset) for evidence of a watchdog.
        """
        for one in evidence:
            lease = None if one.is_of_watchdog else self._find_renewal(str(one.host_id))
            if lease:
                raise _renewed_error(one, lease)

    def _find_renewal(self, host_id: str) -> HostLease | None:
        known, baseline = self._known.get(host_id), self._baseline
        if known is None or known.lease is None or baseline is None:
            return None
        # A host that was given another etcd names a revision of the former one once.
        return known.lease if min(known.revision, known.lease.acknowledged_revision) > baseline else None

    def await_expiry(self, evidence: Iterable[Evidence], only_renewed: bool = False, show: Callable[[str], None] = lambda line: None) -> None:
        """Return when no host can hold a lease that it renews: it was not renewed since the task began, or has ended since.

        :arg only_renewed: whether only hosts are waited for that were seen to renew their leases.
        :arg show: receives a line for people if that takes long.
        :raises Unsafe: a host has renewed its lease, as in L(refuse_renewed), or does so again and again.
        """
        waiting, begun = [one for one in evidence if not one.is_of_watchdog], self._clock()
        shown = False
        while waiting and self.read_leases():
            self.refuse_renewed(waiting)
            seconds, last = max((self._seconds_left(one, only_renewed), one.host) for one in waiting)
            if seconds <= 0:
                return
            if self._clock() - begun > self._longest_seconds(waiting):
                raise Unsafe(f"The lease of {last} is still renewed in etcd, so it cannot be off.", _next_step(last))
            if not shown and seconds > 2:
                shown = True
                show(f"Waiting until the lease of {last} has ended, which was renewed a moment ago: {seconds:.0f} s left.")
            self._sleep(min(seconds, _POLL_SECONDS))

    def _seconds_left(self, evidence: Evidence, only_renewed: bool) -> float:
        known = self._known.get(str(evidence.host_id))
        return known.seconds_left(self._clock()) if known and (known.is_renewed or not only_renewed) else 0.0

    def _longest_seconds(self, evidence: Iterable[Evidence]) -> float:
        leases = [known.lease for one in evidence if (known := self._known.get(str(one.host_id)))]
        return 2.0 * max((lease.lease_seconds for lease in leases if lease), default=0)

    def require_silence(self, host: str, host_id: str) -> None:
        """Return if the host has not renewed its lease since the first reading, for as long as a renewal may take. Raises L(SourceAnswers) if it has."""
        while self.read_leases() and (known := self._known.get(host_id)):
            if known.is_renewed:
                raise SourceAnswers(
                    f"{host} renews its lease in etcd, so it is on, although it does not answer. A reaction never fences such a host.",
                    f"Nothing was done. Repair its network; or switch it off yourself, and run kvmfleet.migration.evacuate for {host}.",
                )
            seconds = known.seconds_left(self._clock())
            if seconds <= 0:
                return
            self._sleep(min(seconds, _POLL_SECONDS))


def _renewed_error(evidence: Evidence, lease: HostLease) -> Unsafe:
    host = evidence.host
    source = {
        AGENT: f"it was fenced by {evidence.agent}",
        PERSON: f"{evidence.by} confirmed that it is off",
        TASKS: "the tasks file fenced it",
    }[evidence.origin]
    path = "directly" if lease.path == "direct" else f"through {lease.path}"
    renewal = f"it has renewed its lease in etcd since ({path}, at {lease.renewed_at} by its own clock)"
    return Unsafe(f"{host} is on, although {source}: {renewal}.", _next_step(host))


def _next_step(host: str) -> str:
    return (
        f"Nothing more is started. Another machine may have been switched off in its place: check {VARIABLE} of {host}, or what was confirmed."
        f" Drain {host}, or switch it off, and run this again."
    )
