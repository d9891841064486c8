# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The client of a host on a real etcd: what its user may do, and what is no acknowledgement."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import time
import typing as t

import pytest
from kvmlab.errors import LabError
from kvmlab.etcd import Cluster, coded

from ansible_collections.kvmfleet.migration.plugins.module_utils._lease import etcd as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.config import LeaseConfig
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.etcd.proxy import Proxy

from .conftest import OWN, PEER, PREFIX, make_config, read_key

KEY = f"{PREFIX}/leases/{OWN}"


def make_way(config: LeaseConfig, number: int = 1, tokens: t.Optional[m.Tokens] = None, seconds: float = 5.0) -> m.Way:
    return m.Way(config, m.make_tls_context(config), tokens or m.Tokens(), config.endpoints[number - 1], None, "direct", seconds)


def value(number: int) -> bytes:
    return json.dumps({"count": number}).encode("ascii")


def test_a_lease_is_written_and_its_revision_grows(cluster: Cluster, config: LeaseConfig) -> None:
    way = make_way(config)
    revisions = [way.put(value(number)) for number in (1, 2)]
    assert revisions[0] < revisions[1]
    assert read_key(cluster, KEY) == {"count": 2}
    assert str(way) == config.endpoints[0]


def test_the_user_of_a_host_may_write_its_own_lease_and_nothing_else(cluster: Cluster, config: LeaseConfig) -> None:
    tokens = m.Tokens()
    with pytest.raises(m.NotAcknowledged, match="permission denied"):
        make_way(dataclasses.replace(config, host_id=PEER), tokens=tokens).put(value(1))
    assert read_key(cluster, f"{PREFIX}/leases/{PEER}") is None
    refused: t.List[t.Tuple[str, t.Dict[str, t.Any]]] = [
        ("kv/range", {"key": coded(KEY)}),
        ("kv/range", {"key": coded(f"{PREFIX}/leases/{PEER}")}),
        ("kv/range", {"key": coded(f"{PREFIX}/"), "range_end": coded(f"{PREFIX}0")}),
        ("kv/put", {"key": coded(f"{PREFIX}/ledger.json"), "value": coded("{}")}),
        ("kv/deleterange", {"key": coded(f"{PREFIX}/ledger.json")}),
        ("auth/user/add", {"name": "more", "password": "more"}),
    ]
    for call, request in refused:
        with pytest.raises(LabError, match="permission denied"):
            cluster.call(call, request, token=tokens.token)


def test_a_token_that_is_no_longer_valid_is_replaced(cluster: Cluster, config: LeaseConfig) -> None:
    tokens = m.Tokens()
    way = make_way(config, tokens=tokens)
    way.put(value(1))
    tokens.token = "no-token.1"
    assert way.put(value(2))
    # With another user, etcd has a new revision of its users, for which no old token is valid.
    cluster.add_writer("another", f"{PREFIX}/another")
    assert way.put(value(3))


def test_a_stream_that_was_kept_and_has_ended_is_opened_again(cluster: Cluster, config: LeaseConfig) -> None:
    way = make_way(config, 2)
    way.put(value(1))
    cluster.signal(2, "kill")
    with pytest.raises(m.NotAcknowledged, match="refused"):
        way.put(value(2))
    cluster.start(2)
    cluster.wait([2])
    assert way.put(value(3))
    cluster.signal(2, "stop")
    cluster.start(2)
    cluster.wait([2])
    assert way.put(value(4))


def test_another_cluster_acknowledges_nothing(config: LeaseConfig) -> None:
    with pytest.raises(m.NotAcknowledged, match="belongs to 12; if that is right, run host_lease again"):
        make_way(dataclasses.replace(config, cluster_id="12")).put(value(1))


def test_a_wrong_password_is_named_and_not_shown(config: LeaseConfig) -> None:
    with pytest.raises(m.NotAcknowledged, match=r"rejects the user 'lease-kvm1'") as error:
        make_way(dataclasses.replace(config, password="wrong-password")).put(value(1))
    assert "wrong-password" not in str(error.value)
    assert "wrong-password" not in repr(dataclasses.replace(config, password="wrong-password"))


def test_a_member_that_hangs_costs_the_time_limit(cluster: Cluster, config: LeaseConfig) -> None:
    tokens = m.Tokens()
    make_way(config, 1, tokens).put(value(1))
    cluster.signal(3, "freeze")
    with pytest.raises(m.NotAcknowledged, match=r"no answer within 0\.5 s"):
        make_way(config, 3, tokens, seconds=0.5).put(value(2))
    with pytest.raises(m.NotAcknowledged, match=r"the login takes longer than 0\.5 s"):
        make_way(config, 3, seconds=0.5).put(value(2))


def test_a_certificate_of_another_authority_is_refused(config: LeaseConfig) -> None:
    with pytest.raises(m.NotAcknowledged, match="certificate verify failed"):
        make_way(dataclasses.replace(config, ca_file=None)).put(value(1))


def test_a_cluster_without_users_needs_no_token(tmp_path: pathlib.Path) -> None:
    open_cluster = Cluster(tmp_path / "open")
    try:
        open_cluster.up(members=1)
        cluster_id = open_cluster.call("maintenance/status", {})["header"]["cluster_id"]
        config = make_config(cluster_id=cluster_id, endpoints=tuple(open_cluster.endpoints))
        assert make_way(config).put(value(1))
        assert make_way(dataclasses.replace(config, user=None, password=None)).put(value(2))
    finally:
        open_cluster.down()


def test_a_cluster_that_gets_users_is_logged_in_to_without_a_restart(tmp_path: pathlib.Path) -> None:
    cluster = Cluster(tmp_path / "open")
    try:
        cluster.up(members=1)
        cluster_id = cluster.call("maintenance/status", {})["header"]["cluster_id"]
        config, tokens = make_config(cluster_id=cluster_id, endpoints=tuple(cluster.endpoints)), m.Tokens()
        assert make_way(config, tokens=tokens).put(value(1))
        assert not tokens.is_needed
        cluster.up(members=1, prefix=PREFIX)
        users = {name: cluster.options[name] for name in ("user", "password")}
        assert make_way(dataclasses.replace(config, **users), tokens=tokens).put(value(2))
        assert read_key(cluster, KEY) == {"count": 2}
    finally:
        cluster.down()


def test_a_member_that_refuses_logins_does_not_stand_for_a_cluster_without_users(cluster: Cluster, config: LeaseConfig) -> None:
    """A learner refuses them with the code of a cluster without users."""
    tokens = m.Tokens()
    with Proxy(config.endpoints[0]) as proxy:
        proxy.refuses = lambda _call, _request: {"code": 9, "message": "etcdserver: rpc not supported for learner"}
        learner = make_config(cluster_id=config.cluster_id, endpoints=(proxy.endpoint,))
        with pytest.raises(m.NotAcknowledged, match="not supported for learner"):
            make_way(learner, tokens=tokens).put(value(1))
    assert make_way(config, 2, tokens).put(value(2))


def test_a_login_that_takes_long_is_awaited_and_not_repeated(tmp_path: pathlib.Path) -> None:
    """After an outage all hosts log in at once, and each login costs the member work."""
    open_cluster = Cluster(tmp_path / "open")
    try:
        open_cluster.up(members=1)
        cluster_id = open_cluster.call("maintenance/status", {})["header"]["cluster_id"]
        with Proxy(open_cluster.endpoints[0]) as proxy:
            waits = [2.0]

            def delay(call: str, _request: t.Any) -> None:
                if call == "auth/authenticate" and waits:
                    time.sleep(waits.pop())

            proxy.before = delay
            way = make_way(make_config(cluster_id=cluster_id, endpoints=(proxy.endpoint,)), seconds=0.5)
            with pytest.raises(m.NotAcknowledged, match=r"the login takes longer than 0\.5 s"):
                way.put(value(1))
            deadline = time.monotonic() + 30
            while True:
                try:
                    assert way.put(value(2))
                    break
                except m.NotAcknowledged:
                    assert time.monotonic() < deadline
            assert [call for call, _request in proxy.asked if call == "auth/authenticate"] == ["auth/authenticate"]
    finally:
        open_cluster.down()


def test_what_is_not_etcd_acknowledges_nothing() -> None:
    with pytest.raises(m.NotAcknowledged, match="refused"):
        make_way(make_config(user=None)).put(value(1))


@pytest.mark.parametrize(("text", "address"), [("kvm1:2379", ("kvm1", 2379)), ("[fd00::1]:2379", ("fd00::1", 2379))])
def test_endpoints_are_hosts_and_ports(text: str, address: t.Tuple[str, int]) -> None:
    assert m.split_endpoint(text) == address
