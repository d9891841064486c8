# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A ledger that is moved from each store to each: whole, once, and never alive at two places."""

from __future__ import annotations

import json
import os
import typing as t
import uuid
from collections.abc import Callable

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, Internal, InvalidArgument, InvalidState, KvmfleetError, TimedOut
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger import copying, target
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.contents import fingerprint
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.identity import copying_marker
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Ledger, Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.verifying import problems_of
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.conftest import KVM1, KVM2
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import EtcdStore, FileStore, Store

Go = Callable[..., Stored]
NewMove = Callable[..., dict[str, t.Any]]
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
def fleet(store: Store, ledger: Ledger, new_move: NewMove, go: Go) -> Fleet:
    for end in (KVM1, KVM2):
        ledger.put_host({"name": end["host"], "host_id": end["host_id"], "host_uuid": end["host_uuid"], "state": "enabled"}, None)
    closed = go(ledger, ledger.open_record(new_move("web1")), s.SCHEDULED, s.RUNNING, s.COMPLETED)
    go(ledger, ledger.open_record(new_move("web2")), s.CANCELLED)
    done = go(ledger, ledger.open_record(new_move("db", record_type=s.EVACUATION)), s.PRE_MIGRATING, s.DONE)
    spoilt = go(ledger, ledger.open_record(new_move("spoilt")), s.FAILED).record["domain"]["uuid"]
    store.put_closed(new_move("old"), "2024-02-03T04:05:06.789Z")
    store.write(f"domains/{spoilt}.json", b"torn")
    assert ledger.domain(spoilt) is None
    return Fleet(ledger.ledger_id, closed, done, spoilt)


def moved(store: Store, elsewhere: Store, **options: t.Any) -> copying.Outcome:
    return copying.copy(store.open(create=False, moved=True), elsewhere.target(), BY, **options)


def documents(store: Store) -> dict[str, bytes | None]:
    names = [name for folder in ("migrations", "domains", "hosts", "set_aside") for name in store.names(folder)]
    return {name: store.read(name) for name in names}


def everything(store: Store) -> dict[str, bytes | None]:
    """Return all that is kept, but for who holds a lock and who has written."""
    names = [name for name in store.names() if not name.startswith(("locks/", "writers/")) and name not in ("ledger.lock", "journal")]
    return {name: store.read(name) for name in names}


def check_alive(store: Store, fleet: Fleet, new_move: NewMove, go: Go) -> None:
    """It holds what was put there, verifies, and is written as any ledger."""
    ledger = store.open(create=False)
    assert ledger.ledger_id == fleet.ledger_id
    assert ledger.get(fleet.closed.record["id"]) == fleet.closed
    assert ledger.get(fleet.done.record["id"]) == fleet.done
    assert {document.body["ledger_id"] for document in ledger.hosts()} == {fleet.ledger_id}
    assert ledger.damaged_domains() == [fleet.damaged]
    assert ledger.open_record(new_move("spoilt", fleet.damaged)).record["generation"] == 2
    web1 = fleet.closed.record["domain"]
    again = ledger.open_record(new_move("web1", web1["uuid"]))
    assert again.record["generation"] == 2
    go(ledger, again, s.CANCELLED)
    go(ledger, fleet.done, s.COMPLETED)
    assert ledger.examine(problems_of).all == []
    assert len(list(ledger.records(since="2024-01-01", until="2025-01-01"))) == 1
    assert ledger.problems == []


def check_refused(store: Store, to: Store, *had_it_open: Ledger) -> None:
    """Nobody writes the old place, and all are told the new one."""
    for ledger in had_it_open:
        with pytest.raises(InvalidState, match="moved to"):
            ledger.put_host({"name": "kvm9", "host_id": str(uuid.uuid4()), "host_uuid": None, "state": "enabled"}, None)
    with pytest.raises(InvalidState) as refused:
        store.open()
    assert to.target().name in str(refused.value)


def test_it_arrives_whole_and_the_old_place_is_closed(store: Store, elsewhere: Store, ledger: Ledger, fleet: Fleet, new_move: NewMove, go: Go) -> None:
    before = documents(store)
    before_lines = sorted(store.lines())
    assert moved(store, elsewhere) == copying.Outcome(True)
    assert documents(store) == documents(elsewhere) == before
    with elsewhere.open(create=False).contents() as contents:
        assert sorted(line.decode().rstrip("\n") for _chain, lines in contents.chains() for line in lines) == before_lines
    check_refused(store, elsewhere, ledger, store.open(moved=True))
    check_alive(elsewhere, fleet, new_move, go)
    assert documents(store) == before


def test_what_was_closed_long_ago_is_not_new_there(store: Store, elsewhere: Store, fleet: Fleet) -> None:
    moved(store, elsewhere)
    there = elsewhere.open()
    (old,) = there.records(until="2025-01-01")
    assert old["id"] in there.closed_ids() - there.closed_since("2024-02-20")
    assert fleet.closed.record["id"] in there.closed_since("2024-02-20")


def test_more_than_one_transaction_of_etcd_takes(store: Store, elsewhere: Store, ledger: Ledger, new_move: NewMove) -> None:
    for number in range(100):
        store.put_closed(new_move(f"web{number}"), f"2024-0{number % 9 + 1}-01T00:00:00.000Z")
    for number in range(3):
        large = {"definition": str(number) * 700_000}
        ledger.put_domain({"uuid": str(uuid.uuid4()), "name": f"large{number}", "possible_hosts": [KVM1], "protected": large}, None)
    moved(store, elsewhere)
    assert documents(elsewhere) == documents(store)
    there = elsewhere.open()
    assert {there.get(record["id"]).record["id"] for record in there.records()} == {record["id"] for record in store.open(moved=True).records()}
    assert there.examine(problems_of).all == []


def test_the_same_task_again_changes_nothing(store: Store, elsewhere: Store, fleet: Fleet, new_move: NewMove) -> None:
    moved(store, elsewhere)
    elsewhere.open().open_record(new_move("later"))
    before = everything(store), everything(elsewhere)
    assert moved(store, elsewhere) == copying.Outcome(False)
    assert (everything(store), everything(elsewhere)) == before


def test_check_mode_says_so_and_writes_nothing(store: Store, elsewhere: Store, ledger: Ledger, fleet: Fleet, new_move: NewMove) -> None:
    before = everything(store)
    assert moved(store, elsewhere, check=True) == copying.Outcome(True)
    assert everything(store) == before
    assert elsewhere.names() == []
    ledger.open_record(new_move("on its way"))
    with pytest.raises(Conflict):
        moved(store, elsewhere, check=True)


def test_what_is_not_settled_is_named_and_nothing_moved(store: Store, elsewhere: Store, ledger: Ledger, fleet: Fleet, new_move: NewMove) -> None:
    unsettled = [ledger.open_record(new_move(name)).record for name in ("web7", "web8")]
    before = everything(store)
    with pytest.raises(Conflict) as refused:
        moved(store, elsewhere)
    text = str(refused.value)
    assert all(record["id"] in text and record["domain"]["name"] in text for record in unsettled)
    assert "settle: {id: " in text
    assert {record["id"] for record in refused.value.result["records"]} == {record["id"] for record in unsettled}
    assert everything(store) == before
    assert elsewhere.names() == []


def test_a_writer_that_comes_while_the_place_is_marked_wins(store: Store, elsewhere: Store, ledger: Ledger, fleet: Fleet, new_move: NewMove) -> None:
    with pytest.raises(Conflict, match="web9"):
        moved(store, elsewhere, step=lambda name: ledger.open_record(new_move("web9")) if name == "marked" else None)
    assert [record["domain"]["name"] for record in store.open().records(unsettled_only=True)] == ["web9"]


def die_at(step: str) -> Callable[[str], None]:
    return lambda name: os._exit(DIED) if name == step else None


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_after_each_step_and_the_same_task_again(
    store: Store,
    elsewhere: Store,
    ledger: Ledger,
    fleet: Fleet,
    new_move: NewMove,
    go: Go,
    in_child: Callable[[Callable[[], None]], int],
    exit_of: Callable[[int], int],
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    monkeypatch.setattr(target, "_MOST", 2)
    before = documents(store)
    assert exit_of(in_child(lambda: t.cast(None, moved(store, elsewhere, step=die_at(step))))) == DIED
    alive = [place for place in (store, elsewhere) if is_alive(place)]
    assert alive == ([store] if step == "marked" else [elsewhere] if step in ARRIVED else [])
    if step == "marked":
        assert documents(store) == before
        go(ledger, ledger.open_record(new_move("between")), s.CANCELLED)
        before = documents(store)
    else:
        check_refused(store, elsewhere, ledger)
    wait_for_lock(store)
    assert moved(store, elsewhere).changed == (step != "left")
    assert documents(elsewhere) == before
    assert "copying" not in elsewhere.names()
    check_refused(store, elsewhere, ledger)
    check_alive(elsewhere, fleet, new_move, go)


def wait_for_lock(store: Store) -> None:
    """What held the lock of the copy has died; in etcd its lease is ended here, which takes 15 s otherwise."""
    if isinstance(store, EtcdStore):
        for name in store.names("locks"):
            store.client.revoke(int(name.rpartition("/")[2], 16))


def is_alive(store: Store) -> bool:
    try:
        store.open(create=False)
    except KvmfleetError:
        return False
    return True


def test_an_unfinished_copy_is_nobodys_ledger(store: Store, elsewhere: Store, fleet: Fleet) -> None:
    elsewhere.target().mark(copying_marker(fleet.ledger_id, "/srv/ledger", BY), elsewhere.target().look())
    for create in (True, False):
        with pytest.raises(InvalidState, match=f"unfinished copy of the ledger /srv/ledger .{fleet.ledger_id}"):
            elsewhere.open(create)


class Broken(Exception):
    """What no code of ours expects."""


WRITES = ["put", "put_chain", "finish"]


@pytest.mark.parametrize("write", WRITES)
def test_an_error_of_the_target_opens_the_old_place_again(
    store: Store, elsewhere: Store, ledger: Ledger, fleet: Fleet, new_move: NewMove, go: Go, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    before = documents(store)
    there = elsewhere.target()

    def full(*_args: t.Any) -> None:
        raise Internal("No room.", "Make room.")

    monkeypatch.setattr(there, write, full)
    with pytest.raises(Internal, match="No room") as failed:
        copying.copy(store.open(moved=True), there, BY)
    # Where it is not known whether the copy became the ledger, the old one stays closed.
    if write == "finish":
        assert "stays closed until this copy is finished" in str(failed.value)
        check_refused(store, elsewhere, ledger)
    else:
        assert "goes on as before" in str(failed.value)
        go(store.open(), store.open().open_record(new_move("meanwhile")), s.CANCELLED)
        before = documents(store)
    moved(store, elsewhere)
    assert documents(elsewhere) == before
    check_alive(elsewhere, fleet, new_move, go)


@pytest.mark.parametrize("write", WRITES)
def test_an_unexpected_end_at_each_write_and_the_same_task_again(
    store: Store, elsewhere: Store, ledger: Ledger, fleet: Fleet, new_move: NewMove, go: Go, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    there = elsewhere.target()
    before = documents(store)

    def broken(*_args: t.Any) -> None:
        raise Broken

    monkeypatch.setattr(there, write, broken)
    with pytest.raises(Broken):
        copying.copy(store.open(moved=True), there, BY)
    check_refused(store, elsewhere, ledger)
    moved(store, elsewhere)
    assert documents(elsewhere) == before
    check_alive(elsewhere, fleet, new_move, go)


def test_what_is_read_back_and_is_not_the_same_gives_the_copy_up(store: Store, elsewhere: Store, fleet: Fleet, new_move: NewMove, go: Go) -> None:
    def spoil(name: str) -> None:
        if name == "copied":
            elsewhere.write(f"domains/{fleet.closed.record['domain']['uuid']}.json", b"spoilt")

    with pytest.raises(Internal, match=r"read back from .* is not what the ledger"):
        moved(store, elsewhere, step=spoil)
    assert is_alive(store)
    moved(store, elsewhere)
    check_alive(elsewhere, fleet, new_move, go)


def test_what_an_earlier_attempt_left_is_removed(store: Store, elsewhere: Store, fleet: Fleet, new_move: NewMove, go: Go) -> None:
    there = elsewhere.target()
    there.mark(copying_marker(fleet.ledger_id, "x", BY), there.look())
    elsewhere.write(f"domains/{uuid.uuid4()}.json", b"of a domain that is not there any more")
    moved(store, elsewhere)
    assert documents(store) == documents(elsewhere)
    check_alive(elsewhere, fleet, new_move, go)


def lose_lock(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """End a lock that a living process holds, as etcd does by itself; in a folder nobody can, and another one is taken there."""
    wait_for_lock(store)
    monkeypatch.setattr(copying, "LOCK", "another-lock")


@pytest.mark.parametrize("held_up_at", ["document", "copied", "compared"])
def test_a_run_that_was_held_up_writes_nothing_once_another_took_over(
    store: Store, elsewhere: Store, fleet: Fleet, new_move: NewMove, go: Go, monkeypatch: pytest.MonkeyPatch, held_up_at: str
) -> None:
    """As one that is stopped for so long that its lock ends: the other run is whole by then."""
    after: list[dict[str, bytes | None]] = []

    def other_run(name: str) -> None:
        if name == held_up_at and not after:
            lose_lock(store, monkeypatch)
            assert moved(store, elsewhere) == copying.Outcome(True)
            there = elsewhere.open()
            for document in there.domains():
                go(there, there.open_record(new_move(domain_uuid=document.body["uuid"])), s.CANCELLED)
            after.append(everything(elsewhere))

    with pytest.raises(KvmfleetError):
        moved(store, elsewhere, step=other_run)
    assert everything(elsewhere) == after[0]
    check_refused(store, elsewhere)
    assert elsewhere.open().examine(problems_of).all == []


def test_two_runs_at_once(store: Store, elsewhere: Store, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "LOCK_SECONDS", 0.1)
    with store.open().locked(copying.LOCK), pytest.raises(TimedOut):
        moved(store, elsewhere)
    assert is_alive(store)
    assert elsewhere.names() == []


def test_a_target_with_other_things_is_left_alone(store: Store, elsewhere: Store, fleet: Fleet) -> None:
    elsewhere.write("thesis.tex", b"mine")
    with pytest.raises(InvalidArgument, match=r"thesis\.tex"):
        moved(store, elsewhere)
    assert elsewhere.names() == ["thesis.tex"]
    assert is_alive(store)


def test_a_target_that_is_a_ledger_is_left_alone(store: Store, elsewhere: Store, fleet: Fleet) -> None:
    other = elsewhere.open()
    before = everything(elsewhere)
    for check in (True, False):
        with pytest.raises(InvalidArgument, match=other.ledger_id):
            moved(store, elsewhere, check=check)
    assert everything(elsewhere) == before
    assert is_alive(store)


def test_an_unfinished_copy_of_another_ledger_is_left_alone(store: Store, elsewhere: Store, fleet: Fleet) -> None:
    elsewhere.target().mark(copying_marker(str(uuid.uuid4()), "/srv/other", BY), elsewhere.target().look())
    before = everything(elsewhere)
    with pytest.raises(InvalidArgument, match="unfinished copy of the ledger /srv/other"):
        moved(store, elsewhere)
    assert everything(elsewhere) == before


def test_a_ledger_is_not_moved_onto_itself(store: Store, fleet: Fleet) -> None:
    with pytest.raises(InvalidArgument, match="are the same ledger"):
        moved(store, store)
    assert is_alive(store)


def test_a_ledger_that_was_moved_is_not_moved_from_there_again(store: Store, elsewhere: Store, fleet: Fleet, etcd: EtcdStore) -> None:
    moved(store, elsewhere)
    third = EtcdStore(etcd.address.__class__(etcd.address.endpoints, f"{etcd.address.prefix}third/"), etcd.options)
    with pytest.raises(InvalidState, match="was moved to"):
        moved(store, third)
    assert third.names() == []


def test_an_old_state_does_not_come_back_where_the_new_place_was_lost(store: Store, elsewhere: Store, fleet: Fleet) -> None:
    moved(store, elsewhere)
    if isinstance(elsewhere, FileStore):
        elsewhere.folder.rename(elsewhere.folder.parent / "lost")
    else:
        t.cast(EtcdStore, elsewhere).clear()
    with pytest.raises(InvalidState, match=r"is not there any more.*Restore it"):
        moved(store, elsewhere)
    assert elsewhere.names() == []


def test_a_damaged_document_is_named_and_nothing_moved(store: Store, elsewhere: Store, fleet: Fleet) -> None:
    name = f"domains/{fleet.closed.record['domain']['uuid']}.json"
    store.write(name, b"torn")
    with pytest.raises(InvalidState, match="is damaged") as refused:
        moved(store, elsewhere, force=True)
    assert name in str(refused.value)
    assert store.read(name) == b"torn"
    assert elsewhere.names() == []


def test_a_document_of_a_later_version_is_named_and_nothing_moved(store: Store, elsewhere: Store, fleet: Fleet) -> None:
    name = f"domains/{fleet.closed.record['domain']['uuid']}.json"
    envelope = json.loads(t.cast(bytes, store.read(name)))
    envelope["body"]["schema"] = 2
    store.write(name, json.dumps(envelope).encode())
    with pytest.raises(InvalidState, match=r"its schema is 2.*Update the collection"):
        moved(store, elsewhere)
    assert elsewhere.names() == []


def test_an_audit_that_does_not_verify_goes_along_only_by_force_and_never_verifies_again(
    store: Store, elsewhere: Store, ledger: Ledger, new_move: NewMove, go: Go
) -> None:
    go(ledger, ledger.open_record(new_move()), s.SCHEDULED, s.CANCELLED)
    store.set_lines([store.lines()[0].replace("web1", "web2"), *store.lines()[1:]])
    with pytest.raises(InvalidState, match="Line 1 was changed"):
        moved(store, elsewhere)
    assert is_alive(store)
    assert "Line 1 was changed" in moved(store, elsewhere, force=True).problems[0]
    assert any("Line 1 was changed" in problem for problem in elsewhere.open().verify_audit())


def test_over_many_places_the_audit_of_each_stays(store: Store, elsewhere: Store, ledger: Ledger, new_move: NewMove, go: Go, tmp_path: t.Any) -> None:
    places = [store, elsewhere, FileStore(tmp_path / "third"), FileStore(tmp_path / "fourth")]
    for number, (here, there) in enumerate(zip(places, [*places[1:], None], strict=True)):
        alive = here.open()
        go(alive, alive.open_record(new_move(f"web{number}")), s.SCHEDULED, s.CANCELLED)
        assert alive.verify_audit() == []
        if there:
            moved(here, there)
    last = places[-1].open()
    with last.contents() as contents:
        chains = {chain.name: [json.loads(line)["domain"]["name"] for line in lines] for chain, lines in contents.chains()}
    assert sorted(name[0] for name in chains) == ["1", "2", "3", "4"]
    assert {name[0]: names for name, names in chains.items()} == {str(number + 1): [f"web{number}"] * 3 for number in range(4)}
    assert last.identity.home == 4


@pytest.fixture
def arrived(store: Store, elsewhere: Store, ledger: Ledger, new_move: NewMove, go: Go) -> Store:
    """A ledger at its second place, with the lines of its first."""
    go(ledger, ledger.open_record(new_move()), s.SCHEDULED, s.CANCELLED)
    moved(store, elsewhere)
    return elsewhere


def archived_names(store: Store) -> list[str]:
    return [name for name in store.names() if name.startswith(("audit.archive/", "audit/1-", "audit.heads/1-"))]


def test_what_is_changed_in_an_archived_chain_shows(arrived: Store) -> None:
    names = archived_names(arrived)
    assert names
    for name in names:
        before = t.cast(bytes, arrived.read(name))
        for after in (before.replace(b'"', b"'", 1), b""):
            arrived.write(name, after)
            assert arrived.open().verify_audit() != [], name
        arrived.write(name, before)
    assert arrived.open().verify_audit() == []


def test_an_archived_chain_that_is_gone_shows(arrived: Store) -> None:
    for name in archived_names(arrived):
        arrived.remove(name)
    (problem,) = arrived.open().verify_audit()
    assert "one was changed, removed or added" in problem


def test_a_copy_holds_the_same_by_every_measure(store: Store, elsewhere: Store, fleet: Fleet) -> None:
    with store.open().contents() as before:
        wanted = fingerprint(before)
    moved(store, elsewhere)
    with elsewhere.open().contents() as after:
        assert fingerprint(after) == wanted
