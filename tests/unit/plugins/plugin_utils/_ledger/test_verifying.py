# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Verifying names all that is wrong, by file or key, and changes nothing."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Callable

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger import summary
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.document_ledger import DocumentLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.verifying import problems_of
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.conftest import KVM1
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import EtcdStore, Store

Go = Callable[..., Stored]
NewMove = Callable[..., dict[str, t.Any]]
FOLDERS = ("migrations/open", "migrations/closed", "domains", "hosts")


@pytest.fixture
def ledger(store: Store, new_move: NewMove, go: Go) -> DocumentLedger:
    """A move that is under way, a closed one, a tombstone, and a host."""
    ledger = store.open()
    go(ledger, ledger.open_record(new_move("web1")), s.SCHEDULED)
    go(ledger, ledger.open_record(new_move("web2")), s.CANCELLED)
    go(ledger, ledger.open_record(new_move("db", record_type=s.EVACUATION)), s.PRE_MIGRATING, s.DONE)
    ledger.put_host({"name": KVM1["host"], "host_id": KVM1["host_id"], "host_uuid": KVM1["host_uuid"], "state": "enabled"}, None)
    return ledger


def problems(ledger: DocumentLedger) -> list[str]:
    return ledger.examine(problems_of).all


def test_what_is_whole_has_no_problems(ledger: DocumentLedger) -> None:
    assert problems(ledger) == []


def torn(data: bytes) -> bytes:
    return data[:-20]


def edited(data: bytes) -> bytes:
    return data.replace(b'"name":"', b'"name":"x', 1)


def newer(data: bytes) -> bytes:
    envelope = json.loads(data)
    return json.dumps({**envelope, "body": {**envelope["body"], "schema": 2}}).encode()


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize(("spoil", "named"), [(torn, "not JSON"), (edited, "edited by hand"), (newer, "Update the collection")])
def test_a_document_that_cannot_be_read_is_named_and_stays(
    store: Store, ledger: DocumentLedger, folder: str, spoil: Callable[[bytes], bytes], named: str
) -> None:
    name = store.names(folder)[0]
    spoilt = spoil(t.cast(bytes, store.read(name)))
    store.write(name, spoilt)
    found = problems(ledger)
    assert any(name in problem and named in problem for problem in found), found
    assert store.read(name) == spoilt
    assert store.names("set_aside") == []


def test_a_document_of_no_id_is_named(store: Store, ledger: DocumentLedger) -> None:
    store.write("hosts/copy of it.json", b"{}")
    (found,) = problems(ledger)
    assert "hosts/copy of it.json" in found
    assert found.endswith("Remove it.")


def test_a_changed_line_is_named(store: Store, ledger: DocumentLedger, new_move: NewMove) -> None:
    name = next(name for name in store.names() if name == "audit.jsonl" or name.startswith("audit/"))
    store.write(name, t.cast(bytes, store.read(name)).replace(b'"generation":1', b'"generation":9', 1))
    (found,) = problems(ledger)
    assert "Line 1 was changed" in found
    assert ("audit.jsonl" in found) != ("Audit chain" in found)


def test_how_much_there_is(store: Store, ledger: DocumentLedger) -> None:
    found = ledger.examine(summary.counts)
    assert found == {"unsettled": 1, "done": 1, "closed": 1, "hosts": 1, "domains": 3, "set_aside": 0, "open_by_status": {"done": 1, "scheduled": 1}}
    store.write(store.names("migrations/open")[0], b"torn")
    assert sum(ledger.examine(summary.counts)["open_by_status"].values()) == 2
    assert list(ledger.records(unsettled_only=True)) is not None
    assert ledger.examine(summary.counts)["set_aside"] == 1


@pytest.mark.parametrize(("folder", "named"), [("months", "not found by it"), ("holders", "second record of its domain")])
def test_what_etcd_finds_documents_by_is_verified_too(etcd: EtcdStore, new_move: NewMove, go: Go, folder: str, named: str) -> None:
    ledger = etcd.open()
    go(ledger, ledger.open_record(new_move("web1")), s.SCHEDULED)
    go(ledger, ledger.open_record(new_move("web2")), s.CANCELLED)
    (name,) = etcd.names(folder)
    before = t.cast(bytes, etcd.read(name))
    etcd.write(name, b"x")
    (found,) = problems(ledger)
    assert named in found
    assert found.endswith(f"'etcdctl put {etcd.address.prefix}{name} {before.decode()}'.")
