# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which moves left a host together, and when their jobs started: the page draws the bandwidth of their samples over the time of day."""

from __future__ import annotations

import datetime
import itertools
import typing as t
from collections.abc import Iterable, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import format_time
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json

from .moves import ReportedMove

# A move that starts so long after all earlier ones of its host have ended is no part of the same drain.
GAP_SECONDS = 60
# The page names this number of drains; those with the most moves, which hold what a reader looks for.
MOST_GROUPS = 200
# Lines of history from which on a job runs, the closest first: the intent of the migrate call, then those that older records have instead.
_JOB_STARTED = ("migrate", s.RUNNING, s.PREPARING)


@dataclass(frozen=True)
class TimedMove:
    """The time span of a move's job.

    :arg index: the place of the move in the report.
    """

    index: int
    source: t.Optional[str]
    link_mib: t.Optional[int]
    began: datetime.datetime
    ended: datetime.datetime


@dataclass(frozen=True)
class SourceRates:
    """Moves that left one host in one drain, or otherwise without a pause between them.

    :arg link_mib: the capacity of the link that their task was given (MiB/s), the largest if there are several.
    :arg moves: the index of each in the report, and the milliseconds from C(from_at) to the start of its job.
    """

    source: t.Optional[str]
    from_at: str
    until_at: str
    link_mib: t.Optional[int]
    moves: tuple[tuple[int, int], ...]


def group_rates(moves: Sequence[ReportedMove], most: int = MOST_GROUPS) -> tuple[SourceRates, ...]:
    """Return the groups in the order of their start, at most so many: those with the most moves. Moves without samples are in none."""
    timed = sorted(_time_moves(moves), key=lambda move: (move.source or "", move.began))
    groups = [_describe_group(group) for _source, of_source in itertools.groupby(timed, key=lambda move: move.source) for group in _split_at_pauses(of_source)]
    largest = sorted(groups, key=lambda group: -len(group.moves))[:most]
    return tuple(sorted(largest, key=lambda group: (group.from_at, group.source or "")))


def _time_moves(moves: Sequence[ReportedMove]) -> Iterable[TimedMove]:
    for index, move in enumerate(moves):
        began = _read_job_start(move)
        if began is not None and move.samples:
            lasted = max(_milliseconds(move.elapsed_ms), *(_milliseconds(sample["elapsed_ms"]) for sample in move.samples))
            yield TimedMove(index, move.source, move.link_mib, began, began + datetime.timedelta(milliseconds=lasted))


def _milliseconds(value: Json) -> int:
    """Return a duration of a record; 0 if it is missing. A damaged one cannot exceed a year."""
    return min(value, 366 * 86_400_000) if isinstance(value, int) else 0


def _read_job_start(move: ReportedMove) -> t.Optional[datetime.datetime]:
    """Return when the last job of the move started; null if its history does not tell. The samples count from this moment."""
    times = {line["status"]: line["at"] for line in move.history}
    return next((_read_time(times[status]) for status in _JOB_STARTED if status in times), None)


def _read_time(at: Json) -> t.Optional[datetime.datetime]:
    """Return a time of a record; null for one that only manual editing can produce."""
    try:
        moment = datetime.datetime.fromisoformat(str(at))
        moment = moment.astimezone(datetime.UTC) if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
    except (ValueError, OverflowError):
        return None
    return moment if moment.year < datetime.MAXYEAR - 1 else None


def _split_at_pauses(moves: Iterable[TimedMove]) -> list[list[TimedMove]]:
    """Return the moves of a host, by the start of their jobs, in groups between which nothing ran."""
    groups: list[list[TimedMove]] = []
    until: t.Optional[datetime.datetime] = None
    for move in moves:
        if until is None or (move.began - until).total_seconds() > GAP_SECONDS:
            groups.append([])
            until = move.ended
        groups[-1].append(move)
        until = max(until, move.ended)
    return groups


def _describe_group(moves: Sequence[TimedMove]) -> SourceRates:
    first, last = moves[0].began, max(move.ended for move in moves)
    return SourceRates(
        source=moves[0].source,
        from_at=format_time(first),
        until_at=format_time(last),
        link_mib=max((move.link_mib for move in moves if move.link_mib), default=None),
        moves=tuple((move.index, round((move.began - first).total_seconds() * 1000)) for move in moves),
    )
