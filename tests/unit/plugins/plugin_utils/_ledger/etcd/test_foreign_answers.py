# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Something that answers on etcd's port, and with anything at all: it is an error of ours, and it ends."""

from __future__ import annotations

import contextlib
import json
import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import KvmfleetError, Unreachable
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd import client
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.address import parse
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.connection import Connection
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.messages import coded
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.options import Options
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.store import EtcdLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Ledger

KEYS = ("/fleet/ledger.json", "/fleet/cluster", "/fleet/hosts/x.json", "/fleet/audit.heads/01", "/elsewhere", "")
WORDS = st.sampled_from(["header", "revision", "cluster_id", "succeeded", "responses", "response_range", "kvs", "key", "value", "more", "ID", "code", "error"])
VALUES = st.one_of(st.none(), st.booleans(), st.integers(-5, 10**20), st.text(max_size=8), st.sampled_from([coded(key) for key in KEYS]))
ANSWERS = st.recursive(VALUES, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(WORDS, inner, max_size=5)), max_leaves=25)
HEADER = {"cluster_id": "1", "revision": "7"}
KEY_VALUE = st.fixed_dictionaries({"key": st.sampled_from([coded(key) for key in KEYS]), "value": st.sampled_from([coded("1"), coded("{}"), "*", ""])})
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
    yield lambda: list(ledger.records())
    yield ledger.hosts
    yield ledger.verify_audit
    yield lambda: ledger.put_host({"host_id": None, "host_uuid": "33333333-0000-4000-8000-0000000000a3", "name": "kvm3", "state": "enabled"}, None)
    yield lambda: ledger.locked("host-a", 0).__enter__()


@given(st.lists(st.tuples(st.sampled_from([200, 200, 200, 400, 500]), st.one_of(NEARLY, ANSWERS)), min_size=1, max_size=6))
@settings(max_examples=300)
def test_any_answer_is_an_error_of_ours_or_none(answers: list[tuple[int, t.Any]]) -> None:
    asked = 0

    def post(self: Connection, path: str, data: bytes, token: t.Optional[str]) -> tuple[int, bytes]:
        nonlocal asked
        asked += 1
        assert asked < 1000
        status, answer = answers[asked % len(answers)]
        return status, json.dumps(answer).encode()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "post", post)
        patch.setattr(client, "FIRST_SECONDS", 0.0001)
        patch.setattr(client, "PATIENCE_SECONDS", 0.0001)
        patch.setattr("ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.store.CHANGE_SECONDS", 0.0)
        with contextlib.suppress(KvmfleetError):
            ledger = EtcdLedger(parse("etcd://127.0.0.1:1/fleet"), Options())
            for use in uses(ledger):
                with contextlib.suppress(KvmfleetError):
                    use()


@pytest.mark.parametrize("body", [b"", b"[]", b"5", b"{", b"[" * 100000, b'{"header": 5}', b'{"header": {"cluster_id": "1"}, "kvs": [5]}', b"\xff"])
def test_what_is_no_answer_is_said(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "post", lambda self, path, data, token: (200, body))
    with pytest.raises(Unreachable, match=r"none of etcd's|no etcd of version"):
        EtcdLedger(parse("etcd://127.0.0.1:1/fleet"), Options())
