# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Balance runs in the ledger: beginning one, closing it with the records of its moves, and measuring later what it brought.

The records of a run are found in the ledger when it is closed, so a process that was killed leaves nothing that the next one cannot complete.
"""

from __future__ import annotations

import contextlib
import typing as t
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.balance_runs import FINISHED, RUNNING, BalancedMove, BalanceGoal, BalanceRun
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import RunHolder
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import COMPLETED

from .._drain.balance_entries import PlannedBalance
from .._drain.inputs import DrainInputs
from .._drain.plan_entries import PlannedMove
from .._drain.saved_plan import DrainPlan
from .._ledger.balances import BALANCE_RUNS
from .._ledger.documents import Document
from .._ledger.ledger import Ledger
from .._maintenance.decisions import seconds_between
from .._maintenance.holding import is_alive
from .._scheduler.fleet import HostState
from .measuring import measure_run

# A run whose holder cannot be seen from here is taken for abandoned after this time.
ABANDONED_SECONDS: t.Final = 86400.0


@dataclass(frozen=True)
class RunPlan:
    """What a run is begun with. See L(BalanceRun)."""

    goal: BalanceGoal
    hosts: tuple[str, ...]
    score_before: float
    score_predicted: float
    moves: tuple[BalancedMove, ...]


def plan_run(plan: DrainPlan, balance: PlannedBalance) -> RunPlan:
    """Return what a run is begun with that carries out a plan."""
    options = balance.options
    return RunPlan(
        goal=BalanceGoal(options.goal, options.weights, options.tolerated_pressure),
        hosts=tuple(host.name for host in balance.hosts),
        score_before=balance.score_before,
        score_predicted=balance.score_after,
        moves=tuple(map(_plan_move, plan.moves)),
    )


def _plan_move(move: PlannedMove) -> BalancedMove:
    return BalancedMove(
        domain=DomainRef(move.uuid, move.name),
        source=move.source,
        destination=move.destination,
        unit=move.unit or move.uuid,
        why=move.repairs or "",
        predicted_gain=move.gain or 0.0,
        cost_seconds=move.cost_seconds or 0.0,
        record=None,
        status=None,
    )


def list_runs(ledger: Ledger) -> list[BalanceRun]:
    """Return all runs, the oldest first."""
    return [document.balance_run for document in ledger.list_balance_runs()]


def open_run(ledger: Ledger, plan: RunPlan, holder: RunHolder, is_confirmed: bool = False) -> BalanceRun:
    """Write a new run that this process holds, and return it. Runs over the same hosts whose process is gone are closed first.

    :arg holder: this process, see L(identify_process).
    :arg is_confirmed: whether a person states that the process of another run does not exist any more.
    :raises Conflict: another run over one of the hosts is carried out by a process that may still exist.
    """
    close_abandoned_runs(ledger, plan.hosts, holder, is_confirmed)
    now = utc_now()
    run = BalanceRun(
        id=str(uuid.uuid4()),
        state=RUNNING,
        goal=plan.goal,
        hosts=plan.hosts,
        score_before=plan.score_before,
        score_predicted=plan.score_predicted,
        moves=plan.moves,
        holder=holder,
        created_at=now,
        created_by=holder.by,
        updated_at=now,
        ended_at=None,
    )
    return ledger.put_balance_run(run, None).balance_run


def close_abandoned_runs(ledger: Ledger, hosts: Iterable[str], holder: RunHolder, is_confirmed: bool = False) -> None:
    """Close the open runs over one of these hosts, whose processes are gone. Takes and raises what L(open_run) does."""
    now = utc_now()
    for document in ledger.list_balance_runs():
        other = document.balance_run
        if other.is_open and not set(hosts).isdisjoint(other.hosts):
            _check_abandoned(other, holder, is_confirmed, now)
            _write_end(ledger, document, is_interrupted=not holder.is_same_process(other.holder))


def find_arrivals(ledger: Ledger, drain: DrainInputs) -> list[MoveRecord]:
    """Return the unsettled records of moves of closed runs whose domains have arrived since: the process that should have settled them is gone."""
    closed = [run for run in list_runs(ledger) if not run.is_open]
    return [record for record in drain.records if drain.has_arrived(record) and any(_is_of_run(record, run) for run in closed)]


def complete_runs(ledger: Ledger) -> None:
    """Write into the runs that were interrupted what has become of their moves since they were closed."""
    for document in ledger.list_balance_runs():
        run = document.balance_run
        if run.is_unmeasured and run.is_interrupted and (moves := _find_records(ledger, run)) != run.moves:
            with contextlib.suppress(Conflict):
                # Another process has written it meanwhile.
                ledger.put_balance_run(replace(run, moves=moves, updated_at=utc_now()), document)


def close_run(ledger: Ledger, run_id: str, holder: RunHolder) -> BalanceRun:
    """Close a run with the records of its moves, and return it. A run that is closed already is returned as it is.

    :raises Conflict: another process holds it.
    """
    document = ledger.read_balance_run(run_id)
    run = document.balance_run
    if not run.is_open:
        return run
    if not holder.is_same_process(run.holder):
        raise Conflict(
            f"Failed to close {BALANCE_RUNS.describe_run(run)}: {run.holder.by} holds it since {run.holder.since}.", "Wait until that process has ended."
        )
    return _write_end(ledger, document, is_interrupted=False)


def measure_runs(ledger: Ledger, states: Mapping[str, HostState]) -> list[BalanceRun]:
    """Measure all runs that these facts can measure, write them, and return them. See L(measure_run)."""
    return [run for document in ledger.list_balance_runs() if document.balance_run.is_unmeasured and (run := _measure(ledger, document, states))]


def _measure(ledger: Ledger, document: Document, states: Mapping[str, HostState]) -> t.Optional[BalanceRun]:
    run = document.balance_run
    # The moves of a run that was interrupted may have ended after it was closed.
    measured = measure_run(replace(run, moves=_find_records(ledger, run)), states)
    if measured is None:
        return None
    try:
        return ledger.put_balance_run(replace(measured, updated_at=utc_now()), document).balance_run
    except Conflict:
        # Another process has measured it meanwhile.
        return None


def _check_abandoned(run: BalanceRun, holder: RunHolder, is_confirmed: bool, now: str) -> None:
    """Raise L(Conflict) if the process of an open run may still exist."""
    if holder.is_same_process(run.holder):
        return
    alive, carried_out = is_alive(run.holder), f"{run.holder.by} carries out {BALANCE_RUNS.describe_run(run)}"
    if alive:
        raise Conflict(f"{carried_out}, and that process still runs. Nothing was changed.", "Wait until it has ended, then plan again.")
    if alive is None and not is_confirmed and seconds_between(run.created_at, now) < ABANDONED_SECONDS:
        raise Conflict(
            f"{carried_out}, and it cannot be verified from here whether that process still runs. Nothing was changed.",
            "If it does not, run the command again with -e balance_take_over=true.",
        )


def _write_end(ledger: Ledger, document: Document, is_interrupted: bool) -> BalanceRun:
    run, now = document.balance_run, utc_now()
    moves = _find_records(ledger, run)
    ended = replace(run, state=FINISHED, moves=moves, updated_at=now, ended_at=now, is_interrupted=True if is_interrupted else ABSENT)
    return ledger.put_balance_run(ended, document).balance_run


def _find_records(ledger: Ledger, run: BalanceRun) -> tuple[BalancedMove, ...]:
    """Return the moves of a run with their records, as they are now."""
    return tuple(_with_record(move, ledger.list_records(domain=move.domain.uuid, since=run.created_at), run) for move in run.moves)


def _with_record(move: BalancedMove, records: Iterable[MoveRecord], run: BalanceRun) -> BalancedMove:
    found = [record for record in records if _is_of_move(record, move, run)]
    if not found:
        return move
    # A move that failed may have been repeated.
    best = min(found, key=lambda record: (record.status != COMPLETED, record.created_at, record.record_id))
    return replace(move, record=best.id, status=best.status)


def _is_of_run(record: MoveRecord, run: BalanceRun) -> bool:
    return any(move.domain.uuid == record.domain.uuid and _is_of_move(record, move, run) for move in run.moves)


def _is_of_move(record: MoveRecord, move: BalancedMove, run: BalanceRun) -> bool:
    ends = record.source.host, record.destination.host
    return ends == (move.source, move.destination) and run.created_at <= record.created_at and (run.ended_at is None or record.created_at <= run.ended_at)
