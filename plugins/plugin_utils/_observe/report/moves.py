# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The moves of a report: what it shows of each record, their outcomes, and figures about all of them."""

from __future__ import annotations

import math
import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Json, JsonObject, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Connection, HistoryLine, PredictedMove, Sample
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef

from ..timeline import read_timeline

COMPLETED = "completed"
EVACUATED = "evacuated"
UNDER_WAY = "under way"
REFUSED = "refused"
CANCELLED = "cancelled"
FAILED = "failed"
UNCERTAIN = "uncertain"
OUTCOMES = (COMPLETED, EVACUATED, UNDER_WAY, REFUSED, CANCELLED, FAILED, UNCERTAIN)

# The domain is not at its destination, and the record will not change without an action.
NOT_MOVED = (REFUSED, CANCELLED, FAILED, UNCERTAIN)
_BY_STATUS = {
    s.COMPLETED: COMPLETED,
    s.DONE: EVACUATED,
    s.CONFLICT: REFUSED,
    s.CANCELLED: CANCELLED,
    s.FAILED: FAILED,
    s.ERROR: UNCERTAIN,
}


def outcome_of(status: str) -> str:
    """Return the outcome of a record of that status."""
    return _BY_STATUS.get(status, UNDER_WAY)


# The figures of a sample, in the order of a chart's columns: milliseconds, bytes, bytes a second, percent.
SAMPLE_KEYS = ("elapsed_ms", "remaining_bytes", "bandwidth_bytes", "dirty_rate_bytes", "allowed_downtime_ms", "throttle_percent", "iteration")
_RESULT_KEYS = ("elapsed_ms", "downtime_ms", "predicted_downtime_ms", "setup_ms", "bytes", "iterations", "mode", "rung")
_HISTORY_KEYS = ("at", "status", "by", "detail")
_STARTED_STATUSES = (s.PREPARING, s.RUNNING, s.RUNNING_POST_COPY, s.PRE_MIGRATING)
_RESERVED_STATUSES = (s.SCHEDULED, s.PRE_MIGRATING)


@dataclass(frozen=True)
class ReportedMove:
    """The part of a record for a report. It never includes definitions, addresses or passwords.

    :arg why: the record's detail about its status; C(forced_detail) about the filters that were overridden.
    :arg source: the inventory name, as C(destination).
    :arg link_mib: the capacity of the link that the task was given (MiB/s).
    :arg predicted_ms: the duration that was predicted before the move, between C(predicted_low_ms) and C(predicted_high_ms).
    :arg policy: field to value and source.
    :arg samples: each with the keys of C(SAMPLE_KEYS).
    :arg rewritten: what differs in the definition at the destination.
    :arg timeline: of an evacuation that was begun, see L(Timeline); null for others.
    """

    id: str
    type: str
    status: str
    outcome: str
    reason: t.Optional[str]
    why: t.Optional[str]
    forced: t.Optional[str]
    forced_detail: t.Optional[str]
    domain: DomainRef
    source: t.Optional[str]
    destination: t.Optional[str]
    created_at: str
    started_at: t.Optional[str]
    ended_at: t.Optional[str]
    updated_at: str
    elapsed_ms: t.Optional[int]
    downtime_ms: t.Optional[int]
    predicted_downtime_ms: t.Optional[int]
    setup_ms: t.Optional[int]
    bytes: t.Optional[int]
    iterations: t.Optional[int]
    mode: t.Optional[str]
    rung: t.Optional[str]
    percent: t.Optional[int]
    memory_mib: Json
    vcpus: Json
    link_mib: t.Optional[int]
    superseded_by: t.Optional[str]
    predicted_ms: t.Optional[int]
    predicted_low_ms: t.Optional[int]
    predicted_high_ms: t.Optional[int]
    policy: Mapping[str, JsonObject]
    acts: tuple[JsonObject, ...]
    history: tuple[JsonObject, ...]
    samples: tuple[JsonObject, ...]
    evidence: tuple[JsonObject, ...]
    rewritten: tuple[JsonObject, ...]
    timeline: t.Optional[JsonObject]

    def as_json(self) -> dict[str, Json]:
        """Return it as JSON. Its lists are not copied: there may be many samples."""
        return {**vars(self), "domain": {"name": self.domain.name, "uuid": self.domain.uuid}}


def describe_move(record: MoveRecord) -> ReportedMove:
    """Return the part of a record for a report."""
    outcome, history, figures = outcome_of(record.status), record.history, vars(record.result)
    predicted_ms, low_ms, high_ms = _predicted_times(record)
    return ReportedMove(
        id=record.record_id,
        type=record.type,
        status=record.status,
        outcome=outcome,
        reason=record.reason,
        why=_last_detail(history, (record.status,)),
        forced=record.forced,
        forced_detail=_last_detail(history, _RESERVED_STATUSES) if record.forced else None,
        domain=DomainRef(record.domain.uuid, record.domain.name),
        source=record.source.host,
        destination=record.destination.host,
        created_at=record.created_at,
        started_at=_first_time(history, _STARTED_STATUSES),
        ended_at=None if outcome == UNDER_WAY else end_time(record),
        updated_at=record.updated_at,
        **{key: None if figures[key] is ABSENT else figures[key] for key in _RESULT_KEYS},
        percent=record.progress.percent,
        memory_mib=_plain_value(record.request.get("memory_mib")),
        vcpus=_plain_value(record.request.get("vcpus")),
        link_mib=_link_mib(record),
        superseded_by=record.superseded_by,
        predicted_ms=predicted_ms,
        predicted_low_ms=low_ms,
        predicted_high_ms=high_ms,
        policy={field: _policy_choice(value) for field, value in record.policy.items()},
        acts=tuple({"at": act.at, "act": act.act} for act in record.acts),
        history=tuple(map(_describe_line, history)),
        samples=tuple(map(_describe_sample, record.samples)),
        evidence=tuple({key: _plain_value(value) for key, value in one.items()} for one in record.evidence),
        rewritten=tuple({"path": one.path, "before": one.before, "after": one.after} for one in record.rewritten or ()),
        timeline=timeline.as_json() if (timeline := read_timeline(record)) else None,
    )


def _predicted_times(record: MoveRecord) -> tuple[t.Optional[int], t.Optional[int], t.Optional[int]]:
    """Return the predicted milliseconds of the move, and the range around them; null if nothing was predicted."""
    known = record.predicted if isinstance(record.predicted, PredictedMove) else None
    if known is None:
        return None, None, None
    return round(known.seconds * 1000), round(known.low_seconds * 1000), round(known.high_seconds * 1000)


def _link_mib(record: MoveRecord) -> t.Optional[int]:
    known = record.connection.link_mib if isinstance(record.connection, Connection) else None
    return known if isinstance(known, int) else None


def _describe_line(line: HistoryLine) -> JsonObject:
    known = encode(line)
    return {key: known.get(key) for key in _HISTORY_KEYS}


def _describe_sample(sample: Sample) -> JsonObject:
    return {key: getattr(sample, key) for key in SAMPLE_KEYS}


def end_time(record: MoveRecord) -> str:
    """Return when the domain arrived or was given up: the cleanup of an old host, days later, is not a part of an evacuation."""
    arrived = _first_time(record.history, (s.DONE,)) if record.status == s.COMPLETED else None
    return arrived or next((line.at for line in reversed(record.history) if line.status == record.status), None) or record.updated_at


def _first_time(history: Sequence[HistoryLine], statuses: Sequence[str]) -> t.Optional[str]:
    return next((line.at for line in history if line.status in statuses), None)


def _last_detail(history: Sequence[HistoryLine], statuses: Sequence[str]) -> t.Optional[str]:
    return next((line.detail for line in reversed(history) if line.status in statuses), None) or None


def _policy_choice(value: Json) -> JsonObject:
    """Return a policy's field: its value and its source."""
    given = value if isinstance(value, Mapping) else {"value": value}
    return {"value": _plain_value(given.get("value")), "source": _plain_value(given.get("source"))}


def _plain_value(value: Json) -> Json:
    """Return a number, a flag or a text as it is; any other value, which only manual editing can produce, as text."""
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


# The upper ends of the ranges, in milliseconds; the last range has none.
EDGES_MS = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000)
MODES = ("pre-copy", "post-copy", "paused")


@dataclass(frozen=True)
class DowntimeRange:
    """How many downtimes are in a range, by mode.

    :arg below_ms: None for the last range.
    """

    KEYS: t.ClassVar[Mapping[str, str]] = {"pre_copy": "pre-copy", "post_copy": "post-copy"}

    from_ms: int
    below_ms: t.Optional[int]
    pre_copy: int
    post_copy: int
    paused: int


@dataclass(frozen=True)
class Downtimes:
    """Figures about downtimes. Each quantile is an actual downtime (nearest rank)."""

    count: int
    median_ms: t.Optional[int]
    p95_ms: t.Optional[int]
    p99_ms: t.Optional[int]
    least_ms: t.Optional[int]
    most_ms: t.Optional[int]
    ranges: tuple[DowntimeRange, ...]


def summarize_downtimes(moves: Sequence[ReportedMove]) -> Downtimes:
    """Return the figures about the downtimes of completed live migrations."""
    completed = [move for move in moves if move.type == s.LIVE_MIGRATION and move.status == s.COMPLETED]
    # A missing mode in an older record means plain pre-copy, or that nothing else is known.
    measured = [(move.downtime_ms, move.mode if move.mode in MODES else MODES[0]) for move in completed if move.downtime_ms is not None]
    lived = sorted(downtime for downtime, _mode in measured)
    median, p95, p99 = (_nearest_rank(lived, share) for share in (0.5, 0.95, 0.99))
    return Downtimes(len(lived), median, p95, p99, lived[0] if lived else None, lived[-1] if lived else None, _filled_ranges(measured))


def _nearest_rank(ordered: Sequence[int], share: float) -> t.Optional[int]:
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else None


def _filled_ranges(measured: Sequence[tuple[int, str]]) -> tuple[DowntimeRange, ...]:
    """Return the ranges from the first to the last that is not empty, including those between."""
    bounds = list(zip((0, *EDGES_MS), (*EDGES_MS, None), strict=True))
    found = [_count_range(low, high, measured) for low, high in bounds]
    filled = [index for index, one in enumerate(found) if one.pre_copy or one.post_copy or one.paused]
    return tuple(found[filled[0] : filled[-1] + 1]) if filled else ()


def _count_range(low: int, high: t.Optional[int], measured: Sequence[tuple[int, str]]) -> DowntimeRange:
    within = [mode for downtime, mode in measured if low <= downtime and (high is None or downtime < high)]
    return DowntimeRange(low, high, *map(within.count, MODES))


def count_outcomes(moves: Sequence[ReportedMove]) -> dict[str, int]:
    """Return the number of records of each type and of each outcome, how many were forced, and the transferred bytes."""
    return {
        "records": len(moves),
        "live_migrations": sum(1 for move in moves if move.type == s.LIVE_MIGRATION),
        "cold_migrations": sum(1 for move in moves if move.type == s.COLD_MIGRATION),
        "evacuations": sum(1 for move in moves if move.type == s.EVACUATION),
        **{outcome.replace(" ", "_"): sum(1 for move in moves if move.outcome == outcome) for outcome in OUTCOMES},
        "forced": sum(1 for move in moves if move.forced),
        "bytes": sum(move.bytes or 0 for move in moves),
    }
