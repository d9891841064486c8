# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose prefix it is, pages, compaction, a full database, and what is left in the keys."""

from __future__ import annotations

import typing as t
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kvmlab.etcd import Cluster

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Internal, InvalidArgument, InvalidState
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd import snapshot
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.messages import coded, delete, end_of, is_empty, put
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.store import EtcdLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Stored
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.etcd.proxy import Proxy
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import EtcdStore

Go = Callable[..., Stored]
NewMove = Callable[..., dict[str, t.Any]]


def test_a_prefix_with_other_things_is_not_taken(store: EtcdStore) -> None:
    store.write("registry/pods/web", b"mine")
    for create in (True, False):
        with pytest.raises(InvalidArgument, match=r"registry/pods/web.*nothing was written"):
            store.open(create)
    assert store.names() == ["registry/pods/web"]


def test_a_ledger_beside_others_is_its_own(store: EtcdStore, new_move: NewMove) -> None:
    where = f"etcd://{store.address.endpoints[0]}{store.address.prefix}"
    one, other = open_ledger(f"{where}kvm"), open_ledger(f"{where}kvm2")
    stored = one.open_record(new_move())
    assert one.ledger_id != other.ledger_id
    assert list(other.records()) == []
    assert list(one.records()) == [stored.record]


def test_the_ledger_of_another_cluster_is_refused_until_a_person_says_so(store: EtcdStore, ledger: EtcdLedger) -> None:
    own = t.cast(bytes, store.read("cluster"))
    store.write("cluster", b"4711")
    with pytest.raises(InvalidState, match=f"belongs to the etcd cluster 4711, and cluster {own.decode()} answers.*etcdctl put {store.address.prefix}cluster"):
        store.open()
    store.write("cluster", own)
    assert store.open().ledger_id == ledger.ledger_id


def test_a_ledger_that_was_replaced_meanwhile_is_not_written(store: EtcdStore, ledger: EtcdLedger, new_move: NewMove) -> None:
    stored, other = ledger.open_record(new_move()), store.open()
    store.client.transaction([], [delete(f"{store.address.prefix}{name}") for name in store.names()], [])
    store.open()
    before = store.names()
    # One of them has written before, the other one has not.
    for late in (ledger, other):
        with pytest.raises(InvalidState, match="removed or replaced"):
            late.open_record(new_move("web2"))
    assert store.names() == before
    assert stored.record["id"] not in str(before)


def test_many_documents_are_read_in_pages(store: EtcdStore, ledger: EtcdLedger, new_move: NewMove, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "PAGE_KEYS", 3)
    open_ones = {ledger.open_record(new_move()).record["id"] for _number in range(10)}
    closed = {store.put_closed(new_move(), f"2024-0{month}-01T00:00:00.000Z")["id"] for month in range(1, 9)}
    assert {record["id"] for record in ledger.records()} == open_ones | closed
    assert len(ledger.domains()) == 10
    assert ledger.verify_audit() == []


def test_months_that_are_not_asked_for_are_not_read(
    store: EtcdStore, proxy: Proxy, far: EtcdLedger, new_move: NewMove, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "PAGE_KEYS", 1)
    for month in range(1, 9):
        store.put_closed(new_move(), f"2024-0{month}-15T00:00:00.000Z")
    del proxy.asked[:]
    assert len(list(far.records(since="2024-03-01", until="2024-04-20"))) == 2
    # One page of open records, and one a closed one.
    assert len(proxy.asked) == 3


def test_a_compaction_between_two_pages_is_not_noticed(
    store: EtcdStore, proxy: Proxy, far: EtcdLedger, new_move: NewMove, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "PAGE_KEYS", 3)
    names = {far.open_record(new_move(f"web{number}")).record["domain"]["name"] for number in range(7)}
    compactions = []

    def before(call: str, request: dict[str, t.Any]) -> None:
        if call == "kv/range" and request.get("revision", "0") != "0" and not compactions:
            other = store.open()
            other.open_record(new_move("late"))
            revision = store.client.transaction([is_empty("/nothing", end_of("/nothing"))], [], []).revision
            compactions.append(store.client.ask("kv/compaction", {"revision": str(revision), "physical": True}, bool))

    proxy.before = before
    assert {record["domain"]["name"] for record in far.records()} == names | {"late"}
    assert len(compactions) == 1


def test_what_is_closed_leaves_nothing_that_holds(store: EtcdStore, ledger: EtcdLedger, new_move: NewMove, go: Go) -> None:
    stored = go(ledger, ledger.open_record(new_move()), s.CANCELLED)
    tombstone = go(ledger, ledger.open_record(new_move(record_type=s.EVACUATION)), s.PRE_MIGRATING, s.DONE)
    assert store.names("holders") == []
    assert store.names("months") == [f"months/{stored.record['id']}"]
    assert store.names("migrations/open") == [f"migrations/open/{tombstone.record['id']}.json"]
    assert {name.split("/")[0] for name in store.names()} == {
        "audit",
        "audit.heads",
        "closed.at",
        "cluster",
        "domains",
        "ledger.json",
        "migrations",
        "months",
        "writers",
    }


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Cluster]:
    """A member whose database has room for little."""
    cluster = Cluster(tmp_path / "small")
    try:
        cluster.up(members=1, more=["--quota-backend-bytes", str(2**20)])
        yield cluster
    finally:
        cluster.down()


def test_a_full_database_is_said_and_nothing_is_lost(small: Cluster, new_move: NewMove, go: Go) -> None:
    ledger = t.cast(EtcdLedger, open_ledger(small.location()))
    stored = ledger.open_record(new_move())

    def fill() -> None:
        for _number in range(100):
            ledger._client.transaction([], [put(f"/ballast/{uuid.uuid4()}", b"x" * 100000)], [])

    with pytest.raises(Internal, match=r"database .* is full: nothing was written.*etcdctl alarm disarm"):
        fill()
    with pytest.raises(Internal, match="is full"):
        go(ledger, stored, s.SCHEDULED)
    assert ledger.get(stored.record["id"]) == stored
    _make_room(small)
    assert go(ledger, stored, s.SCHEDULED).version == 2
    assert ledger.verify_audit() == []


def _make_room(cluster: Cluster) -> None:
    """Do what the error says: compact, defragment, disarm."""
    removed = cluster.call("kv/deleterange", {"key": coded("/ballast/"), "range_end": coded("/ballast0")})
    cluster.call("kv/compaction", {"revision": removed["header"]["revision"], "physical": True})
    cluster.call("maintenance/defragment", {})
    for alarm in cluster.call("maintenance/alarm", {"action": "GET"})["alarms"]:
        cluster.call("maintenance/alarm", {"action": "DEACTIVATE", "memberID": alarm["memberID"], "alarm": alarm["alarm"]})


def test_a_document_that_is_too_large_is_said(ledger: EtcdLedger, new_move: NewMove) -> None:
    with pytest.raises(Internal, match=r"did not take a document: .*large.*--max-request-bytes"):
        ledger.open_record({**new_move(), "before": {"definition": "x" * 3000000}})
    assert list(ledger.records()) == []


def test_a_lost_end_of_the_audit_stops_no_move_and_shows(store: EtcdStore, ledger: EtcdLedger, new_move: NewMove, go: Go) -> None:
    stored = ledger.open_record(new_move())
    (line,) = store.names("audit")
    chain = line.split("/")[1]
    for spoilt in (b"torn", None):
        if spoilt is None:
            store.client.transaction([], [delete(f"{store.address.prefix}audit.heads/{chain}")], [])
        else:
            store.write(f"audit.heads/{chain}", spoilt)
        assert any(f"Audit chain {chain}: The key that says where it ends" in problem for problem in ledger.verify_audit())
        stored = go(ledger, stored, s.SCHEDULED if spoilt else s.CANCELLED)
    assert [problem.partition("After line ")[2][:1] for problem in ledger.verify_audit()] == ["2"]
    assert len(store.lines()) == 3


def test_a_chain_that_is_gone_with_its_end_shows(store: EtcdStore, ledger: EtcdLedger, new_move: NewMove) -> None:
    ledger.open_record(new_move())
    (line,) = store.names("audit")
    store.client.transaction([], [delete(f"{store.address.prefix}{key}") for key in (line, f"audit.heads/{line.split('/')[1]}")], [])
    assert len(ledger.verify_audit()) == 1


def test_two_domains_do_not_wait_for_each_other(store: EtcdStore, ledger: EtcdLedger, new_move: NewMove) -> None:
    for _number in range(40):
        ledger.open_record(new_move())
    assert len({name.split("/")[1] for name in store.names("audit")}) > 20
    assert len(store.lines()) == 40
    assert ledger.verify_audit() == []
