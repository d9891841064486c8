# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A record of the ledger as a report shows it: what happened, when, what it took, and why."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s

from .._ledger.store import Body
from .outcomes import UNDER_WAY, outcome_of

# The figures of a sample, in the order of a chart's columns: milliseconds, bytes, bytes a second, percent.
SAMPLE_KEYS = ("elapsed_ms", "remaining_bytes", "bandwidth_bytes", "dirty_rate_bytes", "allowed_downtime_ms", "throttle_percent", "iteration")
_RESULT_KEYS = ("elapsed_ms", "downtime_ms", "predicted_downtime_ms", "setup_ms", "bytes", "iterations", "mode", "rung")
_HISTORY_KEYS = ("at", "status", "by", "detail")
_BEGUN = (s.PREPARING, s.RUNNING, s.RUNNING_POST_COPY, s.PRE_MIGRATING)
_BOOKED = (s.SCHEDULED, s.PRE_MIGRATING)


def move_of(record: Body) -> Body:
    """Return what a report keeps of a record. No definition, no address and no password is ever among it."""
    history = [{key: line.get(key) for key in _HISTORY_KEYS} for line in record["history"]]
    outcome = outcome_of(record["status"])
    request = record["request"]
    return {
        "id": record["id"],
        "type": record["type"],
        "status": record["status"],
        "outcome": outcome,
        "reason": record["reason"],
        "why": _last(history, (record["status"],), "detail"),
        "forced": record["forced"],
        "forced_detail": _last(history, _BOOKED, "detail") if record["forced"] else None,
        "domain": {"name": record["domain"]["name"], "uuid": record["domain"]["uuid"]},
        "source": record["source"]["host"],
        "destination": record["destination"]["host"],
        "created_at": record["created_at"],
        "started_at": _first(history, _BEGUN),
        "ended_at": None if outcome == UNDER_WAY else _ended(record, history),
        "updated_at": record["updated_at"],
        **{key: _plain(record["result"].get(key)) for key in _RESULT_KEYS},
        "percent": record["progress"]["percent"],
        "memory_mib": _plain(request.get("memory_mib")),
        "vcpus": _plain(request.get("vcpus")),
        "superseded_by": record["superseded_by"],
        "policy": {str(field): _chosen(value) for field, value in record["policy"].items()},
        "acts": [{"at": act["at"], "act": act["act"]} for act in record["acts"]],
        "history": history,
        "samples": [{key: _figure(sample.get(key)) for key in SAMPLE_KEYS} for sample in record["samples"]],
        "evidence": [{str(key): _plain(value) for key, value in one.items()} for one in record["evidence"]],
    }


def _ended(record: Body, history: Sequence[Body]) -> str:
    """Return when the domain was where it was to be, or was given up: the cleanup of an old host, days later, is no part of an evacuation."""
    arrived = _first(history, (s.DONE,)) if record["status"] == s.COMPLETED else None
    return arrived or _last(history, (record["status"],), "at") or str(record["updated_at"])


def _first(history: Sequence[Body], statuses: Sequence[str]) -> t.Optional[str]:
    return next((line["at"] for line in history if line["status"] in statuses), None)


def _last(history: Sequence[Body], statuses: Sequence[str], key: str) -> t.Optional[str]:
    value = next((line[key] for line in reversed(history) if line["status"] in statuses), None)
    return value if isinstance(value, str) and value else None


def _chosen(value: t.Any) -> Body:
    """Return a policy's field: its value, and where that came from."""
    given = value if isinstance(value, Mapping) else {"value": value}
    return {"value": _plain(given.get("value")), "source": _plain(given.get("source"))}


def _figure(value: t.Any) -> t.Optional[int]:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _plain(value: t.Any) -> t.Any:
    """Return a number, a flag or a text as it is; what is none of them, which only a hand can have written, as text."""
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
