# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A ledger that is moved from each store to each: complete, once, and never usable in both."""

from __future__ import annotations

import json
import os
import typing as t
import uuid
from collections.abc import Callable

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import (
    Conflict,
    Internal,
    InvalidArgument,
    InvalidState,
    KvmfleetError,
    TimedOut,
    Unreachable,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger import copying
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.contents import compute_fingerprint, find_problems
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.identity import copying_marker
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.conftest import KVM1, KVM2
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import domain_entry, host_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import EtcdStore, FileStore, Store

AdvanceRecord = Callable[..., Stored]
NewMove = Callable[..., MoveRecord]
DIED = 42
BY = "root@control pid 7"
STEPS = ["marked", "closed", "document", "chain", "copied", "compared", "finished", "left"]
# From here on the copy is the ledger.
ARRIVED = ("finished", "left")


class Fleet(t.NamedTuple):
    """What was put into a ledger: its ID, a closed record, a tombstone, and a domain whose document was damaged."""

    ledger_id: str
    closed: Stored
    done: Stored
    damaged: str


@pytest.fixture
def fleet(store: Store, ledger: Ledger, new_move: NewMove, advance_record: AdvanceRecord) -> Fleet:
    for end in (KVM1, KVM2):
        ledger.put_host(host_entry({"name": end.host, "host_id": end.host_id, "host_uuid": end.host_uuid, "state": "enabled"}), None)
    closed = advance_record(ledger, ledger.open_record(new_move("web1")), s.SCHEDULED, s.RUNNING, s.COMPLETED)
    advance_record(ledger, ledger.open_record(new_move("web2")), s.CANCELLED)
    done = advance_record(ledger, ledger.open_record(new_move("db", record_type=s.EVACUATION)), s.PRE_MIGRATING, s.DONE)
    spoilt = advance_record(ledger, ledger.open_record(new_move("spoilt")), s.FAILED).record.domain.uuid
    store.put_closed(new_move("old"), "2024-02-03T04:05:06.789Z")
    store.write(f"domains/{spoilt}.json", b"torn")
    assert ledger.read_domain(spoilt) is None
    return Fleet(ledger.ledger_id, closed, done, spoilt)


def moved(store: Store, other_store: Store, **options: t.Any) -> copying.CopyOutcome:
    return copying.copy_ledger(store.open(create=False, moved=True), other_store.target(), BY, **options)


def documents(store: Store) -> dict[str, bytes | None]:
    names = [name for folder in ("migrations", "domains", "hosts", "set_aside") for name in store.names(folder)]
    return {name: store.read(name) for name in names}


def list_contents(store: Store) -> dict[str, bytes | None]:
    """Return all that is kept, but for who holds a lock and who has written."""
    names = [name for name in store.names() if not name.startswith(("locks/", "writers/")) and name not in ("ledger.lock", "journal")]
    return {name: store.read(name) for name in names}


def check_alive(store: Store, fleet: Fleet, new_move: NewMove, advance_record: AdvanceRecord) -> None:
    """It holds what was put there, verifies, and is written as any ledger."""
    ledger = store.open(create=False)
    assert ledger.ledger_id == fleet.ledger_id
    assert ledger.read_record(fleet.closed.record.record_id) == fleet.closed
    assert ledger.read_record(fleet.done.record.record_id) == fleet.done
    assert {document.body["ledger_id"] for document in ledger.list_hosts()} == {fleet.ledger_id}
    assert ledger.read_domains().damaged == [fleet.damaged]
    assert ledger.open_record(new_move("spoilt", fleet.damaged)).record.generation == 2
    again = ledger.open_record(new_move("web1", fleet.closed.record.domain.uuid))
    assert again.record.generation == 2
    advance_record(ledger, again, s.CANCELLED)
    advance_record(ledger, fleet.done, s.COMPLETED)
    assert ledger.examine_contents(find_problems).all_problems == []
    assert len(list(ledger.list_records(since="2024-01-01", until="2025-01-01"))) == 1
    assert ledger.problems == []


def check_refused(store: Store, to: Store, *had_it_open: Ledger) -> None:
    """Nobody writes the old place, and all are told the new one."""
    for ledger in had_it_open:
        with pytest.raises(InvalidState, match="moved to"):
            ledger.put_host(host_entry({"name": "kvm9", "host_id": str(uuid.uuid4()), "host_uuid": None, "state": "enabled"}), None)
    with pytest.raises(InvalidState) as refused:
        store.open()
    assert to.target().name in str(refused.value)


def test_a_ledger_is_copied_completely_and_the_old_location_closed(
    store: Store, other_store: Store, ledger: Ledger, fleet: Fleet, new_move: NewMove, advance_record: AdvanceRecord
) -> None:
    before = documents(store)
    before_lines = sorted(store.lines())
    assert moved(store, other_store) == copying.CopyOutcome(True)
    assert documents(store) == documents(other_store) == before
    with other_store.open(create=False).open_contents() as contents:
        assert sorted(line.decode().rstrip("\n") for _chain, lines in contents.read_chains() for line in lines) == before_lines
    check_refused(store, other_store, ledger, store.open(moved=True))
    check_alive(other_store, fleet, new_move, advance_record)
    assert documents(store) == before


def test_copied_records_keep_the_time_of_their_end(store: Store, other_store: Store, fleet: Fleet) -> None:
    moved(store, other_store)
    there = other_store.open()
    (old,) = there.list_records(until="2025-01-01")
    assert old.id in there.list_closed_ids() - there.list_closed_since("2024-02-20")
    assert fleet.closed.record.id in there.list_closed_since("2024-02-20")


def test_a_ledger_larger_than_one_etcd_transaction_is_copied(store: Store, other_store: Store, ledger: Ledger, new_move: NewMove) -> None:
    for number in range(100):
        store.put_closed(new_move(f"web{number}"), f"2024-0{number % 9 + 1}-01T00:00:00.000Z")
    for number in range(3):
        large = {"definition": str(number) * 700_000}
        ledger.put_domain(domain_entry({"uuid": str(uuid.uuid4()), "name": f"large{number}", "possible_hosts": [encode(KVM1)], "protected": large}), None)
    moved(store, other_store)
    assert documents(other_store) == documents(store)
    there = other_store.open()
    assert {there.read_record(record.record_id).record.id for record in there.list_records()} == {record.id for record in store.open(moved=True).list_records()}
    assert there.examine_contents(find_problems).all_problems == []


def test_copying_again_changes_nothing(store: Store, other_store: Store, fleet: Fleet, new_move: NewMove) -> None:
    moved(store, other_store)
    other_store.open().open_record(new_move("later"))
    before = list_contents(store), list_contents(other_store)
    assert moved(store, other_store) == copying.CopyOutcome(False)
    assert (list_contents(store), list_contents(other_store)) == before


def test_check_mode_predicts_the_copy_and_writes_nothing(store: Store, other_store: Store, ledger: Ledger, fleet: Fleet, new_move: NewMove) -> None:
    before = list_contents(store)
    assert moved(store, other_store, check=True) == copying.CopyOutcome(True)
    assert list_contents(store) == before
    assert other_store.names() == []
    ledger.open_record(new_move("on its way"))
    with pytest.raises(Conflict):
        moved(store, other_store, check=True)


def test_a_ledger_with_unsettled_records_is_not_copied(store: Store, other_store: Store, ledger: Ledger, fleet: Fleet, new_move: NewMove) -> None:
    unsettled = [ledger.open_record(new_move(name)).record for name in ("web7", "web8")]
    before = list_contents(store)
    with pytest.raises(Conflict) as refused:
        moved(store, other_store)
    text = str(refused.value)
    assert all(str(record.id) in text and str(record.domain.name) in text for record in unsettled)
    assert "settle: {id: " in text
    assert {record["id"] for record in refused.value.result["records"]} == {record.id for record in unsettled}
    assert list_contents(store) == before
    assert other_store.names() == []


def test_a_record_opened_while_the_target_is_marked_stops_the_copy(store: Store, other_store: Store, ledger: Ledger, fleet: Fleet, new_move: NewMove) -> None:
    with pytest.raises(Conflict, match="web9"):
        moved(store, other_store, step=lambda name: ledger.open_record(new_move("web9")) if name == "marked" else None)
    assert [record.domain.name for record in store.open().list_records(unsettled_only=True)] == ["web9"]


def die_at(step: str) -> Callable[[str], None]:
    return lambda name: os._exit(DIED) if name == step else None


@pytest.mark.parametrize("step", STEPS)
def test_a_copy_that_crashed_at_any_step_is_completed_by_the_same_task(
    store: Store,
    other_store: Store,
    ledger: Ledger,
    fleet: Fleet,
    new_move: NewMove,
    advance_record: AdvanceRecord,
    in_child: Callable[[Callable[[], None]], int],
    exit_of: Callable[[int], int],
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    monkeypatch.setattr(copying, "_MAX_BATCH_DOCUMENTS", 2)
    before = documents(store)
    assert exit_of(in_child(lambda: t.cast(None, moved(store, other_store, step=die_at(step))))) == DIED
    alive = [place for place in (store, other_store) if is_alive(place)]
    assert alive == ([store] if step == "marked" else [other_store] if step in ARRIVED else [])
    if step == "marked":
        assert documents(store) == before
        advance_record(ledger, ledger.open_record(new_move("between")), s.CANCELLED)
        before = documents(store)
    else:
        check_refused(store, other_store, ledger)
    wait_for_lock(store)
    assert moved(store, other_store).changed == (step != "left")
    assert documents(other_store) == before
    assert "copying" not in other_store.names()
    check_refused(store, other_store, ledger)
    check_alive(other_store, fleet, new_move, advance_record)


def wait_for_lock(store: Store) -> None:
    """What held the lock of the copy has died; in etcd its lease is ended here, which takes 15 s otherwise."""
    if isinstance(store, EtcdStore):
        for name in store.names("locks"):
            store.client.revoke_lease(int(name.rpartition("/")[2], 16))


def is_alive(store: Store) -> bool:
    try:
        store.open(create=False)
    except KvmfleetError:
        return False
    return True


def test_an_unfinished_copy_cannot_be_opened(store: Store, other_store: Store, fleet: Fleet) -> None:
    other_store.target().mark_copy(copying_marker(fleet.ledger_id, "/srv/ledger", BY), other_store.target().read_state())
    for create in (True, False):
        with pytest.raises(InvalidState, match=f"unfinished copy of the ledger /srv/ledger .{fleet.ledger_id}"):
            other_store.open(create)


class Broken(Exception):
    """What no code of ours expects."""


WRITES = ["write_documents", "write_chain", "finish_copy"]


@pytest.mark.parametrize("write", WRITES)
def test_an_error_of_the_target_reopens_the_old_location(
    store: Store,
    other_store: Store,
    ledger: Ledger,
    fleet: Fleet,
    new_move: NewMove,
    advance_record: AdvanceRecord,
    monkeypatch: pytest.MonkeyPatch,
    write: str,
) -> None:
    before = documents(store)
    there = other_store.target()

    def full(*_args: t.Any) -> None:
        raise Internal("No room.", "Make room.")

    monkeypatch.setattr(there, write, full)
    with pytest.raises(Internal, match="No room") as failed:
        copying.copy_ledger(store.open(moved=True), there, BY)
    # Where it is not known whether the copy became the ledger, the old one stays closed.
    if write == "finish_copy":
        assert "stays closed until this copy is finished" in str(failed.value)
        check_refused(store, other_store, ledger)
    else:
        assert "stays in use" in str(failed.value)
        advance_record(store.open(), store.open().open_record(new_move("meanwhile")), s.CANCELLED)
        before = documents(store)
    moved(store, other_store)
    assert documents(other_store) == before
    check_alive(other_store, fleet, new_move, advance_record)


@pytest.mark.parametrize("write", WRITES)
def test_a_copy_interrupted_at_any_write_is_completed_by_the_same_task(
    store: Store,
    other_store: Store,
    ledger: Ledger,
    fleet: Fleet,
    new_move: NewMove,
    advance_record: AdvanceRecord,
    monkeypatch: pytest.MonkeyPatch,
    write: str,
) -> None:
    there = other_store.target()
    before = documents(store)

    def broken(*_args: t.Any) -> None:
        raise Broken

    monkeypatch.setattr(there, write, broken)
    with pytest.raises(Broken):
        copying.copy_ledger(store.open(moved=True), there, BY)
    check_refused(store, other_store, ledger)
    moved(store, other_store)
    assert documents(other_store) == before
    check_alive(other_store, fleet, new_move, advance_record)


def test_a_copy_that_differs_when_read_back_is_given_up(
    store: Store, other_store: Store, fleet: Fleet, new_move: NewMove, advance_record: AdvanceRecord
) -> None:
    def spoil(name: str) -> None:
        if name == "copied":
            other_store.write(f"domains/{fleet.closed.record.domain.uuid}.json", b"spoilt")

    with pytest.raises(Internal, match=r"read back from .* differ from the ledger"):
        moved(store, other_store, step=spoil)
    assert is_alive(store)
    moved(store, other_store)
    check_alive(other_store, fleet, new_move, advance_record)


def test_documents_of_an_earlier_attempt_are_removed(store: Store, other_store: Store, fleet: Fleet, new_move: NewMove, advance_record: AdvanceRecord) -> None:
    there = other_store.target()
    there.mark_copy(copying_marker(fleet.ledger_id, "x", BY), there.read_state())
    other_store.write(f"domains/{uuid.uuid4()}.json", b"of a domain that is not there any more")
    moved(store, other_store)
    assert documents(store) == documents(other_store)
    check_alive(other_store, fleet, new_move, advance_record)


def lose_lock(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """End a lock that a living process holds, as etcd does by itself; in a folder nobody can, and another one is taken there."""
    wait_for_lock(store)
    monkeypatch.setattr(copying, "COPY_LOCK", "another-lock")


@pytest.mark.parametrize("held_up_at", ["document", "copied", "compared"])
def test_a_delayed_copy_writes_nothing_after_another_run_took_over(
    store: Store, other_store: Store, fleet: Fleet, new_move: NewMove, advance_record: AdvanceRecord, monkeypatch: pytest.MonkeyPatch, held_up_at: str
) -> None:
    """As one that is stopped for so long that its lock ends: the other run is whole by then."""
    after: list[dict[str, bytes | None]] = []

    def other_run(name: str) -> None:
        if name == held_up_at and not after:
            lose_lock(store, monkeypatch)
            assert moved(store, other_store) == copying.CopyOutcome(True)
            there = other_store.open()
            for document in there.list_domains():
                advance_record(there, there.open_record(new_move(domain_uuid=document.body["uuid"])), s.CANCELLED)
            after.append(list_contents(other_store))

    with pytest.raises(KvmfleetError):
        moved(store, other_store, step=other_run)
    assert list_contents(other_store) == after[0]
    check_refused(store, other_store)
    assert other_store.open().examine_contents(find_problems).all_problems == []


def test_a_second_concurrent_copy_times_out(store: Store, other_store: Store, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "COPY_LOCK_SECONDS", 0.1)
    with store.open().hold_lock(copying.COPY_LOCK), pytest.raises(TimedOut):
        moved(store, other_store)
    assert is_alive(store)
    assert other_store.names() == []


def test_a_target_with_foreign_files_is_refused(store: Store, other_store: Store, fleet: Fleet) -> None:
    other_store.write("thesis.tex", b"mine")
    with pytest.raises(InvalidArgument, match=r"thesis\.tex"):
        moved(store, other_store)
    assert other_store.names() == ["thesis.tex"]
    assert is_alive(store)


def test_a_target_that_is_another_ledger_is_refused(store: Store, other_store: Store, fleet: Fleet) -> None:
    other = other_store.open()
    before = list_contents(other_store)
    for check in (True, False):
        with pytest.raises(InvalidArgument, match=other.ledger_id):
            moved(store, other_store, check=check)
    assert list_contents(other_store) == before
    assert is_alive(store)


def test_an_unfinished_copy_of_another_ledger_is_refused(store: Store, other_store: Store, fleet: Fleet) -> None:
    other_store.target().mark_copy(copying_marker(str(uuid.uuid4()), "/srv/other", BY), other_store.target().read_state())
    before = list_contents(other_store)
    with pytest.raises(InvalidArgument, match="unfinished copy of the ledger /srv/other"):
        moved(store, other_store)
    assert list_contents(other_store) == before


def test_copying_a_ledger_onto_itself_is_refused(store: Store, fleet: Fleet) -> None:
    with pytest.raises(InvalidArgument, match="are the same ledger"):
        moved(store, store)
    assert is_alive(store)


def test_a_moved_ledger_is_not_copied_to_a_third_location(store: Store, other_store: Store, fleet: Fleet, etcd: EtcdStore) -> None:
    moved(store, other_store)
    third = EtcdStore(etcd.address.__class__(etcd.address.endpoints, f"{etcd.address.prefix}third/"), etcd.options)
    with pytest.raises(InvalidState, match="was moved to"):
        moved(store, third)
    assert third.names() == []


def lose(store: Store) -> None:
    """Empty it."""
    if isinstance(store, FileStore):
        store.folder.rename(store.folder.parent / "lost")
    else:
        t.cast(EtcdStore, store).clear()


def test_a_copy_that_died_begins_anew_at_an_empty_target(
    store: Store,
    other_store: Store,
    ledger: Ledger,
    fleet: Fleet,
    in_child: Callable[[Callable[[], None]], int],
    exit_of: Callable[[int], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert exit_of(in_child(lambda: t.cast(None, moved(store, other_store, step=die_at("closed"))))) == DIED
    wait_for_lock(store)
    lose(other_store)
    there = other_store.target()

    def lost() -> None:
        raise Unreachable("It does not answer.")

    monkeypatch.setattr(there, "read_state", lost)
    with pytest.raises(Unreachable, match="permanently lost, first provide an empty one"):
        copying.copy_ledger(store.open(moved=True), there, BY)
    check_refused(store, other_store, ledger)
    moved(store, other_store)
    assert other_store.open().read_record(fleet.closed.record.record_id) == fleet.closed


def test_a_moved_ledger_is_not_copied_again_if_its_new_location_is_lost(store: Store, other_store: Store, fleet: Fleet) -> None:
    moved(store, other_store)
    lose(other_store)
    with pytest.raises(InvalidState, match=r"is no longer there.*Restore it"):
        moved(store, other_store)
    assert other_store.names() == []


def test_a_ledger_with_a_damaged_document_is_not_copied(store: Store, other_store: Store, fleet: Fleet) -> None:
    name = f"domains/{fleet.closed.record.domain.uuid}.json"
    store.write(name, b"torn")
    with pytest.raises(InvalidState, match="is damaged") as refused:
        moved(store, other_store, force=True)
    assert name in str(refused.value)
    assert store.read(name) == b"torn"
    assert other_store.names() == []


def test_a_ledger_with_a_document_of_a_later_version_is_not_copied(store: Store, other_store: Store, fleet: Fleet) -> None:
    name = f"domains/{fleet.closed.record.domain.uuid}.json"
    envelope = json.loads(t.cast(bytes, store.read(name)))
    envelope["body"]["schema"] = 2
    store.write(name, json.dumps(envelope).encode())
    with pytest.raises(InvalidState, match=r"its schema is 2.*Update the collection"):
        moved(store, other_store)
    assert other_store.names() == []


def test_a_broken_audit_chain_is_copied_only_with_force_and_stays_broken(
    store: Store, other_store: Store, ledger: Ledger, new_move: NewMove, advance_record: AdvanceRecord
) -> None:
    advance_record(ledger, ledger.open_record(new_move()), s.SCHEDULED, s.CANCELLED)
    store.set_lines([store.lines()[0].replace("web1", "web2"), *store.lines()[1:]])
    with pytest.raises(InvalidState, match="Line 1 was changed"):
        moved(store, other_store)
    assert is_alive(store)
    assert "Line 1 was changed" in moved(store, other_store, force=True).problems[0]
    assert any("Line 1 was changed" in problem for problem in other_store.open().verify_audit())


def test_the_audit_chains_of_all_former_locations_are_kept(
    store: Store, other_store: Store, ledger: Ledger, new_move: NewMove, advance_record: AdvanceRecord, tmp_path: t.Any
) -> None:
    places = [store, other_store, FileStore(tmp_path / "third"), FileStore(tmp_path / "fourth")]
    for number, (here, there) in enumerate(zip(places, [*places[1:], None], strict=True)):
        alive = here.open()
        advance_record(alive, alive.open_record(new_move(f"web{number}")), s.SCHEDULED, s.CANCELLED)
        assert alive.verify_audit() == []
        if there:
            moved(here, there)
    last = places[-1].open()
    with last.open_contents() as contents:
        chains = {chain.name: [json.loads(line)["domain"]["name"] for line in lines] for chain, lines in contents.read_chains()}
    assert sorted(name[0] for name in chains) == ["1", "2", "3", "4"]
    assert {name[0]: names for name, names in chains.items()} == {str(number + 1): [f"web{number}"] * 3 for number in range(4)}
    assert last.identity.home == 4


@pytest.fixture
def moved_store(store: Store, other_store: Store, ledger: Ledger, new_move: NewMove, advance_record: AdvanceRecord) -> Store:
    """A ledger at its second place, with the lines of its first."""
    advance_record(ledger, ledger.open_record(new_move()), s.SCHEDULED, s.CANCELLED)
    moved(store, other_store)
    return other_store


def archived_names(store: Store) -> list[str]:
    return [name for name in store.names() if name.startswith(("audit.archive/", "audit/1-", "audit.heads/1-"))]


def test_a_changed_archived_audit_chain_is_reported(moved_store: Store) -> None:
    names = archived_names(moved_store)
    assert names
    for name in names:
        before = t.cast(bytes, moved_store.read(name))
        for after in (before.replace(b'"', b"'", 1), b""):
            moved_store.write(name, after)
            assert moved_store.open().verify_audit() != [], name
        moved_store.write(name, before)
    assert moved_store.open().verify_audit() == []


def test_a_removed_archived_audit_chain_is_reported(moved_store: Store) -> None:
    for name in archived_names(moved_store):
        moved_store.remove(name)
    (problem,) = moved_store.open().verify_audit()
    assert "one was changed, removed or added" in problem


def test_a_copy_has_the_same_fingerprint(store: Store, other_store: Store, fleet: Fleet) -> None:
    with store.open().open_contents() as before:
        wanted = compute_fingerprint(before)
    moved(store, other_store)
    with other_store.open().open_contents() as after:
        assert compute_fingerprint(after) == wanted
