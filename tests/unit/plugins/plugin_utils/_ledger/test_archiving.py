# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Records and audit lines that are moved to an archive: nothing is lost, nothing that is needed goes, and both sides verify."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil
import typing as t
import uuid
from collections.abc import Callable

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, JsonObject, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, InvalidArgument, InvalidState, NotFound, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger import archiving as m
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger import copying
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.contents import find_problems, list_archives
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.document_bytes import decode_document, encode_document
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd import chains
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.chains import chain_of_domain
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file import copying as file_copying
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.archive import ArchiveFolder
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.folder import Folder
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.index import DomainIndex, closed_records_of
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.store import FileLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.override import decide_override
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.remembered import find_missing_records
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.selection import make_selection
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.conftest import KVM1, KVM2
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import EtcdStore, FileStore, Store

from .test_copying import list_contents, wait_for_lock

AdvanceRecord = Callable[..., Stored]
NewMove = Callable[..., MoveRecord]
BY = "root@control pid 7"
DIED = 42
# Later than everything a test writes.
LATER = "2999-01-01T00:00:00.000Z"
WEB, DB = (str(uuid.UUID(int=number, version=4)) for number in (1, 2))
STEPS = ["opened", "noted", "records written", "records removed", "lines written", "lines removed"]


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> str:
    return str(tmp_path / "archive")


@pytest.fixture
def moves(ledger: Ledger, new_move: NewMove, advance_record: AdvanceRecord) -> list[MoveRecord]:
    """Three moves of one domain and two of another, from the oldest on."""
    for end in (KVM1, KVM2):
        ledger.put_host(host_entry({"name": end.host, "host_id": end.host_id, "host_uuid": end.host_uuid, "state": "enabled"}), None)
    return [make_move(ledger, new_move, advance_record, domain) for domain in (WEB, WEB, DB, WEB, DB)]


def make_move(ledger: Ledger, new_move: NewMove, advance_record: AdvanceRecord, domain: str, *statuses: str) -> MoveRecord:
    statuses = statuses or (s.SCHEDULED, s.RUNNING, s.COMPLETED)
    return advance_record(ledger, ledger.open_record(new_move({WEB: "web1", DB: "db1"}[domain], domain)), *statuses).record


def archive(ledger: Ledger, folder: str, until: str = LATER, **options: t.Any) -> m.ArchiveOutcome:
    return m.archive_ledger(ledger, ArchiveFolder(folder), until, BY, **options)


def list_ids(ledger: Ledger) -> set[str]:
    return {str(record.id) for record in ledger.list_records()}


def read_archive(folder: str) -> FileLedger:
    return FileLedger(folder, create=False, moved=True)


def list_lines(ledger: Ledger) -> list[bytes]:
    with ledger.open_contents() as contents:
        return sorted(line for _chain, lines in contents.read_chains() for line in lines)


def check_intact(*ledgers: Ledger) -> None:
    for ledger in ledgers:
        assert ledger.examine_contents(find_problems).all_problems == []


def test_only_what_nothing_needs_is_moved(store: Store, ledger: Ledger, moves: list[MoveRecord], folder: str) -> None:
    before, lines = {name: store.read(name) for name in store.names("migrations")}, list_lines(ledger)
    assert archive(ledger, folder).records == 3
    newest = {str(moves[3].id), str(moves[4].id)}
    there = read_archive(folder)
    assert list_ids(ledger) == newest
    assert list_ids(there) == {str(record.id) for record in moves} - newest
    moved = FileStore(pathlib.Path(folder))
    assert {name: store.read(name) for name in store.names("migrations")} | {name: moved.read(name) for name in moved.names("migrations")} == before
    assert there.read_record(str(moves[0].id)).record == moves[0]
    assert [record.id for record in there.list_records(domain="db1")] == [moves[2].id]
    assert sorted(record.id for record in ledger.list_records(domain=WEB)) == [moves[3].id]
    with pytest.raises(NotFound, match="set 'ledger' to the archive"):
        ledger.read_record(str(moves[0].id))
    check_intact(ledger, there)
    if isinstance(store, EtcdStore):
        assert sorted({*list_lines(ledger), *list_lines(there)}) == lines
        assert len(list_lines(ledger)) == 2
        assert not [name for name in store.names() if str(moves[0].id) in name]


def test_it_goes_on_where_it_ended(
    store: Store, ledger: Ledger, moves: list[MoveRecord], folder: str, new_move: NewMove, advance_record: AdvanceRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chains, "_MAX_PART_LINES", 3)
    archive(ledger, folder)
    assert archive(ledger, folder)[:3] == (0, 0, 0)
    later = make_move(ledger, new_move, advance_record, WEB)
    assert later.generation == moves[3].generation + 1
    lines = {*list_lines(ledger), *list_lines(read_archive(folder))}
    assert archive(ledger, folder).records == 1
    assert {*list_lines(ledger), *list_lines(read_archive(folder))} == lines
    assert list_ids(ledger) == {str(later.id), str(moves[4].id)}
    check_intact(ledger, read_archive(folder))
    (note,) = ledger.read_settings().settings.archives or ()  # type: ignore[union-attr]
    assert (note["to"], note["until"], note["by"]) == (folder, LATER, BY)


def test_an_archived_move_that_a_host_remembers_is_not_missing(store: Store, ledger: Ledger, moves: list[MoveRecord], folder: str) -> None:
    archive(ledger, folder)
    remembered: list[JsonObject] = [{**t.cast(JsonObject, encode(one)), "ledger_id": ledger.ledger_id} for one in moves[:2]]
    assert find_missing_records(ledger, [("kvm1", remembered)]) == []
    # Its generation is then known by the newest record alone.
    store.write(f"domains/{WEB}.json", b"torn")
    assert find_missing_records(store.open(), [("kvm1", remembered)]) == []


def test_what_is_younger_stays(store: Store, ledger: Ledger, moves: list[MoveRecord], folder: str) -> None:
    old = store.put_closed(dataclasses.replace(moves[0], id=str(uuid.uuid4())), "2024-02-03T04:05:06.789Z")
    store.put_closed(dataclasses.replace(moves[0], id=str(uuid.uuid4())), "2024-02-02T04:05:06.789Z")
    newest = store.put_closed(dataclasses.replace(moves[0], id=str(uuid.uuid4())), "2024-02-29T00:00:00.000Z")
    done = archive(ledger, folder, "2024-02-29T00:00:00.001Z")
    assert (done.records, done.lines, done.kept[m.NEWEST]) == (2, 0, 1)
    assert list_ids(ledger) == {str(record.id) for record in (newest, *moves)}
    there = read_archive(folder)
    assert old.id in there.list_closed_ids() - there.list_closed_since("2024-02-20")


def test_a_run_that_moves_nothing_changes_nothing(store: Store, ledger: Ledger, moves: list[MoveRecord], folder: str) -> None:
    with ledger.hold_lock(copying.COPY_LOCK):
        before = list_contents(store)
    assert archive(ledger, folder, "2024-01-01T00:00:00.000Z")[:3] == (0, 0, 0)
    assert not os.path.exists(folder)
    assert list_contents(store) == before
    archive(ledger, folder)
    before, there = list_contents(store), list_contents(FileStore(pathlib.Path(folder)))
    archive(ledger, folder)
    assert (list_contents(store), list_contents(FileStore(pathlib.Path(folder)))) == (before, there)


def test_the_time_until_which_records_are_archived_does_not_go_back(store: Store, ledger: Ledger, moves: list[MoveRecord], folder: str) -> None:
    archive(ledger, folder)
    for day in (1, 2):
        store.put_closed(dataclasses.replace(moves[0], id=str(uuid.uuid4())), f"2024-02-{day:02d}T00:00:00.000Z")
    assert archive(ledger, folder, "2024-03-01T00:00:00.000Z").records == 1
    (note,) = ledger.examine_contents(list_archives)
    content = read_archive(folder).identity.content
    assert content.archive
    assert (note["until"], content.archive.until) == (LATER, LATER)


def test_check_mode_predicts_and_writes_nothing(store: Store, ledger: Ledger, moves: list[MoveRecord], folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "_MAX_PART_LINES", 3)
    before = list_contents(store)
    predicted = archive(ledger, folder, check=True)
    assert list_contents(store) == before
    assert not os.path.exists(folder)
    assert archive(ledger, folder) == predicted
    assert predicted.records == 3


@pytest.mark.parametrize("step", STEPS)
def test_a_run_that_died_at_any_step_is_completed_by_the_same_task(
    store: Store,
    ledger: Ledger,
    moves: list[MoveRecord],
    folder: str,
    new_move: NewMove,
    advance_record: AdvanceRecord,
    in_child: Callable[[Callable[[], None]], int],
    exit_of: Callable[[int], int],
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    for name, value in (("_AT_ONCE", 2), ("split_batches", lambda entries, _size: [[entry] for entry in entries])):
        monkeypatch.setattr(m, name, value)
    monkeypatch.setattr(chains, "_MAX_PART_LINES", 3)
    ids, lines = list_ids(ledger), {*list_lines(ledger)}
    ended = exit_of(in_child(lambda: t.cast(None, archive(store.open(), folder, step=lambda name: os._exit(DIED) if name == step else None))))
    assert ended == (0 if "lines" in step and isinstance(store, FileStore) else DIED)
    there = read_archive(folder)
    assert list_ids(ledger) | list_ids(there) == ids
    wait_for_lock(store)
    later = make_move(store.open(), new_move, advance_record, DB)
    archive(store.open(), folder)
    assert list_ids(store.open()) == {str(moves[3].id), str(later.id)}
    assert list_ids(there) == ids - {str(moves[3].id)}
    assert {*list_lines(store.open()), *list_lines(there)} > lines
    check_intact(store.open(), read_archive(folder))


def test_a_torn_record_of_a_run_that_died_is_written_again(ledger: Ledger, moves: list[MoveRecord], folder: str) -> None:
    archive(ledger, folder, str(moves[3].updated_at))
    at = moves[1].updated_at
    torn = pathlib.Path(folder, "migrations", "closed", at[:4], at[5:7], f"{moves[1].id}.json")
    torn.parent.mkdir(parents=True, exist_ok=True)
    torn.write_bytes(b'{"schema"')
    archive(ledger, folder)
    assert read_archive(folder).read_record(str(moves[1].id)).record == moves[1]


def test_a_reader_never_meets_a_record_that_is_being_written(ledger: Ledger, moves: list[MoveRecord], folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    archive(ledger, folder, str(moves[3].updated_at))
    write, seen = file_copying.write_all, list[str]()

    def read_then_write(fd: int, data: bytes) -> None:
        # A reader of closed records holds no lock.
        list(closed_records_of(folder, make_selection(), seen.append))
        write(fd, data)

    monkeypatch.setattr(file_copying, "write_all", read_then_write)
    assert archive(ledger, folder).records == 2
    assert seen == []


def test_a_record_that_the_archive_has_is_not_written_again(store: Store, ledger: Ledger, moves: list[MoveRecord], folder: str) -> None:
    """As after a run that died before it removed the record."""
    name = f"migrations/closed/{moves[0].updated_at[:4]}/{moves[0].updated_at[5:7]}/{moves[0].id}.json"
    before = t.cast(bytes, store.read(name))
    archive(ledger, folder, str(moves[3].updated_at))
    file = pathlib.Path(folder, name)
    known = file.stat().st_ino
    store.write(name, before)
    archive(ledger, folder)
    assert (file.stat().st_ino, file.read_bytes(), store.read(name)) == (known, before, None)


def test_a_run_that_died_while_it_began_the_archive_is_repeated(ledger: Ledger, moves: list[MoveRecord], folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Died(Exception):
        """Instead of the end of the process."""

    def die(*_arguments: t.Any) -> None:
        raise Died

    for what in ("write_begin", "write_file"):
        with monkeypatch.context() as patch:
            patch.setattr(DomainIndex if what == "write_begin" else Folder, what, die)
            with pytest.raises(Died):
                archive(ledger, folder)
    archive(ledger, folder)
    with Folder.open_path(folder) as root:
        assert DomainIndex(root).read_begin() == "0000/00"
    check_intact(ledger, read_archive(folder))


def test_another_record_in_the_archive_is_not_overwritten(ledger: Ledger, moves: list[MoveRecord], folder: str) -> None:
    archive(ledger, folder, str(moves[3].updated_at))
    other = dataclasses.replace(moves[1], reason="operator")
    kept = FileStore(pathlib.Path(folder)).put_closed(other, str(moves[1].updated_at))
    before = list_ids(ledger)
    with pytest.raises(InvalidState, match="is another record than the ledger has"):
        archive(ledger, folder)
    assert list_ids(ledger) == before
    assert read_archive(folder).read_record(str(moves[1].id)).record == kept


def test_a_record_with_other_bytes_is_not_removed(store: Store, ledger: Ledger, moves: list[MoveRecord]) -> None:
    at, key = moves[0].updated_at, str(moves[0].id)
    path = ("migrations", "closed", at[:4], at[5:7], f"{key}.json")
    data = t.cast(bytes, store.read("/".join(path)))
    with pytest.raises(Conflict, match="was changed by another process meanwhile"):
        ledger.remove_closed([copying.RawDocument(path, data + b" ")])
    assert ledger.read_record(key).record == moves[0]
    ledger.remove_closed([copying.RawDocument(path, data)])
    ledger.remove_closed([copying.RawDocument(path, data)])
    with pytest.raises(NotFound):
        ledger.read_record(key)


def test_many_records_are_moved(store: Store, ledger: Ledger, moves: list[MoveRecord], folder: str) -> None:
    for number in range(300):
        store.put_closed(dataclasses.replace(moves[0], id=str(uuid.uuid4())), f"2024-{number % 12 + 1:02d}-01T00:00:00.{number:03d}Z")
    assert archive(ledger, folder, "2025-01-01T00:00:00.000Z").records == 299
    assert len(list_ids(ledger)) == 6
    assert len(list_ids(read_archive(folder))) == 299
    check_intact(ledger, read_archive(folder))


def test_an_archive_is_read_and_not_used_as_a_ledger(ledger: Ledger, moves: list[MoveRecord], folder: str) -> None:
    archive(ledger, folder)
    with pytest.raises(InvalidState, match=f"is an archive of the ledger {ledger.name}, and can only be read"):
        FileLedger(folder)
    with pytest.raises(InvalidState, match="can only be read"):
        read_archive(folder).put_host(host_entry({"name": "kvm9", "host_id": str(uuid.uuid4()), "host_uuid": None, "state": "enabled"}), None)
    with pytest.raises(InvalidArgument, match="already contains a ledger"):
        copying.copy_ledger(ledger, FileStore(pathlib.Path(folder)).target(), BY)


@pytest.mark.parametrize("check", [False, True])
def test_an_archive_is_not_copied(store: Store, ledger: Ledger, moves: list[MoveRecord], folder: str, check: bool) -> None:
    archive(ledger, folder)
    before = FileStore(pathlib.Path(folder)).names()
    for target in (store.target(), FileStore(pathlib.Path(f"{folder}-2")).target()):
        with pytest.raises(InvalidState, match="is an archive of the ledger"):
            copying.copy_ledger(read_archive(folder), target, BY, check=check)
    assert FileStore(pathlib.Path(folder)).names() == before


def test_a_ledger_can_be_copied_afterwards(
    store: Store, other_store: Store, ledger: Ledger, moves: list[MoveRecord], folder: str, new_move: NewMove, advance_record: AdvanceRecord
) -> None:
    archive(ledger, folder)
    lines = {*list_lines(ledger), *list_lines(read_archive(folder))}
    copying.copy_ledger(store.open(moved=True), other_store.target(), BY)
    there = other_store.open()
    assert make_move(there, new_move, advance_record, WEB).generation == moves[3].generation + 1
    archive(there, folder)
    assert {*list_lines(there), *list_lines(read_archive(folder))} > lines
    check_intact(there, read_archive(folder))
    assert read_archive(folder).identity.archive_of == there.name


def make_own_ledger(folder: str, ledger: Ledger) -> None:
    FileLedger(folder)


def make_other_archive(folder: str, ledger: Ledger) -> None:
    other = FileLedger(f"{folder}-of")
    ArchiveFolder(folder).open_archive(other.identity, other.name, LATER, BY)


def make_other_data(folder: str, ledger: Ledger) -> None:
    pathlib.Path(folder).mkdir()
    pathlib.Path(folder, "passwd").touch()


def mark_copy(folder: str, ledger: Ledger) -> None:
    target = FileStore(pathlib.Path(folder)).target()
    target.mark_copy(b"x", target.read_state())


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (make_own_ledger, "is a ledger .*, and no archive"),
        (make_other_archive, "is an archive of another ledger"),
        (make_other_data, "contains other data .e.g. 'passwd'."),
        (mark_copy, "contains an unfinished copy of a ledger"),
    ],
)
@pytest.mark.parametrize("check", [False, True])
def test_nothing_else_is_taken_for_the_archive(
    store: Store, ledger: Ledger, moves: list[MoveRecord], folder: str, make: Callable[[str, Ledger], None], why: str, check: bool
) -> None:
    make(folder, ledger)
    before, there = list_contents(store), FileStore(pathlib.Path(folder)).names()
    with pytest.raises(InvalidArgument, match=why):
        archive(ledger, folder, check=check)
    assert (list_contents(store), FileStore(pathlib.Path(folder)).names()) == (before, there)


@pytest.mark.parametrize("check", [False, True])
def test_an_archive_that_is_not_mounted_is_not_begun_again(ledger: Ledger, moves: list[MoveRecord], folder: str, check: bool) -> None:
    archive(ledger, folder, str(moves[3].updated_at))
    os.rename(folder, f"{folder}-disk")
    before = list_ids(ledger)
    for change in (os.mkdir, os.rmdir):
        change(folder)
        with pytest.raises(InvalidState, match="its disk may not be mounted"):
            archive(ledger, folder, check=check)
        assert list_ids(ledger) == before
    os.rename(f"{folder}-disk", folder)
    assert archive(ledger, folder, check=check).records == 2


@pytest.mark.parametrize("check", [False, True])
def test_an_archive_of_an_old_backup_is_not_continued(ledger: Ledger, moves: list[MoveRecord], folder: str, check: bool) -> None:
    archive(ledger, folder, str(moves[3].updated_at))
    shutil.copytree(folder, f"{folder}-backup")
    archive(ledger, folder, str(moves[4].updated_at))
    os.rename(folder, f"{folder}-newest")
    os.rename(f"{folder}-backup", folder)
    before = list_ids(ledger)
    with pytest.raises(InvalidState, match="lacks what was archived since"):
        archive(ledger, folder, check=check)
    assert list_ids(ledger) == before
    shutil.rmtree(folder)
    os.rename(f"{folder}-newest", folder)
    assert archive(ledger, folder, check=check).records == 1


def test_archives_of_two_control_nodes_at_the_same_path_are_both_listed(
    ledger: Ledger, moves: list[MoveRecord], folder: str, new_move: NewMove, advance_record: AdvanceRecord
) -> None:
    archive(ledger, folder, str(moves[3].updated_at))
    archive(ledger, f"{folder}-2", str(moves[4].updated_at))
    os.rename(folder, f"{folder}-of-another-node")
    os.rename(f"{folder}-2", folder)
    archive(ledger, folder)
    notes = ledger.examine_contents(list_archives)
    assert [note["to"] for note in notes] == [folder, folder]
    assert [note["id"] for note in notes] == [read_archive(where).identity.archive_id for where in (f"{folder}-of-another-node", folder)]


def test_an_archive_and_its_note_without_an_id_are_continued(store: Store, ledger: Ledger, moves: list[MoveRecord], folder: str) -> None:
    archive(ledger, folder, str(moves[3].updated_at))
    found = ledger.read_settings()
    assert found is not None
    (note,) = found.settings.archives or ()
    ledger.put_settings(dataclasses.replace(found.settings, archives=({key: note[key] for key in ("to", "until", "at", "by")},)), found.version)
    content = read_archive(folder).identity.content
    assert content.archive
    pathlib.Path(folder, "ledger.json").write_bytes(encode_document(dataclasses.replace(content, archive=dataclasses.replace(content.archive, id=ABSENT)), 9))
    archive(ledger, folder)
    (note,) = ledger.examine_contents(list_archives)
    assert note["id"] == read_archive(folder).identity.archive_id


def test_the_ledger_itself_is_no_archive(store: Store, ledger: Ledger, moves: list[MoveRecord]) -> None:
    if isinstance(store, FileStore):
        with pytest.raises(InvalidArgument, match="and no archive"):
            archive(ledger, str(store.folder))


def test_nothing_is_archived_while_a_host_cannot_be_read(store: Store, ledger: Ledger, moves: list[MoveRecord], folder: str) -> None:
    store.write(f"hosts/{KVM1.host_id}.json", b"torn")
    before = list_ids(ledger)
    with pytest.raises(InvalidState, match="Nothing was archived"):
        archive(ledger, folder)
    assert list_ids(ledger) == before


def test_nothing_is_archived_while_an_open_record_is_of_a_later_version(store: Store, ledger: Ledger, moves: list[MoveRecord], folder: str) -> None:
    key = str(uuid.uuid4())
    store.write(f"migrations/open/{key}.json", encode_document({"id": key, "schema": 99}, 1))
    before = list_ids(ledger)
    with pytest.raises(NotSupported, match=f"A later version wrote the open record {key}"):
        archive(ledger, folder)
    assert list_ids(ledger) == before


@pytest.mark.parametrize("is_restored", [False, True])
def test_nothing_is_archived_while_an_open_record_is_damaged(
    store: Store, ledger: Ledger, moves: list[MoveRecord], folder: str, new_move: NewMove, is_restored: bool
) -> None:
    """It may be of any domain, so that any record may have to stay."""
    key = str(ledger.open_record(new_move()).record.id)
    name = f"migrations/open/{key}.json"
    before, data = list_ids(ledger) - {key}, t.cast(bytes, store.read(name))
    store.write(name, b"torn")
    for check in (True, False, False):
        with pytest.raises(InvalidState, match=f"{key}.*damaged and set aside.*Nothing was archived"):
            archive(store.open(), folder, check=check)
        assert list_ids(ledger) == before
    if is_restored:
        store.write(name, data)
    else:
        (aside,) = store.names("set_aside")
        store.remove(aside)
    assert archive(store.open(), folder).records == 3


def test_a_closed_record_that_cannot_be_read_is_left(store: Store, ledger: Ledger, moves: list[MoveRecord], folder: str) -> None:
    name = f"migrations/closed/2024/02/{uuid.uuid4()}.json"
    store.write(name, b"torn")
    archive(ledger, folder)
    assert store.read(name) == b"torn"


def test_lines_after_a_changed_one_stay(etcd: EtcdStore, new_move: NewMove, advance_record: AdvanceRecord, folder: str) -> None:
    ledger = etcd.open()
    make_move(ledger, new_move, advance_record, WEB)
    key = f"audit/{chain_of_domain(WEB)}/000000000003"
    line = json.loads(t.cast(bytes, etcd.read(key)))
    etcd.write(key, json.dumps({**line, "by": "somebody else"}).encode())
    done = archive(ledger, folder)
    assert done.lines == 2
    (problem,) = done.problems
    assert problem.startswith(f"Audit chain {chain_of_domain(WEB)}: Line 3 was changed, or lines before it are missing. The lines from there on stay")
    problems = ledger.verify_audit()
    assert f"Audit chain {chain_of_domain(WEB)}: Line 3 was changed: its hash does not match what it says." in problems
    check_intact(read_archive(folder))


def test_a_line_from_the_future_that_keeps_others_in_the_ledger_is_a_problem(
    etcd: EtcdStore, new_move: NewMove, advance_record: AdvanceRecord, folder: str
) -> None:
    ledger = etcd.open()
    stored = ledger.open_record(new_move("web1", WEB))
    ahead = dataclasses.replace(stored.record.advance(s.SCHEDULED, BY), updated_at="2099-01-01T00:00:00.000Z")
    advance_record(ledger, ledger.update_record(stored, ahead), s.RUNNING, s.COMPLETED)
    for check in (True, False):
        done = archive(ledger, folder, "2098-01-01T00:00:00.000Z", check=check)
        assert done.lines == 1
        (problem,) = done.problems
        assert problem.startswith(f"Audit chain {chain_of_domain(WEB)}: Line 2 has a time in the future, 2099-01-01T00:00:00.000Z")
    check_intact(ledger, read_archive(folder))


def test_a_line_that_was_removed_is_noticed_beside_archived_ones(etcd: EtcdStore, new_move: NewMove, advance_record: AdvanceRecord, folder: str) -> None:
    ledger = etcd.open()
    make_move(ledger, new_move, advance_record, WEB)
    archive(ledger, folder)
    make_move(ledger, new_move, advance_record, WEB)
    etcd.remove(f"audit/{chain_of_domain(WEB)}/000000000005")
    assert any("Before line 6 a line is missing" in problem or "Before line 5 a line is missing" in problem for problem in ledger.verify_audit())


def test_a_chain_without_its_end_is_left(etcd: EtcdStore, new_move: NewMove, advance_record: AdvanceRecord, folder: str) -> None:
    ledger = etcd.open()
    make_move(ledger, new_move, advance_record, WEB)
    before = etcd.lines()
    etcd.write(f"audit.heads/{chain_of_domain(WEB)}", b"torn")
    done = archive(ledger, folder)
    assert (done.lines, etcd.lines()) == (0, before)
    assert "The key with its end is missing or damaged." in done.problems[0]


def test_a_lost_end_is_found_again_from_the_line_that_stays(etcd: EtcdStore, new_move: NewMove, advance_record: AdvanceRecord, folder: str) -> None:
    ledger = etcd.open()
    make_move(ledger, new_move, advance_record, WEB)
    archive(ledger, folder)
    etcd.remove(f"audit.heads/{chain_of_domain(WEB)}")
    make_move(ledger, new_move, advance_record, WEB)
    numbers = [name.rpartition("/")[2] for name in etcd.names("audit") if f"/{chain_of_domain(WEB)}/" in name]
    assert numbers == [f"{number:012d}" for number in range(4, 9)]
    lost = f"Audit chain {chain_of_domain(WEB)}: After line 4 its end was lost: further lines may be missing there."
    assert ledger.verify_audit() == [lost]
    done = archive(ledger, folder)
    assert (done.lines, done.problems, ledger.verify_audit()) == (4, (), [lost])
    check_intact(read_archive(folder))


@pytest.mark.parametrize("what", ["changed", "removed", "added"])
def test_audit_lines_of_the_archive_are_sealed(
    etcd: EtcdStore, new_move: NewMove, advance_record: AdvanceRecord, folder: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chains, "_MAX_PART_LINES", 1)
    ledger = etcd.open()
    make_move(ledger, new_move, advance_record, WEB)
    archive(ledger, folder)
    there, kept = pathlib.Path(folder, "audit.archive"), f"1-{chain_of_domain(WEB)}-"
    if what == "changed":
        line = there / f"{kept}000000000002.jsonl"
        line.write_bytes(line.read_bytes().replace(b"root@control", b"toor@control"))
    for number in (1, 2) if what != "changed" else ():
        for end in (".json", ".jsonl"):
            file = there / f"{kept}{number:012d}{end}"
            if what == "removed":
                file.unlink()
            else:
                file.with_name(f"{kept}{number + 10:012d}{end}").write_bytes(file.read_bytes())
    assert read_archive(folder).verify_audit() != []
    make_move(ledger, new_move, advance_record, WEB)
    if what != "changed":
        with pytest.raises(InvalidState, match="are not those that were archived"):
            archive(ledger, folder)


def test_lines_of_a_ledger_that_was_set_back_are_archived_beside_the_others(
    etcd: EtcdStore, new_move: NewMove, advance_record: AdvanceRecord, folder: str
) -> None:
    ledger = etcd.open()
    make_move(ledger, new_move, advance_record, WEB)
    backup = {name: etcd.read(name) for name in etcd.names() if not name.startswith(("locks/", "writers/"))}
    make_move(ledger, new_move, advance_record, WEB)
    archive(ledger, folder)
    first = list_lines(read_archive(folder))
    etcd.clear()
    for name, value in backup.items():
        etcd.write(name, t.cast(bytes, value))
    restored = etcd.open()
    archive(restored, folder)
    make_move(restored, new_move, advance_record, WEB, s.FAILED)
    archive(restored, folder)
    there = list_lines(read_archive(folder))
    assert {*first} <= {*there}
    assert any(b'"failed"' in line for line in [*there, *list_lines(restored)])
    check_intact(read_archive(folder), restored)


def test_an_archive_can_be_verified_beside_a_run(etcd: EtcdStore, new_move: NewMove, advance_record: AdvanceRecord, folder: str) -> None:
    ledger = etcd.open()
    moves = [make_move(ledger, new_move, advance_record, WEB) for _ in range(3)]
    archive(ledger, folder, str(moves[2].created_at))
    reader = read_archive(folder)
    archive(ledger, folder)
    check_intact(reader)
    pathlib.Path(folder, "ledger.json").write_bytes(ledger.identity.data)
    with pytest.raises(InvalidState, match="replaced by another one"):
        reader.verify_audit()


def test_changed_lines_of_an_archive_are_not_said_to_be_of_a_copy(etcd: EtcdStore, new_move: NewMove, advance_record: AdvanceRecord, folder: str) -> None:
    ledger = etcd.open()
    make_move(ledger, new_move, advance_record, WEB)
    archive(ledger, folder)
    (ends,) = pathlib.Path(folder, "audit.archive").glob("*.json")
    ends.write_bytes(b"torn")
    make_move(ledger, new_move, advance_record, WEB)
    problems = read_archive(folder).verify_audit()
    with pytest.raises(InvalidState) as caught:
        archive(ledger, folder)
    assert "The audit chains differ from those that were archived: one was changed, removed or added." in problems
    assert not any(word in text for text in (*problems, str(caught.value)) for word in ("copied", "former"))


def test_another_run_that_has_the_archive_is_noticed(ledger: Ledger, moves: list[MoveRecord], folder: str) -> None:
    ours = ArchiveFolder(folder)
    ours.open_archive(ledger.identity, ledger.name, LATER, BY)
    ArchiveFolder(folder).open_archive(ledger.identity, ledger.name, LATER, BY)
    with pytest.raises(Conflict, match="was changed by another process meanwhile"):
        ours.add_documents([])


@pytest.mark.parametrize("check", [False, True])
def test_nothing_is_archived_while_the_settings_are_damaged(store: Store, ledger: Ledger, moves: list[MoveRecord], folder: str, check: bool) -> None:
    """They say where the archives are, and no other document does."""
    archive(ledger, folder, str(moves[3].updated_at))
    store.write(f"settings/{ledger.ledger_id}.json", b"torn")
    before = list_ids(ledger)
    for _ in range(2):
        with pytest.raises(InvalidState, match="ledger_settings"):
            archive(store.open(), folder, check=check)
        assert (list_ids(ledger), ledger.has_damaged_settings(), ledger.read_settings()) == (before, True, None)
    decide_override(ledger, True, "as before", BY)
    assert archive(store.open(), folder, check=check).records == 2
    assert [note["to"] for note in ledger.examine_contents(list_archives)] == ([] if check else [folder])


def test_what_administrators_have_decided_stays(store: Store, ledger: Ledger, moves: list[MoveRecord], folder: str) -> None:
    m.archive_ledger(ledger, ArchiveFolder(folder), str(moves[3].updated_at), BY)
    assert ledger.read_settings().settings.override_policy_allowed  # type: ignore[union-attr]
    archive(ledger, f"{folder}-2")
    found = decode_document(t.cast(bytes, store.read(f"settings/{ledger.ledger_id}.json"))).body
    assert [one["to"] for one in t.cast("list[dict[str, str]]", found["archives"])] == [folder, f"{folder}-2"]


def closed(number: int, domain: str = WEB, generation: int = 1, **other: t.Any) -> m.ClosedRecord:
    record = m.ClosedRecord(f"r{number}", domain, s.LIVE_MIGRATION, s.COMPLETED, generation, f"2024-01-{number:02d}", False)
    return record._replace(**other)


NOTHING_NEEDED = m.NeededRecords(frozenset(), frozenset(), None)


@pytest.mark.parametrize(
    ("records", "needed", "chosen"),
    [
        ([closed(1), closed(2, generation=2)], NOTHING_NEEDED, ["r1"]),
        ([closed(2, generation=2), closed(1)], NOTHING_NEEDED, ["r1"]),
        ([closed(1), closed(2, generation=2, status=s.FAILED)], NOTHING_NEEDED, []),
        ([closed(1, status=s.FAILED), closed(2, generation=2, status=s.FAILED)], NOTHING_NEEDED, ["r1"]),
        ([closed(1), closed(2, generation=2), closed(3, DB)], NOTHING_NEEDED, ["r1"]),
        ([closed(1), closed(2, generation=2), closed(3, generation=3)], NOTHING_NEEDED._replace(last=frozenset({"r2"})), ["r1"]),
        ([closed(1), closed(2, generation=2)], NOTHING_NEEDED._replace(domains=frozenset({WEB})), []),
        ([closed(1), closed(2, generation=2)], NOTHING_NEEDED._replace(domains=frozenset({DB})), ["r1"]),
        ([closed(1, type=s.EVACUATION), closed(2, generation=2)], NOTHING_NEEDED, []),
        ([closed(1, type=s.COLD_MIGRATION), closed(2, generation=2)], NOTHING_NEEDED, []),
        ([closed(1), closed(2, generation=2, type=s.EVACUATION)], NOTHING_NEEDED, ["r1"]),
        ([closed(1, status=s.FAILED, is_superseded=True), closed(2, generation=2)], NOTHING_NEEDED, []),
        ([closed(1), closed(2, generation=2), closed(3, generation=3)], NOTHING_NEEDED._replace(since="2024-01-02"), ["r1"]),
    ],
)
def test_what_is_needed_stays(records: list[m.ClosedRecord], needed: m.NeededRecords, chosen: list[str]) -> None:
    newest = m.find_newest(records)
    assert [record.id for record in records if m.find_reason(record, needed, newest) is None] == chosen


def test_records_since_a_host_is_out_of_service_stay(store: Store, ledger: Ledger, moves: list[MoveRecord], folder: str) -> None:
    host = ledger.find_host("kvm1")
    assert host is not None
    ledger.put_host(dataclasses.replace(host.host, state=s.MAINTENANCE, since="2024-01-01T00:00:00.000Z"), host.version)
    assert archive(ledger, folder).kept == {m.NEWEST: 2, m.LEFTOVERS: 0, m.IN_PROGRESS: 0, m.DISPLACED: 3}
