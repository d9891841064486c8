# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Reads the leases of all hosts, as etcd has them at one moment: each with the revision of its last renewal."""

from __future__ import annotations

import dataclasses
import json
import typing as t
from collections.abc import Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, ShapeError, decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import LEASES_FOLDER, HostLease

from .client import Client
from .connection import EtcdOptions, parse_address
from .messages import nested_read, parse_voters, range_end, range_read


class SeenLease(t.NamedTuple):
    """A lease as it was read.

    :arg revision: the key's, which changes with each renewal and with nothing else.
    """

    revision: int
    lease: HostLease


@dataclass(frozen=True)
class LeaseReading:
    """What one read found.

    :arg revision: of the store at the read, which was linearizable: each renewal that etcd had acknowledged before the read was sent is in it.
    :arg leases: by host_id.
    :arg damaged: sentences about keys that hold no lease, by the name of the key. They say nothing about their hosts.
    """

    revision: int
    leases: Mapping[str, SeenLease]
    damaged: Mapping[str, str] = dataclasses.field(default_factory=dict)


class _Known(t.NamedTuple):
    """What a key held at a revision: a lease, or why it is none."""

    revision: int
    held: t.Union[HostLease, str]


def _parse_lease(name: str, value: bytes, cluster_id: t.Optional[str]) -> t.Union[HostLease, str]:
    """Return the lease in the value of the key of that name, or why it is none.

    In another cluster than that, the host got its last acknowledgement in a store whose revisions cannot be compared with those of this one: then it has none.
    """
    try:
        lease = decode(HostLease, json.loads(value))
    except ShapeError as error:
        return f"its {error.path or 'content'} is not {error.expected}"
    except (ValueError, RecursionError):
        return "it is not JSON"
    if lease.host_id != name:
        return f"it is the lease of {lease.host_id!r}"
    return lease if lease.cluster_id in (ABSENT, cluster_id) else dataclasses.replace(lease, acknowledged_revision=0)


class LeaseReader:
    """Not safe between threads. Only leases that were renewed since the last read are transferred and decoded."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._folder = f"{client.address.prefix}{LEASES_FOLDER}/"
        self._known: dict[str, _Known] = {}

    def read_leases(self) -> LeaseReading:
        """Return the leases. Raises L(Unreachable) if no majority of etcd answers, L(Forbidden) for a user that may not read them."""
        before = self._known
        revision, known = self._read_known(before)
        if known is None:
            # The store is not the one that was read before: it was restored from a backup.
            revision, known = self._read_known({})
        self._known = known or {}
        leases = {name: SeenLease(seen.revision, seen.held) for name, seen in self._known.items() if isinstance(seen.held, HostLease)}
        damaged = {name: self._describe_damaged(name, seen.held) for name, seen in self._known.items() if isinstance(seen.held, str)}
        return LeaseReading(revision, leases, damaged)

    def _read_known(self, before: Mapping[str, _Known]) -> tuple[int, t.Optional[dict[str, _Known]]]:
        """Return the revision of the read, and what the keys hold; None if a key was not written since the last read and is not as it was then."""
        start, end = self._folder, range_end(self._folder)
        since = 1 + max((seen.revision for seen in before.values()), default=0)
        reads = [range_read(start, end, keys_only=True), range_read(start, end, written_since=since)]
        done = self._client.run_transaction([], [nested_read(read) for read in reads], [])
        present, written = done.found
        values = {found.key: found.value for found in written}
        known = {}
        for key in present:
            name = key.key[len(self._folder) :]
            if key.key in values:
                known[name] = _Known(key.mod_revision, _parse_lease(name, values[key.key], self._client.cluster_id))
            elif name in before and before[name].revision == key.mod_revision:
                known[name] = before[name]
            else:
                return done.revision, None
        return done.revision, known

    def _describe_damaged(self, name: str, why: str) -> str:
        return f"The key {self._folder}{name} of {self._client.address} holds no lease: {why}."

    def count_members(self) -> int:
        """Return how many members of etcd vote. Raises as L(read_leases)."""
        return self._client.send_request("cluster/member/list", {}, parse_voters)


def make_reader(location: str, options: EtcdOptions) -> LeaseReader:
    """Return a reader of the leases below the ledger at that address. Raises L(InvalidArgument) for an address that is not one of etcd."""
    return LeaseReader(Client(parse_address(location), options))
