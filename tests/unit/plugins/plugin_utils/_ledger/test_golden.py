# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ledgers that earlier trees wrote: nothing is wrong with them, they are read and written back byte for byte, and go on from where they were."""

from __future__ import annotations

import base64
import dataclasses
import functools
import json
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidState
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.contents import find_problems
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.document_bytes import canonical_json, decode_document, encode_document
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Document
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.transaction import CLUSTER
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.folder import Folder
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.journal import Journal
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.rules import check_document
from ansible_collections.kvmfleet.migration.tests.golden.answers import lines, opened
from ansible_collections.kvmfleet.migration.tests.golden.corpus import CORPORA, GOLDEN
from ansible_collections.kvmfleet.migration.tests.golden.digests import digests
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import EtcdStore

NAMES = ("file", "courses", "unknown-keys", "moved-to-etcd")
BY = "root@control pid 2"


def name_of(path: Path) -> str:
    return str(path.relative_to(GOLDEN))


def folders(*names: str) -> list[Path]:
    """Return the ledgers in folders with these names, of all corpora."""
    return [corpus / "ledgers" / name for corpus in CORPORA for name in names]


@functools.lru_cache
def keys_in_etcd(corpus: Path) -> dict[str, bytes]:
    """Return the ledger in etcd: its keys with their values."""
    kept = lines(corpus / "ledgers/etcd.jsonl")
    return {line["key"]: line["value"].encode() if "value" in line else base64.b64decode(line["base64"]) for line in kept}


DOCUMENTS = sorted(path for folder in folders(*NAMES) for path in folder.rglob("*.json"))
JOURNALS = [folder / "journal" for folder in folders("file")]
IN_ETCD = [
    pytest.param(value, id=f"{corpus.name}-{key}")
    for corpus in CORPORA
    for key, value in keys_in_etcd(corpus).items()
    if key.endswith(".json") or key.startswith("audit.heads/")
]

every_corpus = pytest.mark.parametrize("corpus", CORPORA, ids=name_of)


@pytest.fixture
def in_etcd(etcd: EtcdStore, corpus: Path) -> EtcdStore:
    """The ledger in a real etcd, which is told that the ledger belongs to it, as after a restore."""
    for key, value in keys_in_etcd(corpus).items():
        etcd.write(key, str(etcd.client.cluster_id).encode() if key == CLUSTER else value)
    return etcd


def problems(ledger: Ledger) -> list[str]:
    return ledger.examine_contents(lambda contents: find_problems(contents).all_problems)


def settled(ledger: Ledger, record_id: str, status: str) -> MoveRecord:
    """Give a record its end, as a person or a run does."""
    stored = ledger.read_record(record_id)
    return ledger.update_record(stored, stored.record.advance(status, BY)).record


# Bytes


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_a_document_is_written_back_byte_for_byte(path: Path) -> None:
    document = decode_document(path.read_bytes())
    assert encode_document(document.body, document.version) == path.read_bytes()


@pytest.mark.parametrize("value", IN_ETCD)
def test_a_document_in_etcd_is_written_back_byte_for_byte(value: bytes) -> None:
    document = decode_document(value)
    assert encode_document(document.body, document.version) == value


@pytest.mark.parametrize("folder", folders(*NAMES), ids=name_of)
def test_each_document_is_valid_at_its_path(folder: Path) -> None:
    paths = [path.relative_to(folder) for path in DOCUMENTS if path.is_relative_to(folder)]
    places = [path.parts for path in paths if len(path.parts) > 1 and path.parts[0] != "archive"]
    assert places
    for place in places:
        check_document(place, decode_document(folder.joinpath(*place).read_bytes()))


@pytest.mark.parametrize("path", [path for corpus in CORPORA for path in sorted(corpus.rglob("audit.jsonl"))], ids=name_of)
def test_audit_lines_are_written_back_byte_for_byte(path: Path) -> None:
    for line in path.read_text(encoding="utf-8").splitlines():
        assert canonical_json(json.loads(line)) == line


@pytest.mark.parametrize("path", JOURNALS, ids=name_of)
def test_a_journal_is_written_back_byte_for_byte(tmp_path: Path, path: Path) -> None:
    with Folder.open_path(str(path.parent)) as root:
        unit = Journal(root).read_last()
    assert unit is not None
    with Folder.open_path(str(tmp_path)) as root:
        Journal(root).write_unit(unit)
    assert (tmp_path / "journal").read_bytes() == path.read_bytes()


# What is in them


def documents_of(corpus: Path, folder: str) -> list[Document]:
    """Return the documents in folders of this name."""
    return [decode_document(path.read_bytes()) for path in DOCUMENTS if path.is_relative_to(corpus) and folder in path.parts]


@every_corpus
def test_records_of_every_kind_are_in_the_corpus(corpus: Path) -> None:
    records = [document.record for document in documents_of(corpus, "migrations")]
    # Moves of those versions did not wait for other jobs.
    ends = {(record.type, record.status, record.reason) for record in records}
    assert ends >= {
        (s.LIVE_MIGRATION, s.COMPLETED, None),
        (s.LIVE_MIGRATION, s.CONFLICT, None),
        (s.LIVE_MIGRATION, s.FAILED, None),
        *((s.LIVE_MIGRATION, s.CANCELLED, reason) for reason in s.CANCEL_REASONS if reason != s.REASON_BUSY),
        (s.LIVE_MIGRATION, s.ERROR, "memory_lost"),
        (s.LIVE_MIGRATION, s.RUNNING, None),
        (s.EVACUATION, s.COMPLETED, None),
        (s.EVACUATION, s.COMPLETED, "source_discarded"),
        (s.EVACUATION, s.CONFLICT, None),
        (s.EVACUATION, s.DONE, None),
    }
    assert {record.forced for record in records} == {None, "FORCED_MIGRATE", "FORCED_REBUILD"}
    assert any(record.superseded_by for record in records)


@every_corpus
def test_hosts_in_every_state_are_in_the_corpus(corpus: Path) -> None:
    hosts = [document.body for document in documents_of(corpus, "hosts")]
    assert {host["state"] for host in hosts} == {"enabled", "maintenance", "fenced"}
    assert any(host.get("discarded") for host in hosts)


# Verified, and gone on with


@pytest.mark.parametrize("path", JOURNALS, ids=name_of)
def test_a_unit_left_by_a_killed_process_is_replayed(tmp_path: Path, path: Path) -> None:
    assert path.read_bytes().startswith(b"pending\n")
    ledger = opened(path.parent, tmp_path)
    assert problems(ledger) == []
    assert digests(tmp_path / "ledger") == json.loads(path.parent.with_name("file-replayed.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("folder", folders("file", "courses", "unknown-keys"), ids=name_of)
def test_records_of_an_old_file_ledger_can_be_settled(tmp_path: Path, folder: Path) -> None:
    ledger = opened(folder, tmp_path)
    ends = {s.ERROR: s.FAILED, s.DONE: s.COMPLETED}
    for record in [record for record in ledger.list_records() if record.status not in s.CLOSED]:
        end = s.FAILED if record.type == s.EVACUATION and record.status == s.PRE_MIGRATING else ends.get(record.status, s.FAILED)
        assert settled(ledger, record.record_id, end).status == end
    assert problems(ledger) == []
    assert all(record.status in s.CLOSED for record in ledger.list_records())


@every_corpus
def test_records_of_an_old_etcd_ledger_can_be_settled(in_etcd: EtcdStore) -> None:
    ledger = in_etcd.open(create=False)
    assert problems(ledger) == []
    [running] = ledger.list_records(statuses=[s.RUNNING])
    assert ledger.find_unsettled(running.domain.uuid)
    settled(ledger, running.record_id, s.CANCELLED)
    assert ledger.find_unsettled(running.domain.uuid) is None
    assert problems(in_etcd.open(create=False)) == []


@every_corpus
def test_reading_the_ledger_in_etcd_changes_no_key(in_etcd: EtcdStore, corpus: Path) -> None:
    ledger = in_etcd.open(create=False)
    assert (list(ledger.list_records()), ledger.list_hosts(), ledger.list_domains(), ledger.problems) != ([], [], [], [])
    assert ledger.problems == []
    assert {name: in_etcd.read(name) for name in in_etcd.names() if name != CLUSTER} == {
        key: value for key, value in keys_in_etcd(corpus).items() if key != CLUSTER
    }


@pytest.mark.parametrize("folder", folders("moved-to-etcd"), ids=name_of)
def test_a_moved_ledger_can_be_read_and_not_written(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(InvalidState, match="etcd://"):
        opened(folder, tmp_path / "written")
    ledger = opened(folder, tmp_path, moved=True)
    assert problems(ledger) == []
    assert len(list(ledger.list_records())) == 1


# Keys of a later version


@pytest.mark.parametrize("folder", folders("unknown-keys"), ids=name_of)
def test_unknown_keys_survive_a_change_of_each_document(tmp_path: Path, folder: Path) -> None:
    ledger = opened(folder, tmp_path)
    before = {record.id: record for record in ledger.list_records()}
    for record in before.values():
        if record.status not in s.CLOSED:
            settled(ledger, record.record_id, s.COMPLETED)
    for document in ledger.list_hosts():
        ledger.put_host(host_entry({**document.body, "state": "maintenance"}), document.version)
        after = ledger.read_host(document.body["host_key"])
        assert after is not None
        assert after.body == {**document.body, "state": "maintenance"}
    for record in ledger.list_records():
        old = before[record.id]
        assert dataclasses.replace(old, status=record.status, updated_at=record.updated_at, history=record.history) == record
        assert record.history[: len(old.history)] == old.history
        assert "of_a_later_version" in record.extra
    assert all("of_a_later_version" in document.body and "of_a_later_version" in document.body["protected"] for document in ledger.list_domains())
    assert problems(ledger) == []
