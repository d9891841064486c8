# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How many sources send to a destination, as the control node tells the watchers."""

from __future__ import annotations

import dataclasses
import datetime
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Connection
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._migrate.shared_links import (
    COUNT_SECONDS,
    COUNTED_SECONDS,
    RETRY_SECONDS,
    SharedLinks,
    count_sources,
)
from ansible_collections.kvmfleet.migration.tests.unit.fakes.clock import FakeClock
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._scheduler.builders import uuid_of

NOW = datetime.datetime(2026, 11, 24, 3, tzinfo=datetime.UTC)


def move(name: str, source: str = "kvm1", destination: str = "kvm3", status: str = s.RUNNING, age_seconds: float = 0.0, **changes: t.Any) -> MoveRecord:
    source_ref, destination_ref = (HostRef(host, None, uuid_of(host)) for host in (source, destination))
    record = new_record(s.LIVE_MIGRATION, DomainRef(uuid_of(name), name), source_ref, destination_ref, {}, "test")
    changed_at = (NOW - datetime.timedelta(seconds=age_seconds)).isoformat().replace("+00:00", "Z")
    connection = Connection(f"qemu+tcp://{destination}/system")
    return dataclasses.replace(record, id=uuid_of(f"record {name}"), status=status, updated_at=changed_at, **{"connection": connection, **changes})


TO_3 = "qemu+tcp://kvm3/system"
OWN = move("web1")


@pytest.mark.parametrize(
    ("others", "number"),
    [
        ([], 1),
        ([move("web2", "kvm2")], 2),
        ([move("web2", "kvm2"), move("web3", "kvm2")], 2),
        ([move("web2", "kvm2"), move("web3", "kvm4", status=s.PREPARING)], 3),
        ([move("web2", "kvm2", status=s.RUNNING_POST_COPY)], 2),
        # Another run moves from the same source.
        ([move("web2"), move("web3")], 2),
        ([move("web2", "kvm2", status=s.QUEUED)], 1),
        ([move("web2", "kvm2", status=s.COMPLETED)], 1),
        ([move("web2", "kvm2", "kvm4")], 1),
        ([move("web2", "kvm2", age_seconds=COUNTED_SECONDS)], 2),
        ([move("web2", "kvm2", age_seconds=COUNTED_SECONDS + 1)], 1),
        ([move("web2", "kvm2", type=s.EVACUATION)], 1),
    ],
)
def test_runs_that_send_to_the_same_host_are_counted(others: list[MoveRecord], number: int) -> None:
    assert count_sources([OWN], [OWN, *others], NOW) == {TO_3: number}


def test_each_destination_of_a_run_has_its_own_number() -> None:
    own = [move("a"), move("b"), move("c", destination="kvm4")]
    records = [*own, move("d", "kvm2", "kvm4"), move("e", "kvm5", "kvm4")]
    assert count_sources(own, records, NOW) == {TO_3: 1, "qemu+tcp://kvm4/system": 3}


def test_a_move_without_a_known_connection_has_no_number() -> None:
    assert count_sources([move("web1", connection=None)], [], NOW) == {}


class ListedLedger:
    """A ledger of a list of open records; C(None) stands for one that does not answer."""

    def __init__(self) -> None:
        self.records: list[MoveRecord] | None = [OWN]
        self.reads = 0

    def list_records(self, unsettled_only: bool) -> list[MoveRecord]:
        assert unsettled_only
        self.reads += 1
        if self.records is None:
            raise Unreachable("No member answers.")
        return self.records


def test_the_ledger_is_read_every_few_seconds_and_its_last_numbers_hold() -> None:
    ledger, clock = ListedLedger(), FakeClock()
    links = SharedLinks(t.cast(t.Any, ledger), clock, lambda: NOW)

    def count(seconds: float = COUNT_SECONDS) -> dict[str, int]:
        clock.sleep(seconds)
        return links.count_sources([OWN])

    assert count() == {}
    ledger.records = [OWN, move("web2", "kvm2")]
    assert count(1.0) == {}
    assert count() == {TO_3: 2}
    ledger.records = None
    assert count() == {TO_3: 2}
    ledger.records = [OWN]
    assert (count(), ledger.reads) == ({TO_3: 2}, 3), "a ledger that does not answer would delay each heartbeat"
    # A number that was told is taken back.
    assert (count(RETRY_SECONDS), count()) == ({TO_3: 1}, {TO_3: 1})
    assert ledger.reads == 5
