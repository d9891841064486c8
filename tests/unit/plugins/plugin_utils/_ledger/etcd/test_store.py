# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose prefix it is, pages, compaction, a full database, and what is left in the keys."""

from __future__ import annotations

import dataclasses
import typing as t
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kvmlab.etcd import Cluster

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal, InvalidArgument, InvalidState
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd import reader
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.messages import delete_key, encode_bytes, is_empty, put_key, range_end
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.store import EtcdLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.etcd.proxy import Proxy
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import EtcdStore

AdvanceRecord = Callable[..., Stored]
NewMove = Callable[..., MoveRecord]


def test_a_prefix_with_foreign_keys_is_refused(store: EtcdStore) -> None:
    store.write("registry/pods/web", b"mine")
    for create in (True, False):
        with pytest.raises(InvalidArgument, match=r"registry/pods/web.*nothing was written.*restore that key .*Otherwise"):
            store.open(create)
    assert store.names() == ["registry/pods/web"]


def test_ledgers_with_similar_prefixes_are_separate(store: EtcdStore, new_move: NewMove) -> None:
    where = f"etcd://{store.address.endpoints[0]}{store.address.prefix}"
    one, other = open_ledger(f"{where}kvm"), open_ledger(f"{where}kvm2")
    stored = one.open_record(new_move())
    assert one.ledger_id != other.ledger_id
    assert list(other.list_records()) == []
    assert list(one.list_records()) == [stored.record]


def test_the_ledger_of_another_cluster_is_refused_until_the_key_is_changed(store: EtcdStore, ledger: EtcdLedger) -> None:
    own = t.cast(bytes, store.read("cluster"))
    store.write("cluster", b"4711")
    with pytest.raises(InvalidState, match=f"belongs to the etcd cluster 4711, and cluster {own.decode()} answers.*etcdctl put {store.address.prefix}cluster"):
        store.open()
    store.write("cluster", own)
    assert store.open().ledger_id == ledger.ledger_id


def test_a_ledger_that_was_replaced_is_not_written(store: EtcdStore, ledger: EtcdLedger, new_move: NewMove) -> None:
    stored, other = ledger.open_record(new_move()), store.open()
    store.client.run_transaction([], [delete_key(f"{store.address.prefix}{name}") for name in store.names()], [])
    store.open()
    before = store.names()
    # One of them has written before, the other one has not.
    for late in (ledger, other):
        with pytest.raises(InvalidState, match="removed or replaced"):
            late.open_record(new_move("web2"))
    assert store.names() == before
    assert stored.record.record_id not in str(before)


def test_many_documents_are_read_in_pages(store: EtcdStore, ledger: EtcdLedger, new_move: NewMove, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "PAGE_KEYS", 3)
    open_ones = {ledger.open_record(new_move()).record.id for _number in range(10)}
    closed = {store.put_closed(new_move(), f"2024-0{month}-01T00:00:00.000Z").id for month in range(1, 9)}
    assert {record.id for record in ledger.list_records()} == open_ones | closed
    assert len(ledger.list_domains()) == 10
    assert ledger.verify_audit() == []


def test_months_outside_of_the_query_are_not_read(
    store: EtcdStore, proxy: Proxy, proxied_ledger: EtcdLedger, new_move: NewMove, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "PAGE_KEYS", 1)
    for month in range(1, 9):
        store.put_closed(new_move(), f"2024-0{month}-15T00:00:00.000Z")
    del proxy.asked[:]
    assert len(list(proxied_ledger.list_records(since="2024-03-01", until="2024-04-20"))) == 2
    # One page of open records, and one a closed one.
    assert len(proxy.asked) == 3


def test_a_compaction_between_two_pages_does_not_disturb_a_query(
    store: EtcdStore, proxy: Proxy, proxied_ledger: EtcdLedger, new_move: NewMove, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "PAGE_KEYS", 3)
    names = {proxied_ledger.open_record(new_move(f"web{number}")).record.domain.name for number in range(7)}
    compactions = []

    def before(call: str, request: dict[str, t.Any]) -> None:
        if call == "kv/range" and request.get("revision", "0") != "0" and not compactions:
            other = store.open()
            other.open_record(new_move("late"))
            revision = store.client.run_transaction([is_empty("/nothing", range_end("/nothing"))], [], []).revision
            compactions.append(store.client.send_request("kv/compaction", {"revision": str(revision), "physical": True}, bool))

    proxy.before = before
    assert {record.domain.name for record in proxied_ledger.list_records()} == names | {"late"}
    assert len(compactions) == 1


def test_a_closed_record_leaves_no_holder_key(store: EtcdStore, ledger: EtcdLedger, new_move: NewMove, advance_record: AdvanceRecord) -> None:
    stored = advance_record(ledger, ledger.open_record(new_move()), s.CANCELLED)
    tombstone = advance_record(ledger, ledger.open_record(new_move(record_type=s.EVACUATION)), s.PRE_MIGRATING, s.DONE)
    assert store.names("holders") == []
    assert store.names("months") == [f"months/{stored.record.id}"]
    assert store.names("migrations/open") == [f"migrations/open/{tombstone.record.id}.json"]
    assert {name.split("/")[0] for name in store.names()} == {
        "audit",
        "audit.heads",
        "by_domain",
        "by_domain.begin",
        "closed.at",
        "cluster",
        "domains",
        "ledger.json",
        "migrations",
        "months",
        "writers",
    }


@pytest.fixture
def small_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A member whose database has room for little."""
    cluster = Cluster(tmp_path / "small")
    try:
        cluster.up(members=1, more=["--quota-backend-bytes", str(2**20)])
        yield cluster
    finally:
        cluster.down()


def test_a_full_database_is_reported_and_nothing_is_lost(small_cluster: Cluster, new_move: NewMove, advance_record: AdvanceRecord) -> None:
    ledger = t.cast(EtcdLedger, open_ledger(small_cluster.location()))
    stored = ledger.open_record(new_move())
    assert ledger.find_threats() == []

    def fill() -> None:
        for _number in range(100):
            ledger._client.run_transaction([], [put_key(f"/ballast/{uuid.uuid4()}", b"x" * 100000)], [])

    with pytest.raises(Internal, match=r"database .* is full.*etcdctl alarm disarm"):
        fill()
    with pytest.raises(Internal, match="is full"):
        advance_record(ledger, stored, s.SCHEDULED)
    with pytest.raises(Internal, match="is full"):
        ledger.check_writable()
    assert ledger.read_record(stored.record.record_id) == stored
    assert "is full: nothing can be moved or evacuated" in str(ledger.find_threats())
    _make_room(small_cluster)
    assert ledger.find_threats() == []
    ledger.check_writable()
    assert advance_record(ledger, stored, s.SCHEDULED).version == 2
    assert ledger.verify_audit() == []


def _make_room(cluster: Cluster) -> None:
    """Do what the error says: compact, defragment, disarm."""
    removed = cluster.call("kv/deleterange", {"key": encode_bytes("/ballast/"), "range_end": encode_bytes("/ballast0")})
    cluster.call("kv/compaction", {"revision": removed["header"]["revision"], "physical": True})
    cluster.call("maintenance/defragment", {})
    for alarm in cluster.call("maintenance/alarm", {"action": "GET"})["alarms"]:
        cluster.call("maintenance/alarm", {"action": "DEACTIVATE", "memberID": alarm["memberID"], "alarm": alarm["alarm"]})


def test_a_document_over_the_request_limit_is_refused(ledger: EtcdLedger, new_move: NewMove) -> None:
    with pytest.raises(Internal, match=r"rejected a document: .*large.*--max-request-bytes"):
        ledger.open_record(dataclasses.replace(new_move(), request={"definition": "x" * 3000000}))
    assert list(ledger.list_records()) == []


def test_a_lost_head_of_an_audit_chain_is_reported_and_stops_no_move(
    store: EtcdStore, ledger: EtcdLedger, new_move: NewMove, advance_record: AdvanceRecord
) -> None:
    stored = ledger.open_record(new_move())
    (line,) = store.names("audit")
    chain = line.split("/")[1]
    for spoilt in (b"torn", None):
        if spoilt is None:
            store.client.run_transaction([], [delete_key(f"{store.address.prefix}audit.heads/{chain}")], [])
        else:
            store.write(f"audit.heads/{chain}", spoilt)
        assert any(f"Audit chain {chain}: The key with its end" in problem for problem in ledger.verify_audit())
        stored = advance_record(ledger, stored, s.SCHEDULED if spoilt else s.CANCELLED)
    assert [problem.partition("After line ")[2][:1] for problem in ledger.verify_audit()] == ["2"]
    assert len(store.lines()) == 3


def test_a_removed_audit_chain_is_reported(store: EtcdStore, ledger: EtcdLedger, new_move: NewMove) -> None:
    ledger.open_record(new_move())
    (line,) = store.names("audit")
    store.client.run_transaction([], [delete_key(f"{store.address.prefix}{key}") for key in (line, f"audit.heads/{line.split('/')[1]}")], [])
    assert len(ledger.verify_audit()) == 1


def test_domains_are_distributed_over_many_audit_chains(store: EtcdStore, ledger: EtcdLedger, new_move: NewMove) -> None:
    for _number in range(40):
        ledger.open_record(new_move())
    assert len({name.split("/")[1] for name in store.names("audit")}) > 20
    assert len(store.lines()) == 40
    assert ledger.verify_audit() == []
