# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The lease of a host: a key in etcd that the host renews as long as it reaches etcd.

The key stays when the host falls silent. Whoever reads it judges by a clock of its own for how long the lease was not renewed, so no clocks are compared.
"""

from __future__ import annotations

import dataclasses
import typing as t

from .._dataclass import dataclass
from .codec import ABSENT, Absent, JsonObject

# Below the prefix of the ledger, followed by the host_id: a host may write only its own key, and read nothing.
LEASES_FOLDER = "leases"
LEASE_PORT = 16516
LEASE_SECONDS = 15
RENEW_SECONDS = 3

HELD, NONE = "held", "none"


@dataclass(frozen=True)
class LeaseFleet:
    """The list of hosts that the host knows as its fleet, itself included.

    :arg digest: the SHA-256 checksum of what stands for the etcd of the host, and of the sorted IDs of the hosts, one a line. Hosts with another etcd are
      another fleet: they hold no leases for each other.
    :arg size: the number of hosts.
    """

    digest: str
    size: int


@dataclass(frozen=True)
class LeaseWatchdog:
    """The hardware watchdog that resets the host when it has no lease.

    :arg device: e.g. C(/dev/watchdog0).
    :arg identity: what the device calls itself, e.g. C(i6300ESB timer).
    :arg timeout_seconds: how long after the last ping the device resets the host.
    :arg nowayout: whether an armed device cannot be disarmed.
    :arg bound: whether the watchdog daemon has asked for the lease lately, and nothing else would ping the device in its place.
    :arg reset_seconds: how long after the end of its lease the host has been reset: the pauses between two tests, a test, and the time of the device.
    """

    device: str
    identity: str
    timeout_seconds: int
    nowayout: bool
    bound: bool
    reset_seconds: int
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class ProtectedWatchdog:
    """What C(protect) saw of the watchdog of a host, in one boot of it.

    Only for a host that had this boot when it fell silent, and all of these, does a reset by the watchdog prove that its guests have ended and will not start.

    :arg boot_id: the boot in which this was seen.
    :arg held_at_boot: whether the boot guard holds the next boot, so that the host starts no guests after the reset. No clean-shutdown token may release it.
    :arg armed: whether the device counts.
    :arg device: as in L(LeaseWatchdog), like the others.
    """

    IS_LENIENT: t.ClassVar[bool] = True

    boot_id: str
    held_at_boot: bool
    armed: bool
    device: str
    identity: str
    timeout_seconds: int
    nowayout: bool
    bound: bool
    reset_seconds: int
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class HostLease:
    """What a host writes at each renewal.

    A host has its lease for C(lease_seconds) from the moment at which it sent a renewal that etcd has acknowledged.

    :arg boot_id: of the kernel; another one shows that the host was reset.
    :arg count: the number of this renewal; it grows by one with each attempt, also over boots.
    :arg held_since: the renewal since which the host has had its lease without a gap, as the host itself knows when it sends this; 0 if it has none.
    :arg lease_seconds: see above.
    :arg renew_seconds: the pause between two renewals.
    :arg path: C(direct), or the name of the host through which etcd was reached.
    :arg renewed_at: when this was sent, by the clock of the host. It is for people; nothing is decided by it.
    :arg acknowledged_revision: of etcd, at which the renewal before was acknowledged: this one was sent after that, however late it arrived; 0 for none.
    :arg watchdog: absent for a host without one.
    :arg cluster_id: of etcd, to which C(acknowledged_revision) belongs; absent in the lease of an earlier version.
    """

    host_id: str
    name: str
    boot_id: str
    count: int
    held_since: int
    lease_seconds: int
    renew_seconds: int
    fleet: LeaseFleet
    path: str
    renewed_at: str
    acknowledged_revision: int
    watchdog: t.Union[LeaseWatchdog, Absent] = ABSENT
    cluster_id: t.Union[str, Absent] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class LeaseAnswer:
    """What a host answers to another one of its fleet that has lost its lease.

    :arg lease: HELD or NONE, as the host itself knows; NONE if the other one asks for a lease in another etcd.
    """

    host_id: str
    boot_id: str
    lease: str
    extra: JsonObject = dataclasses.field(default_factory=dict)
