# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""How a maintenance run changes: pure functions from a run to its successor. Nothing here reads a clock, a host or the ledger."""

from __future__ import annotations

import typing as t
from collections.abc import Sequence
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import maintenance_runs as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import (
    Drill,
    HostProgress,
    HostStep,
    MaintenanceRun,
    RunEvent,
    RunHolder,
    RunOptions,
    RunRequest,
)

MAX_ERROR_CHARACTERS = 1000


@dataclass(frozen=True)
class Now:
    """The present, on both clocks of the control node.

    :arg at: RFC 3339.
    :arg by: who acts, for the history.
    """

    at: str
    moment: BootMoment
    by: str


@dataclass(frozen=True)
class PlannedHost:
    """A host as it is before the run begins.

    :arg has_work: whether there is something to do on it.
    :arg keep_maintenance: whether it is in maintenance for another reason, and stays so.
    :arg predicted_seconds: how long its drain and the way back are predicted to take.
    """

    host: str
    has_work: bool = True
    keep_maintenance: bool = False
    predicted_seconds: int = 0


def new_run(run_id: str, hosts: Sequence[PlannedHost], options: RunOptions, holder: RunHolder, now: Now, drill: t.Optional[Drill] = None) -> MaintenanceRun:
    """Return the run with which a night begins, or a drill."""
    progress = tuple(
        HostProgress(
            host=one.host,
            status=m.WAITING if one.has_work else m.NOTHING_TO_DO,
            steps=(),
            error=None,
            keep_maintenance=one.keep_maintenance or ABSENT,
            predicted_seconds=one.predicted_seconds,
        )
        for one in hosts
    )
    run = MaintenanceRun(
        id=run_id,
        state=m.RUNNING,
        hosts=progress,
        options=options,
        term=1,
        holder=holder,
        request=None,
        reason=None,
        created_at=now.at,
        created_by=now.by,
        updated_at=now.at,
        history=(),
        drill=drill or ABSENT,
    )
    what = f"drill of {hosts[0].host}" if drill else f"{len(hosts)} hosts"
    return with_event(run, now, "started", None, what)


def with_event(run: MaintenanceRun, now: Now, event: str, host: t.Optional[str] = None, detail: str = "") -> MaintenanceRun:
    """Return the run with one more line of history."""
    line = RunEvent(now.at, event, now.by, host, detail[:MAX_ERROR_CHARACTERS])
    return replace(run, history=(*run.history, line), updated_at=now.at)


def take_over(run: MaintenanceRun, holder: RunHolder, now: Now, until: t.Optional[str] = None) -> MaintenanceRun:
    """Return the run as another process continues it.

    A host that failed is tried again at the step where it failed, unless the run is open: its other hosts are continued then, and its end names the failed one.
    A drill has no other host, and its own one may be off.

    :arg until: another end of the window; None to keep it.
    """
    options = replace(run.options, until=until) if until else run.options
    hosts = _forget_begin(tuple(_retry(one) for one in run.hosts) if run.drill or not run.is_open else run.hosts)
    state = m.PAUSED if run.state == m.PAUSED else m.RUNNING
    reason = run.reason if state == m.PAUSED else None
    stopping = ABSENT if not run.is_open else run.is_stopping
    after = replace(run, state=state, hosts=hosts, options=options, term=run.term + 1, holder=holder, reason=reason, is_stopping=stopping)
    before = f"before: {run.holder.by}" if run.holder else "nobody held it"
    return _pause_after_canary(with_event(after, now, "resumed", None, before), now)


def _forget_begin(hosts: Sequence[HostProgress]) -> tuple[HostProgress, ...]:
    """Return the hosts, of which those in progress have waited: how long they take in all says nothing about the others."""
    return tuple(replace(one, began=ABSENT) if one.status == m.IN_PROGRESS else one for one in hosts)


def _retry(progress: HostProgress) -> HostProgress:
    if progress.status != m.FAILED:
        return replace(progress, error=None) if progress.status == m.WAITING else progress
    if progress.is_down:
        # A person continues the run, and has seen the host: it may be fenced once more.
        steps = tuple(replace(step, fenced_at=ABSENT) for step in progress.steps)
        return replace(progress, status=m.IN_PROGRESS, error=None, steps=steps)
    return replace(progress, status=m.WAITING, steps=(), error=None)


def add_request(run: MaintenanceRun, request: str, reason: t.Optional[str], now: Now) -> MaintenanceRun:
    """Return the run with a request for its holder. A later request replaces one that was not seen."""
    noted = replace(run, request=RunRequest(request, now.by, now.at, reason))
    return with_event(noted, now, f"{request}_requested", None, reason or "")


def heed_request(run: MaintenanceRun, now: Now) -> MaintenanceRun:
    """Return the run after its holder has seen the request of a person."""
    if run.request is None:
        return run
    asked, after = run.request, replace(run, request=None)
    who = f"{asked.by} at {asked.at}" + (f" ({asked.reason})" if asked.reason else "")
    if asked.request == m.PAUSE:
        return with_event(replace(after, state=m.PAUSED, hosts=_forget_begin(after.hosts), reason=f"paused by {who}"), now, "paused", None, who)
    if asked.request == m.RESUME:
        passed = True if after.canary_ended else after.canary_passed
        return with_event(replace(after, state=m.RUNNING, reason=None, canary_passed=passed), now, "continued", None, who)
    # What is begun is finished, also if the run was paused.
    return stop_beginning(replace(after, state=m.RUNNING, is_stopping=ABSENT), f"stopped by {who}", now)


def stop_beginning(run: MaintenanceRun, reason: str, now: Now) -> MaintenanceRun:
    """Return the run as one that begins no further host; hosts in progress are finished."""
    return run if run.is_stopping else with_event(replace(run, is_stopping=True, reason=reason), now, "stopping", None, reason)


def begin_host(run: MaintenanceRun, host: str, now: Now) -> MaintenanceRun:
    """Return the run with this host in progress."""
    progress = _progress_of(run, host)
    if progress.status != m.WAITING:
        return run
    return with_event(run.replace_host(replace(progress, status=m.IN_PROGRESS, error=None, began=now.moment)), now, "host_started", host)


def is_in_step(run: MaintenanceRun, host: str, step: str) -> bool:
    """Whether this step of the host was begun and has not ended."""
    last = _progress_of(run, host).last_step
    return last is not None and last.step == step and last.ended_at is None


def begin_step(
    run: MaintenanceRun,
    host: str,
    step: str,
    now: Now,
    boot_id: t.Optional[str] = None,
    starts_guests: t.Union[bool, Absent] = ABSENT,
    placed: t.Union[tuple[str, ...], Absent] = ABSENT,
) -> MaintenanceRun:
    """Return the run with this step of the host begun, and the step before it ended. A step that is repeated keeps the boot ID of its first time.

    :arg boot_id: of the host, which was safe to reboot; an empty one if guests may have been started since that was recorded.
    :arg starts_guests: whether libvirt would start a guest at the next boot of the host; absent if that is not known.
    :arg placed: the domains that are on the host according to the ledger, of which none runs there; absent if that was not verified.
    """
    progress = _progress_of(run, host)
    last = progress.last_step
    if last and last.step == step:
        known = ABSENT if boot_id == "" else last.boot_id or boot_id or ABSENT
        starts = last.starts_guests if starts_guests is ABSENT else starts_guests
        there = last.placed if placed is ABSENT else placed
        steps = (*progress.steps[:-1], replace(last, began_at=now.at, ended_at=None, boot_id=known, starts_guests=starts, placed=there))
    else:
        steps = (*_ended_steps(progress, now), HostStep(step, now.at, None, boot_id or ABSENT, starts_guests=starts_guests, placed=placed))
    return replace(run.replace_host(replace(progress, steps=steps)), updated_at=now.at)


def begin_fence(run: MaintenanceRun, host: str, now: Now) -> MaintenanceRun:
    """Return the run with the note that the fence agent of the host is about to switch it off and on."""
    progress = _progress_of(run, host)
    steps = (*progress.steps[:-1], replace(progress.steps[-1], fenced_at=now.at))
    return with_event(run.replace_host(replace(progress, steps=steps)), now, "host_fenced", host)


def end_step(run: MaintenanceRun, host: str, now: Now) -> MaintenanceRun:
    """Return the run with the open step of the host ended, before a pause."""
    progress = _progress_of(run, host)
    return replace(run.replace_host(replace(progress, steps=_ended_steps(progress, now))), updated_at=now.at)


def _ended_steps(progress: HostProgress, now: Now) -> tuple[HostStep, ...]:
    last = progress.last_step
    return (*progress.steps[:-1], replace(last, ended_at=now.at)) if last and last.ended_at is None else progress.steps


def complete_host(run: MaintenanceRun, host: str, now: Now) -> MaintenanceRun:
    """Return the run with this host done. After the canary, the run waits for a person unless it waits for minutes."""
    progress = _progress_of(run, host)
    seconds = now.moment.seconds_since(progress.began) if progress.began else None
    # What was on the host matters only to a fence agent that reboots it, and would make the run too large for etcd.
    steps = tuple(replace(step, placed=ABSENT) for step in _ended_steps(progress, now))
    done = replace(progress, status=m.DONE, steps=steps, error=None, seconds=ABSENT if seconds is None else int(seconds))
    after = with_event(run.replace_host(done), now, "host_done", host)
    return _pause_after_canary(replace(after, canary_ended=now.moment), now) if is_canary(run, host) else after


def _pause_after_canary(run: MaintenanceRun, now: Now) -> MaintenanceRun:
    """Return the run as one that waits for a person, if its canary is done and nobody has passed it; a run that begins no further host waits for nobody."""
    is_over = not run.canary_ended or run.canary_passed or run.options.canary_minutes is not None
    if is_over or run.is_stopping or run.state == m.PAUSED or not run.hosts_with(m.WAITING):
        return run
    canary = next(one.host for one in run.hosts if is_canary(run, one.host))
    reason = f"the canary {canary} is done, and the run waits for a person to resume it"
    return with_event(replace(run, state=m.PAUSED, reason=reason), now, "paused", canary, reason)


def fail_host(run: MaintenanceRun, host: str, error: str, now: Now) -> MaintenanceRun:
    """Return the run with this host failed. No further host is begun after more failures than it permits, or if the canary failed."""
    progress = _progress_of(run, host)
    detail = error[:MAX_ERROR_CHARACTERS]
    after = with_event(run.replace_host(replace(progress, status=m.FAILED, error=detail)), now, "host_failed", host, detail)
    failed = len(after.hosts_with(m.FAILED))
    if is_canary(run, host):
        return stop_beginning(after, f"the canary {host} failed", now)
    if failed > run.options.max_failures:
        return stop_beginning(after, f"{host} failed, and max_failures is {run.options.max_failures}", now)
    return after


def fail_lost_hosts(run: MaintenanceRun, hosts: Sequence[str], now: Now) -> MaintenanceRun:
    """Return the run with those of these hosts failed that are in progress.

    Ansible runs no rescue on a host that became unreachable, and continues with the next batch if one host of the batch is left.

    :arg hosts: that the process of the run took through their steps, and no longer has at hand.
    """
    for host in hosts:
        progress = run.find_host(host)
        if progress and progress.status == m.IN_PROGRESS:
            error = f"Ansible ended it {_describe_position(progress)}: it became unreachable, or its step could not be recorded"
            run = fail_host(run, host, error, now)
    return run


def is_canary(run: MaintenanceRun, host: str) -> bool:
    """Whether this host is the one after which the run waits: the first one with something to do."""
    first = next((one.host for one in run.hosts if one.status != m.NOTHING_TO_DO), None)
    return run.options.canary and first == host


def close_run(run: MaintenanceRun, reasons: t.Mapping[str, str], now: Now) -> MaintenanceRun:
    """Return the run as its process leaves it: finished if every host is done, and otherwise stopped, with the reason at each host.

    :arg reasons: why a host was not begun.
    """
    hosts = tuple(_closed(one, reasons.get(one.host)) for one in run.hosts)
    is_whole = all(one.status in (m.DONE, m.NOTHING_TO_DO) for one in hosts)
    after = replace(run, hosts=hosts, state=m.FINISHED if is_whole else m.STOPPED, holder=None, request=None)
    if is_whole:
        return with_event(replace(after, reason=None, is_stopping=ABSENT), now, "finished")
    reason = run.reason or "not every host is done"
    return with_event(replace(after, reason=reason), now, "stopped", None, reason)


def _closed(progress: HostProgress, reason: t.Optional[str]) -> HostProgress:
    if progress.status == m.WAITING:
        return replace(progress, error=reason or "not begun")
    if progress.status == m.IN_PROGRESS:
        return replace(progress, status=m.FAILED, error=progress.error or f"it was left {_describe_position(progress)}")
    return progress


def _describe_position(progress: HostProgress) -> str:
    last = progress.last_step
    return f"in the step {last.step}" if last else "before its first step"


def release_run(run: MaintenanceRun, now: Now) -> MaintenanceRun:
    """Return the run without a holder: it stays as it is, and its command continues it."""
    return with_event(replace(run, holder=None), now, "released")


def _progress_of(run: MaintenanceRun, host: str) -> HostProgress:
    progress = run.find_host(host)
    if progress is None:
        raise KeyError(host)
    return progress
