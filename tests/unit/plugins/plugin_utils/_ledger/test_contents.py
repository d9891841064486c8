# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Verifying names all that is wrong, by file or key, and changes nothing."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Callable

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger import contents
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.contents import find_problems
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.conftest import KVM1
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import EtcdStore, Store

AdvanceRecord = Callable[..., Stored]
NewMove = Callable[..., MoveRecord]
FOLDERS = ("migrations/open", "migrations/closed", "domains", "hosts")


@pytest.fixture
def ledger(store: Store, new_move: NewMove, advance_record: AdvanceRecord) -> Ledger:
    """A move that is under way, a closed one, a tombstone, and a host."""
    ledger = store.open()
    advance_record(ledger, ledger.open_record(new_move("web1")), s.SCHEDULED)
    advance_record(ledger, ledger.open_record(new_move("web2")), s.CANCELLED)
    advance_record(ledger, ledger.open_record(new_move("db", record_type=s.EVACUATION)), s.PRE_MIGRATING, s.DONE)
    ledger.put_host(host_entry({"name": KVM1.host, "host_id": KVM1.host_id, "host_uuid": KVM1.host_uuid, "state": "enabled"}), None)
    return ledger


def problems(ledger: Ledger) -> list[str]:
    return ledger.examine_contents(find_problems).all_problems


def test_an_undamaged_ledger_has_no_problems(ledger: Ledger) -> None:
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
def test_an_unreadable_document_is_reported_and_kept(store: Store, ledger: Ledger, folder: str, spoil: Callable[[bytes], bytes], named: str) -> None:
    name = store.names(folder)[0]
    spoilt = spoil(t.cast(bytes, store.read(name)))
    store.write(name, spoilt)
    found = problems(ledger)
    assert any(name in problem and named in problem for problem in found), found
    assert store.read(name) == spoilt
    assert store.names("set_aside") == []


def test_a_document_whose_name_is_not_an_id_is_reported(store: Store, ledger: Ledger) -> None:
    store.write("hosts/copy of it.json", b"{}")
    (found,) = problems(ledger)
    assert "hosts/copy of it.json" in found
    assert found.endswith("Remove it.")


def test_a_changed_audit_line_is_reported_with_its_location(store: Store, ledger: Ledger, new_move: NewMove) -> None:
    name = next(name for name in store.names() if name == "audit.jsonl" or name.startswith("audit/"))
    store.write(name, t.cast(bytes, store.read(name)).replace(b'"generation":1', b'"generation":9', 1))
    (found,) = problems(ledger)
    assert "Line 1 was changed" in found
    assert ("audit.jsonl" in found) != ("Audit chain" in found)


def test_documents_are_counted_by_kind_and_status(store: Store, ledger: Ledger) -> None:
    found = ledger.examine_contents(contents.count_documents)
    assert encode(found) == {"unsettled": 1, "done": 1, "closed": 1, "hosts": 1, "domains": 3, "set_aside": 0, "open_by_status": {"done": 1, "scheduled": 1}}
    store.write(store.names("migrations/open")[0], b"torn")
    assert sum(ledger.examine_contents(contents.count_documents).open_by_status.values()) == 2
    assert list(ledger.list_records(unsettled_only=True)) is not None
    assert ledger.examine_contents(contents.count_documents).set_aside == 1


@pytest.mark.parametrize(("folder", "named"), [("months", "do not find the closed record"), ("holders", "second record of its domain")])
def test_the_index_keys_of_etcd_are_verified(etcd: EtcdStore, new_move: NewMove, advance_record: AdvanceRecord, folder: str, named: str) -> None:
    ledger = etcd.open()
    advance_record(ledger, ledger.open_record(new_move("web1")), s.SCHEDULED)
    advance_record(ledger, ledger.open_record(new_move("web2")), s.CANCELLED)
    (name,) = etcd.names(folder)
    before = t.cast(bytes, etcd.read(name))
    etcd.write(name, b"x")
    (found,) = problems(ledger)
    assert named in found
    assert found.endswith(f"'etcdctl put {etcd.address.prefix}{name} {before.decode()}'.")
