# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A drain's plan and result as lines of text that a person reads in a terminal."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._printable import printable

from .entries import summed_up

Body = Mapping[str, t.Any]


def plan_lines(plan: Body) -> list[str]:
    """Return the plan: in which order each domain goes where and why, what is shut down, what stays, and whether a lost host would be absorbed."""
    rows = [_move_row(move) for move in plan["moves"]]
    lines = columns(["", "DOMAIN", "MEMORY", "FROM", "TO", "PREDICTED", "DOWNTIME", "WHY"], rows) if rows else ["Nothing to move."]
    lines += [f"  {move['name']} not to {hosts}: {reason}" for move in plan["moves"] for hosts, reason in summed_up(move["rejected"])]
    lines += [f"WARN   {move['name']} to {move['destination']}: {warning}" for move in plan["moves"] for warning in move["warnings"]]
    lines += [f"STOPS  {entry['name']} on {entry['source']}: {entry['reason']}" for entry in plan["shutdowns"]]
    lines += [f"STAYS  {entry['name']} on {entry['source']}: {entry['reason']}" for entry in plan["unplaced"]]
    lines += [f"LEFT   {entry['name']} on {entry['source']}: {entry['reason']}" for entry in plan["skipped"]]
    lines += [f"{source}: about {_s(seconds)}, {plan['options']['parallel']} at a time." for source, seconds in plan["predicted_seconds"].items() if rows]
    lines += [_spare(plan["n_plus_one"])] if plan["n_plus_one"] else []
    return [printable(line) for line in lines]


def _move_row(move: Body) -> list[str]:
    downtime = "-" if move["predicted_downtime_ms"] is None else f"{move['predicted_downtime_ms']} ms"
    seconds = _s(move["predicted_seconds"])
    return [str(move["order"]), move["name"], f"{move['memory_mib']} MiB", move["source"], move["destination"], seconds, downtime, move["reason"]]


def _spare(spare: Body) -> str:
    if spare["holds"]:
        return "N+1 holds: the remaining hosts could lose any one of them and still place its domains."
    domains = ", ".join(spare["domains"])
    others = [host for host in spare["hosts"] if host != spare["host"]]
    more = f" The same goes for {', '.join(others)}." if others else ""
    return f"N+1 does NOT hold: if {spare['host']} were lost, {spare['missing_mib']} MiB would be missing for {domains}.{more}"


def result_lines(result: Mapping[str, Body]) -> list[str]:
    """Return what moved where and why not, and the verdict of each host."""
    rows = [
        [entry["name"], host, entry.get("destination") or "-", entry["status"], _s(entry.get("predicted_seconds")), _s(entry.get("actual_seconds")), _ms(entry)]
        for host, share in result.items()
        for entry in [*share["moved"], *share["shut_down"], *share["failed"]]
    ]
    lines = columns(["DOMAIN", "FROM", "TO", "STATUS", "PREDICTED", "ACTUAL", "DOWNTIME"], rows) if rows else ["Nothing was moved."]
    for host, share in result.items():
        lines += [f"FAILED {entry['name']} on {host}: {entry['error']}" for entry in share["failed"]]
        lines += [f"FAILED {host}: {problem}" for problem in share["problems"]]
        lines += [f"LEFT   {entry['name']} on {host}: {entry['reason']}" for entry in share["skipped"]]
        lines.append(f"{host}: {_counts(share)}. {_verdict(share)}")
    return [printable(line) for line in lines]


def _counts(share: Body) -> str:
    stopped = f", {len(share['shut_down'])} shut down" if share["shut_down"] else ""
    return f"{len(share['moved'])} moved{stopped}, {len(share['failed'])} failed, {len(share['skipped'])} left as they were"


def _verdict(share: Body) -> str:
    return "Safe to reboot." if share["safe_to_reboot"] else " ".join(["NOT safe to reboot:", *share["blockers"]])


def columns(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows under their titles, each column as wide as its widest text."""
    table = [list(titles), *([printable(text) for text in row] for row in rows)]
    widths = [max(len(row[index]) for row in table) for index in range(len(titles))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in table]


def _s(seconds: t.Optional[float]) -> str:
    return "-" if seconds is None else f"{seconds} s"


def _ms(entry: Body) -> str:
    return "-" if entry.get("downtime_ms") is None else f"{entry['downtime_ms']} ms"
