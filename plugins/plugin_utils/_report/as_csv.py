# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A report as two tables of comma-separated values: its moves, a row each, and its hosts."""

from __future__ import annotations

import csv
import io
import json
import typing as t
from collections.abc import Iterable, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._printable import printable

from .._ledger.store import Body

_MOVE = (
    *("id", "type", "status", "outcome", "reason", "why", "forced", "forced_detail", "domain", "uuid", "source", "destination"),
    *("created_at", "started_at", "ended_at", "updated_at", "elapsed_ms", "downtime_ms", "predicted_downtime_ms", "setup_ms", "bytes", "iterations"),
    *("mode", "rung", "percent", "memory_mib", "vcpus", "superseded_by", "policy", "acts", "history", "samples", "evidence"),
)
_HOST = ("name", "host_id", "state", "reason", "since", "left", "arrived", "not_moved", "under_way", "safe_to_reboot", "judged_by", "reasons")
# A cell that begins so is a formula to a spreadsheet, whoever has chosen the name of that domain.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def moves_as_csv(document: Body) -> str:
    """Return the moves. What is a list, e.g. the samples, stands in its cell as JSON."""
    return _table(_MOVE, [{**move, "domain": move["domain"]["name"], "uuid": move["domain"]["uuid"]} for move in document["moves"]])


def hosts_as_csv(document: Body) -> str:
    """Return the hosts."""
    return _table(_HOST, document["hosts"])


def _table(columns: Sequence[str], rows: Iterable[Body]) -> str:
    stream = io.StringIO()
    # As everything else that Ansible leaves on a control node; spreadsheets take either.
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(row[column]) for column in columns] for row in rows)
    return stream.getvalue()


def _cell(value: t.Any) -> t.Any:
    if isinstance(value, (dict, list)):
        return json.dumps(value, separators=(",", ":"))
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return value
    return printable(f"'{value}" if value.startswith(_FORMULA) else value)
