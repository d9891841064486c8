# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which ledger lies under a prefix: made once, never where anything else is, and known by its id and its cluster."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument, InvalidState, NotFound

from .. import identity as common
from ..identity import COPYING, NAME, Found, identity_in, new, unfinished
from . import chain
from .client import Client
from .messages import KeyValue, end_of, is_empty, many, one, put, reading

CLUSTER = "cluster"


class Identity(t.NamedTuple):
    """:arg key: that holds the C(value) of what is known, byte by byte, as long as the ledger is this one."""

    known: common.Identity
    key: str

    @property
    def value(self) -> bytes:
        return self.known.data

    @property
    def genesis(self) -> str:
        return self.known.genesis


class There(t.NamedTuple):
    """The keys that tell what is under a prefix, as far as they are there; C(first) is any other key."""

    known: t.Optional[KeyValue]
    cluster: t.Optional[KeyValue]
    copying: t.Optional[KeyValue]
    first: t.Optional[KeyValue]


def ensure(client: Client, create: bool) -> Identity:
    """Return the identity of the ledger under the address's prefix, making it where it is missing and C(create).

    Raises L(NotFound) where there is none and it is not to be made, L(InvalidArgument) for a prefix that holds other things, L(NotSupported) for a ledger of a
    later version, L(InvalidState) for a damaged one, for an unfinished copy, and for one of another cluster.
    """
    there = read(client)
    if there.known is None and there.first is None and create:
        _found(client)
        there = read(client)
    return checked(client, there)


def checked(client: Client, there: There) -> Identity:
    """Return the identity among these keys. Raises as L(ensure)."""
    if there.known is None:
        raise _missing(client, there)
    identity = Identity(identity_in(there.known.value, found_at(client)), there.known.key)
    _check_cluster(client, there.cluster)
    return identity


def found_at(client: Client) -> Found:
    """Return where the identity of a ledger lies."""
    return Found(str(client.address), f"The key {client.address.prefix}{NAME} of {client.address}", "Restore it from a backup.")


def read(client: Client) -> There:
    """Return what is under the prefix."""
    prefix = client.address.prefix
    reads = [*(one(f"{prefix}{name}") for name in (NAME, CLUSTER, COPYING)), many(prefix, end_of(prefix), limit=1, keys_only=True)]
    found = client.transaction([], [reading(read) for read in reads], []).found
    return There(*(keys[0] if keys else None for keys in found))


def first_values(client: Client, known: common.Identity) -> dict[str, bytes]:
    """Return the keys that a ledger has from its beginning in this cluster."""
    return {NAME: known.data, CLUSTER: str(client.cluster_id).encode("ascii"), **chain.heads(known.genesis)}


def _found(client: Client) -> None:
    prefix = client.address.prefix
    writes = [put(f"{prefix}{key}", value) for key, value in first_values(client, new()).items()]
    # Of several that make it at once one is first; the others read what it made.
    client.transaction([is_empty(prefix, end_of(prefix))], writes, [])


def _missing(client: Client, there: There) -> Exception:
    if there.copying is not None:
        return unfinished(there.copying.value, str(client.address))
    if there.first is not None:
        return InvalidArgument(
            f"The prefix of {client.address} is not a ledger and holds other things (e.g. {there.first.key!r}); nothing was written there.",
            "Name an unused prefix with 'ledger'.",
        )
    return NotFound(f"There is no ledger at {client.address}.", "The first task that moves or cordons something makes one.")


def _check_cluster(client: Client, cluster: t.Optional[KeyValue]) -> None:
    made_in = cluster.value.decode("utf-8", "replace") if cluster else "an unknown one"
    if made_in != client.cluster_id:
        raise InvalidState(
            f"The ledger {client.address} belongs to the etcd cluster {made_in}, and cluster {client.cluster_id} answers: it is a copy or an old backup, "
            "which may know less than the hosts. Nothing was changed.",
            "Name members of the ledger's own cluster. Only where that one is gone for good: "
            f"'etcdctl put {client.address.prefix}{CLUSTER} {client.cluster_id}'.",
        )
