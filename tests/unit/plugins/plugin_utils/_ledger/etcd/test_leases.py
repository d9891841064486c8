# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Leases as etcd has them: each with the revision of its last renewal, whatever else is below that prefix."""

from __future__ import annotations

import dataclasses
import json
import time
import uuid
from pathlib import Path

import pytest
from kvmlab.etcd import Cluster

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import HostLease, LeaseFleet
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd import client
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.connection import EtcdOptions, parse_address
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.leases import LeaseReader, make_reader
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import EtcdStore

ONE, TWO = (f"11111111-0000-4000-8000-00000000000{number}" for number in (1, 2))


def make_lease(host_id: str, count: int = 1) -> HostLease:
    return HostLease(host_id, "kvm1", str(uuid.uuid4()), count, count, 15, 3, LeaseFleet("a" * 64, 3), "direct", "2026-11-26T20:00:00.000Z", 0)


def renew(store: EtcdStore, lease: HostLease) -> None:
    store.write(f"leases/{lease.host_id}", json.dumps(encode(lease)).encode())


@pytest.fixture
def reader(store: EtcdStore) -> LeaseReader:
    return LeaseReader(store.client)


def test_a_revision_changes_with_each_renewal_and_with_nothing_else(store: EtcdStore, reader: LeaseReader) -> None:
    assert reader.read_leases().leases == {}
    leases = {host_id: make_lease(host_id) for host_id in (ONE, TWO)}
    for lease in leases.values():
        renew(store, lease)
    first = reader.read_leases()
    assert {host_id: seen.lease for host_id, seen in first.leases.items()} == leases
    renew(store, make_lease(ONE, 2))
    store.write("hosts/other", b"{}")
    second = reader.read_leases()
    assert second.leases[ONE].lease.count == 2
    assert second.leases[ONE].revision > first.leases[ONE].revision
    assert second.leases[TWO] == first.leases[TWO]
    # Another reader sees the same.
    assert LeaseReader(store.client).read_leases() == second


def test_a_lease_of_another_cluster_has_no_acknowledgement_of_this_one(store: EtcdStore, reader: LeaseReader) -> None:
    """The etcd was restored from a backup, and the host does not count its renewals there; or it has just been given this one."""
    renew(store, dataclasses.replace(make_lease(ONE), acknowledged_revision=7000, cluster_id="1"))
    renew(store, dataclasses.replace(make_lease(TWO), acknowledged_revision=3, cluster_id=str(store.client.cluster_id)))
    assert {host_id: seen.lease.acknowledged_revision for host_id, seen in reader.read_leases().leases.items()} == {ONE: 0, TWO: 3}


def test_a_key_that_is_removed_is_no_lease_any_more(store: EtcdStore, reader: LeaseReader) -> None:
    renew(store, make_lease(ONE))
    assert reader.read_leases().leases.keys() == {ONE}
    store.remove(f"leases/{ONE}")
    assert reader.read_leases().leases == {}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"{", "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        (b"\xff\xfe", "it is not JSON"),
        (b"{}", "its host_id is not"),
        (json.dumps({**encode(make_lease(ONE)), "count": -1}).encode(), "its count is not"),
        (json.dumps(encode(make_lease(TWO))).encode(), f"it is the lease of '{TWO}'"),
    ],
)
def test_a_damaged_lease_is_named_and_the_others_are_read(store: EtcdStore, reader: LeaseReader, value: bytes, why: str) -> None:
    renew(store, make_lease(TWO))
    store.write(f"leases/{ONE}", value)
    for reading in (reader.read_leases(), reader.read_leases()):
        assert reading.leases.keys() == {TWO}
        assert reading.damaged.keys() == {ONE}
        assert why in reading.damaged[ONE]
        assert f"leases/{ONE}" in reading.damaged[ONE]
    renew(store, make_lease(ONE, 7))
    assert reader.read_leases().leases[ONE].lease.count == 7


def test_a_store_that_was_restored_is_read_anew(tmp_path: Path) -> None:
    """A backup has older revisions: what was read later is not taken for current."""
    cluster = Cluster(tmp_path / "etcd")
    try:
        cluster.up(1)
        reader = make_reader(cluster.location(), EtcdOptions())
        store = EtcdStore(parse_address(cluster.location()), EtcdOptions())
        renew(store, make_lease(ONE))
        revision = reader.read_leases().leases[ONE].revision
        for count in range(2, 5):
            renew(store, make_lease(ONE, count))
        assert reader.read_leases().leases[ONE].revision > revision
        # As after a restore: the same key, at a revision that this reader has passed.
        reader._known = {ONE: reader._known[ONE]._replace(revision=10_000)}
        assert reader.read_leases().leases[ONE].lease.count == 4
    finally:
        cluster.down()


def test_a_thousand_leases_are_read_at_once_and_only_renewals_are_decoded(store: EtcdStore, reader: LeaseReader) -> None:
    hosts = [str(uuid.UUID(int=number)) for number in range(1_000)]
    for host_id in hosts:
        renew(store, make_lease(host_id))
    assert len(reader.read_leases().leases) == 1_000
    renew(store, make_lease(hosts[7], 2))
    begun = time.monotonic()
    reading = reader.read_leases()
    assert time.monotonic() - begun < 1
    assert [host_id for host_id, seen in reading.leases.items() if seen.lease.count == 2] == [hosts[7]]


def test_members_that_vote_are_counted(tmp_path: Path, store: EtcdStore, reader: LeaseReader, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reader.count_members() == 1
    cluster = Cluster(tmp_path / "three")
    try:
        cluster.up(3)
        three = make_reader(cluster.location(), EtcdOptions())
        assert three.count_members() == 3
        cluster.signal(1, "kill")
        # A member that is down is a member.
        assert three.count_members() == 3
        assert three.read_leases().leases == {}
        cluster.signal(2, "kill")
        monkeypatch.setattr(client, "PATIENCE_SECONDS", 1.0)
        with pytest.raises(Unreachable):
            three.read_leases()
    finally:
        cluster.down()
