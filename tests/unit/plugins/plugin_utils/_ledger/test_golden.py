# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ledgers that version 0.1.0 wrote: nothing is wrong with them, they are read and written back byte for byte, and go on from where they were."""

from __future__ import annotations

import base64
import json
import typing as t
from dataclasses import asdict
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidState
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import advance, copied
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.document_ledger import DocumentLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.encoding import canonical, decode, encode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.identity import CLUSTER
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.folder import Folder
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.journal import Journal
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.layout import check_document
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.verifying import problems_of
from ansible_collections.kvmfleet.migration.tests.golden.answers import lines, opened
from ansible_collections.kvmfleet.migration.tests.golden.digests import digests
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import EtcdStore

CORPUS = Path(__file__).resolve().parents[4] / "golden" / "0.1.0"
KEPT = CORPUS / "ledgers"
FOLDERS = ("file", "courses", "unknown-keys", "moved-to-etcd")
BY = "root@control pid 2"

DOCUMENTS = sorted(path for folder in FOLDERS for path in (KEPT / folder).rglob("*.json"))
ETCD = {line["key"]: line["value"].encode() if "value" in line else base64.b64decode(line["base64"]) for line in lines(KEPT / "etcd.jsonl")}


@pytest.fixture
def in_etcd(etcd: EtcdStore) -> EtcdStore:
    """The ledger in a real etcd, which is told that the ledger belongs to it, as after a restore."""
    for key, value in ETCD.items():
        etcd.write(key, str(etcd.client.cluster_id).encode() if key == CLUSTER else value)
    return etcd


def problems(ledger: DocumentLedger) -> list[str]:
    return ledger.examine(lambda contents: problems_of(contents).all)


def settled(ledger: DocumentLedger, record_id: str, status: str) -> dict[str, t.Any]:
    """Give a record its end, as a person or a run does."""
    stored = ledger.get(record_id)
    record = copied(stored.record)
    advance(record, status, BY)
    return ledger.update(stored, record).record


# Bytes


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(KEPT)))
def test_a_document_is_written_back_byte_for_byte(path: Path) -> None:
    document = decode(path.read_bytes())
    assert encode(document.body, document.version) == path.read_bytes()


@pytest.mark.parametrize("key", [key for key in ETCD if key.endswith(".json") or key.startswith("audit.heads/")])
def test_a_document_in_etcd_is_written_back_byte_for_byte(key: str) -> None:
    document = decode(ETCD[key])
    assert encode(document.body, document.version) == ETCD[key]


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_document_is_one_of_its_place(folder: str) -> None:
    paths = [path.relative_to(KEPT / folder) for path in DOCUMENTS if path.is_relative_to(KEPT / folder)]
    places = [path.parts for path in paths if len(path.parts) > 1 and path.parts[0] != "archive"]
    assert places
    for place in places:
        check_document(place, decode((KEPT / folder).joinpath(*place).read_bytes()).body)


@pytest.mark.parametrize("line", [line for path in sorted(KEPT.rglob("audit.jsonl")) for line in path.read_text(encoding="utf-8").splitlines()])
def test_an_audit_line_is_written_back_byte_for_byte(line: str) -> None:
    assert canonical(json.loads(line)) == line


def test_a_journal_is_written_back_byte_for_byte() -> None:
    text = (KEPT / "file" / "journal").read_text(encoding="ascii")
    with Folder.at(str(KEPT / "file")) as root:
        unit = Journal(root).last()
    assert unit is not None
    assert canonical(asdict(unit)) == text.split("\n", 2)[2]


# What is in them


def test_records_of_every_kind_are_in_the_corpus() -> None:
    records = [decode(path.read_bytes()).body for path in DOCUMENTS if "migrations" in path.parts]
    ends = {(record["type"], record["status"], record["reason"]) for record in records}
    assert ends >= {
        (s.LIVE_MIGRATION, s.COMPLETED, None),
        (s.LIVE_MIGRATION, s.CONFLICT, None),
        (s.LIVE_MIGRATION, s.FAILED, None),
        *((s.LIVE_MIGRATION, s.CANCELLED, reason) for reason in s.CANCEL_REASONS),
        (s.LIVE_MIGRATION, s.ERROR, "memory_lost"),
        (s.LIVE_MIGRATION, s.RUNNING, None),
        (s.EVACUATION, s.COMPLETED, None),
        (s.EVACUATION, s.COMPLETED, "source_discarded"),
        (s.EVACUATION, s.CONFLICT, None),
        (s.EVACUATION, s.DONE, None),
    }
    assert {record["forced"] for record in records} == {None, "FORCED_MIGRATE", "FORCED_REBUILD"}
    assert any(record["superseded_by"] for record in records)


def test_hosts_in_every_state_are_in_the_corpus() -> None:
    hosts = [decode(path.read_bytes()).body for path in DOCUMENTS if path.parent.name == "hosts"]
    assert {host["state"] for host in hosts} == {"enabled", "maintenance", "fenced"}
    assert any(host.get("discarded") for host in hosts)


# Verified, and gone on with


def test_a_unit_that_a_killed_process_left_is_replayed_to_its_end(tmp_path: Path) -> None:
    assert (KEPT / "file" / "journal").read_bytes().startswith(b"pending\n")
    ledger = opened(KEPT / "file", tmp_path)
    assert problems(ledger) == []
    assert digests(tmp_path / "ledger") == json.loads((KEPT / "file-replayed.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("folder", ["file", "courses", "unknown-keys"])
def test_the_ledger_of_a_folder_goes_on(tmp_path: Path, folder: str) -> None:
    ledger = opened(KEPT / folder, tmp_path)
    ends = {s.ERROR: s.FAILED, s.DONE: s.COMPLETED}
    for record in [record for record in ledger.records() if record["status"] not in s.CLOSED]:
        end = s.FAILED if record["type"] == s.EVACUATION and record["status"] == s.PRE_MIGRATING else ends.get(record["status"], s.FAILED)
        assert settled(ledger, record["id"], end)["status"] == end
    assert problems(ledger) == []
    assert all(record["status"] in s.CLOSED for record in ledger.records())


def test_the_ledger_in_etcd_verifies_and_goes_on(in_etcd: EtcdStore) -> None:
    ledger = in_etcd.open(create=False)
    assert problems(ledger) == []
    [running] = ledger.records(statuses=[s.RUNNING])
    assert ledger.unsettled_of(running["domain"]["uuid"])
    settled(ledger, running["id"], s.CANCELLED)
    assert ledger.unsettled_of(running["domain"]["uuid"]) is None
    assert problems(in_etcd.open(create=False)) == []


def test_reading_the_ledger_in_etcd_changes_no_key(in_etcd: EtcdStore) -> None:
    ledger = in_etcd.open(create=False)
    assert (list(ledger.records()), ledger.hosts(), ledger.domains(), ledger.problems) != ([], [], [], [])
    assert ledger.problems == []
    assert {name: in_etcd.read(name) for name in in_etcd.names() if name != CLUSTER} == {key: value for key, value in ETCD.items() if key != CLUSTER}


def test_a_ledger_that_has_moved_is_read_and_not_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidState, match="etcd://"):
        opened(KEPT / "moved-to-etcd", tmp_path / "written")
    ledger = opened(KEPT / "moved-to-etcd", tmp_path, moved=True)
    assert problems(ledger) == []
    assert len(list(ledger.records())) == 1


# Keys of a later version


def test_what_a_later_version_has_added_survives_a_change_of_each_document(tmp_path: Path) -> None:
    ledger = opened(KEPT / "unknown-keys", tmp_path)
    before = {record["id"]: record for record in ledger.records()}
    for record in before.values():
        if record["status"] not in s.CLOSED:
            settled(ledger, record["id"], s.COMPLETED)
    for document in ledger.hosts():
        ledger.put_host({**document.body, "state": "maintenance"}, document.version)
        after = ledger.host(document.body["host_key"])
        assert after is not None
        assert after.body == {**document.body, "state": "maintenance"}
    for record in ledger.records():
        old = before[record["id"]]
        changed = {"status": record["status"], "updated_at": record["updated_at"], "history": record["history"]}
        assert {**old, **changed} == record
        assert record["history"][: len(old["history"])] == old["history"]
    assert all("of_a_later_version" in document.body and "of_a_later_version" in document.body["protected"] for document in ledger.domains())
    assert problems(ledger) == []
