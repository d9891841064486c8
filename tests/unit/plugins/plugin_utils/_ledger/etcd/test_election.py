# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One leader at a time, whatever happens to it or to its way to etcd."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd import election
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.client import Client
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.connection import EtcdOptions, parse_address
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.election import Election
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.messages import Message
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.etcd.proxy import Proxy
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.stores import EtcdStore

LIMIT_SECONDS = 30
Begin = t.Callable[..., Election]


@pytest.fixture
def begin(store: EtcdStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """Return a function that begins to take part; a lock ends after three seconds, and a leader stops one second earlier."""
    monkeypatch.setattr(election, "LOCK_SECONDS", 3)
    monkeypatch.setattr(election, "_MARGIN_SECONDS", 1.0)
    monkeypatch.setattr(election, "_ROUND_SECONDS", 0.2)
    monkeypatch.setattr(election, "_PATIENCE_SECONDS", 0.5)
    running: list[Election] = []

    def start(client: t.Optional[Client] = None, name: str = "events") -> Election:
        running.append(Election(client or Client(store.address, store.options), name, problems.append))
        running[-1].start()
        return running[-1]

    problems: list[str] = []
    yield start
    for one in running:
        one.stop()
        one.join(LIMIT_SECONDS)
        assert not one.is_alive()


def wait_until(holds: t.Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_first_one_leads_and_the_next_one_follows_at_once_when_it_ends(begin: Begin) -> None:
    first = begin()
    wait_until(lambda: first.is_leader)
    second, other = begin(), begin(name="others")
    wait_until(lambda: other.is_leader)
    time.sleep(4)
    assert (first.is_leader, second.is_leader) == (True, False)
    first.stop()
    assert not first.is_leader
    wait_until(lambda: second.is_leader)


def test_a_leader_that_cannot_reach_etcd_stops_before_another_one_leads(begin: Begin, store: EtcdStore, proxy: Proxy) -> None:
    cut = False

    def refuse(_call: str, _request: Message) -> None:
        if cut:
            time.sleep(0.2)
            raise ConnectionResetError

    proxy.before = refuse
    first = begin(Client(parse_address(f"etcd://{proxy.endpoint}{store.address.prefix}"), EtcdOptions()))
    wait_until(lambda: first.is_leader)
    second = begin()
    cut, deadline = True, time.monotonic() + LIMIT_SECONDS
    while not second.is_leader:
        # Asked in this order, so that a change between the two cannot be mistaken for two leaders.
        both = second.is_leader and first.is_leader
        assert not both
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert not first.is_leader
    # It comes back, and waits for its turn.
    cut = False
    time.sleep(2)
    assert (first.is_leader, second.is_leader) == (False, True)
    second.stop()
    wait_until(lambda: first.is_leader)


def test_a_leader_whose_lease_ended_notices_it(begin: Begin, store: EtcdStore) -> None:
    first = begin()
    wait_until(lambda: first.is_leader)
    second = begin()
    wait_until(lambda: len(store.names("locks/events")) == 2)
    key = min(store.names("locks/events"), key=lambda name: int(name.rpartition("/")[2], 16))
    assert first._key.endswith(key)
    store.client.revoke_lease(int(key.rpartition("/")[2], 16))
    wait_until(lambda: second.is_leader and not first.is_leader)
    second.stop()
    wait_until(lambda: first.is_leader)
