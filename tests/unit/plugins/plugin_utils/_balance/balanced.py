# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Balance runs for tests, the records of their moves, and facts that were gathered later."""

from __future__ import annotations

import datetime
import typing as t
from collections.abc import Mapping
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.balance_runs import BalancedMove, BalanceGoal, BalanceMeasurement, BalanceRun
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import RunHolder
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.runs import RunPlan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._scheduler.fleet import HostState
from ansible_collections.kvmfleet.migration.tests.simulator import facts as f
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._balance.builders import Document, inputs_of, states_of

RUN_ID = "88888888-0000-4000-8000-000000000008"
GOAL = BalanceGoal("pressure", {"cpu": 1.0, "memory": 1.0, "io": 1.0, "vcpus": 1.0}, 0.1)
ENDED = "2026-11-24T02:00:00.000Z"


def holder(pid: int = 1, node: str = "control") -> RunHolder:
    return RunHolder(f"ann@{node} pid {pid}", node, f"boot of {node}", "pid:[1]", pid, 100 + pid, "2026-11-24T01:00:00.000Z")


def move(name: str, source: str = "kvm1", destination: str = "kvm2", unit: str | None = None, gain: float = 0.5) -> BalancedMove:
    return BalancedMove(DomainRef(f.uuid_of(name), name), source, destination, f.uuid_of(unit or name), "", gain, 12.0, None, None)


def plan(*moves: BalancedMove, hosts: tuple[str, ...] = ("kvm1", "kvm2", "kvm3")) -> RunPlan:
    return RunPlan(GOAL, hosts, 1.5, 0.5, moves)


def ended(*moves: BalancedMove, hosts: tuple[str, ...] = ("kvm1", "kvm2", "kvm3")) -> BalanceRun:
    """Return a run whose moves have all been completed."""
    done = tuple(replace(one, record=f"record of {one.domain.name}", status=s.COMPLETED) for one in moves)
    begun = "2026-11-24T01:00:00.000Z"
    return BalanceRun(RUN_ID, "finished", GOAL, hosts, 1.5, 0.5, done, holder(), begun, "ann@control pid 1", ENDED, ENDED)


def measured_run(other: str = "g4") -> BalanceRun:
    """Return a measured run with two moves. What the second one brought is not known."""
    run = ended(move("g3"), move(other, destination="kvm3"))
    moves = (replace(run.moves[0], measured_gain=0.375), replace(run.moves[1], measured_gain=None))
    return replace(run, moves=moves, measured=BalanceMeasurement("2026-11-24T03:30:00.000Z", 0.25, 0.625))


def balances(other: str = "g4") -> list[BalanceRun]:
    """Return a measured run, and a later one that is not measured yet."""
    later = replace(ended(move("g5")), id="88888888-0000-4000-8000-000000000009", score_before=0.75, created_at="2026-11-24T05:00:00.000Z")
    return [measured_run(other), later]


def carry_out(ledger: Ledger, one: BalancedMove, *statuses: str) -> str:
    """Write the record of a move with these statuses and return its ID."""
    stored = ledger.open_record(new_record(s.LIVE_MIGRATION, one.domain, host_ref(one.source), host_ref(one.destination), {}, by="ann@control pid 1"))
    for status in statuses:
        stored = ledger.update_record(stored, stored.record.advance(status, "ann@control pid 1"))
    return stored.record.record_id


def host_ref(name: str) -> HostRef:
    return HostRef(name, f.uuid_of(name), f.uuid_of(name))


def states_after(facts: Mapping[str, Document], minutes: float, of: str = ENDED, interval_seconds: float = 300) -> dict[str, HostState]:
    """Return hosts whose facts were gathered that long after a time."""
    gathered = (datetime.datetime.fromisoformat(of) + datetime.timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    later: dict[str, t.Any] = {
        name: {**one, "gathered_at": gathered, "load": {**one["load"], "interval_seconds": interval_seconds}} for name, one in facts.items()
    }
    return states_of(inputs_of(later))
