# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Authentication: TLS with certificates of both sides, users with passwords, and the errors."""

from __future__ import annotations

import re
import ssl
import typing as t
from collections.abc import Callable, Iterator

import pytest
from kvmlab.certificates import Authority
from kvmlab.etcd import Cluster

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden, KvmfleetError, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd import client, connection
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger

AdvanceRecord = Callable[..., Stored]
NewMove = Callable[..., MoveRecord]


@pytest.fixture(scope="module")
def secured_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One member that wants certificates, and users for its keys."""
    cluster = Cluster(tmp_path_factory.mktemp("guarded") / "cluster")
    try:
        cluster.up(members=1, tls=True, prefix="/fleet")
        yield cluster
    finally:
        cluster.down()


@pytest.fixture
def short_first_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_SECONDS", 1.0)


def open_cluster_ledger(cluster: Cluster, prefix: str = "/fleet", **changes: t.Any) -> Ledger:
    options = {key: value for key, value in {**cluster.options, **changes}.items() if value is not None}
    return open_ledger(cluster.location(prefix), options)


def refusal(cluster: Cluster, prefix: str = "/fleet", **changes: t.Any) -> KvmfleetError:
    """Return why the ledger is not opened; nothing in it is secret."""
    with pytest.raises(KvmfleetError) as refused:
        open_cluster_ledger(cluster, prefix, **changes)
    assert cluster.settings["password"] not in str(refused.value)
    return refused.value


def test_a_ledger_works_with_a_client_certificate_and_a_password(secured_cluster: Cluster, new_move: NewMove, advance_record: AdvanceRecord) -> None:
    ledger = open_cluster_ledger(secured_cluster)
    with ledger.hold_lock("host-a"):
        stored = advance_record(ledger, ledger.open_record(new_move()), s.SCHEDULED, s.CANCELLED)
    assert open_cluster_ledger(secured_cluster).read_record(stored.record.record_id) == stored
    assert ledger.verify_audit() == []


@pytest.mark.parametrize(
    ("changes", "error", "named"),
    [
        ({"password": "wrong"}, Forbidden, "rejects the user 'fleet'"),
        ({"user": "nobody"}, Forbidden, "rejects the user 'nobody'"),
        ({"user": None, "password": None}, Forbidden, "requires authentication.*kvmfleet_etcd"),
    ],
)
def test_a_wrong_user_is_forbidden(secured_cluster: Cluster, changes: dict[str, t.Any], error: type[KvmfleetError], named: str) -> None:
    found = refusal(secured_cluster, **changes)
    assert isinstance(found, error)
    assert re.search(named, str(found))


def test_a_prefix_without_permission_is_forbidden_and_the_grant_named(secured_cluster: Cluster) -> None:
    found = refusal(secured_cluster, prefix="/other")
    assert isinstance(found, Forbidden)
    assert "The etcd user 'fleet' may not use the ledger" in str(found)
    assert "etcdctl role grant-permission --prefix=true ROLE readwrite /other/" in str(found)


def test_invalid_certificates_are_refused_with_the_reason(secured_cluster: Cluster, short_first_wait: None) -> None:
    ours = Authority(secured_cluster.folder / "tls")
    others = Authority.made(secured_cluster.folder / "others")
    ours.issue("old", days=-1)
    others.issue("client")
    for changes, named in (
        ({"ca_file": others.certificate("ca")}, "its certificate is not accepted: .*certificate"),
        ({"cert_file": None, "key_file": None}, "client certificate"),
        ({"cert_file": ours.certificate("old"), "key_file": ours.key("old")}, "client certificate"),
        ({"cert_file": others.certificate("client"), "key_file": others.key("client")}, "client certificate"),
    ):
        found = refusal(secured_cluster, **changes)
        assert isinstance(found, Unreachable)
        assert re.search(named, str(found)), str(found)


def test_a_client_certificate_with_a_common_name_is_refused_for_a_user(secured_cluster: Cluster) -> None:
    ours = Authority(secured_cluster.folder / "tls")
    ours.issue("named", subject="/CN=fleet")
    assert "no client certificate with a CommonName" in str(refusal(secured_cluster, cert_file=ours.certificate("named"), key_file=ours.key("named")))


@pytest.mark.parametrize("error", [ssl.SSLEOFError(), ssl.SSLZeroReturnError(), ConnectionResetError(), BrokenPipeError()])
def test_an_ended_connection_has_one_message_with_and_without_tls(error: OSError) -> None:
    assert str(connection._unanswered_error(error, 5, "it hung up")) == "it hung up"


def test_a_mismatch_of_tls_between_client_and_member_is_named(secured_cluster: Cluster, member: Cluster, short_first_wait: None) -> None:
    with pytest.raises(KvmfleetError, match=r"check whether it supports TLS|does not speak TLS"):
        open_ledger(member.location("/tests/tls"), {"tls": True})
    with pytest.raises(KvmfleetError, match="it requires TLS"):
        open_ledger(secured_cluster.location("/fleet"))


def test_a_member_whose_certificate_has_expired_is_named(secured_cluster: Cluster, short_first_wait: None) -> None:
    ours = Authority(secured_cluster.folder / "tls")
    ours.issue("member", days=-1)
    secured_cluster.signal(1, "kill")
    secured_cluster.start(1)
    try:
        found = refusal(secured_cluster)
        assert "its certificate is not accepted: certificate has expired" in str(found)
    finally:
        ours.issue("member")
        secured_cluster.signal(1, "kill")
        secured_cluster.start(1)
        secured_cluster.wait(secured_cluster.members)


def test_an_expired_auth_token_is_replaced(secured_cluster: Cluster, new_move: NewMove, advance_record: AdvanceRecord) -> None:
    ledger = open_cluster_ledger(secured_cluster)
    stored = ledger.open_record(new_move())
    # A member that begins anew knows no token any more.
    secured_cluster.signal(1, "kill")
    secured_cluster.start(1)
    secured_cluster.wait(secured_cluster.members)
    assert advance_record(ledger, stored, s.SCHEDULED).version == 2


def test_a_change_of_users_does_not_disturb_open_sessions(secured_cluster: Cluster, new_move: NewMove, advance_record: AdvanceRecord) -> None:
    ledger = open_cluster_ledger(secured_cluster)
    stored = ledger.open_record(new_move())
    secured_cluster.call("auth/user/add", {"name": "another", "password": "x"}, token=secured_cluster.root_token())
    assert advance_record(ledger, stored, s.SCHEDULED).version == 2


def test_a_read_only_user_can_read_and_not_write(secured_cluster: Cluster, new_move: NewMove) -> None:
    stored = open_cluster_ledger(secured_cluster).open_record(new_move())
    token = secured_cluster.root_token()
    keys = {"key": "L2ZsZWV0Lw==", "range_end": "L2ZsZWV0MA=="}
    secured_cluster.call("auth/role/add", {"name": "reader"}, token=token)
    secured_cluster.call("auth/role/grant", {"name": "reader", "perm": {"permType": "READ", **keys}}, token=token)
    secured_cluster.call("auth/user/add", {"name": "reader", "password": "y"}, token=token)
    secured_cluster.call("auth/user/grant", {"user": "reader", "role": "reader"}, token=token)
    ledger = open_cluster_ledger(secured_cluster, user="reader", password="y")
    assert ledger.read_record(stored.record.record_id) == stored
    with pytest.raises(Forbidden, match="'reader' may not use"):
        ledger.open_record(new_move())
