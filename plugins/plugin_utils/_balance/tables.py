# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The plan of a balance and its result as lines of text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import printable_line

from .._drain.balance_entries import PlannedBalance, PlannedEmptying, PlannedHostUse
from .._drain.plan_entries import PlannedMove
from .._drain.reserve import reserve_lines
from .._drain.saved_plan import DrainPlan
from .._drain.tables import align_columns, downtime_text, note_lines, outcome_row, source_line, span_text
from .pressure import RESOURCES
from .result import BalanceResult

_MOVE_TITLES = ("", "DOMAIN", "MEMORY", "FROM", "TO", "STAGE", "GAIN", "COST", "PREDICTED", "DOWNTIME", "WHY")


def balance_lines(plan: DrainPlan, balance: PlannedBalance) -> list[str]:
    """Return the plan: the score before and after and what it is, the use of the hosts, each move with its reason, and why the others stay."""
    lines = [balance.sentence, _score_text(balance, len(plan.moves))]
    lines += align_columns(["HOST", *(name.upper() for name in RESOURCES), "JUDGED BY"], list(map(_host_row, balance.hosts)))
    lines += align_columns(_MOVE_TITLES, list(map(_move_row, plan.moves))) if plan.moves else []
    lines += note_lines(plan)
    lines += [f"LEFT   {entry.name} on {entry.source}: {entry.reason}" for entry in plan.skipped]
    lines += [f"SILENT {host}: {why}" for host, why in balance.silent.items()]
    lines += [f"BROKEN {sentence}" for sentence in balance.broken]
    lines += [source_line(source, plan) for source in plan.predicted_seconds]
    lines += reserve_lines(plan.reserve)
    lines.append(balance.stopped)
    lines += _emptying_lines(balance.emptying) if balance.emptying else []
    return [printable_line(line) for line in lines]


def result_lines(result: BalanceResult) -> list[str]:
    """Return the moves, and the failures with their reasons."""
    rows = [outcome_row(source, entry) for source, entries in result.by_source().items() for entry in entries]
    lines = align_columns(["DOMAIN", "FROM", "TO", "STATUS", "PREDICTED", "ACTUAL", "DOWNTIME"], rows) if rows else ["Nothing was moved."]
    lines += [f"FAILED {entry.name} on {source}: {entry.error}" for source, entries in result.failed.items() for entry in entries]
    lines += [f"FAILED {host}: {problem}" for host, problems in result.problems.items() for problem in problems]
    return [printable_line(line) for line in lines]


def _score_text(balance: PlannedBalance, moves: int) -> str:
    if not moves:
        return f"It is {balance.score_before:.3f} now. Nothing to move."
    return f"It is {balance.score_before:.3f} now, and would be {balance.score_after:.3f} after {moves} {'move' if moves == 1 else 'moves'}."


def _host_row(host: PlannedHostUse) -> list[str]:
    return [host.name, *(_use_text(host.before, host.after, name) for name in RESOURCES), "pressure" if host.measured else "CPU time"]


def _use_text(before: Mapping[str, float], after: Mapping[str, float], name: str) -> str:
    old, new = (f"{shares.get(name, 0.0):.0%}" for shares in (before, after))
    return old if old == new else f"{old} to {new}"


def _move_row(move: PlannedMove) -> list[str]:
    ends = [move.name, f"{move.memory_mib} MiB", move.source, move.destination]
    worth = [str(move.stage or 1), f"{move.gain or 0.0:.3f}", f"{move.cost_seconds or 0.0:.1f} s"]
    return [str(move.order), *ends, *worth, span_text(move.predicted_seconds, move.predicted_range), downtime_text(move.predicted_downtime_ms), move.reason]


def _emptying_lines(found: PlannedEmptying) -> Sequence[str]:
    lines = []
    for one in found.hosts:
        ways = ", ".join(f"{move.name} to {move.destination}" for move in one.moves) or "it has no guests"
        lines.append(f"EMPTY  {one.host} could be emptied, and the others could still lose any one of them: {ways}.")
    return lines + [f"FULL   {host} could not be emptied: {reason}" for host, reason in found.refused.items()]
