# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The configuration of a host's lease, with a ledger in a real etcd of three members with users."""

from __future__ import annotations

import dataclasses
import json
import typing as t
import uuid
from datetime import timedelta

import pytest
from kvmlab.etcd import Cluster, coded

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Forbidden, InvalidArgument, NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import HostLease, LeaseFleet
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.connection import Endpoint
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._recover import lease_config as m
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings import certificates
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings.variables import LedgerLocation, Settings
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry

IDS = {f"kvm{number}": str(uuid.UUID(int=number)) for number in (1, 2, 3)}
Variables = dict[str, dict[str, t.Any]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("leases") / "cluster")
    try:
        cluster.up(members=3, tls=True, prefix="/fleet")
        yield cluster
    finally:
        cluster.down()


@pytest.fixture(scope="module")
def ledger(cluster: Cluster) -> Ledger:
    """A ledger that knows three hosts."""
    ledger = open_ledger(cluster.location(), t.cast("t.Any", cluster.options))
    for name, host_id in IDS.items():
        ledger.put_host(host_entry({"name": name, "host_id": host_id, "since": "then"}), None)
    return ledger


@pytest.fixture(autouse=True)
def far(monkeypatch: pytest.MonkeyPatch) -> None:
    """The members count as ones on other machines, although they are not."""
    monkeypatch.setattr(Endpoint, "is_local", False)


@pytest.fixture
def variables(cluster: Cluster) -> Variables:
    """What the inventory has for each host."""
    files = {name: cluster.options[name] for name in ("cert_file", "key_file")}
    lease = {"password": "s3cret-word", **files}
    return {name: {"ansible_host": f"192.0.2.{number}", "kvmfleet_lease": {**lease, "user": f"lease-{name}"}} for number, name in enumerate(IDS, 1)}


def plan(cluster: Cluster, ledger: Ledger, variables: Variables, host: str = "kvm1", location: str = "") -> m.LeasePlan:
    client, options = m.connect(LedgerLocation(location or cluster.location(), t.cast("t.Any", cluster.options)))
    return m.plan_lease(host, Settings({"hostvars": variables, "groups": {"all": list(variables)}}), ledger, client, options)


@pytest.mark.parametrize(("watchdog", "consequence"), [({}, "after that. Renew it"), ({"watchdog": {}}, "after that, and its watchdog may reset it. Renew it")])
def test_a_certificate_of_a_host_that_expires_soon_is_named(
    cluster: Cluster, ledger: Ledger, variables: Variables, monkeypatch: pytest.MonkeyPatch, watchdog: dict[str, t.Any], consequence: str
) -> None:
    variables["kvm1"]["kvmfleet_lease"].update(watchdog)
    assert plan(cluster, ledger, variables).warnings == ()
    # Those of the lab are valid for two days.
    later = certificates._now() + timedelta(hours=45)
    monkeypatch.setattr(certificates, "_now", lambda: later)
    (warning,) = plan(cluster, ledger, variables).warnings
    assert warning.startswith(f"The cert_file {cluster.options['cert_file']} of kvmfleet_lease of kvm1 expires at ")
    assert warning.endswith(f"UTC: kvm1 cannot renew its lease {consequence}, and run host_lease before.")


def test_a_host_gets_who_it_is_where_etcd_is_and_who_its_peers_are(cluster: Cluster, ledger: Ledger, variables: Variables) -> None:
    variables["kvm2"]["kvmfleet_second_address"] = "198.51.100.2"
    variables["kvm2"]["kvmfleet_lease"].update(relay=True, port=17000)
    made = plan(cluster, ledger, variables)
    config = made.config
    assert (config.host_id, config.name, config.user, config.password) == (IDS["kvm1"], "kvm1", "lease-kvm1", "s3cret-word")
    assert (config.endpoints, config.prefix, config.tls) == (tuple(cluster.endpoints), "/fleet/", True)
    assert config.cluster_id == cluster.call("maintenance/status", {}, token=cluster.root_token())["header"]["cluster_id"]
    assert {peer.name: (peer.addresses, peer.port, peer.relay) for peer in config.fleet} == {
        "kvm1": (("192.0.2.1",), 16516, False),
        "kvm2": (("192.0.2.2", "198.51.100.2"), 17000, True),
        "kvm3": (("192.0.2.3",), 16516, False),
    }
    assert set(made.tls) == {"ca_file", "cert_file", "key_file"}
    assert all("-----BEGIN" in content for content in made.tls.values())
    assert (made.least_count, made.warnings) == (0, ())
    # The configuration of every host has the same list.
    assert plan(cluster, ledger, variables, "kvm3").config.fleet == config.fleet


def test_a_host_that_lost_its_count_goes_on_above_its_last_renewal(cluster: Cluster, ledger: Ledger, variables: Variables) -> None:
    lease = HostLease(IDS["kvm2"], "kvm2", "boot", 777, 0, 15, 3, LeaseFleet("digest", 3), "direct", "then", 0)
    value = json.dumps(encode(lease))
    cluster.call("kv/put", {"key": coded(f"/fleet/leases/{IDS['kvm2']}"), "value": coded(value)}, token=cluster.root_token())
    assert plan(cluster, ledger, variables, "kvm2").least_count == 777


def test_hosts_without_a_lease_or_identity_are_no_peers(cluster: Cluster, ledger: Ledger, variables: Variables) -> None:
    variables["kvm9"] = {"kvmfleet_lease": {**variables["kvm1"]["kvmfleet_lease"], "user": "lease-kvm9"}}
    del variables["kvm3"]["kvmfleet_lease"]
    variables.update(kvm7={"kvmfleet_lease": None}, kvm8={"kvmfleet_lease": ""})
    made = plan(cluster, ledger, variables)
    assert [peer.name for peer in made.config.fleet] == ["kvm1", "kvm2"]
    assert "kvm9 have kvmfleet_lease, but were never protected" in made.warnings[0]


def test_a_host_that_was_never_protected_is_refused(cluster: Cluster, ledger: Ledger, variables: Variables) -> None:
    variables["kvm9"] = {"kvmfleet_lease": {**variables["kvm1"]["kvmfleet_lease"], "user": "lease-kvm9"}}
    with pytest.raises(NotFound, match="kvm9 was never protected"):
        plan(cluster, ledger, variables, "kvm9")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"user": "lease-kvm2"}, "kvm1 and kvm2 have the same user"),
        ({"user": "fleet"}, "which may write the whole ledger"),
        ({"cert_file": None, "key_file": None}, "etcd would refuse the host"),
        ({"cert_file": "/nonexistent.pem"}, "cert_file /nonexistent.pem of kvmfleet_lease of kvm1 cannot be used"),
    ],
)
def test_a_variable_with_which_there_would_be_no_safe_lease_is_refused(
    cluster: Cluster, ledger: Ledger, variables: Variables, change: dict[str, t.Any], words: str
) -> None:
    variables["kvm1"]["kvmfleet_lease"].update(change)
    with pytest.raises(InvalidArgument) as caught:
        plan(cluster, ledger, variables)
    assert words in str(caught.value)
    assert "s3cret-word" not in str(caught.value)


@pytest.mark.parametrize("location", [None, "/srv/ledger"])
def test_a_ledger_in_a_folder_is_refused(location: str | None) -> None:
    with pytest.raises(InvalidArgument, match="A lease needs a ledger in etcd"):
        m.connect(LedgerLocation(location, None))


def test_an_etcd_that_only_the_control_node_reaches_is_refused(cluster: Cluster, ledger: Ledger, variables: Variables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Endpoint, "is_local", True)
    with pytest.raises(InvalidArgument, match="hosts cannot reach etcd there"):
        plan(cluster, ledger, variables)


def test_an_etcd_of_one_member_is_refused(member: Cluster, variables: Variables) -> None:
    location = member.location(f"/tests/{uuid.uuid4()}")
    ledger = open_ledger(location)
    ledger.put_host(host_entry({"name": "kvm1", "host_id": IDS["kvm1"], "since": "then"}), None)
    client, options = m.connect(LedgerLocation(location, None))
    with pytest.raises(InvalidArgument, match="has 1 member: it would not survive"):
        m.plan_lease("kvm1", Settings({"hostvars": variables, "groups": {"all": list(variables)}}), ledger, client, dataclasses.replace(options))


def test_members_that_may_not_be_listed_are_named_as_unknown(cluster: Cluster, ledger: Ledger, variables: Variables, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_reader: object) -> int:
        raise Forbidden("permission denied")

    monkeypatch.setattr(m.LeaseReader, "count_members", refuse)
    assert "may not list the members" in plan(cluster, ledger, variables).warnings[0]


def test_a_host_whose_document_cannot_be_read_is_not_left_out(cluster: Cluster, ledger: Ledger, variables: Variables) -> None:
    key = coded(f"/fleet/set_aside/hosts-{uuid.UUID(int=9)}-1.json")
    cluster.call("kv/put", {"key": key, "value": coded("torn")}, token=cluster.root_token())
    try:
        # All hosts with a lease are known.
        assert plan(cluster, ledger, variables).warnings == ()
        variables["kvm9"] = {"kvmfleet_lease": {**variables["kvm1"]["kvmfleet_lease"], "user": "lease-kvm9"}}
        with pytest.raises(Conflict, match="can be a host whose document cannot be read"):
            plan(cluster, ledger, variables)
    finally:
        cluster.call("kv/deleterange", {"key": key}, token=cluster.root_token())
