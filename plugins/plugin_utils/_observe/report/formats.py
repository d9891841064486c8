# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A report as Markdown, and the format of figures, times and names in all text formats."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import printable_line

from ..checked_fleet import check_line
from .balances import ReportedBalance, ReportedBalanceMove
from .document import Report, ReportedHost, summary_text
from .moves import NOT_MOVED, UNDER_WAY, DowntimeRange, Downtimes, ReportedMove
from .runs import ReportedDrill, ReportedDrilledGuest, ReportedRun, ReportedRunHost, stages_text, step_text, verdict_word

DASH = "–"
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def text_or_dash(value: Json) -> str:
    """Return a name or a reason on one line; a dash if it is missing."""
    return DASH if value is None or value == "" else printable_line(str(value))


def format_bytes(value: t.Optional[int]) -> str:
    """Return bytes in the largest suitable unit, e.g. C(1.5 GiB)."""
    if value is None:
        return DASH
    unit = next((unit for unit in range(len(_BYTE_UNITS) - 1) if value < 1024 ** (unit + 1)), len(_BYTE_UNITS) - 1)
    return f"{value} B" if unit == 0 else f"{_format_tenths(value, 1024**unit)} {_BYTE_UNITS[unit]}"


def format_duration(milliseconds: t.Optional[int]) -> str:
    """Return a duration, e.g. C(96 ms), C(5.9 s), C(12 min 5 s) or C(3 h 20 min)."""
    if milliseconds is None:
        return DASH
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    if milliseconds < 60_000:
        return f"{_format_tenths(milliseconds, 1000)} s"
    minutes, seconds = divmod(milliseconds // 1000, 60)
    return f"{minutes} min {seconds} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _format_tenths(value: int, unit: int) -> str:
    """Return the number of units, rounded half up to a tenth, as the page's own code does."""
    tenths = (value * 20 + unit) // (2 * unit)
    return f"{tenths // 10}.{tenths % 10}"


def format_time(moment: t.Optional[str]) -> str:
    """Return a time of a record without its fractions, e.g. C(2026-11-21 03:00:00)."""
    return DASH if moment is None else printable_line(moment[:19].replace("T", " "))


def kinds_text(counts: Mapping[str, int]) -> str:
    """Return the number of records of each type, e.g. C(40 live migrations, 1 cold migration and 2 evacuations)."""
    numbers = [(counts[f"{kind.replace(' ', '_')}s"], kind) for kind in ("live migration", "cold migration", "evacuation")]
    parts = [f"{number} {kind}{'' if number == 1 else 's'}" for number, kind in numbers if number]
    return " and ".join([*([", ".join(parts[:-1])] if parts[:-1] else []), *parts[-1:]]) or "0 moves"


def route_text(move: ReportedMove) -> str:
    """Return source and destination."""
    return f"{text_or_dash(move.source)} → {text_or_dash(move.destination)}"


def reboot_text(host: ReportedHost) -> str:
    """Return a word for whether a host may be rebooted."""
    return "not known" if host.safe_to_reboot is None else "yes" if host.safe_to_reboot else "no"


def scope_text(report: Report) -> str:
    """Return the scope of the report."""
    wanted = report.scope
    ids = wanted["ids"]
    if isinstance(ids, Sequence) and ids:
        return f"{len(ids)} records that were named"
    parts = [
        f"{word} {text_or_dash(wanted[key])}" for key, word in (("domain", "domain"), ("host", "host"), ("since", "since"), ("until", "until")) if wanted[key]
    ]
    return ", ".join(parts) or "the whole ledger"


_MARKUP_CHARACTERS = re.compile(r"([\\`*_{}\[\]()#|<>&~$])")


def as_markdown(report: Report, most_moves: t.Optional[int] = None) -> str:
    """Return the whole report; with a limit, at most that number of moves and a line that states this."""
    moves = report.moves
    shown = moves if most_moves is None else moves[:most_moves]
    coverage = f"{_escape_markup(report.coverage)} " if report.coverage else ""
    parts = [
        (
            f"# {_escape_markup(report.title)}\n\n{_escape_markup(summary_text(report))} About {_escape_markup(scope_text(report))}. "
            f"{coverage}Made at {format_time(report.made_at)}. All times are UTC."
        ),
        _format_list("Needs a person", report.attention or ()),
        _format_section("Hosts", ("Host", "Left", "Arrived", "Not moved", "Under way", "State", "Safe to reboot", "Why"), map(_host_row, report.hosts)),
        _format_check(report),
        _format_section(
            "Maintenance runs", ("Run", "Host", "State", "Took", "Steps", "Why"), [row for run in report.maintenance_runs or () for row in _run_rows(run)]
        ),
        _format_section(
            "Balances",
            ("Run", "Way", "Outcome", "Predicted gain", "Measured gain", "Why"),
            [row for run in report.balance_runs or () for row in _balance_rows(run)],
        ),
        _format_section("Downtime", ("Moves", "Median", "95 %", "99 %", "Longest"), [_quantile_row(report.downtimes)] if report.downtimes.count else []),
        _format_section("Downtime by range", ("Range", "pre-copy", "post-copy", "paused"), map(_range_row, report.downtimes.ranges)),
        _format_section("Not moved", ("Domain", "Way", "Outcome", "Reason", "Why"), map(_refusal_row, _with_outcome(shown, NOT_MOVED))),
        _format_section(
            "Forced", ("Domain", "Way", "How", "Outcome", "What was overridden"), [_forced_row(move) for move in shown if move.forced or move.rung]
        ),
        _format_section(
            "Evacuations", ("Domain", "Way", "Status", "Begun", "Timeline", "Evidence"), [_evacuation_row(move) for move in shown if move.type == s.EVACUATION]
        ),
        _format_section("Moves", ("Domain", "Way", "Outcome", "Begun", "Took", "Downtime", "Data", "Mode", "Convergence", "Record"), map(_move_row, shown)),
    ]
    if len(shown) < len(moves):
        parts.append(f"The first {len(shown)} of {len(moves)} moves are shown.")
    return "\n\n".join(filter(None, parts)) + "\n"


def _format_check(report: Report) -> str:
    """Return the last fleet check with its findings; empty if the report has none."""
    check = report.fleet_check
    if not check:
        return ""
    findings = "".join(f"\n- {_escape_markup(finding)}" for finding in check.attention)
    return f"## Fleet check\n\n{_escape_markup(check_line(check))}\n{findings}".rstrip()


def _format_list(heading: str, lines: Sequence[str]) -> str:
    return "\n".join([f"## {heading}\n", *(f"- {_escape_markup(line)}" for line in lines)]) if lines else ""


def _with_outcome(moves: Sequence[ReportedMove], outcomes: Sequence[str]) -> list[ReportedMove]:
    return [move for move in moves if move.outcome in outcomes]


def _format_section(heading: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    if not lines:
        return ""
    return "\n".join([f"## {heading}\n", f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}", *lines])


def _escape_markup(value: Json) -> str:
    """Return a text from outside without anything that a renderer would take for markup."""
    return _MARKUP_CHARACTERS.sub(r"\\\1", text_or_dash(value))


def _host_row(host: ReportedHost) -> list[str]:
    counts = map(str, (host.left, host.arrived, host.not_moved, host.under_way))
    return [_escape_markup(host.name), *counts, _escape_markup(host.state), reboot_text(host), _escape_markup(" ".join(host.reasons))]


def _run_rows(run: ReportedRun) -> list[list[str]]:
    """Return a row for the run, with who did what to it, and one for each host."""
    acts = [f"{line.event} by {line.by}" for line in run.history if line.host is None]
    whole = [run.id, "", f"{run.state}, begun {format_time(run.created_at)}", "", _escape_markup("; ".join(acts)), _escape_markup(run.reason)]
    return [whole, *(["", *_run_host_row(host)] for host in run.hosts), *(_drill_rows(run.drill) if run.drill else ())]


def _drill_rows(drill: ReportedDrill) -> list[list[str]]:
    """Return a row for the verdict, and one for each guest."""
    figures = [f"{word} {seconds:.1f} s" for word, seconds in (("median", drill.median_seconds), ("longest", drill.longest_seconds)) if seconds is not None]
    whole = ["", "", f"drill {verdict_word(drill)}", "", ", ".join([*figures, f"limit {drill.limit_seconds} s"]), _escape_markup("; ".join(drill.reasons))]
    return [whole, *map(_drilled_guest_row, drill.guests)]


def _drilled_guest_row(guest: ReportedDrilledGuest) -> list[str]:
    took = DASH if guest.seconds is None else f"{guest.seconds:.1f} s"
    return [
        "",
        _escape_markup(guest.name),
        _escape_markup(f"to {guest.destination}" if guest.destination else None),
        took,
        stages_text(guest),
        _escape_markup(guest.problem),
    ]


def _run_host_row(host: ReportedRunHost) -> list[str]:
    steps = ", ".join(map(step_text, host.steps))
    return [_escape_markup(host.name), host.status, format_duration(host.seconds and host.seconds * 1000), _escape_markup(steps), _escape_markup(host.error)]


def _balance_rows(run: ReportedBalance) -> list[list[str]]:
    """Return a row for the run with its scores, and one for each move."""
    scores = f"score {run.score_before:.3f}, predicted {run.score_predicted:.3f}, measured {_gain_text(run.score_measured)}"
    whole = [run.id, scores, f"{run.state}, begun {format_time(run.created_at)}", _gain_text(run.predicted_gain), _gain_text(run.measured_gain), ""]
    return [whole, *map(_balance_move_row, run.moves)]


def _balance_move_row(move: ReportedBalanceMove) -> list[str]:
    known = [_escape_markup(text) for text in (move.domain, f"{move.source} → {move.destination}", move.outcome)]
    return [*known, _gain_text(move.predicted_gain), _gain_text(move.measured_gain), _escape_markup(move.why)]


def _gain_text(gain: t.Optional[float]) -> str:
    return DASH if gain is None else f"{gain:.3f}"


def _quantile_row(downtimes: Downtimes) -> list[str]:
    return [str(downtimes.count), *map(format_duration, (downtimes.median_ms, downtimes.p95_ms, downtimes.p99_ms, downtimes.most_ms))]


def _range_row(one: DowntimeRange) -> list[str]:
    upper = f"below {format_duration(one.below_ms)}" if one.below_ms else "and more"
    return [f"{format_duration(one.from_ms)}, {upper}", *map(str, (one.pre_copy, one.post_copy, one.paused))]


def _refusal_row(move: ReportedMove) -> list[str]:
    return [_domain_name(move), _escape_markup(route_text(move)), move.outcome, _escape_markup(move.reason), _escape_markup(move.why)]


def _forced_row(move: ReportedMove) -> list[str]:
    how = [move.forced or "", f"ended by {move.rung}" if move.rung else ""]
    return [
        _domain_name(move),
        _escape_markup(route_text(move)),
        _escape_markup(", ".join(filter(None, how))),
        move.outcome,
        _escape_markup(move.forced_detail),
    ]


def _evacuation_row(move: ReportedMove) -> list[str]:
    evidence = "; ".join(", ".join(f"{key} {value}" for key, value in one.items() if value not in (None, "")) for one in move.evidence)
    return [
        _domain_name(move),
        _escape_markup(route_text(move)),
        _escape_markup(move.status),
        format_time(move.created_at),
        _escape_markup((move.timeline or {}).get("text")),
        _escape_markup(evidence or "none"),
    ]


def _move_row(move: ReportedMove) -> list[str]:
    outcome = f"{move.outcome} ({move.percent} %)" if move.outcome == UNDER_WAY else move.outcome
    took = [format_duration(move.elapsed_ms), format_duration(move.downtime_ms), format_bytes(move.bytes), _escape_markup(move.mode)]
    return [
        _domain_name(move),
        _escape_markup(route_text(move)),
        outcome,
        format_time(move.created_at),
        *took,
        _convergence_text(move.samples),
        move.id,
    ]


def _convergence_text(samples: Sequence[JsonObject]) -> str:
    """Return the remaining amount at up to six points in time, including the last one."""
    left = [_remaining_text(sample) for sample in samples[:: max(1, len(samples) // 5)]]
    if samples and _remaining_text(samples[-1]) != left[-1]:
        left.append(_remaining_text(samples[-1]))
    return " › ".join(left) or DASH


def _remaining_text(sample: JsonObject) -> str:
    remaining = sample["remaining_bytes"]
    return format_bytes(remaining if isinstance(remaining, int) else None)


def _domain_name(move: ReportedMove) -> str:
    return _escape_markup(move.domain.name or move.domain.uuid)
