# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A process that dies at any step of a unit: whoever opens the ledger next sees all of it or nothing."""

from __future__ import annotations

import json
import os
import typing as t
from collections.abc import Callable
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidState
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.document_bytes import canonical_json, compute_digest, decode_document, encode_document
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry

DIED = 42
AdvanceRecord = Callable[..., Stored]
NewMove = Callable[..., MoveRecord]
Act = Callable[[FileLedger], None]
STEPS_OF_OPEN = ["begin", "journal", "write migrations", "write domains", "audit", "applied"]
STEPS_OF_CLOSE = ["begin", "journal", "index", "write migrations", "write domains", "remove migrations", "audit", "applied"]


@pytest.fixture
def die_at(path: str, in_child: Callable[[Callable[[], None]], int], exit_of: Callable[[int], int]) -> Callable[[str, Act], None]:
    """Run something on the ledger in a child process that ends, without any clean-up, after the named step."""

    def run(step: str, act: Act) -> None:
        def child() -> None:
            act(FileLedger(path, step=lambda name: os._exit(DIED) if name == step else None))

        assert exit_of(in_child(child)) == DIED

    return run


def test_all_steps_of_a_unit_are_covered_by_the_crash_tests(ledger: FileLedger, path: str, new_move: NewMove, advance_record: AdvanceRecord) -> None:
    seen: list[str] = []
    watched = FileLedger(path, step=seen.append)
    stored = watched.open_record(new_move())
    assert seen == STEPS_OF_OPEN
    del seen[:]
    advance_record(watched, stored, s.CANCELLED)
    assert seen == STEPS_OF_CLOSE


@pytest.mark.parametrize("step", STEPS_OF_OPEN)
def test_opening_a_record_is_atomic_at_every_step(ledger: FileLedger, path: str, new_move: NewMove, die_at: Callable[[str, Act], None], step: str) -> None:
    record = new_move()
    die_at(step, lambda child: t.cast(None, child.open_record(record)))
    after = FileLedger(path)
    stored, domain = after.find_unsettled(record.domain.uuid), after.read_domain(record.domain.uuid)
    if step == "begin":
        assert (stored, domain) == (None, None)
    else:
        assert stored is not None
        assert domain is not None
        assert (stored.record.id, stored.record.generation, domain.body["generation"]) == (record.id, 1, 1)
    assert after.verify_audit() == []
    assert Path(path, "audit.jsonl").exists() == (step != "begin")
    assert after.problems == []


@pytest.mark.parametrize("step", STEPS_OF_CLOSE)
def test_closing_a_record_is_atomic_at_every_step(
    ledger: FileLedger, path: str, new_move: NewMove, advance_record: AdvanceRecord, die_at: Callable[[str, Act], None], step: str
) -> None:
    stored = advance_record(ledger, ledger.open_record(new_move()), s.SCHEDULED, s.RUNNING)
    domain_uuid = stored.record.domain.uuid
    die_at(step, lambda child: t.cast(None, advance_record(child, stored, s.COMPLETED)))
    # The ledger that was open all the time finishes the unit as well as a new one does.
    domain = ledger.read_domain(domain_uuid)
    assert domain is not None
    after = (
        ledger.read_record(stored.record.record_id).record.status,
        domain.body["possible_hosts"][0]["host"],
        len(list(ledger.list_records(unsettled_only=True))),
    )
    assert after == ((s.RUNNING, "kvm1", 1) if step == "begin" else (s.COMPLETED, "kvm2", 0))
    assert len(list(ledger.list_records())) == 1
    # The index by domain has the record, and nothing else.
    assert [record.id for record in ledger.list_records(domain=domain_uuid)] == [stored.record.id]
    assert ledger.examine_contents(lambda contents: list(contents.index_problems())) == []
    assert ledger.verify_audit() == []
    if step != "begin":
        assert FileLedger(path).open_record(new_move(domain_uuid=domain_uuid)).record.generation == 2


@pytest.mark.parametrize("step", ["begin", "journal", "write hosts", "remove hosts", "applied"])
def test_rekeying_a_host_is_atomic_at_every_step(ledger: FileLedger, die_at: Callable[[str, Act], None], step: str) -> None:
    host_id, host_uuid = "33333333-0000-4000-8000-000000000003", "33333333-0000-4000-8000-0000000000a3"
    body = {"host_id": None, "host_uuid": host_uuid, "name": "kvm3", "state": "maintenance", "reason": "fan"}
    ledger.put_host(host_entry(body), None)
    die_at(step, lambda child: t.cast(None, child.put_host(host_entry({**body, "host_id": host_id}), 1)))
    documents = ledger.list_hosts()
    assert [document.body["host_key"] for document in documents] == [host_uuid if step == "begin" else host_id]
    assert documents[0].body["state"] == "maintenance"


@pytest.mark.parametrize("keep", [0, 4, 8, 30, 200])
def test_a_torn_journal_is_ignored(ledger: FileLedger, path: str, new_move: NewMove, die_at: Callable[[str, Act], None], keep: int) -> None:
    first = ledger.open_record(new_move("first"))
    die_at("journal", lambda child: t.cast(None, child.open_record(new_move("second"))))
    journal = Path(path, "journal")
    journal.write_bytes(journal.read_bytes()[:keep])
    assert [record.id for record in ledger.list_records()] == [first.record.id]
    third = ledger.open_record(new_move("third"))
    assert {record.domain.name for record in ledger.list_records()} == {"first", "third"}
    assert third.record.generation == 1
    assert ledger.verify_audit() == []


def test_replaying_an_applied_unit_changes_nothing(ledger: FileLedger, path: str, new_move: NewMove, advance_record: AdvanceRecord) -> None:
    stored = advance_record(ledger, ledger.open_record(new_move()), s.SCHEDULED)
    newest = ledger.update_record(stored, stored.record.intend("abort"))
    # As after a loss of power that kept everything but the mark.
    journal = Path(path, "journal")
    journal.write_bytes(journal.read_bytes().replace(b"applied\n", b"pending\n", 1))
    assert ledger.read_record(newest.record.record_id) == newest
    assert ledger.verify_audit() == []
    assert len(Path(path, "audit.jsonl").read_text().splitlines()) == 2


OUTSIDE = ["..", "stolen.json"]
ELSEWHERE = ["migrations", "open", "..", "..", "..", "00000000-0000-4000-8000-000000000000.json"]


@pytest.mark.parametrize(
    "unit",
    [
        {"writes": [{"place": OUTSIDE, "version": 1, "text": "x"}], "removes": [], "line": None},
        {"writes": [{"place": ELSEWHERE, "version": 1, "text": "x"}], "removes": [], "line": None},
        {"writes": [], "removes": [OUTSIDE], "line": None},
        {"writes": [], "removes": [["ledger.json"]], "line": None},
        {"writes": [], "removes": [], "line": "one\ntwo"},
        {"writes": [], "removes": []},
        {"writes": 5, "removes": [], "line": None},
        [],
    ],
)
def test_a_journal_with_an_invalid_unit_is_refused_and_kept(ledger: FileLedger, path: str, new_move: NewMove, unit: t.Any) -> None:
    ledger.open_record(new_move())
    Path(path).parent.joinpath("stolen.json").write_text("still here")
    text = canonical_json(unit)
    journal = Path(path, "journal")
    journal.write_text(f"pending\n{compute_digest(text)}\n{text}")
    before = {file: file.read_bytes() for file in Path(path).parent.rglob("*") if file.is_file()}
    for act in (lambda: list(ledger.list_records()), lambda: ledger.open_record(new_move("db"))):
        with pytest.raises(InvalidState, match=r"this version does not write such journals.*Nothing was changed"):
            act()
    assert {file: file.read_bytes() for file in Path(path).parent.rglob("*") if file.is_file()} == before


def test_a_journal_that_closes_a_record_of_a_later_version_is_refused_and_kept(
    ledger: FileLedger, path: str, new_move: NewMove, advance_record: AdvanceRecord, die_at: Callable[[str, Act], None]
) -> None:
    stored = ledger.open_record(new_move())
    die_at("journal", lambda child: t.cast(None, advance_record(child, stored, s.CANCELLED)))
    journal = Path(path, "journal")
    unit = json.loads(journal.read_text().split("\n")[2])
    closed = decode_document(unit["writes"][0]["text"].encode())
    unit["writes"][0]["text"] = encode_document({**closed.body, "schema": 2}, closed.version).decode()
    journal.write_text(f"pending\n{compute_digest(canonical_json(unit))}\n{canonical_json(unit)}")
    for act in (lambda: FileLedger(path).find_unsettled(stored.record.domain.uuid), lambda: FileLedger(path).open_record(new_move("db"))):
        with pytest.raises(InvalidState, match=r"its schema is 2.*Nothing was changed\. Update the collection"):
            act()
    assert [file.name for file in Path(path, "migrations", "open").iterdir()] == [f"{stored.record.id}.json"]
