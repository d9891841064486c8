# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Decides whether a host was certainly reset by its watchdog, from readings of the leases in etcd. Nothing is read here.

A host keeps running while it has its lease, and after that only while a majority of its fleet, itself included, answers that it has none either. So it was
reset once its lease was not renewed for long enough, while so many other hosts had theirs that those left were no majority. See docs/decisions.md.
"""

from __future__ import annotations

import typing as t
from collections.abc import Iterator, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import HostLease, LeaseWatchdog, ProtectedWatchdog

if t.TYPE_CHECKING:
    from .._ledger.etcd.leases import LeaseReading, SeenLease  # pragma: no cover

# The clocks of two hosts, each of which is wrong by 1 % at most.
CLOCK_DRIFT = 0.02
MARGIN_SECONDS = 1.0
# With fewer members, etcd would not survive the death of a host.
MIN_MEMBERS = 3
# After a longer pause between two readings it is not known yet which hosts renew their leases.
_GAP_SECONDS = 5.0


@dataclass(frozen=True)
class TimedReading:
    """One reading of the leases.

    :arg begun: when it was sent, and C(ended) when its answer came, by one monotonic clock of the reader.
    """

    begun: float
    ended: float
    reading: LeaseReading

    def find(self, host_id: str) -> SeenLease | None:
        """Return the lease of a host."""
        return self.reading.leases.get(host_id)


@dataclass(frozen=True)
class WatchdogCase:
    """A silent host.

    :arg seconds: that its C(kvmfleet_fencing) allows for the reset.
    :arg protected: what C(protect) saw of its watchdog; None for nothing.
    :arg members: how many members of etcd vote.
    """

    host: str
    host_id: str
    seconds: int
    protected: ProtectedWatchdog | None
    members: int


@dataclass(frozen=True)
class Proven:
    """The host was reset.

    :arg revision: of its last renewal; C(boot_id) is that of its last boot.
    :arg output: what was seen, in one sentence.
    """

    revision: int
    boot_id: str
    output: str


@dataclass(frozen=True)
class Waiting:
    """Nothing is known yet.

    :arg seconds: the proof cannot come earlier.
    :arg why: what is missing besides time; empty if nothing is.
    """

    seconds: float
    why: str = ""


@dataclass(frozen=True)
class Void:
    """The watchdog cannot show that the host is off, and waiting does not help.

    :arg is_alive: whether the host has renewed its lease.
    """

    why: str
    is_alive: bool = False


Verdict = t.Union[Proven, Waiting, Void]


def judge_reset(case: WatchdogCase, readings: Sequence[TimedReading]) -> Verdict:
    """Return what the readings show, the oldest first; at least one."""
    found = readings[-1].find(case.host_id)
    if found is None:
        return Void(f"{case.host} has no lease in etcd")
    obstacle = find_obstacle(case, found.lease)
    if obstacle:
        return Void(obstacle)
    readings = _drop_restored(readings)
    renewed = _find_renewal(case, readings, found)
    if renewed:
        return Void(renewed, is_alive=True)
    return _judge_silence(case, found.lease, readings)


def find_obstacle(case: WatchdogCase, lease: HostLease) -> str:
    """Return why no silence of this host would show that it was reset; empty if it would."""
    if case.members < MIN_MEMBERS:
        return f"etcd has {case.members} voting members, and a watchdog is evidence with at least {MIN_MEMBERS}"
    if lease.fleet.size < 2:
        return f"the fleet of {case.host} is {case.host} alone"
    watchdog = lease.watchdog
    if not isinstance(watchdog, LeaseWatchdog):
        return f"the lease of {case.host} names no watchdog"
    if not watchdog.nowayout:
        return f"the watchdog of {case.host} can be disarmed: nowayout is not set"
    if not watchdog.bound:
        return f"the watchdog of {case.host} is not bound to its lease"
    if case.seconds < watchdog.reset_seconds:
        return f"watchdog_seconds is {case.seconds}, and the watchdog of {case.host} needs {watchdog.reset_seconds} s from the end of its lease to the reset"
    return _find_boot_obstacle(case, lease)


def _find_boot_obstacle(case: WatchdogCase, lease: HostLease) -> str:
    protected = case.protected
    if protected is None:
        return f"{case.host} was not protected with a watchdog, or that was withdrawn: the watchdog was unbound, or guests were started in a later boot"
    if protected.boot_id != lease.boot_id:
        return f"{case.host} was protected in another boot than that of its last lease"
    if not (protected.armed and protected.bound and protected.nowayout):
        return f"{case.host} had no armed watchdog that is bound to its lease and cannot be disarmed when it was protected"
    if not protected.held_at_boot:
        return f"{case.host} had no active boot guard when it was protected, or might have left a clean-shutdown token: it may start its guests after a reset"
    return ""


def known_until(last: SeenLease) -> int:
    """Return the revision of etcd up to which the host had certainly not been reset: it has sent its last renewal after that, however late it arrived.

    Zero if that is not known: a renewal that claims a later revision than its own is of before a restore of etcd.
    """
    acknowledged = last.lease.acknowledged_revision
    return acknowledged if acknowledged < last.revision else 0


def _drop_restored(readings: Sequence[TimedReading]) -> Sequence[TimedReading]:
    """Return the readings since etcd was last restored from a backup: a backup has older revisions."""
    starts = [place for place in range(1, len(readings)) if readings[place].reading.revision < readings[place - 1].reading.revision]
    return readings[starts[-1] :] if starts else readings


def _find_renewal(case: WatchdogCase, readings: Sequence[TimedReading], last: SeenLease) -> str:
    """Return how the host has shown that it is alive; empty if it has not."""
    first = next((seen for one in readings if (seen := one.find(case.host_id))), last)
    if first.revision == last.revision:
        return ""
    if first.lease.boot_id != last.lease.boot_id:
        return f"{case.host} has started again, and has a lease"
    return f"{case.host} has renewed its lease since ({last.lease.renewed_at} by its own clock)"


def _judge_silence(case: WatchdogCase, lease: HostLease, readings: Sequence[TimedReading]) -> Verdict:
    """Judge the silence since the first reading from which on enough other hosts may have held their leases."""
    needed = count_needed(lease.fleet.size)
    with_lease = [one for one in readings if one.find(case.host_id)]
    fleet = _Fleet(lease, with_lease)
    start = len(with_lease) - 1
    candidates = fleet.list_candidates(start)
    while start > 0 and len(earlier := fleet.list_candidates(start - 1)) >= needed:
        start, candidates = start - 1, earlier
    if len(candidates) >= needed:
        return _judge_window(case, fleet, start, candidates)
    why = f"only {len(candidates)} of the {needed} other hosts that are needed in a fleet of {lease.fleet.size} hold leases"
    strangers = fleet.count_strangers()
    why += f"; {strangers} more know another fleet or another etcd (run host_lease for all hosts)" if strangers else ""
    if fleet.steady_seconds > lease.lease_seconds + 2 * lease.renew_seconds:
        return Void(f"{why}: {case.host} keeps running while a majority has none")
    return Waiting(_wait_seconds(case, lease), why)


def count_needed(size: int) -> int:
    """Return how many hosts of a fleet have to hold leases, so that those left are no majority of it."""
    return size - size // 2


def _wait_seconds(case: WatchdogCase, lease: HostLease) -> float:
    return (lease.lease_seconds + case.seconds) * (1 + CLOCK_DRIFT) + MARGIN_SECONDS


def _judge_window(case: WatchdogCase, fleet: _Fleet, start: int, candidates: Sequence[str]) -> Verdict:
    first, last = fleet.readings[start], fleet.readings[-1]
    # The last renewal was sent before the first reading ended.
    end = first.ended + _wait_seconds(case, fleet.lease)
    after = next((one for one in fleet.readings if one.begun >= end), None)
    if after is None:
        return Waiting(max(0.0, end - last.begun))
    holders = [host_id for host_id in candidates if fleet.has_held(host_id, start, after)]
    needed = count_needed(fleet.lease.fleet.size)
    if len(holders) < needed:
        return Waiting(0.0, f"{needed - len(holders)} of {needed} other hosts have not confirmed yet that they held their leases until now")
    found = t.cast("SeenLease", last.find(case.host_id))
    return Proven(found.revision, found.lease.boot_id, _describe_proof(case, fleet, first, after, holders))


def _describe_proof(case: WatchdogCase, fleet: _Fleet, first: TimedReading, after: TimedReading, holders: Sequence[str]) -> str:
    watchdog, size = t.cast("LeaseWatchdog", fleet.lease.watchdog), fleet.lease.fleet.size
    names = sorted(seen.lease.name for host_id in holders if (seen := after.find(host_id)))
    silence = f"{case.host} did not renew its lease for {after.begun - first.ended:.0f} s"
    limit = f"its watchdog ({watchdog.identity}) resets it within {watchdog.reset_seconds} s after its lease of {fleet.lease.lease_seconds} s"
    return f"{silence}, while {', '.join(names)} held theirs ({len(names)} of the {count_needed(size)} needed in a fleet of {size}): {limit}."


class _Fleet:
    """The leases of the other hosts that know the same fleet.

    :arg lease: of the silent host.
    :arg readings: all with a lease of the silent host.
    """

    def __init__(self, lease: HostLease, readings: Sequence[TimedReading]) -> None:
        self.lease = lease
        self.readings = readings

    @property
    def steady_seconds(self) -> float:
        """For how long the leases have been read without a longer pause."""
        last = self.readings[-1]
        begun = last
        for one in reversed(self.readings[:-1]):
            if begun.begun - one.ended > _GAP_SECONDS:
                break
            begun = one
        return last.begun - begun.ended

    def count_strangers(self) -> int:
        """Return how many other hosts renew leases of another fleet, or in another etcd."""
        return sum(not self._is_of_fleet(seen.lease) for host_id, seen in self.readings[-1].reading.leases.items() if host_id != self.lease.host_id)

    def list_candidates(self, start: int) -> list[str]:
        """Return the hosts that may have held their leases since that reading."""
        return [host_id for host_id in self.readings[start].reading.leases if host_id != self.lease.host_id and self._may_hold(host_id, start)]

    def has_held(self, host_id: str, start: int, after: TimedReading) -> bool:
        """Whether the host has certainly held its lease since the reading C(start), up to a moment after the reading C(after).

        A renewal shows this if its host has had the lease without a gap since the same renewal that the reading C(start) names, and if it was sent after etcd
        had acknowledged a renewal at a later revision than that of C(after). Neither its count nor the time of its arrival would show the latter.
        """
        since = self._since_at(host_id, start)
        return any(one.held_since == since and one.acknowledged_revision > after.reading.revision for one in self._later_renewals(host_id, start))

    def _may_hold(self, host_id: str, start: int) -> bool:
        first, since = self._lease_at(host_id, start), self._since_at(host_id, start)
        there = [one.find(host_id) for one in self.readings[start:]]
        if not since or not all(seen and self._is_of_fleet(seen.lease) and seen.lease.boot_id == first.boot_id for seen in there):
            return False
        has_gap = any(one.held_since != since for one in self._later_renewals(host_id, start) if one.count > first.count)
        return not has_gap and not self._is_silent(host_id)

    def _is_silent(self, host_id: str) -> bool:
        """Whether the host has not renewed its lease for so long that it has none."""
        last = t.cast("SeenLease", self.readings[-1].find(host_id))
        unchanged = self.readings[-1]
        for one in reversed(self.readings):
            seen = one.find(host_id)
            if not seen or seen.revision != last.revision:
                break
            unchanged = one
        return self.readings[-1].begun - unchanged.ended > last.lease.lease_seconds * (1 + CLOCK_DRIFT)

    def _later_renewals(self, host_id: str, start: int) -> Iterator[HostLease]:
        """Yield the leases of the same boot and fleet that were seen since that reading."""
        revision, boot_id = 0, self._lease_at(host_id, start).boot_id
        for one in self.readings[start:]:
            seen = one.find(host_id)
            if seen and seen.revision != revision and seen.lease.boot_id == boot_id and self._is_of_fleet(seen.lease):
                revision = seen.revision
                yield seen.lease

    def _lease_at(self, host_id: str, start: int) -> HostLease:
        return t.cast("SeenLease", self.readings[start].find(host_id)).lease

    def _since_at(self, host_id: str, start: int) -> int:
        """Return the renewal since which the host had its lease when it sent what is in that reading; 0 if it had none."""
        return self._lease_at(host_id, start).held_since

    def _is_of_fleet(self, lease: HostLease) -> bool:
        return lease.fleet == self.lease.fleet
