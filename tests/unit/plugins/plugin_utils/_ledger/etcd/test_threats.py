# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A ledger that works today says what will end that: a lost member that nobody has noticed, and certificates that expire."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from kvmlab.certificates import Authority
from kvmlab.etcd import Cluster

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd import client
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.connection import EtcdOptions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.threats import find_file_threats
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._settings import certificates
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.etcd.proxy import Proxy
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import EtcdStore


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three members with certificates and users."""
    three = Cluster(tmp_path / "cluster")
    try:
        three.up(tls=True, prefix="/fleet")
        yield three
    finally:
        three.down()


def open_own_ledger(cluster: Cluster) -> Ledger:
    return open_ledger(cluster.location(), cluster.options)


def move_clock(monkeypatch: pytest.MonkeyPatch, by: timedelta) -> None:
    later = certificates._now() + by
    monkeypatch.setattr(certificates, "_now", lambda: later)


def test_members_that_do_not_serve_are_named(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "REQUEST_SECONDS", 1.0)
    ledger = open_own_ledger(cluster)
    assert ledger.find_threats() == []
    first, second, third = cluster.endpoints
    cluster.signal(2, "kill")
    threat = f"The member {second} of the etcd ledger {ledger.name} does not serve: "
    consequence = "Without most of its members, nothing can be moved or evacuated."
    assert ledger.find_threats() == [f"{threat}Connection refused. {consequence}"]
    cluster.start(2)
    cluster.wait([2])
    cluster.signal(2, "freeze")
    assert ledger.find_threats() == [f"{threat}no answer within 1 s. {consequence}"]
    # The last one of three still answers for itself.
    cluster.signal(3, "kill")
    deadline = time.monotonic() + 30
    while len(found := ledger.find_threats()) < 3:
        assert time.monotonic() < deadline
    assert f"The member {first} of the etcd ledger {ledger.name} does not serve: it is cut off from the other members, or most of them are down." in found[0]
    assert third in found[2]


def test_a_proxy_that_passes_on_the_calls_of_a_ledger_only_is_no_threat(store: EtcdStore, ledger: Ledger, proxy: Proxy) -> None:
    proxy.refuses = lambda call, _request: {"error": "forbidden"} if call.startswith("maintenance/") else None
    location = f"etcd://{proxy.endpoint}{store.address.prefix}"
    assert open_ledger(location).find_threats() == []
    behind = open_ledger(location)
    proxy.refuses = lambda _call, _request: {"error": "forbidden"}
    (threat,) = behind.find_threats()
    assert "does not serve: the service there is not etcd 3.4 or later (HTTP status 400)." in threat


def test_certificates_that_expire_soon_are_named(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the lab are valid for two days."""
    ledger = open_own_ledger(cluster)
    move_clock(monkeypatch, timedelta(hours=45))
    *members, authority, own = ledger.find_threats()
    for endpoint, text in zip(cluster.endpoints, members, strict=True):
        assert text.startswith(f"The certificate of the member {endpoint} of etcd expires at ")
        assert text.endswith("Without most of its members, nothing can be moved or evacuated. Renew it.")
    assert authority.startswith(f"The ca_file {cluster.options['ca_file']} of kvmfleet_etcd expires at ")
    assert own.startswith(f"The cert_file {cluster.options['cert_file']} of kvmfleet_etcd expires at ")
    move_clock(monkeypatch, timedelta(hours=4))
    assert all(" expired at " in text for text in ledger.find_threats())


def test_of_two_authorities_the_later_one_counts_and_of_a_chain_the_first_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = (Authority.made(tmp_path / name) for name in ("old", "new"))
    old.issue("short", days=1)
    both = tmp_path / "both.pem"
    for name, first, second in (("ca_file", old.certificate("short"), new.certificate("ca")), ("cert_file", new.certificate("ca"), old.certificate("short"))):
        both.write_text(Path(first).read_text() + Path(second).read_text())
        with monkeypatch.context() as patch:
            move_clock(patch, timedelta(hours=23))
            assert list(find_file_threats(EtcdOptions(tls=True, **{name: str(both)}))) == []  # type: ignore[arg-type]
            move_clock(patch, timedelta(hours=21))
            assert len(list(find_file_threats(EtcdOptions(tls=True, **{name: str(both)})))) == 1  # type: ignore[arg-type]
    assert list(find_file_threats(EtcdOptions(tls=True, ca_file=str(tmp_path / "missing.pem")))) == []
