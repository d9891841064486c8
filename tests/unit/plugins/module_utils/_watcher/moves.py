# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moves between fake hosts, as the watcher's tests want them."""

from __future__ import annotations

import pathlib
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.flags import MoveOptions, migration_flags
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.arrivals import ArrivalEvents
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.files import read_json, state_path
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.journal import Journal
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.mover import Mover
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.order import Order
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.ownership import Ownership
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.process import identity
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet

RUN = "6a1d0a1e-0000-4000-8000-000000000001"


def record_of(uuid: str = UUID, name: str = "web1", status: str = s.QUEUED, generation: int = 1, **policy: t.Any) -> schema.Record:
    """A record on its way from kvm1 to kvm2."""
    fields = {field: {"value": value, "source": "task"} for field, value in policy.items()}
    record = schema.new_record(
        s.LIVE_MIGRATION, {"uuid": uuid, "name": name}, schema.place("kvm1"), schema.place("kvm2"), fields, "test", request={"memory_mib": 1024}
    )
    record.update(status=status, generation=generation)
    return record


def order_of(record: schema.Record, adopt: bool = False, persistent: bool = True) -> Order:
    """The order that a control node would send for the record."""
    return Order(record, LOCAL_URI, "qemu+tcp://kvm2/system", migration_flags(MoveOptions(), persistent, False), {}, adopt)


def journal_of(record: schema.Record, folder: pathlib.Path) -> Journal:
    return Journal(record, identity(RUN), str(folder))


def mover_of(fleet: FakeFleet, order: Order, folder: pathlib.Path) -> Mover:
    """A mover on the fleet's clock, with the lock of its domain."""
    ownership = Ownership(order.uuid, str(folder))
    return Mover(order, journal_of(order.record, folder), ownership, fleet.open, ArrivalEvents(fleet.open), fleet.clock, fleet.clock.sleep)


def carry_out(fleet: FakeFleet, folder: pathlib.Path, adopt: bool = False, status: str = s.QUEUED, persistent: bool = True, **policy: t.Any) -> schema.Record:
    """Carry out one move to its end, and return what the state file says then."""
    order = order_of(record_of(status=status, **policy), adopt, persistent)
    mover = mover_of(fleet, order, folder)
    mover.run()
    mover._arrivals.close()
    return state_in(folder)


def state_in(folder: pathlib.Path, uuid: str = UUID) -> schema.Record:
    return t.cast(schema.Record, read_json(state_path(uuid, str(folder))))


def acts(record: schema.Record) -> t.List[str]:
    return [entry["act"] for entry in record["acts"]]


def statuses(record: schema.Record) -> t.List[str]:
    """The statuses that a record went through after the one it had when it was handed over."""
    return [line["status"] for line in record["history"] if line["status"] in s.UNSETTLED | s.CLOSED][1:]
