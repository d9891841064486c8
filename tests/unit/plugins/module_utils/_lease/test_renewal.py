# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A renewal over all ways, on a real etcd whose members die and hang."""

from __future__ import annotations

import dataclasses
import time
import typing as t

import pytest
from kvmlab.etcd import Cluster

from ansible_collections.kvmfleet.migration.plugins.module_utils._lease import renewal as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.answering import Answerer
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.config import LeaseConfig, LeasePeer
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.etcd import NotAcknowledged

from .conftest import OWN, PEER, PREFIX, make_config, read_key
from .test_answering import answer_none, free_port

KEY = f"{PREFIX}/leases/{OWN}"


def describe(path: str) -> bytes:
    return f'{{"path": "{path}"}}'.encode("ascii")


def test_the_first_member_that_answers_is_asked_first_from_then_on(cluster: Cluster, config: LeaseConfig) -> None:
    renewer = m.Renewer(config)
    cluster.signal(1, "kill")
    first = renewer.renew(describe)
    assert first.path == m.DIRECT
    begun = time.monotonic()
    assert renewer.renew(describe).revision > first.revision
    assert time.monotonic() - begun < 2
    assert read_key(cluster, KEY, 2) == {"path": "direct"}


def test_one_renewal_stays_below_the_lease_when_no_member_answers(cluster: Cluster, config: LeaseConfig) -> None:
    cluster.act("freeze", "all")
    begun = time.monotonic()
    with pytest.raises(NotAcknowledged) as error:
        m.Renewer(dataclasses.replace(config, lease_seconds=6, renew_seconds=1)).renew(describe)
    assert time.monotonic() - begun < 4.5
    assert all(endpoint in str(error.value) for endpoint in config.endpoints)


def test_a_host_that_reaches_no_member_goes_through_a_peer(cluster: Cluster, config: LeaseConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = LeasePeer(PEER, "kvm2", ("192.0.2.1", "127.0.0.1"), free_port(), True)
    Answerer(dataclasses.replace(config, port=peer.port, relay=True), answer_none).start()
    own = dataclasses.replace(config, fleet=(config.fleet[0], peer))
    real = m.Way.put

    def put_through_relay_only(way: m.Way, value: bytes) -> int:
        if way.name == m.DIRECT:
            raise NotAcknowledged("cut off")
        return real(way, value)

    monkeypatch.setattr(m.Way, "put", put_through_relay_only)
    renewer = m.Renewer(own)
    assert renewer.renew(describe).path == "kvm2"
    assert read_key(cluster, KEY) == {"path": "kvm2"}
    assert [renewer.renew(describe).path for _turn in range(3)] == ["kvm2"] * 3
    monkeypatch.setattr(m.Way, "put", real)
    paths = [renewer.renew(describe).path for _turn in range(25)]
    assert paths[-1] == m.DIRECT, "the direct way is tried again"


def test_more_peers_than_fit_into_one_renewal_are_tried_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    relays = tuple(LeasePeer(f"{number:08d}-0000-4000-8000-000000000000", f"kvm{number}", ("192.0.2.1",), 1, True) for number in range(2, 9))
    renewer = m.Renewer(make_config(fleet=(make_config().fleet[0], *relays)))
    asked: t.List[str] = []

    def refuse(way: m.Way, _value: bytes) -> int:
        asked.append(way.name)
        raise NotAcknowledged("cut off")

    monkeypatch.setattr(m.Way, "put", refuse)
    for _turn in range(3):
        with pytest.raises(NotAcknowledged):
            renewer.renew(describe)
    assert asked.count(m.DIRECT) == 3
    assert {peer.name for peer in relays} <= set(asked)


def test_a_way_through_a_peer_is_used_for_a_while_before_the_direct_one_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    renewer = m.Renewer(make_config(fleet=(make_config().fleet[0], LeasePeer(PEER, "kvm2", ("192.0.2.1",), 1, True))))
    asked: t.List[str] = []

    def put(way: m.Way, _value: bytes) -> int:
        asked.append(way.name)
        if way.name == m.DIRECT:
            raise NotAcknowledged("cut off")
        return 7

    monkeypatch.setattr(m.Way, "put", put)
    for _turn in range(22):
        renewer.renew(describe)
    assert asked == [m.DIRECT, *["kvm2"] * 21, m.DIRECT, "kvm2"]


@pytest.mark.parametrize(("failures", "why"), [(2, ""), (3, "slow")])
def test_a_slow_login_does_not_refuse_a_configuration(monkeypatch: pytest.MonkeyPatch, failures: int, why: str) -> None:
    left = iter(["slow"] * failures)

    def try_put(_way: m.Way) -> int:
        for slow in left:
            raise NotAcknowledged(slow)
        return 7

    monkeypatch.setattr(m.Way, "try_put", try_put)
    explained = m.explain_no_renewal(make_config())
    assert (bool(explained), explained.endswith(why)) == (bool(why), True)


def test_a_configuration_is_tried_without_a_renewal(cluster: Cluster, config: LeaseConfig) -> None:
    m.Renewer(config).renew(describe)
    before = read_key(cluster, KEY)
    assert m.explain_no_renewal(config) == ""
    assert "rejects the user 'lease-kvm1'" in m.explain_no_renewal(dataclasses.replace(config, password="mistyped"))
    assert "permission denied" in m.explain_no_renewal(dataclasses.replace(config, host_id=PEER))
    assert "cluster" in m.explain_no_renewal(dataclasses.replace(config, cluster_id="1"))
    assert "TLS files" in m.explain_no_renewal(dataclasses.replace(config, cert_file="/nonexistent"))
    assert (read_key(cluster, KEY), read_key(cluster, f"{PREFIX}/leases/{PEER}")) == (before, None)
