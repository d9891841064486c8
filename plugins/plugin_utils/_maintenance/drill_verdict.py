# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The verdict on a drill: whether each guest ran elsewhere within the limit, and whether the fleet is as before. Pure functions."""

from __future__ import annotations

import math
import typing as t
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import maintenance_runs as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import Drill, DrilledGuest, HostProgress, MaintenanceRun
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord

from .decisions import seconds_between
from .drills import MOST_REASONS, drill_of, find_record, started_at
from .transitions import Now, with_event


@dataclass(frozen=True)
class FleetAfter:
    """The fleet after the host was brought back.

    :arg records: of evacuations from the host.
    :arg stages: the seconds of the stages of a record, by its ID.
    :arg running: the UUIDs of the guests that run on each host of the fleet now, by name; None for a host that did not report them.
    :arg must_be_home: whether the guests were to be brought home.
    :arg state: of the host in the ledger.
    """

    records: Sequence[MoveRecord]
    stages: Mapping[str, Mapping[str, float]]
    running: Mapping[str, t.Optional[frozenset[str]]]
    must_be_home: bool
    state: t.Optional[str]


def judge_drill(run: MaintenanceRun, after: FleetAfter, now: Now) -> MaintenanceRun:
    """Return the run with the verdict on its drill."""
    drill, (host,) = drill_of(run), run.hosts
    was_interrupted = run.term > 1
    guests = tuple(_judge_guest(guest, host.host, drill, after, was_interrupted) for guest in drill.guests)
    seconds = sorted(guest.seconds for guest in guests if guest.seconds is not None)
    reasons = [
        *drill.problems,
        *(["The power was not cut."] if drill.cut_at is None else []),
        *(f"{guest.name}: {guest.problem}" for guest in guests if guest.problem),
        *_host_reasons(host, after),
    ]
    judged = replace(
        drill,
        guests=guests,
        passed=not reasons,
        median_seconds=seconds[math.ceil(len(seconds) / 2) - 1] if seconds else None,
        longest_seconds=seconds[-1] if seconds else None,
        reasons=tuple(reasons[:MOST_REASONS]),
    )
    event = "drill_passed" if judged.passed else "drill_failed"
    return with_event(replace(run, drill=judged), now, event, host.host, verdict_text(judged))


def _judge_guest(guest: DrilledGuest, host: str, drill: Drill, after: FleetAfter, was_interrupted: bool) -> DrilledGuest:
    record = find_record(guest, drill, after.records)
    done = started_at(record) if record else None
    if record is None or done is None:
        why = f" ({record.status}: {record.last_detail})" if record else ""
        problem = None if guest.name in drill.accept_lost else f"it was not started elsewhere{why}"
        return replace(
            guest, record=record.id if record else None, destination=None, seconds=None, stages={}, problem=problem or _place_problem(guest, host, after)
        )
    seconds = round(seconds_between(str(drill.cut_at), done), 3)
    problem = None
    if seconds > drill.limit_seconds:
        interrupted = ", and the drill was interrupted" if was_interrupted else ""
        problem = f"it ran elsewhere after {seconds:.1f} s, and the limit is {drill.limit_seconds} s{interrupted}"
    return replace(
        guest,
        record=record.id,
        destination=record.destination.host,
        seconds=seconds,
        stages=after.stages.get(record.record_id, {}),
        problem=problem or _place_problem(guest, host, after),
    )


def _place_problem(guest: DrilledGuest, host: str, after: FleetAfter) -> t.Optional[str]:
    """Return what is wrong with where the guest runs now: it has to run exactly once, and on its own host if it was to be brought home."""
    places = sorted(name for name, running in after.running.items() if running and guest.uuid in running)
    if len(places) > 1:
        return f"it runs on {' and '.join(places)} at the same time"
    if after.must_be_home and after.running.get(host) is not None and host not in places:
        return "it was not brought back"
    return None if places or None in after.running.values() else "it runs on no host"


def _host_reasons(host: HostProgress, after: FleetAfter) -> Iterator[str]:
    if host.status == m.FAILED:
        last = host.last_step
        yield f"{host.host} was not brought back ({last.step if last else m.CHECK}): {host.error}"
    elif after.running.get(host.host) is None:
        yield f"{host.host} did not report its guests after its return."
    silent = sorted(name for name, running in after.running.items() if running is None and name != host.host)
    if silent:
        yield f"{', '.join(silent)} did not report the guests there, so that it is not known whether a guest of {host.host} runs twice."
    if after.state != s.ENABLED:
        yield f"{host.host} is in the state '{after.state}' in the ledger."


def verdict_text(drill: Drill) -> str:
    """Return the verdict on one line, e.g. C(passed: 3 of 3 guests ran elsewhere, median 21.0 s, longest 28.7 s, limit 90 s)."""
    started = [guest for guest in drill.guests if guest.seconds is not None]
    figures = [f"{len(started)} of {len(drill.guests)} guests ran elsewhere"]
    if drill.median_seconds is not None and drill.longest_seconds is not None:
        figures.append(f"median {drill.median_seconds:.1f} s, longest {drill.longest_seconds:.1f} s")
    text = f"{'passed' if drill.passed else 'failed'}: {', '.join(figures)}, limit {drill.limit_seconds} s"
    return f"{text}. {' '.join(_as_sentence(reason) for reason in drill.reasons)}" if drill.reasons else text


def drill_line(run: MaintenanceRun) -> str:
    """Return one line on a drill that has its verdict."""
    drill = drill_of(run)
    return f"{run.hosts[0].host} at {(drill.cut_at or run.created_at)[:16].replace('T', ' ')} UTC: {verdict_text(drill)}"


def last_verdict(runs: Sequence[MaintenanceRun]) -> t.Optional[MaintenanceRun]:
    """Return the last of these runs that is a drill with a verdict."""
    judged = [run for run in runs if run.drill and run.drill.passed is not None]
    return max(judged, key=lambda run: (run.created_at, run.id), default=None)


def _as_sentence(text: str) -> str:
    return text if text.endswith((".", "!")) else f"{text}."
