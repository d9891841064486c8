# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A drain's plan and result as lines of text that a person reads in a terminal."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

Body = Mapping[str, t.Any]


def plan_lines(plan: Body) -> list[str]:
    """Return the plan: where each domain goes and why, and what stays."""
    rows = [[m["name"], f"{m['memory_mib']} MiB", m["source"], m["destination"], f"{m['predicted_seconds']} s", m["reason"]] for m in plan["moves"]]
    lines = columns(["DOMAIN", "MEMORY", "FROM", "TO", "PREDICTED", "WHY"], rows) if rows else ["Nothing to move."]
    lines += [f"  {m['name']} not to {r['host']}: {r['reason']}" for m in plan["moves"] for r in m["rejected"]]
    lines += [f"STAYS  {entry['name']} on {entry['source']}: {entry['reason']}" for entry in plan["unplaced"]]
    return lines + [f"LEFT   {entry['name']} on {entry['source']}: {entry['reason']}" for entry in plan["skipped"]]


def result_lines(result: Mapping[str, Body]) -> list[str]:
    """Return what moved where and why not, and the verdict of each host."""
    rows = [
        [entry["name"], host, entry["destination"] or "-", entry["status"], _s(entry.get("predicted_seconds")), _s(entry.get("actual_seconds")), _ms(entry)]
        for host, share in result.items()
        for entry in [*share["moved"], *share["failed"]]
    ]
    lines = columns(["DOMAIN", "FROM", "TO", "STATUS", "PREDICTED", "ACTUAL", "DOWNTIME"], rows) if rows else ["Nothing was moved."]
    for host, share in result.items():
        lines += [f"FAILED {entry['name']} on {host}: {entry['error']}" for entry in share["failed"]]
        lines += [f"FAILED {host}: {problem}" for problem in share["problems"]]
        lines += [f"LEFT   {entry['name']} on {host}: {entry['reason']}" for entry in share["skipped"]]
        lines.append(f"{host}: {len(share['moved'])} moved, {len(share['failed'])} failed, {len(share['skipped'])} left shut off. {_verdict(share)}")
    return lines


def _verdict(share: Body) -> str:
    return "Safe to reboot." if share["safe_to_reboot"] else " ".join(["NOT safe to reboot:", *share["blockers"]])


def columns(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows under their titles, each column as wide as its widest text."""
    table = [list(titles), *rows]
    widths = [max(len(row[index]) for row in table) for index in range(len(titles))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in table]


def _s(seconds: t.Optional[float]) -> str:
    return "-" if seconds is None else f"{seconds} s"


def _ms(entry: Body) -> str:
    return "-" if entry.get("downtime_ms") is None else f"{entry['downtime_ms']} ms"
