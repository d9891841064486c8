# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Damaged, edited, newer and foreign files: each is named, none stops another."""

from __future__ import annotations

import json
import os
import shutil
import typing as t
from collections.abc import Callable
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument, NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.document_bytes import encode_document
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry

AdvanceRecord = Callable[..., Stored]
NewMove = Callable[..., MoveRecord]


def file_of(path: str, record: MoveRecord) -> Path:
    return Path(path, "migrations", "open", f"{record.id}.json")


def no_number(file: Path) -> None:
    envelope = json.loads(file.read_text())
    file.write_text(json.dumps({**envelope, "body": {**envelope["body"], "far": float("inf")}}))


def resealed(file: Path, **changes: t.Any) -> None:
    """Another body, with a checksum that is right."""
    body = {**json.loads(file.read_text())["body"], **changes}
    file.write_bytes(encode_document(body, 1))


def without_figures(file: Path) -> None:
    resealed(file, progress={})


def a_link(file: Path) -> None:
    target = file.parent.parent / "target.json"
    shutil.move(file, target)
    file.symlink_to(target)


def a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def a_copy_of_another(file: Path) -> None:
    other = next(sibling for sibling in file.parent.iterdir() if sibling != file)
    shutil.copy(other, file)


@pytest.mark.parametrize("damage", [no_number, without_figures, a_link, a_folder, a_pipe, a_copy_of_another])
def test_a_damaged_record_is_set_aside_and_does_not_stop_the_others(
    ledger: FileLedger, path: str, new_move: NewMove, advance_record: AdvanceRecord, damage: Callable[[Path], None]
) -> None:
    bad, good = ledger.open_record(new_move("bad")), ledger.open_record(new_move("good"))
    damage(file_of(path, bad.record))
    assert [record.domain.name for record in ledger.list_records()] == ["good"]
    assert len(ledger.problems) == 1
    assert str(file_of(path, bad.record)) in ledger.problems[0]
    assert [name.startswith(f"migrations-{bad.record.id}") for name in os.listdir(Path(path, "set_aside"))] == [True]
    advance_record(ledger, good, s.CANCELLED)
    with pytest.raises(NotFound):
        ledger.read_record(bad.record.record_id)
    with pytest.raises(Conflict, match="no longer in the ledger"):
        advance_record(ledger, bad, s.CANCELLED)
    assert len(ledger.problems) == 1


def test_a_file_whose_name_is_not_a_uuid_is_set_aside(ledger: FileLedger, path: str, new_move: NewMove) -> None:
    stored = ledger.open_record(new_move())
    shutil.copy(file_of(path, stored.record), Path(path, "migrations", "open", "copy of it.json"))
    assert len(list(ledger.list_records())) == 1
    assert "its name is not a UUID" in ledger.problems[0]


def test_a_folder_with_foreign_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    tmp_path.chmod(0o755)
    with pytest.raises(InvalidArgument, match=r"thesis\.tex"):
        FileLedger(str(tmp_path))
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]
    assert tmp_path.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("name", ["migrations", "domains", "locks", "audit.jsonl", "ledger.lock", "journal"])
def test_writing_does_not_follow_links(ledger: FileLedger, path: str, tmp_path: Path, new_move: NewMove, name: str) -> None:
    outside = tmp_path / "outside"
    if "." in name or name == "journal":
        outside.write_text("")
    else:
        outside.mkdir()
    Path(path, name).unlink(missing_ok=True)
    Path(path, name).symlink_to(outside)
    with pytest.raises(InvalidArgument, match="Failed to use the ledger"):  # noqa: PT012  which of both meets the link depends on its name
        ledger.open_record(new_move())
        with ledger.hold_lock("host-a"):
            pass
    assert (outside.read_text() if outside.is_file() else list(outside.iterdir())) in ("", [])


@pytest.mark.parametrize(
    "changes",
    [{"name": None}, {"name": ["kvm1"]}, {"host_id": 5}, {"state": "asleep"}, {"state": []}, {"protected": "yes"}, {"addresses": []}],
)
def test_an_invalid_host_document_is_set_aside(ledger: FileLedger, path: str, changes: dict[str, t.Any]) -> None:
    for number in (1, 2):
        key = f"{number}1111111-0000-4000-8000-000000000001"
        ledger.put_host(host_entry({"name": f"kvm{number}", "host_id": key, "host_uuid": None, "state": "enabled"}), None)
    file = Path(path, "hosts", "11111111-0000-4000-8000-000000000001.json")
    resealed(file, **changes)
    before = file.read_bytes()
    assert [document.body["name"] for document in ledger.list_hosts()] == ["kvm2"]
    assert next(iter(changes)) in ledger.problems[0]
    assert [kept.read_bytes() for kept in Path(path, "set_aside").iterdir()] == [before]


@pytest.mark.parametrize(
    "changes", [{"name": 5}, {"generation": None}, {"generation": -1}, {"possible_hosts": ["kvm1"]}, {"possible_hosts": None}, {"protected": []}]
)
def test_an_invalid_domain_document_is_set_aside_and_its_generation_kept(
    ledger: FileLedger, path: str, new_move: NewMove, advance_record: AdvanceRecord, changes: dict[str, t.Any]
) -> None:
    stored = advance_record(ledger, ledger.open_record(new_move("web")), s.CANCELLED)
    uuid = stored.record.domain.uuid
    resealed(Path(path, "domains", f"{uuid}.json"), **changes)
    assert ledger.list_domains() == []
    assert next(iter(changes)) in ledger.problems[0]
    assert ledger.open_record(new_move("web", uuid)).record.generation == stored.record.generation + 1


@pytest.mark.parametrize("missing", ["host", "host_id", "host_uuid"])
def test_a_key_that_a_possible_host_lacks_counts_as_null(ledger: FileLedger, path: str, new_move: NewMove, advance_record: AdvanceRecord, missing: str) -> None:
    uuid = advance_record(ledger, ledger.open_record(new_move("web")), s.CANCELLED).record.domain.uuid
    file = Path(path, "domains", f"{uuid}.json")
    whole = {"host": "kvm1", "host_id": None, "host_uuid": None, "rack": 4}
    resealed(file, possible_hosts=[{key: value for key, value in whole.items() if key != missing}])
    before = file.read_bytes()
    found = ledger.list_domains()
    assert [encode(document.domain.possible_hosts) for document in found] == [[{**whole, missing: None}]]
    assert file.read_bytes() == before
    assert not ledger.problems
    ledger.put_domain(found[0].domain, found[0].version)
    assert [document.domain.possible_hosts[0].extra for document in ledger.list_domains()] == [{"rack": 4}]
