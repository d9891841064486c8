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

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._hypervisor.host import open_host
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.flags import MoveOptions, migration_flags, migration_parameters
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.hypervisor import Host
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.monitor import Limits
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.schedule import Schedule, Stepped
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import schema
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.call import MigrateCall
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.follow import Follower
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.journal import Journal
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.mover import limits_of, terms_of
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.order import Order

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

    def order(self) -> Order:
        """Return it as the control node would send it."""
        chosen = {"downtime_strategy": self.strategy} if self.strategy in ("adaptive", "stepped") else {}
        given = {"downtime_ms": self.downtime_ms, "timeout_seconds": self.timeout_seconds, "on_timeout": self.on_timeout, **chosen}
        policy = {field: {"value": value, "source": "task"} for field, value in given.items()}
        places = schema.place("source"), schema.place("destination")
        record = schema.new_record(s.LIVE_MIGRATION, {"uuid": self.uuid, "name": self.uuid}, *places, policy, "bench", request={"memory_mib": self.memory_mib})
        record["status"] = s.PREPARING
        record["connection"] = {"bandwidth_mib": self.bandwidth_mib, "link_mib": self.link_mib}
        options = MoveOptions(bandwidth_mib=self.bandwidth_mib)
        flags = migration_flags(options, persistent=True, auto_converge=self.auto_converge)
        return Order(record, LOCAL, self.destination_uri, flags, migration_parameters(options, []))

    def limits(self, order: Order) -> Limits:
        """Return the engine's limits, with the schedule that is tried."""
        limits = limits_of(order)
        others: dict[str, Schedule] = {"fixed": Stepped(((0.0, self.downtime_ms),)), "ovirt": MinimalDowntime()}
        return dataclasses.replace(limits, downtime=others.get(self.strategy, limits.downtime))


def carry_out(wish: Wish) -> dict[str, t.Any]:
    """Move the guest; return what became of it: C(ended), C(elapsed_ms), C(downtime_ms), C(predicted_ms), C(rung), C(iterations), and C(samples)."""
    order = wish.order()
    limits = wish.limits(order)
    host, control = open_host(LOCAL), open_host(LOCAL)
    host.set_max_downtime_ms(wish.uuid, limits.downtime.first_ms)
    follower = Follower(lambda: open_host(LOCAL), wish.uuid, Journal(order.record, {}, folder=None), limits, terms_of(order), time.monotonic)
    call = MigrateCall(host, order)
    call.start()
    _watch(wish, call, follower, limits.downtime, control)
    stats, result = follower.completed_job(), order.record["result"]
    follower.close()
    control.close()
    return {
        "ended": stats is not None and call.error is None,
        "elapsed_ms": stats.elapsed_ms if stats else follower.elapsed_ms,
        "downtime_ms": stats.downtime_ms if stats else None,
        "predicted_ms": result["predicted_downtime_ms"],
        "rung": result["rung"],
        "iterations": order.record["progress"]["iteration"],
        "samples": order.record["samples"],
        "history": [f"{line['status']} {line['detail']}".strip() for line in order.record["history"]],
    }


def _watch(wish: Wish, call: MigrateCall, follower: Follower, schedule: Schedule, control: Host) -> None:
    acted = False
    while call.is_alive():
        follower.poll()
        elapsed = (follower.elapsed_ms or 0) / 1000
        if not acted and isinstance(schedule, MinimalDowntime) and schedule.gives_up:
            acted = _tried(lambda: control.abort(wish.uuid))
        if not acted and 0 < wish.suspend_after_seconds <= elapsed:
            acted = _tried(lambda: control.suspend(wish.uuid))
        time.sleep(follower.pause)


def _tried(act: t.Callable[[], None]) -> bool:
    try:
        act()
    except KvmfleetError as error:
        print(error, file=sys.stderr)
    return True


if __name__ == "__main__":
    json.dump(carry_out(Wish(**json.loads(sys.argv[1]))), sys.stdout)
