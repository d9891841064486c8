# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One move by the collection's own engine, on the source host and without Ansible, so that schedules can be compared that no option offers."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.host import open_host
from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.interface import Host
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.downtime import DowntimeSchedule, SteppedSchedule
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.flags import MoveOptions, migration_flags, migration_parameters
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.monitor import Limits
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Connection
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import StartOrder
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.calls import MigrateCall
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.follow import Follower
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.journal import Journal
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.order_terms import limits_of, terms_of

from .ovirt import MinimalDowntime

LOCAL = "qemu:///system"


@dataclasses.dataclass(frozen=True)
class Wish:
    """One move. C(strategy) is a schedule of the collection, C(fixed) or C(ovirt); the other options have the names and units of C(live_migrate).

    :arg suspend_after_seconds: stop the guest then, as a force under the cap does that knows no other means; 0 is never.
    """

    uuid: str
    destination_uri: str
    strategy: str
    downtime_ms: int = 500
    timeout_seconds: int = 120
    on_timeout: str = "abort"
    bandwidth_mib: int = 0
    link_mib: int = 0
    memory_mib: int = 0
    auto_converge: bool = False
    suspend_after_seconds: float = 0

    def order(self) -> StartOrder:
        """Return it as the control node would send it."""
        chosen = {"downtime_strategy": self.strategy} if self.strategy in ("adaptive", "stepped") else {}
        given: dict[str, Json] = {"downtime_ms": self.downtime_ms, "timeout_seconds": self.timeout_seconds, "on_timeout": self.on_timeout, **chosen}
        policy: dict[str, Json] = {field: {"value": value, "source": "task"} for field, value in given.items()}
        ends = HostRef("source", None, None), HostRef("destination", None, None)
        record = new_record(s.LIVE_MIGRATION, DomainRef(self.uuid, self.uuid), *ends, policy, "bench", request={"memory_mib": self.memory_mib})
        connection = Connection(bandwidth_mib=self.bandwidth_mib, link_mib=self.link_mib)
        record = dataclasses.replace(record, status=s.PREPARING, connection=connection)
        options = MoveOptions(bandwidth_mib=self.bandwidth_mib)
        flags = migration_flags(options, persistent=True, auto_converge=self.auto_converge)
        return StartOrder(record, LOCAL, self.destination_uri, tuple(flags), migration_parameters(options, []), adopt=False, waits=False)

    def limits(self, order: StartOrder) -> Limits:
        """Return the engine's limits, with the schedule that is tried."""
        limits = limits_of(order)
        others: dict[str, DowntimeSchedule] = {"fixed": SteppedSchedule(((0.0, self.downtime_ms),)), "ovirt": MinimalDowntime()}
        return dataclasses.replace(limits, downtime=others.get(self.strategy, limits.downtime))


def carry_out(wish: Wish) -> dict[str, t.Any]:
    """Move the guest; return what became of it: C(ended), C(elapsed_ms), C(downtime_ms), C(predicted_ms), C(rung), C(iterations), and C(samples)."""
    order = wish.order()
    limits = wish.limits(order)
    host, control = open_host(LOCAL), open_host(LOCAL)
    host.set_max_downtime_ms(wish.uuid, limits.downtime.first_ms)
    journal = Journal(order.record, None, folder=None)
    follower = Follower(lambda: open_host(LOCAL), wish.uuid, journal, limits, terms_of(order), time.monotonic)
    call = MigrateCall(host, order)
    call.start()
    _watch(wish, call, follower, limits.downtime, control)
    stats, record = follower.completed_job(), journal.record
    follower.close()
    control.close()
    return {
        "ended": stats is not None and call.error is None,
        "elapsed_ms": stats.elapsed_ms if stats else follower.elapsed_ms,
        "downtime_ms": stats.downtime_ms if stats else None,
        "predicted_ms": record.result.predicted_downtime_ms,
        "rung": record.result.rung or None,
        "iterations": record.progress.iteration,
        "samples": encode(record.samples),
        "history": [f"{line.status} {line.detail or ''}".strip() for line in record.history],
    }


def _watch(wish: Wish, call: MigrateCall, follower: Follower, schedule: DowntimeSchedule, control: Host) -> None:
    acted = False
    while call.is_alive():
        follower.poll_job()
        elapsed = (follower.elapsed_ms or 0) / 1000
        if not acted and isinstance(schedule, MinimalDowntime) and schedule.gives_up:
            acted = _tried(lambda: control.abort_job(wish.uuid))
        if not acted and 0 < wish.suspend_after_seconds <= elapsed:
            acted = _tried(lambda: control.suspend_domain(wish.uuid))
        time.sleep(follower.pause_seconds)


def _tried(act: t.Callable[[], None]) -> bool:
    try:
        act()
    except KvmfleetError as error:
        print(error, file=sys.stderr)
    return True


if __name__ == "__main__":
    json.dump(carry_out(Wish(**json.loads(sys.argv[1]))), sys.stdout)
