# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Balance runs in a report: the scores of each, and what each of its moves was predicted to bring and brought."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.balance_runs import BalancedMove, BalanceRun

from ..._ledger.ledger import Ledger
from .runs import is_in_scope


@dataclass(frozen=True)
class ReportedBalanceMove:
    """A move of a balance run.

    :arg outcome: the status of its record; null if it was not begun, or the run is open.
    :arg predicted_gain: C(measured_gain) is null if it was not measured.
    """

    domain: str
    source: str
    destination: str
    outcome: t.Optional[str]
    why: str
    predicted_gain: float
    measured_gain: t.Optional[float]
    record: t.Optional[str]


@dataclass(frozen=True)
class ReportedBalance:
    """A balance run.

    :arg measured_at: null, as the measured scores and gain, until it was measured.
    :arg score_without_moves: what the measured score would have been without the moves.
    """

    id: str
    state: str
    goal: str
    created_at: str
    created_by: str
    ended_at: t.Optional[str]
    is_interrupted: bool
    hosts: int
    score_before: float
    score_predicted: float
    measured_at: t.Optional[str]
    score_measured: t.Optional[float]
    score_without_moves: t.Optional[float]
    predicted_gain: float
    measured_gain: t.Optional[float]
    moves: tuple[ReportedBalanceMove, ...]


def select_balances(ledger: Ledger, since: t.Optional[str], until: t.Optional[str], host: t.Optional[str]) -> list[BalanceRun]:
    """Return the runs that were written last in that time and have that host, in the order in which they began."""
    runs = [document.balance_run for document in ledger.list_balance_runs()]
    return [run for run in runs if is_in_scope(run.updated_at, run.hosts, since, until, host)]


def describe_balance(run: BalanceRun) -> ReportedBalance:
    """Return the run as the report shows it."""
    measured = run.measured or None
    return ReportedBalance(
        id=run.id,
        state=run.state,
        goal=run.goal.kind,
        created_at=run.created_at,
        created_by=run.created_by,
        ended_at=run.ended_at,
        is_interrupted=bool(run.is_interrupted),
        hosts=len(run.hosts),
        score_before=run.score_before,
        score_predicted=run.score_predicted,
        measured_at=measured.at if measured else None,
        score_measured=measured.score if measured else None,
        score_without_moves=measured.score_without_moves if measured else None,
        predicted_gain=run.score_before - run.score_predicted,
        measured_gain=measured.gain if measured else None,
        moves=tuple(map(_describe_move, run.moves)),
    )


def _describe_move(move: BalancedMove) -> ReportedBalanceMove:
    return ReportedBalanceMove(
        domain=move.domain.name or move.domain.uuid,
        source=move.source,
        destination=move.destination,
        outcome=move.status,
        why=move.why,
        predicted_gain=move.predicted_gain,
        measured_gain=move.measured_gain if isinstance(move.measured_gain, (int, float)) else None,
        record=move.record,
    )
