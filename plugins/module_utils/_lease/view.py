# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a host knows itself about its lease, and whether it may keep running by that and by the answers of its peers. No I/O.

All moments are seconds of C(CLOCK_BOOTTIME) in one boot of the host.
"""

from __future__ import annotations

import dataclasses
import sys
import typing as t

from .._dataclass import dataclass
from .._model.leases import NONE


@dataclass(frozen=True)
class OwnView:
    """The host's own view of its lease.

    :arg held_until: until when the host has its lease, if it does not renew it; 0 if it never had one in this boot.
    :arg held_since: the renewal since which it has had its lease without a gap; without a lease, since which it had the last one.
    """

    held_until: float = 0.0
    held_since: int = 0

    def is_held(self, now: float) -> bool:
        """Whether the host has its lease."""
        return now < self.held_until

    @property
    def was_held(self) -> bool:
        """Whether the host ever had its lease in this boot."""
        return self.held_until > 0

    def since(self, now: float) -> int:
        """Return the renewal since which the host has its lease; 0 if it has none."""
        return self.held_since if self.is_held(now) else 0

    def acknowledge(self, count: int, sent_at: float, now: float, lease_seconds: int) -> OwnView:
        """Return the view after a renewal was acknowledged. The lease counts from when the renewal was sent, and from now on, but not for the time between.

        :arg now: the moment at which this view begins to hold. A peer that asked a moment before was answered by the view before.
        """
        until = max(self.held_until, sent_at + lease_seconds)
        if now >= until:
            return self
        return OwnView(until, self.held_since if self.is_held(now) else count)

    def shorten(self, now: float, lease_seconds: int) -> OwnView:
        """Return the view when the host begins to renew for that time: who reads such a renewal counts on no longer one, acknowledged or not."""
        return dataclasses.replace(self, held_until=min(self.held_until, now + lease_seconds)) if self.was_held else self


ENDED = OwnView(held_until=sys.float_info.min)
"""Of a host that has had its lease in this boot, and has lost what it knew of it."""


@dataclass(frozen=True)
class Verdict:
    """Whether the host may keep running, and why, as a sentence."""

    keeps_running: bool
    why: str


def needs_peers(own: OwnView, now: float) -> bool:
    """Whether the answer depends on what the peers say."""
    return own.was_held and not own.is_held(now)


def judge(own: OwnView, now: float, host_id: str, fleets: t.Sequence[t.Sequence[str]], answers: t.Mapping[str, str]) -> Verdict:
    """Return whether the host may keep running.

    A host that never had its lease in this boot has promised nothing to anyone: its renewals say that no watchdog is bound.

    :arg fleets: each list of hosts, this one included, that a renewal in etcd may show; the condition must be met for all of them.
    :arg answers: by host_id what the peers answered: C(held) or C(none). A peer that did not answer is not in it.
    """
    if own.is_held(now):
        return Verdict(True, f"The lease is held for another {own.held_until - now:.1f} s.")
    if not own.was_held:
        return Verdict(True, "The host has had no lease since it was started.")
    lines = [_count_without_lease(host_id, fleet, answers) for fleet in fleets]
    short = [(without, len(fleet)) for without, fleet in zip(lines, fleets) if without < majority(len(fleet))]
    since = f"The lease ended {now - own.held_until:.1f} s ago"
    if short or not fleets:
        without, size = short[0] if short else (1, 0)
        return Verdict(False, f"{since}, and only {without} of {size} hosts say that they have none either; {majority(size)} are needed.")
    return Verdict(True, f"{since}, but {lines[0]} of {len(fleets[0])} hosts say that they have none either: etcd cannot be reached by a majority.")


def majority(size: int) -> int:
    """Return how many of so many hosts are a majority."""
    return size // 2 + 1


def judge_promises(own: OwnView, now: float, host_id: str, told: t.Sequence[t.Tuple[t.Sequence[t.Sequence[str]], t.Mapping[str, str]]]) -> Verdict:
    """Return whether the host may keep running by each of its promises, see L(judge).

    :arg told: of each etcd the lists of hosts, and the answers about leases there.
    """
    verdicts = [judge(own, now, host_id, fleets, answers) for fleets, answers in told] or [judge(own, now, host_id, (), {})]
    return next((one for one in verdicts if not one.keeps_running), verdicts[-1])


def _count_without_lease(host_id: str, fleet: t.Sequence[str], answers: t.Mapping[str, str]) -> int:
    """Count the hosts of a list that have no lease; the host itself is one of them."""
    return sum(one == host_id or answers.get(one) == NONE for one in set(fleet))
