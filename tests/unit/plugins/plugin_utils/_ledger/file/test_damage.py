# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Damaged, edited, newer and foreign files: each is named, none stops another."""

from __future__ import annotations

import json
import os
import shutil
import typing as t
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, InvalidArgument, InvalidState, NotFound, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.encoding import encode
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Stored

Go = Callable[..., Stored]
NewMove = Callable[..., dict[str, t.Any]]


def file_of(path: str, record: dict[str, t.Any]) -> Path:
    return Path(path, "migrations", "open", f"{record['id']}.json")


def torn(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def edited(file: Path) -> None:
    file.write_text(file.read_text().replace('"status":"accepted"', '"status":"running"'))


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def another(file: Path) -> None:
    file.write_text("[" * 100000)


def no_number(file: Path) -> None:
    envelope = json.loads(file.read_text())
    file.write_text(json.dumps({**envelope, "body": {**envelope["body"], "far": float("inf")}}))


def resealed(file: Path, **changes: t.Any) -> None:
    """Another body, with a checksum that is right."""
    body = {**json.loads(file.read_text())["body"], **changes}
    file.write_bytes(encode(body, 1))


def without_a_past(file: Path) -> None:
    resealed(file, history=["accepted"])


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


@pytest.mark.parametrize("damage", [torn, edited, emptied, another, no_number, without_a_past, without_figures, a_link, a_folder, a_pipe, a_copy_of_another])
def test_a_damaged_record_is_named_set_aside_and_stops_no_other(
    ledger: FileLedger, path: str, new_move: NewMove, go: Go, damage: Callable[[Path], None]
) -> None:
    bad, good = ledger.open_record(new_move("bad")), ledger.open_record(new_move("good"))
    damage(file_of(path, bad.record))
    assert [record["domain"]["name"] for record in ledger.records()] == ["good"]
    assert len(ledger.problems) == 1
    assert str(file_of(path, bad.record)) in ledger.problems[0]
    assert [name.startswith(f"migrations-{bad.record['id']}") for name in os.listdir(Path(path, "set_aside"))] == [True]
    go(ledger, good, s.CANCELLED)
    with pytest.raises(NotFound):
        ledger.get(bad.record["id"])
    with pytest.raises(Conflict, match="not in the ledger any more"):
        go(ledger, bad, s.CANCELLED)
    assert len(ledger.problems) == 1


def test_the_file_of_no_uuid_is_set_aside(ledger: FileLedger, path: str, new_move: NewMove) -> None:
    stored = ledger.open_record(new_move())
    shutil.copy(file_of(path, stored.record), Path(path, "migrations", "open", "copy of it.json"))
    assert len(list(ledger.records())) == 1
    assert "its name is not a UUID" in ledger.problems[0]


def as_newer(file: Path) -> bytes:
    envelope = json.loads(file.read_text())
    envelope["body"]["schema"] = 2
    file.write_text(json.dumps(envelope))
    return file.read_bytes()


def test_a_newer_record_is_named_left_alone_and_still_holds_its_domain(ledger: FileLedger, path: str, new_move: NewMove, go: Go) -> None:
    newer, other = ledger.open_record(new_move("newer")), ledger.open_record(new_move("other"))
    content = as_newer(file_of(path, newer.record))
    assert [record["domain"]["name"] for record in ledger.records()] == ["other"]
    assert "its schema is 2, this version reads 1" in ledger.problems[0]
    with pytest.raises(NotSupported, match="Update the collection"):
        ledger.get(newer.record["id"])
    with pytest.raises(NotSupported, match="may hold the domain"):
        ledger.open_record(new_move(domain_uuid=newer.record["domain"]["uuid"]))
    with pytest.raises(NotSupported):
        go(ledger, newer, s.CANCELLED)
    go(ledger, other, s.CANCELLED)
    assert file_of(path, newer.record).read_bytes() == content
    assert not Path(path, "set_aside").exists()


def test_a_newer_domain_is_never_written_over(ledger: FileLedger, path: str, new_move: NewMove, go: Go) -> None:
    closed = go(ledger, ledger.open_record(new_move()), s.CANCELLED)
    domain = closed.record["domain"]["uuid"]
    content = as_newer(Path(path, "domains", f"{domain}.json"))
    with pytest.raises(NotSupported):
        ledger.open_record(new_move(domain_uuid=domain))
    assert ledger.domains() == []
    assert Path(path, "domains", f"{domain}.json").read_bytes() == content


def test_generations_go_on_where_the_domains_document_was_damaged(ledger: FileLedger, path: str, new_move: NewMove, go: Go) -> None:
    domain = str(uuid.uuid4())
    for _turn in range(3):
        go(ledger, ledger.open_record(new_move(domain_uuid=domain)), s.CANCELLED)
    torn(Path(path, "domains", f"{domain}.json"))
    assert ledger.domain(domain) is None
    assert ledger.open_record(new_move(domain_uuid=domain)).record["generation"] == 4


def test_a_damaged_identity_is_not_replaced(ledger: FileLedger, path: str) -> None:
    emptied(Path(path, "ledger.json"))
    with pytest.raises(InvalidState, match=r"ledger\.json could not be read"):
        FileLedger(path)


def test_a_ledger_of_a_later_version_is_refused(ledger: FileLedger, path: str) -> None:
    as_newer(Path(path, "ledger.json"))
    with pytest.raises(NotSupported, match="of a later version"):
        FileLedger(path)


def test_a_folder_with_other_things_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    tmp_path.chmod(0o755)
    with pytest.raises(InvalidArgument, match=r"thesis\.tex"):
        FileLedger(str(tmp_path))
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]
    assert tmp_path.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("name", ["migrations", "domains", "locks", "audit.jsonl", "ledger.lock", "journal"])
def test_no_write_follows_a_link(ledger: FileLedger, path: str, tmp_path: Path, new_move: NewMove, name: str) -> None:
    outside = tmp_path / "outside"
    if "." in name or name == "journal":
        outside.write_text("")
    else:
        outside.mkdir()
    Path(path, name).unlink(missing_ok=True)
    Path(path, name).symlink_to(outside)
    with pytest.raises(InvalidArgument, match="Failed to use the ledger"):  # noqa: PT012  which of both meets the link depends on its name
        ledger.open_record(new_move())
        with ledger.locked("host-a"):
            pass
    assert (outside.read_text() if outside.is_file() else list(outside.iterdir())) in ("", [])


@pytest.mark.parametrize(
    "changes",
    [{"name": None}, {"name": ["kvm1"]}, {"host_id": 5}, {"state": "asleep"}, {"state": []}, {"protected": "yes"}, {"addresses": []}],
)
def test_the_document_of_a_host_that_cannot_be_is_set_aside(ledger: FileLedger, path: str, changes: dict[str, t.Any]) -> None:
    for number in (1, 2):
        key = f"{number}1111111-0000-4000-8000-000000000001"
        ledger.put_host({"name": f"kvm{number}", "host_id": key, "host_uuid": None, "state": "enabled"}, None)
    file = Path(path, "hosts", "11111111-0000-4000-8000-000000000001.json")
    resealed(file, **changes)
    before = file.read_bytes()
    assert [document.body["name"] for document in ledger.hosts()] == ["kvm2"]
    assert next(iter(changes)) in ledger.problems[0]
    assert [kept.read_bytes() for kept in Path(path, "set_aside").iterdir()] == [before]


@pytest.mark.parametrize(
    "changes", [{"name": 5}, {"generation": None}, {"generation": -1}, {"possible_hosts": ["kvm1"]}, {"possible_hosts": None}, {"protected": []}]
)
def test_the_document_of_a_domain_that_cannot_be_is_set_aside_and_its_generation_known(
    ledger: FileLedger, path: str, new_move: NewMove, go: Go, changes: dict[str, t.Any]
) -> None:
    stored = go(ledger, ledger.open_record(new_move("web")), s.CANCELLED)
    uuid = stored.record["domain"]["uuid"]
    resealed(Path(path, "domains", f"{uuid}.json"), **changes)
    assert ledger.domains() == []
    assert next(iter(changes)) in ledger.problems[0]
    assert ledger.open_record(new_move("web", uuid)).record["generation"] == stored.record["generation"] + 1
