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
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One member that wants certificates, and users for its keys."""
    cluster = Cluster(tmp_path_factory.mktemp("guarded") / "cluster")
    try:
        cluster.up(members=1, tls=True, prefix="/fleet")
        yield cluster
    finally:
        cluster.down()


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_ledger_works_with_a_client_certificate_and_a_password(guarded: Cluster, new_move: NewMove, advance_record: AdvanceRecord) -> None:
    ledger = open_cluster_ledger(guarded)
    with ledger.hold_lock("host-a"):
        stored = advance_record(ledger, ledger.open_record(new_move()), s.SCHEDULED, s.CANCELLED)
    assert open_cluster_ledger(guarded).read_record(stored.record.record_id) == stored
    assert ledger.verify_audit() == []


@pytest.mark.parametrize(
    ("changes", "error", "named"),
    [
        ({"password": "wrong"}, Forbidden, "rejects the user 'fleet'"),
        ({"user": "nobody"}, Forbidden, "rejects the user 'nobody'"),
        ({"user": None, "password": None}, Forbidden, "requires authentication.*kvmfleet_etcd"),
    ],
)
def test_a_wrong_user_is_forbidden(guarded: Cluster, changes: dict[str, t.Any], error: type[KvmfleetError], named: str) -> None:
    found = refusal(guarded, **changes)
    assert isinstance(found, error)
    assert re.search(named, str(found))


def test_a_prefix_without_permission_is_forbidden_and_the_grant_named(guarded: Cluster) -> None:
    found = refusal(guarded, prefix="/other")
    assert isinstance(found, Forbidden)
    assert "The etcd user 'fleet' may not use the ledger" in str(found)
    assert "etcdctl role grant-permission --prefix=true ROLE readwrite /other/" in str(found)


def test_invalid_certificates_are_refused_with_the_reason(guarded: Cluster, brief: None) -> None:
    ours = Authority(guarded.folder / "tls")
    others = Authority.made(guarded.folder / "others")
    ours.issue("old", days=-1)
    others.issue("client")
    for changes, named in (
        ({"ca_file": others.certificate("ca")}, "its certificate is not accepted: .*certificate"),
        ({"cert_file": None, "key_file": None}, "client certificate"),
        ({"cert_file": ours.certificate("old"), "key_file": ours.key("old")}, "client certificate"),
        ({"cert_file": others.certificate("client"), "key_file": others.key("client")}, "client certificate"),
    ):
        found = refusal(guarded, **changes)
        assert isinstance(found, Unreachable)
        assert re.search(named, str(found)), str(found)


def test_a_client_certificate_with_a_common_name_is_refused_for_a_user(guarded: Cluster) -> None:
    ours = Authority(guarded.folder / "tls")
    ours.issue("named", subject="/CN=fleet")
    assert "no client certificate with a CommonName" in str(refusal(guarded, cert_file=ours.certificate("named"), key_file=ours.key("named")))


@pytest.mark.parametrize("error", [ssl.SSLEOFError(), ssl.SSLZeroReturnError(), ConnectionResetError(), BrokenPipeError()])
def test_an_ended_connection_has_one_message_with_and_without_tls(error: OSError) -> None:
    assert str(connection._unanswered_error(error, 5, "it hung up")) == "it hung up"


def test_a_mismatch_of_tls_between_client_and_member_is_named(guarded: Cluster, member: Cluster, brief: None) -> None:
    with pytest.raises(KvmfleetError, match=r"check whether it supports TLS|does not speak TLS"):
        open_ledger(member.location("/tests/tls"), {"tls": True})
    with pytest.raises(KvmfleetError, match="it requires TLS"):
        open_ledger(guarded.location("/fleet"))


def test_a_member_whose_certificate_has_expired_is_named(guarded: Cluster, brief: None) -> None:
    ours = Authority(guarded.folder / "tls")
    ours.issue("member", days=-1)
    guarded.signal(1, "kill")
    guarded.start(1)
    try:
        found = refusal(guarded)
        assert "its certificate is not accepted: certificate has expired" in str(found)
    finally:
        ours.issue("member")
        guarded.signal(1, "kill")
        guarded.start(1)
        guarded.wait(guarded.members)


def test_an_expired_auth_token_is_replaced(guarded: Cluster, new_move: NewMove, advance_record: AdvanceRecord) -> None:
    ledger = open_cluster_ledger(guarded)
    stored = ledger.open_record(new_move())
    # A member that begins anew knows no token any more.
    guarded.signal(1, "kill")
    guarded.start(1)
    assert advance_record(ledger, stored, s.SCHEDULED).version == 2


def test_a_change_of_users_does_not_disturb_open_sessions(guarded: Cluster, new_move: NewMove, advance_record: AdvanceRecord) -> None:
    ledger = open_cluster_ledger(guarded)
    stored = ledger.open_record(new_move())
    guarded.call("auth/user/add", {"name": "another", "password": "x"}, token=guarded.root_token())
    assert advance_record(ledger, stored, s.SCHEDULED).version == 2


def test_a_read_only_user_can_read_and_not_write(guarded: Cluster, new_move: NewMove) -> None:
    stored = open_cluster_ledger(guarded).open_record(new_move())
    token = guarded.root_token()
    keys = {"key": "L2ZsZWV0Lw==", "range_end": "L2ZsZWV0MA=="}
    guarded.call("auth/role/add", {"name": "reader"}, token=token)
    guarded.call("auth/role/grant", {"name": "reader", "perm": {"permType": "READ", **keys}}, token=token)
    guarded.call("auth/user/add", {"name": "reader", "password": "y"}, token=token)
    guarded.call("auth/user/grant", {"user": "reader", "role": "reader"}, token=token)
    ledger = open_cluster_ledger(guarded, user="reader", password="y")
    assert ledger.read_record(stored.record.record_id) == stored
    with pytest.raises(Forbidden, match="'reader' may not use"):
        ledger.open_record(new_move())
