# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Logging in takes as long as it takes: many tasks do it at once, and each costs a member work."""

from __future__ import annotations

import time

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd import client
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.connection import EtcdOptions, parse_address
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.messages import Message, Refused
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.store import EtcdLedger
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.etcd.proxy import Proxy
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import EtcdStore


def test_a_slow_login_is_awaited_and_not_repeated(store: EtcdStore, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "REQUEST_SECONDS", 1.0)
    waits = [3.0]

    def slow(call: str, _request: Message) -> None:
        if call == "auth/authenticate" and waits:
            time.sleep(waits.pop())

    proxy.before = slow
    where = parse_address(f"etcd://{proxy.endpoint}{store.address.prefix}")
    ledger = EtcdLedger(where, EtcdOptions(user="fleet", password="secret"))
    assert ledger.ledger_id
    assert [call for call, _request in proxy.asked][:2] == ["auth/authenticate", "kv/txn"]


@pytest.mark.parametrize(
    ("code", "text"),
    [(16, "etcdserver: invalid auth token"), (3, "etcdserver: revision of auth store is old"), (2, "auth: revision in header is old")],
)
def test_a_token_that_is_no_longer_valid_is_not_a_member_that_fails(code: int, text: str) -> None:
    error = client.classify_answer({"code": code, "message": text})
    assert isinstance(error, Refused)
    assert client.is_stale_token(error)
