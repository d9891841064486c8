# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The moves and the hosts of a report as CSV, for spreadsheets."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import printable_line

from .document import Report

_MOVE_COLUMNS = (
    *("id", "type", "status", "outcome", "reason", "why", "forced", "forced_detail", "domain", "uuid", "source", "destination"),
    *("created_at", "started_at", "ended_at", "updated_at", "elapsed_ms", "downtime_ms", "predicted_downtime_ms", "setup_ms", "bytes", "iterations"),
    *("mode", "rung", "percent", "memory_mib", "vcpus", "link_mib", "superseded_by", "policy", "acts", "history", "samples", "evidence"),
    *("predicted_ms", "predicted_low_ms", "predicted_high_ms", "rewritten", "timeline"),
)
_HOST_COLUMNS = ("name", "host_id", "state", "reason", "since", "left", "arrived", "not_moved", "under_way", "safe_to_reboot", "judged_by", "reasons")
# A spreadsheet reads a cell with such a beginning as a formula, and a domain can have any name.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def moves_as_csv(report: Report) -> str:
    """Return the moves. Lists, e.g. the samples, are JSON in their cell."""
    return _format_table(_MOVE_COLUMNS, [{**move.as_json(), "domain": move.domain.name, "uuid": move.domain.uuid} for move in report.moves])


def hosts_as_csv(report: Report) -> str:
    """Return the hosts."""
    return _format_table(_HOST_COLUMNS, map(encode, report.hosts))


def _format_table(columns: Sequence[str], rows: Iterable[JsonObject]) -> str:
    stream = io.StringIO()
    # Lines end as in other files that Ansible writes on a control node; spreadsheets accept both forms.
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_format_cell(row[column]) for column in columns] for row in rows)
    return stream.getvalue()


def _format_cell(value: Json) -> str | int | float | None:
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, separators=(",", ":"))
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, (int, float)):
        return value
    value = str(value)
    return printable_line(f"'{value}" if value.startswith(_FORMULA_STARTS) else value)
