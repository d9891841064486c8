# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Decisions of a maintenance run: which hosts may begin now, what the others wait for, and where an interrupted host continues. Pure functions."""

from __future__ import annotations

import datetime
import math
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import maintenance_runs as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import HostProgress, MaintenanceRun

from .transitions import Now, begin_host, heed_request, is_canary


@dataclass(frozen=True)
class ResumePoint:
    """Where a host continues.

    :arg step: the first step to run.
    :arg is_repeated: whether that step was begun before and may be done in part.
    """

    step: str
    is_repeated: bool = False


@dataclass(frozen=True)
class Admission:
    """What a process may do with the hosts that it asked about.

    :arg begun: the hosts that proceed now, and where.
    :arg deferred: why each of the others does not.
    :arg waits_for: why nothing proceeds now although something may later; None if there is nothing to wait for.
    """

    begun: Mapping[str, ResumePoint] = field(default_factory=dict)
    deferred: Mapping[str, str] = field(default_factory=dict)
    waits_for: t.Optional[str] = None


def resume_point(progress: HostProgress, steps: Sequence[str] = m.STEPS) -> t.Optional[ResumePoint]:
    """Return where a host continues; None if all its steps have ended.

    A step that was begun and not ended is repeated: a process that was killed after it and before the next write cannot be told from one killed in it.
    """
    last = progress.last_step
    if last is None:
        return ResumePoint(steps[0])
    if last.ended_at is None:
        return ResumePoint(last.step, is_repeated=True)
    following = steps[steps.index(last.step) + 1 :]
    return ResumePoint(following[0]) if following else None


def admit_hosts(run: MaintenanceRun, hosts: Sequence[str], now: Now) -> tuple[MaintenanceRun, Admission]:
    """Return the run with the hosts begun that may begin, and the decision about each of them.

    :arg hosts: that the process has at hand, its batch.
    """
    run = heed_request(run, now)
    if run.state == m.PAUSED:
        return run, Admission(waits_for=run.reason or "the run is paused")
    at_hand = [one for one in run.hosts if one.host in set(hosts)]
    in_progress = [one.host for one in at_hand if one.status == m.IN_PROGRESS]
    waiting = [one for one in at_hand if one.status == m.WAITING]
    canary_wait = canary_wait_text(run, now) if waiting and not in_progress else None
    if canary_wait and not run.is_stopping:
        restarted = run.canary_ended and now.moment.seconds_since(run.canary_ended) is None
        return (replace(run, canary_ended=now.moment) if restarted else run), Admission(waits_for=canary_wait)
    deferred: dict[str, str] = {}
    ahead = _why_behind(run, in_progress)
    for one in waiting:
        why = ahead or reason_not_to_begin(run, one, now)
        if why:
            deferred[one.host] = why
        else:
            run = begin_host(run, one.host, now)
            in_progress.append(one.host)
    return run, Admission({host: _continue_at(run, host) for host in in_progress}, deferred)


def _continue_at(run: MaintenanceRun, host: str) -> ResumePoint:
    progress = run.find_host(host)
    return (resume_point(progress, run.step_order) if progress else None) or ResumePoint(m.RECOVER, is_repeated=True)


def _why_behind(run: MaintenanceRun, in_progress: Sequence[str]) -> str:
    """Return why hosts that wait cannot go along with the first of these; empty if they can, or if there is none.

    The hosts of a batch take each step together. One that follows later must not be begun before, as nothing could keep it from its first step then.
    """
    step = _continue_at(run, in_progress[0]).step if in_progress else run.step_order[0]
    return "" if step == run.step_order[0] else f"{in_progress[0]} is continued first, at its step {step}"


def reason_not_to_begin(run: MaintenanceRun, progress: HostProgress, now: Now) -> t.Optional[str]:
    """Return why a host that waits must not be begun now; None if it may."""
    options = run.options
    if run.is_stopping:
        return run.reason or "the run is being stopped"
    first = next((one for one in run.hosts if is_canary(run, one.host)), None)
    if first and first.host != progress.host and not run.canary_passed and not _has_canary_time_passed(run, now):
        return f"it waits for the canary {first.host}"
    down = [one.host for one in run.hosts if is_taken(one)]
    if len(down) >= options.max_unavailable:
        return f"{', '.join(down)} {'is' if len(down) == 1 else 'are'} out of service, and max_unavailable is {options.max_unavailable}"
    return window_text(run, progress, now)


def is_taken(progress: HostProgress) -> bool:
    """Whether the host counts against C(max_unavailable): it was begun and is not back."""
    return progress.status == m.IN_PROGRESS or progress.is_down


def canary_wait_text(run: MaintenanceRun, now: Now) -> t.Optional[str]:
    """Return what the run waits for after its canary; None if it does not wait."""
    options = run.options
    if not options.canary or not run.canary_ended or run.canary_passed or options.canary_minutes is None or _has_canary_time_passed(run, now):
        return None
    passed = now.moment.seconds_since(run.canary_ended)
    left = options.canary_minutes * 60 - (passed if passed is not None and passed >= 0 else 0)
    return f"the canary is done, and the run waits {math.ceil(left / 60)} more minutes"


def _has_canary_time_passed(run: MaintenanceRun, now: Now) -> bool:
    """Whether the canary is done and its minutes are over. On another control node, or after a boot of this one, they begin anew."""
    if not run.canary_ended or run.options.canary_minutes is None:
        return False
    passed = now.moment.seconds_since(run.canary_ended)
    return passed is not None and passed >= run.options.canary_minutes * 60


def predict_seconds(run: MaintenanceRun, progress: HostProgress) -> int:
    """Return how long a host is predicted to take: as long as its moves and what the person expects, and not less than the slowest host so far."""
    own = (run.options.expected_seconds or 0) + (progress.predicted_seconds or 0)
    return max([own, *(one.seconds for one in run.hosts if one.seconds and one.status == m.DONE)])


def window_text(run: MaintenanceRun, progress: HostProgress, now: Now) -> t.Optional[str]:
    """Return why the host does not fit into what is left of the window; None if it does, or if there is no window."""
    until = run.options.until
    if until is None:
        return None
    left = seconds_between(now.at, until)
    needed = predict_seconds(run, progress)
    if left > 0 and needed <= left:
        return None
    return f"the window ends at {until}, and {progress.host} is predicted to take {needed} s" if left > 0 else f"the window has ended at {until}"


def seconds_between(earlier: str, later: str) -> float:
    """Return the seconds from one RFC 3339 time to another; negative if the second one is earlier."""
    return (datetime.datetime.fromisoformat(later) - datetime.datetime.fromisoformat(earlier)).total_seconds()
