# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The two stores to be compared, each new and empty."""

from __future__ import annotations

import contextlib
import json
import pathlib
import typing as t
from collections.abc import Iterator
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.client import Client
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.connection import parse_address, read_options
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.messages import KeyValue, range_end, range_read
from ansible_collections.kvmfleet.migration.tests.lab.kvmlab.etcd import Cluster

PREFIX = "/simulated"
PAGE = 500


@dataclass(frozen=True)
class Store:
    """:arg etcd: the variable C(kvmfleet_etcd)."""

    name: str
    location: str
    etcd: t.Any


@contextlib.contextmanager
def store(kind: str, folder: pathlib.Path, members: int) -> Iterator[Store]:
    """Make a store of a kind: C(file), C(etcd), or C(etcd-users), where every task logs in over TLS."""
    if kind == "file":
        yield Store("a folder", str(folder / "ledger"), None)
        return
    cluster = Cluster(folder / kind)
    secure = kind == "etcd-users"
    try:
        cluster.up(members, tls=secure, prefix=PREFIX if secure else None)
        yield Store(f"etcd, {members} members{', TLS and users' if secure else ''}", cluster.location(PREFIX), cluster.options)
    finally:
        cluster.down()


def audit_lines(location: str, etcd: t.Any = None) -> list[dict[str, t.Any]]:
    """Return the lines of a ledger's audit in the order in which they were written.

    Etcd keeps them in several chains, and counts every write of the cluster, so that they have one order there, too.
    """
    texts = _in_etcd(location, etcd) if location.startswith("etcd:") else (pathlib.Path(location) / "audit.jsonl").read_text(encoding="ascii").splitlines()
    return [json.loads(text) for text in texts]


def _in_etcd(location: str, etcd: t.Any) -> list[str]:
    address = parse_address(location)
    client = Client(address, read_options(etcd, address))
    start, last = f"{address.prefix}audit/", range_end(f"{address.prefix}audit/")
    found: list[KeyValue] = []
    more = True
    while more:
        page = client.read_range(range_read(start, last, limit=PAGE))
        found += page.found
        more = page.more
        start = f"{page.found[-1].key}\0" if page.found else last
    return [one.value.decode("utf-8") for one in sorted(found, key=lambda one: one.create_revision)]
