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

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd import chain
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.messages import put
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.store import EtcdLedger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Stored
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.etcd.proxy import Proxy
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import EtcdStore

Go = Callable[..., Stored]
NewMove = Callable[..., dict[str, t.Any]]


def is_change(call: str, request: dict[str, t.Any]) -> bool:
    return call == "kv/txn" and any("request_put" in act for act in request["success"])


def succeeds(store: EtcdStore, request: dict[str, t.Any]) -> bool:
    """Send a transaction as it was sent before; return whether it did something."""
    return store.client.transaction(request["compare"], request["success"], request["failure"]).succeeded


def lose(proxy: Proxy, times: int) -> None:
    """Let the answers to that many changes get lost."""
    left = [times]

    def loses(call: str, request: dict[str, t.Any]) -> bool:
        if not is_change(call, request) or not left[0]:
            return False
        left[0] -= 1
        return True

    proxy.loses = loses


@pytest.mark.parametrize("times", [1, 3])
def test_a_change_whose_answer_got_lost_is_made_once(far: EtcdLedger, proxy: Proxy, store: EtcdStore, new_move: NewMove, go: Go, times: int) -> None:
    far.open_record(new_move("before"))
    lose(proxy, times)
    stored = far.open_record(new_move("web1"))
    assert (stored.version, stored.record["generation"]) == (1, 1)
    lose(proxy, times)
    stored = go(far, stored, s.SCHEDULED)
    lose(proxy, times)
    stored = go(far, stored, s.CANCELLED)
    assert stored.version == 3
    assert len(store.lines()) == 4
    assert far.get(stored.record["id"]) == stored
    assert far.verify_audit() == []


def test_the_first_change_of_a_process_may_get_lost_too(far: EtcdLedger, proxy: Proxy, store: EtcdStore, new_move: NewMove) -> None:
    lose(proxy, 1)
    assert far.open_record(new_move()).version == 1
    assert len(store.lines()) == 1


def test_a_change_that_somebody_overwrote_before_its_answer_was_missed_still_counts(
    far: EtcdLedger, proxy: Proxy, store: EtcdStore, new_move: NewMove, go: Go
) -> None:
    stored = far.open_record(new_move())
    other = store.open()
    changes: list[str] = []

    def loses(call: str, request: dict[str, t.Any]) -> bool:
        if not is_change(call, request) or changes:
            return False
        changes.append("lost")
        go(other, other.get(stored.record["id"]), s.QUEUED, by="bob@elsewhere pid 2")
        return True

    proxy.loses = loses
    scheduled = go(far, stored, s.SCHEDULED)
    assert (scheduled.version, scheduled.record["status"]) == (2, s.SCHEDULED)
    with pytest.raises(Conflict, match="bob@elsewhere"):
        go(far, scheduled, s.CANCELLED)
    assert far.verify_audit() == []


def test_a_request_that_arrives_after_its_repetition_changes_nothing(far: EtcdLedger, proxy: Proxy, store: EtcdStore, new_move: NewMove) -> None:
    record = new_move()
    far.open_record(record)
    late = [request for call, request in proxy.asked if is_change(call, request)][-1]
    before = {name: store.read(name) for name in store.names()}
    assert not succeeds(store, late)
    assert {name: store.read(name) for name in store.names()} == before


def test_a_request_that_arrives_after_a_later_one_of_its_writer_changes_nothing(far: EtcdLedger, proxy: Proxy, store: EtcdStore) -> None:
    key = f"{store.address.prefix}key"
    for value in ("first", "second"):
        far._writer.write([], [put(key, value)], ())
    first = next(request for call, request in proxy.asked if is_change(call, request) and put(key, "first") in request["success"])
    assert not succeeds(store, first)
    assert store.read("key") == b"second"


def test_where_nobody_answers_any_more_it_is_not_claimed_that_nothing_was_written(
    far: EtcdLedger, proxy: Proxy, store: EtcdStore, new_move: NewMove, go: Go
) -> None:
    stored = far.open_record(new_move())
    proxy.loses = is_change
    far._client.patience_seconds = 0.2
    with pytest.raises(Unreachable, match="Whether the last change was written is not known"):
        go(far, stored, s.SCHEDULED)
    proxy.loses = lambda call, request: False
    # It was; and the same process reads it and goes on.
    now = far.get(stored.record["id"])
    assert (now.version, now.record["status"]) == (2, s.SCHEDULED)
    assert go(far, now, s.CANCELLED).version == 3
    assert far.verify_audit() == []


def test_two_writers_at_the_same_moment_both_get_through(far: EtcdLedger, proxy: Proxy, store: EtcdStore, new_move: NewMove) -> None:
    other, met = store.open(), []
    uuids = (str(uuid.uuid4()) for _number in itertools.count())
    # Their lines go into one chain.
    one_chain = (domain_uuid for domain_uuid in uuids if chain.name_of(domain_uuid) == "07")

    def before(call: str, request: dict[str, t.Any]) -> None:
        if is_change(call, request) and len(met) < 3:
            met.append(other.open_record(new_move(f"other{len(met)}", next(one_chain))))

    far.open_record(new_move("first"))
    proxy.before = before
    stored = far.open_record(new_move("mine", next(one_chain)))
    assert stored.version == 1
    assert sorted(record["domain"]["name"] for record in far.records()) == ["first", "mine", "other0", "other1", "other2"]
    assert far.verify_audit() == []
    assert len(store.lines()) == 5


def test_a_host_that_another_process_makes_known_meanwhile_is_not_kept_a_second_time(far: EtcdLedger, proxy: Proxy, store: EtcdStore) -> None:
    host_uuid = "33333333-0000-4000-8000-0000000000a3"
    body = {"host_uuid": host_uuid, "name": "kvm3", "state": "enabled"}
    other, known = store.open(), []

    def before(call: str, request: dict[str, t.Any]) -> None:
        if is_change(call, request) and not known:
            known.append(other.put_host({**body, "host_id": "33333333-0000-4000-8000-000000000003"}, None))

    proxy.before = before
    with pytest.raises(Conflict, match="is known as 'kvm3'"):
        far.put_host({**body, "host_id": None}, None)
    assert far.hosts() == known


def test_of_two_opens_of_a_domain_the_later_one_is_told_who_holds_it(far: EtcdLedger, proxy: Proxy, store: EtcdStore, new_move: NewMove) -> None:
    domain_uuid = "99999999-0000-4000-8000-000000000009"
    other, first = store.open(), []

    def before(call: str, request: dict[str, t.Any]) -> None:
        if is_change(call, request) and not first:
            first.append(other.open_record(new_move(domain_uuid=domain_uuid)))

    proxy.before = before
    with pytest.raises(Conflict) as refused:
        far.open_record(new_move(domain_uuid=domain_uuid))
    assert refused.value.result["record"] == first[0].record
    assert [record["id"] for record in far.records()] == [first[0].record["id"]]


def test_a_process_that_slept_for_longer_than_its_mark_is_kept_writes_on(ledger: EtcdLedger, store: EtcdStore, new_move: NewMove, go: Go) -> None:
    stored = ledger.open_record(new_move())
    store.client.revoke(ledger._writer._lease)
    assert store.names("writers") == []
    assert go(ledger, stored, s.SCHEDULED).version == 2
    assert len(store.lines()) == 2
