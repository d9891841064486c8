# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Leases of hosts below the prefix of a ledger: the ledger goes on as if they were not there. What was written after a lease can be told."""

from __future__ import annotations

import typing as t
import uuid
from pathlib import Path

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.contents import count_documents, find_problems
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.copying import copy_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.messages import key_read
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.copying import FileTarget
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.selection import make_selection
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


def test_records_written_after_a_revision_are_those_that_changed_or_were_closed_since(
    store: EtcdStore, new_move: t.Callable[..., MoveRecord], advance_record: t.Callable[..., Stored]
) -> None:
    """A lease names a revision of etcd: what is recorded after it may have happened after the last sign of life of the host."""

    def names(revision: int) -> set[str | None]:
        # As another process reads it.
        return {record.domain.name for record in store.open().list_records_written_after(revision)}

    ledger = store.open()
    advance_record(ledger, ledger.open_record(new_move("closed before")), s.CANCELLED)
    for name in ("waits", "untouched"):
        advance_record(ledger, ledger.open_record(new_move(name)), s.SCHEDULED)
    (waiting,) = ledger.list_record_documents(make_selection(domain="waits"))
    store.write(LEASE, b"{}")
    (written,) = store.client.read_range(key_read(store.address.prefix + LEASE)).found
    assert names(written.mod_revision) == set()
    advance_record(ledger, waiting.stored, s.QUEUED)
    done = advance_record(ledger, ledger.open_record(new_move("closed after")), s.SCHEDULED, s.QUEUED, s.RUNNING, s.COMPLETED)
    assert names(written.mod_revision) == {"waits", "closed after"}
    assert done.record in ledger.list_records_written_after(written.mod_revision)
    assert names(0) == {"closed before", "waits", "untouched", "closed after"}


def test_a_store_without_revisions_returns_all_records(tmp_path: Path, new_move: t.Callable[..., MoveRecord]) -> None:
    ledger = FileLedger(str(tmp_path / "ledger"))
    stored = ledger.open_record(new_move("web"))
    assert ledger.list_records_written_after(7) == [stored.record]
