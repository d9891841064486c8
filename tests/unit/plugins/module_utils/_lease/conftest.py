# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real etcd of three members with certificates and users, and the configuration of a host that renews its lease there."""

from __future__ import annotations

import base64
import dataclasses
import json
import sys
import typing as t
from pathlib import Path

import pytest

# The lab's package, which starts an etcd of its own.
sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "lab"))

from kvmlab.etcd import Cluster, coded

from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.config import LeaseConfig, LeasePeer

OWN, PEER, THIRD = (f"0000000{number}-0000-4000-8000-000000000000" for number in (1, 2, 3))
PREFIX = "/fleet"
Config = t.Callable[..., LeaseConfig]


def make_config(**changes: t.Any) -> LeaseConfig:
    """Return the configuration of the first of three hosts, whose etcd does not exist."""
    fleet = tuple(LeasePeer(host_id, f"kvm{number}", ("127.0.0.1",), 1, False) for number, host_id in enumerate((OWN, PEER, THIRD), 1))
    own = LeaseConfig(OWN, "kvm1", "1", ("127.0.0.1:1",), f"{PREFIX}/", False, "lease-kvm1", "secret", 15, 3, 16516, False, fleet)
    return dataclasses.replace(own, **changes)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("etcd") / "cluster")
    try:
        cluster.up(members=3, tls=True, prefix=PREFIX)
        yield cluster
    finally:
        cluster.down()


@pytest.fixture(scope="session")
def password(cluster: Cluster) -> str:
    """The password of the user that may write the lease of the first host."""
    return cluster.add_writer("lease-kvm1", f"{PREFIX}/leases/{OWN}")


@pytest.fixture
def config(cluster: Cluster, password: str) -> t.Iterator[LeaseConfig]:
    """The configuration of the first host; all members run afterwards."""
    tls = {name: cluster.options[name] for name in ("ca_file", "cert_file", "key_file")}
    cluster_id = cluster.call("maintenance/status", {}, token=cluster.root_token())["header"]["cluster_id"]
    yield make_config(cluster_id=cluster_id, endpoints=tuple(cluster.endpoints), tls=True, password=password, **tls)
    cluster.act("thaw", "all")
    cluster.act("start", "all")
    cluster.wait(cluster.members)


def read_key(cluster: Cluster, key: str, number: int = 1) -> t.Any:
    """Return the JSON document of a key, as root reads it from a member; None without the key."""
    found = cluster.call("kv/range", {"key": coded(key)}, number, cluster.root_token(number)).get("kvs", [])
    return json.loads(base64.b64decode(found[0]["value"])) if found else None
