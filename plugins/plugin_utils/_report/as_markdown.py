# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A report as Markdown: tables that render in a merge request or a chat, and read well as they are."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterable, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s

from .._ledger.store import Body
from .document import summary_of
from .outcomes import NOT_MOVED, UNDER_WAY
from .words import NOTHING, at, in_bytes, in_time, reboot, scope, text, way

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#|<>&~$])")


def as_markdown(document: Body, most_moves: t.Optional[int] = None) -> str:
    """Return the whole report; at most so many moves where that is said, with a line that tells so."""
    moves = document["moves"]
    shown = moves if most_moves is None else moves[:most_moves]
    parts = [
        f"# {_safe(document['title'])}\n\n{_safe(summary_of(document))} About {_safe(scope(document))}. Made at {at(document['made_at'])}. All times are UTC.",
        _section("Hosts", ("Host", "Left", "Arrived", "Not moved", "Under way", "State", "Safe to reboot", "Why"), map(_host, document["hosts"])),
        _section("Downtime", ("Moves", "Median", "95 %", "99 %", "Longest"), [_quantiles(document["downtimes"])] if document["downtimes"]["count"] else []),
        _section("Downtime by range", ("Range", "pre-copy", "post-copy", "paused"), map(_range, document["downtimes"]["ranges"])),
        _section("Not moved", ("Domain", "Way", "Outcome", "Reason", "Why"), map(_refusal, _of(shown, NOT_MOVED))),
        _section("Forced", ("Domain", "Way", "How", "Outcome", "What was overridden"), [_forced(move) for move in shown if move["forced"] or move["rung"]]),
        _section("Evacuations", ("Domain", "Way", "Status", "Begun", "Evidence"), [_evacuation(move) for move in shown if move["type"] == s.EVACUATION]),
        _section("Moves", ("Domain", "Way", "Outcome", "Begun", "Took", "Downtime", "Data", "Mode", "Convergence", "Record"), map(_move, shown)),
    ]
    if len(shown) < len(moves):
        parts.append(f"The first {len(shown)} of {len(moves)} moves are shown.")
    return "\n\n".join(filter(None, parts)) + "\n"


def _of(moves: Sequence[Body], outcomes: Sequence[str]) -> list[Body]:
    return [move for move in moves if move["outcome"] in outcomes]


def _section(heading: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    if not lines:
        return ""
    return "\n".join([f"## {heading}\n", f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}", *lines])


def _safe(value: t.Any) -> str:
    """Return a foreign text that no renderer takes for markup."""
    return _SPECIAL.sub(r"\\\1", text(value))


def _host(host: Body) -> list[str]:
    counts = [str(host[key]) for key in ("left", "arrived", "not_moved", "under_way")]
    return [_safe(host["name"]), *counts, _safe(host["state"]), reboot(host), _safe(" ".join(host["reasons"]))]


def _quantiles(downtimes: Body) -> list[str]:
    return [str(downtimes["count"]), *(in_time(downtimes[key]) for key in ("median_ms", "p95_ms", "p99_ms", "most_ms"))]


def _range(one: Body) -> list[str]:
    upper = f"below {in_time(one['below_ms'])}" if one["below_ms"] else "and more"
    return [f"{in_time(one['from_ms'])}, {upper}", *(str(one[mode]) for mode in ("pre-copy", "post-copy", "paused"))]


def _refusal(move: Body) -> list[str]:
    return [_name(move), _safe(way(move)), move["outcome"], _safe(move["reason"]), _safe(move["why"])]


def _forced(move: Body) -> list[str]:
    how = [move["forced"], f"ended by {move['rung']}" if move["rung"] else None]
    return [_name(move), _safe(way(move)), _safe(", ".join(filter(None, how))), move["outcome"], _safe(move["forced_detail"])]


def _evacuation(move: Body) -> list[str]:
    evidence = "; ".join(", ".join(f"{key} {value}" for key, value in one.items() if value not in (None, "")) for one in move["evidence"])
    return [_name(move), _safe(way(move)), _safe(move["status"]), at(move["created_at"]), _safe(evidence or "none")]


def _move(move: Body) -> list[str]:
    outcome = f"{move['outcome']} ({move['percent']} %)" if move["outcome"] == UNDER_WAY else move["outcome"]
    took = [in_time(move["elapsed_ms"]), in_time(move["downtime_ms"]), in_bytes(move["bytes"]), _safe(move["mode"])]
    return [_name(move), _safe(way(move)), outcome, at(move["created_at"]), *took, _convergence(move["samples"]), move["id"]]


def _convergence(samples: Sequence[Body]) -> str:
    """Return what was left to move at up to six points in time, the last one among them."""
    left = [in_bytes(sample["remaining_bytes"]) for sample in samples[:: max(1, len(samples) // 5)]]
    if samples and in_bytes(samples[-1]["remaining_bytes"]) != left[-1]:
        left.append(in_bytes(samples[-1]["remaining_bytes"]))
    return " › ".join(left) or NOTHING


def _name(move: Body) -> str:
    return _safe(move["domain"]["name"] or move["domain"]["uuid"])
