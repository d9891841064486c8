# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Answers that get lost, and requests that come late: each change is made once, and the writer knows that it was."""

from __future__ import annotations

import itertools
import typing as t
import uuid
from collections.abc import Callable

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Internal, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.chains import chain_of_domain
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.messages import put_key
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.store import EtcdLedger
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.etcd.proxy import Proxy
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import EtcdStore

AdvanceRecord = Callable[..., Stored]
NewMove = Callable[..., MoveRecord]


def is_change(call: str, request: dict[str, t.Any]) -> bool:
    return call == "kv/txn" and any("request_put" in act for act in request["success"])


def send_again(store: EtcdStore, request: dict[str, t.Any]) -> bool:
    """Send a transaction as it was sent before; return whether it did something."""
    return store.client.run_transaction(request["compare"], request["success"], request["failure"]).succeeded


def lose_answers(proxy: Proxy, times: int) -> None:
    """Let the answers to that many changes get lost."""
    left = [times]

    def loses(call: str, request: dict[str, t.Any]) -> bool:
        if not is_change(call, request) or not left[0]:
            return False
        left[0] -= 1
        return True

    proxy.loses = loses


@pytest.mark.parametrize("times", [1, 3])
def test_a_change_whose_answer_was_lost_is_made_once(
    proxied_ledger: EtcdLedger, proxy: Proxy, store: EtcdStore, new_move: NewMove, advance_record: AdvanceRecord, times: int
) -> None:
    proxied_ledger.open_record(new_move("before"))
    lose_answers(proxy, times)
    stored = proxied_ledger.open_record(new_move("web1"))
    assert (stored.version, stored.record.generation) == (1, 1)
    lose_answers(proxy, times)
    stored = advance_record(proxied_ledger, stored, s.SCHEDULED)
    lose_answers(proxy, times)
    stored = advance_record(proxied_ledger, stored, s.CANCELLED)
    assert stored.version == 3
    assert len(store.lines()) == 4
    assert proxied_ledger.read_record(stored.record.record_id) == stored
    assert proxied_ledger.verify_audit() == []


def test_the_lost_answer_of_the_first_change_of_a_process_is_handled(proxied_ledger: EtcdLedger, proxy: Proxy, store: EtcdStore, new_move: NewMove) -> None:
    lose_answers(proxy, 1)
    assert proxied_ledger.open_record(new_move()).version == 1
    assert len(store.lines()) == 1


def test_a_change_is_not_taken_for_an_earlier_one_whose_repetition_was_refused(
    proxied_ledger: EtcdLedger, proxy: Proxy, new_move: NewMove, advance_record: AdvanceRecord
) -> None:
    """The first attempt is written, its answer gets lost, and by then the database is full."""
    first, second = proxied_ledger.open_record(new_move("web1")), proxied_ledger.open_record(new_move("web2"))
    lose_answers(proxy, 1)
    sent = itertools.count()
    full = {"code": 8, "message": "etcdserver: mvcc: database space exceeded"}
    proxy.refuses = lambda call, request: full if is_change(call, request) and next(sent) == 1 else None
    with pytest.raises(Internal, match="is full"):
        advance_record(proxied_ledger, first, s.SCHEDULED)
    stored = advance_record(proxied_ledger, second, s.SCHEDULED)
    assert proxied_ledger.read_record(second.record.record_id) == stored
    assert (stored.version, stored.record.status) == (2, s.SCHEDULED)


def test_a_change_overwritten_before_its_lost_answer_counts_as_made(
    proxied_ledger: EtcdLedger, proxy: Proxy, store: EtcdStore, new_move: NewMove, advance_record: AdvanceRecord
) -> None:
    stored = proxied_ledger.open_record(new_move())
    other = store.open()
    changes: list[str] = []

    def loses(call: str, request: dict[str, t.Any]) -> bool:
        if not is_change(call, request) or changes:
            return False
        changes.append("lost")
        advance_record(other, other.read_record(stored.record.record_id), s.QUEUED, by="bob@elsewhere pid 2")
        return True

    proxy.loses = loses
    scheduled = advance_record(proxied_ledger, stored, s.SCHEDULED)
    assert (scheduled.version, scheduled.record.status) == (2, s.SCHEDULED)
    with pytest.raises(Conflict, match="bob@elsewhere"):
        advance_record(proxied_ledger, scheduled, s.CANCELLED)
    assert proxied_ledger.verify_audit() == []


def test_a_request_that_arrives_after_its_retry_changes_nothing(proxied_ledger: EtcdLedger, proxy: Proxy, store: EtcdStore, new_move: NewMove) -> None:
    record = new_move()
    proxied_ledger.open_record(record)
    late = [request for call, request in proxy.asked if is_change(call, request)][-1]
    before = {name: store.read(name) for name in store.names()}
    assert not send_again(store, late)
    assert {name: store.read(name) for name in store.names()} == before


def test_a_request_that_arrives_after_a_later_one_of_its_writer_changes_nothing(proxied_ledger: EtcdLedger, proxy: Proxy, store: EtcdStore) -> None:
    key = f"{store.address.prefix}key"
    for value in ("first", "second"):
        proxied_ledger._writer.write_unit([], [put_key(key, value)], ())
    first = next(request for call, request in proxy.asked if is_change(call, request) and put_key(key, "first") in request["success"])
    assert not send_again(store, first)
    assert store.read("key") == b"second"


def test_a_change_without_any_answer_is_reported_as_unknown(
    proxied_ledger: EtcdLedger, proxy: Proxy, store: EtcdStore, new_move: NewMove, advance_record: AdvanceRecord
) -> None:
    stored = proxied_ledger.open_record(new_move())
    proxy.loses = is_change
    proxied_ledger._client.patience_seconds = 0.2
    with pytest.raises(Unreachable, match="Whether the last change was written is not known"):
        advance_record(proxied_ledger, stored, s.SCHEDULED)
    proxy.loses = lambda call, request: False
    # It was; and the same process reads it and goes on.
    now = proxied_ledger.read_record(stored.record.record_id)
    assert (now.version, now.record.status) == (2, s.SCHEDULED)
    assert advance_record(proxied_ledger, now, s.CANCELLED).version == 3
    assert proxied_ledger.verify_audit() == []


def test_concurrent_writers_of_one_audit_chain_all_succeed(proxied_ledger: EtcdLedger, proxy: Proxy, store: EtcdStore, new_move: NewMove) -> None:
    other, met = store.open(), []
    uuids = (str(uuid.uuid4()) for _number in itertools.count())
    # Their lines go into one chain.
    one_chain = (domain_uuid for domain_uuid in uuids if chain_of_domain(domain_uuid) == "07")

    def before(call: str, request: dict[str, t.Any]) -> None:
        if is_change(call, request) and len(met) < 3:
            met.append(other.open_record(new_move(f"other{len(met)}", next(one_chain))))

    proxied_ledger.open_record(new_move("first"))
    proxy.before = before
    stored = proxied_ledger.open_record(new_move("mine", next(one_chain)))
    assert stored.version == 1
    assert sorted(record.domain.name for record in proxied_ledger.list_records()) == ["first", "mine", "other0", "other1", "other2"]
    assert proxied_ledger.verify_audit() == []
    assert len(store.lines()) == 5


def test_a_host_added_by_a_concurrent_process_is_not_added_twice(proxied_ledger: EtcdLedger, proxy: Proxy, store: EtcdStore) -> None:
    host_uuid = "33333333-0000-4000-8000-0000000000a3"
    body = {"host_uuid": host_uuid, "name": "kvm3", "state": "enabled"}
    other, known = store.open(), []

    def before(call: str, request: dict[str, t.Any]) -> None:
        if is_change(call, request) and not known:
            known.append(other.put_host(host_entry({**body, "host_id": "33333333-0000-4000-8000-000000000003"}), None))

    proxy.before = before
    with pytest.raises(Conflict, match="is known as 'kvm3'"):
        proxied_ledger.put_host(host_entry({**body, "host_id": None}), None)
    assert proxied_ledger.list_hosts() == known


def test_the_later_of_two_concurrent_opens_of_a_domain_is_refused_with_the_record(
    proxied_ledger: EtcdLedger, proxy: Proxy, store: EtcdStore, new_move: NewMove
) -> None:
    domain_uuid = "99999999-0000-4000-8000-000000000009"
    other, first = store.open(), []

    def before(call: str, request: dict[str, t.Any]) -> None:
        if is_change(call, request) and not first:
            first.append(other.open_record(new_move(domain_uuid=domain_uuid)))

    proxy.before = before
    with pytest.raises(Conflict) as refused:
        proxied_ledger.open_record(new_move(domain_uuid=domain_uuid))
    assert refused.value.result["record"] == encode(first[0].record)
    assert [record.id for record in proxied_ledger.list_records()] == [first[0].record.id]


def test_a_process_that_slept_beyond_its_writer_lease_can_write(ledger: EtcdLedger, store: EtcdStore, new_move: NewMove, advance_record: AdvanceRecord) -> None:
    stored = ledger.open_record(new_move())
    store.client.revoke_lease(ledger._writer._lease)
    assert store.names("writers") == []
    assert advance_record(ledger, stored, s.SCHEDULED).version == 2
    assert len(store.lines()) == 2
