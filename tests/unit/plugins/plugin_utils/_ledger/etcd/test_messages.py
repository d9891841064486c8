# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Another service on the port of etcd, with arbitrary answers: each becomes an error of the collection, in limited time."""

from __future__ import annotations

import contextlib
import json
import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError, Unreachable
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd import client
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.connection import Connection, EtcdOptions, parse_address
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.messages import encode_bytes
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.store import EtcdLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry

KEYS = ("/fleet/ledger.json", "/fleet/cluster", "/fleet/hosts/x.json", "/fleet/audit.heads/01", "/elsewhere", "")
WORDS = st.sampled_from(["header", "revision", "cluster_id", "succeeded", "responses", "response_range", "kvs", "key", "value", "more", "ID", "code", "error"])
VALUES = st.one_of(st.none(), st.booleans(), st.integers(-5, 10**20), st.text(max_size=8), st.sampled_from([encode_bytes(key) for key in KEYS]))
ANSWERS = st.recursive(VALUES, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(WORDS, inner, max_size=5)), max_leaves=25)
HEADER = {"cluster_id": "1", "revision": "7"}
KEY_VALUE = st.fixed_dictionaries(
    {"key": st.sampled_from([encode_bytes(key) for key in KEYS]), "value": st.sampled_from([encode_bytes("1"), encode_bytes("{}"), "*", ""])}
)
READ = st.fixed_dictionaries({"response_range": st.fixed_dictionaries({"kvs": st.lists(KEY_VALUE, max_size=2)})})
NEARLY = st.fixed_dictionaries(
    {
        "header": st.just(HEADER),
        "succeeded": st.booleans(),
        "responses": st.lists(READ, max_size=4),
        "kvs": st.lists(KEY_VALUE, max_size=3),
        "more": st.booleans(),
    }
)


def uses(ledger: Ledger) -> t.Iterator[t.Callable[[], object]]:
    yield lambda: list(ledger.list_records())
    yield ledger.list_hosts
    yield ledger.verify_audit
    yield lambda: ledger.put_host(host_entry({"host_id": None, "host_uuid": "33333333-0000-4000-8000-0000000000a3", "name": "kvm3", "state": "enabled"}), None)
    yield lambda: ledger.hold_lock("host-a", 0).__enter__()


@given(st.lists(st.tuples(st.sampled_from([200, 200, 200, 400, 500]), st.one_of(NEARLY, ANSWERS)), min_size=1, max_size=6))
@settings(max_examples=300)
def test_any_answer_is_handled_or_an_error_of_the_collection(answers: list[tuple[int, t.Any]]) -> None:
    asked = 0

    def post(self: Connection, path: str, data: bytes, token: t.Optional[str]) -> tuple[int, bytes]:
        nonlocal asked
        asked += 1
        assert asked < 1000
        status, answer = answers[asked % len(answers)]
        return status, json.dumps(answer).encode()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "post_request", post)
        patch.setattr(client, "FIRST_SECONDS", 0.0001)
        patch.setattr(client, "PATIENCE_SECONDS", 0.0001)
        patch.setattr("ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.store.CHANGE_SECONDS", 0.0)
        with contextlib.suppress(KvmfleetError):
            ledger = EtcdLedger(parse_address("etcd://127.0.0.1:1/fleet"), EtcdOptions())
            for use in uses(ledger):
                with contextlib.suppress(KvmfleetError):
                    use()


@pytest.mark.parametrize("body", [b"", b"[]", b"5", b"{", b"[" * 100000, b'{"header": 5}', b'{"header": {"cluster_id": "1"}, "kvs": [5]}', b"\xff"])
def test_an_answer_that_is_not_from_etcd_is_unreachable(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "post_request", lambda self, path, data, token: (200, body))
    with pytest.raises(Unreachable, match=r"not one of etcd|not etcd"):
        EtcdLedger(parse_address("etcd://127.0.0.1:1/fleet"), EtcdOptions())
