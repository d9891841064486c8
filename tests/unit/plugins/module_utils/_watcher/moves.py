# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moves between fake hosts, as the watcher's tests want them."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._live_watchers import identify_watcher
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.flags import MoveOptions, migration_flags
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord, new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import StartOrder
from ansible_collections.kvmfleet.migration.plugins.module_utils._run_folder import Ownership, prepare_run_folder, read_json, state_path
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.calls import ArrivalEvents
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.foreign import ForcingOrder, JobForcing, forcing_folder
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.journal import Journal
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.mover import Mover
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet

Document = t.Dict[str, t.Any]
RUN = "6a1d0a1e-0000-4000-8000-000000000001"


def record_of(uuid: str = UUID, name: str = "web1", status: str = s.QUEUED, generation: int = 1, **policy: t.Any) -> MoveRecord:
    """A record on its way from kvm1 to kvm2."""
    fields = {field: {"value": value, "source": "task"} for field, value in policy.items()}
    ends = (HostRef("kvm1", None, None), HostRef("kvm2", None, None))
    record = new_record(s.LIVE_MIGRATION, DomainRef(uuid, name), *ends, fields, "test", request={"memory_mib": 1024})
    return dataclasses.replace(record, status=status, generation=generation)


def order_of(record: MoveRecord, adopt: bool = False, persistent: bool = True, flags: t.Sequence[str] = ()) -> StartOrder:
    """The order that a control node would send for the record, with further flags."""
    return StartOrder(record, LOCAL_URI, "qemu+tcp://kvm2/system", (*migration_flags(MoveOptions(), persistent, False), *flags), {}, adopt, waits=False)


def journal_of(record: MoveRecord, folder: pathlib.Path) -> Journal:
    return Journal(record, identify_watcher(RUN), str(folder))


def mover_of(fleet: FakeFleet, order: StartOrder, folder: pathlib.Path) -> Mover:
    """A mover on the fleet's clock, with the lock of its domain."""
    ownership = Ownership(order.uuid, str(folder))
    return Mover(order, journal_of(order.record, folder), ownership, fleet.open, ArrivalEvents(fleet.open), fleet.clock, fleet.clock.sleep)


class ForcingInStep:
    """A process that forces a foreign job, with its own code, at each step of the fake clock."""

    def __init__(self, order: ForcingOrder, fleet: FakeFleet, folder: pathlib.Path) -> None:
        self.order = decode(ForcingOrder, json.loads(json.dumps(encode(order))))
        prepare_run_folder(forcing_folder(str(folder)))
        self._forcing = JobForcing(self.order, identify_watcher(RUN), fleet.open, str(folder), fleet.clock)
        self.has_ended = False
        fleet.clock.every_step(lambda seconds: self._act())

    def _act(self) -> None:
        if not self.has_ended and not self._forcing.poll_job():
            self.kill()

    def kill(self) -> None:
        """End the process, which releases its lock."""
        self.has_ended = True
        self._forcing.close()


def carry_out(fleet: FakeFleet, folder: pathlib.Path, adopt: bool = False, status: str = s.QUEUED, persistent: bool = True, **policy: t.Any) -> Document:
    """Carry out one move to its end, and return what the state file says then."""
    order = order_of(record_of(status=status, **policy), adopt, persistent)
    mover = mover_of(fleet, order, folder)
    mover.run()
    mover._arrivals.close()
    return state_in(folder)


def state_in(folder: pathlib.Path, uuid: str = UUID) -> Document:
    """The JSON in the state file."""
    return t.cast(Document, read_json(state_path(uuid, str(folder))))


def acts(record: t.Union[MoveRecord, Document]) -> t.List[str]:
    return [entry["act"] for entry in encode(record)["acts"]]


def statuses(record: t.Union[MoveRecord, Document]) -> t.List[str]:
    """The statuses that a record went through after the one it had when it was handed over."""
    return [line["status"] for line in encode(record)["history"] if line["status"] in s.UNSETTLED | s.CLOSED][1:]
