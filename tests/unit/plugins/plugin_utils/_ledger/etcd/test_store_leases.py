# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Leases of hosts below the prefix of a ledger: the ledger goes on as if they were not there."""

from __future__ import annotations

import uuid
from pathlib import Path

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.contents import count_documents, find_problems
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.copying import copy_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.copying import FileTarget
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import EtcdStore

HOST = str(uuid.UUID(int=1))
LEASE = f"leases/{HOST}"


def test_leases_are_no_documents_and_no_problems(store: EtcdStore) -> None:
    ledger = store.open()
    ledger.put_host(host_entry({"name": "kvm1", "host_id": HOST, "since": "then"}), None)
    before = ledger.examine_contents(count_documents)
    for value in (b"{}", b"not JSON", b"\xff"):
        store.write(LEASE, value)
        other = store.open()
        assert other.examine_contents(count_documents) == before
        assert other.examine_contents(find_problems).all_problems == []
        assert other.verify_audit() == []
        assert [entry.host.name for entry in other.list_hosts()] == ["kvm1"]
        assert other.problems == []
    # Nor is one set aside.
    assert store.names("set_aside") == []
    assert store.read(LEASE) == b"\xff"


def test_a_ledger_that_is_moved_away_leaves_the_leases(store: EtcdStore, tmp_path: Path) -> None:
    ledger = store.open()
    ledger.put_host(host_entry({"name": "kvm1", "host_id": HOST, "since": "then"}), None)
    store.write(LEASE, b"{}")
    copy_ledger(ledger, FileTarget(str(tmp_path / "ledger")), "root@control pid 7")
    assert [entry.host.name for entry in FileLedger(str(tmp_path / "ledger"), create=False).list_hosts()] == ["kvm1"]
    assert not list((tmp_path / "ledger").rglob("*lease*"))
    assert store.read(LEASE) == b"{}"
