# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The configuration of the lease on a host: who it is, where etcd is, and who its peers are."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import typing as t

from .._dataclass import dataclass
from .._model.codec import ShapeError, decode
from .._model.errors import Internal
from .._model.leases import LEASES_FOLDER, LeaseFleet

CONFIG_FILE = "/etc/kvmfleet/lease.json"


@dataclass(frozen=True)
class LeasePeer:
    """A host of the fleet.

    :arg addresses: where its service answers; the one on a second network comes last.
    :arg port: of its service.
    :arg relay: whether it lets other hosts reach etcd through it.
    """

    host_id: str
    name: str
    addresses: t.Tuple[str, ...]
    port: int
    relay: bool


@dataclass(frozen=True)
class LeaseConfig:
    """The configuration of one host.

    :arg cluster_id: of etcd. A renewal that another cluster acknowledges does not count, because nobody would read it.
    :arg endpoints: C(host:port) of each member of etcd.
    :arg prefix: of the ledger's keys; it ends with a slash.
    :arg port: on which the host answers its peers.
    :arg relay: whether it lets them reach etcd through it.
    :arg fleet: all hosts, this one included.
    """

    host_id: str
    name: str
    cluster_id: str
    endpoints: t.Tuple[str, ...]
    prefix: str
    tls: bool
    user: t.Optional[str]
    password: t.Optional[str] = dataclasses.field(repr=False)
    lease_seconds: int
    renew_seconds: int
    port: int
    relay: bool
    fleet: t.Tuple[LeasePeer, ...]
    ca_file: t.Optional[str] = None
    cert_file: t.Optional[str] = None
    key_file: t.Optional[str] = None

    def check(self) -> None:
        """Raise L(ShapeError) for a configuration with which the host could not have a lease."""
        if not self.endpoints:
            raise ShapeError("endpoints", "a list with one member of etcd at least")
        if self.host_id not in self.host_ids:
            raise ShapeError("fleet", f"a list that has this host, {self.host_id}")
        if not 0 < self.renew_seconds * 3 <= self.lease_seconds:
            raise ShapeError("renew_seconds", "at most a third of lease_seconds, and not 0")
        if not 0 < self.port < 2**16:
            raise ShapeError("port", "1 to 65535")

    @property
    def store(self) -> str:
        """What stands for the etcd of this host. A host with another one renews a lease that is none for this host."""
        return hashlib.sha256("".join(f"{one}\n" for one in (self.cluster_id, self.prefix, *sorted(set(self.endpoints)))).encode()).hexdigest()

    @property
    def host_ids(self) -> t.Tuple[str, ...]:
        """The IDs of the hosts of the fleet, sorted."""
        return tuple(sorted({peer.host_id for peer in self.fleet}))

    @property
    def peers(self) -> t.Tuple[LeasePeer, ...]:
        """The other hosts."""
        return tuple(peer for peer in self.fleet if peer.host_id != self.host_id)

    @property
    def grace_seconds(self) -> int:
        """How long a host runs on after its lease has ended, whatever its peers say: when etcd fails, their leases end at different moments."""
        return grace_seconds(self.renew_seconds)

    @property
    def key(self) -> str:
        """The key of the lease in etcd."""
        return f"{self.prefix}{LEASES_FOLDER}/{self.host_id}"


def grace_seconds(renew_seconds: int) -> int:
    """Return the grace of a host that renews its lease that often. Two renewals may be late, and the peers need time to answer."""
    return 2 * renew_seconds + 2


def describe_fleet(config: LeaseConfig) -> LeaseFleet:
    """Return the list of hosts as renewals name it."""
    lines = (config.store, *config.host_ids)
    return LeaseFleet(hashlib.sha256("".join(f"{one}\n" for one in lines).encode("ascii")).hexdigest(), len(config.host_ids))


def read_config(path: str = CONFIG_FILE) -> LeaseConfig:
    """Return the configuration. Raises L(Internal) if the file is missing or invalid."""
    try:
        with open(path, encoding="utf-8") as stream:
            return decode(LeaseConfig, json.load(stream))
    except (OSError, ValueError) as error:
        raise Internal(f"The configuration of the lease, {path}, cannot be read: {error}.", "Run the task host_lease for this host again.") from error
