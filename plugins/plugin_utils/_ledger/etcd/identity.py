# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which ledger lies under a prefix: made once, never where anything else is, and known by its id and its cluster."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument, InvalidState, NotFound

from ..audit import genesis
from ..identity import NAME, Found, id_in, new
from . import chain
from .client import Client
from .messages import KeyValue, end_of, is_empty, many, one, put, reading

CLUSTER = "cluster"


class Identity(t.NamedTuple):
    """:arg key: that holds C(value), byte by byte, as long as the ledger is this one."""

    ledger_id: str
    key: str
    value: bytes


def ensure(client: Client, create: bool) -> Identity:
    """Return the identity of the ledger under the address's prefix, making it where it is missing and C(create).

    Raises L(NotFound) where there is none and it is not to be made, L(InvalidArgument) for a prefix that holds other things, L(NotSupported) for a ledger of a
    later version, L(InvalidState) for a damaged one and for one of another cluster.
    """
    prefix = client.address.prefix
    known, cluster, first = _read(client, prefix)
    if known is None and first is None and create:
        _found(client, prefix)
        known, cluster, first = _read(client, prefix)
    if known is None:
        raise _missing(client, first)
    where = Found(str(client.address), f"The key {known.key} of {client.address}", "Restore it from a backup.")
    identity = Identity(id_in(known.value, where), known.key, known.value)
    _check_cluster(client, cluster)
    return identity


def _read(client: Client, prefix: str) -> tuple[t.Optional[KeyValue], t.Optional[KeyValue], t.Optional[KeyValue]]:
    """Return the identity, the cluster's and any other key, as far as they are there."""
    reads = [one(f"{prefix}{NAME}"), one(f"{prefix}{CLUSTER}"), many(prefix, end_of(prefix), limit=1, keys_only=True)]
    known, cluster, first = client.transaction([], [reading(read) for read in reads], []).found
    return known[0] if known else None, cluster[0] if cluster else None, first[0] if first else None


def _found(client: Client, prefix: str) -> None:
    ledger_id, document = new()
    values = {NAME: document, CLUSTER: str(client.cluster_id).encode("ascii"), **chain.heads(genesis(ledger_id))}
    writes = [put(f"{prefix}{key}", value) for key, value in values.items()]
    # Of several that make it at once one is first; the others read what it made.
    client.transaction([is_empty(prefix, end_of(prefix))], writes, [])


def _missing(client: Client, first: t.Optional[KeyValue]) -> Exception:
    if first is not None:
        return InvalidArgument(
            f"The prefix of {client.address} is not a ledger and holds other things (e.g. {first.key!r}); nothing was written there.",
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
