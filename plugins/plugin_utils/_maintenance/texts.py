# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Maintenance runs for people: one line on a run, one on each of its hosts, and the summary at the end."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import maintenance_runs as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import printable_line
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import HostProgress, MaintenanceRun

from .holding import is_alive

NOT_BEGUN = "not begun"


def host_text(progress: HostProgress) -> str:
    """Return the state of a host in a few words, e.g. C(failed: verify)."""
    last = progress.last_step
    if progress.status == m.WAITING:
        return NOT_BEGUN
    if progress.status == m.FAILED:
        return f"failed: {last.step if last else m.CHECK}"
    if progress.status == m.IN_PROGRESS:
        return f"in progress: {last.step if last else m.CHECK}"
    return progress.status


def summarize_hosts(run: MaintenanceRun) -> dict[str, str]:
    """Return the state of each host."""
    return {one.host: host_text(one) for one in run.hosts}


def run_line(run: MaintenanceRun) -> str:
    """Return one line on a run, e.g. C(7777... running since 01:00: 2 of 5 hosts done, kvm3 in progress: drain)."""
    done = len(run.hosts_with(m.DONE, m.NOTHING_TO_DO))
    active = [f"{one.host} {host_text(one)}" for one in run.hosts_with(m.IN_PROGRESS, m.FAILED)]
    parts = [f"{done} of {len(run.hosts)} hosts done", *active]
    if run.request:
        parts.append(f"{run.request.request} requested by {run.request.by}")
    if run.reason:
        parts.append(run.reason)
    if run.options.until:
        parts.append(f"window until {run.options.until[:16].replace('T', ' ')} UTC")
    return printable_line(f"{run.id}  {run.state}  begun {run.created_at[:16].replace('T', ' ')} UTC: {', '.join(parts)}")


def list_lines(run: MaintenanceRun) -> Iterator[str]:
    """Yield the run and its hosts, one line each."""
    yield run_line(run)
    yield printable_line(f"  held by {run.holder.by} since {run.holder.since}" if run.holder else "  held by no process")
    for one in run.hosts:
        took = f"  {one.seconds} s" if one.seconds else ""
        yield printable_line(f"  {one.host}: {host_text(one)}{took}{f'  ({one.error})' if one.error else ''}")


def attention_text(run: MaintenanceRun) -> t.Optional[str]:
    """Return what a person should know about an open run; None if it goes on by itself."""
    down = [one.host for one in run.hosts if one.is_down]
    left = f" {', '.join(down)} {'is' if len(down) == 1 else 'are'} out of service." if down else ""
    if run.holder and is_alive(run.holder) is False:
        return (
            f"The process of the {run.noun} {run.id} is gone ({run.holder.by}).{left} Run its command again, or end it:"
            f" kvmfleet.migration.maintenance -e run={run.id} -e request=stop"
        )
    if run.state == m.PAUSED:
        given_up, again = ("", "") if run.holder else (f" No process carries it out any more.{left}", ", and run its command again")
        resume = f"kvmfleet.migration.maintenance -e run={run.id} -e request=resume{again}"
        return f"The {run.noun} {run.id} is paused: {run.reason}.{given_up} To resume it: {resume}"
    return None


def describe_failures(failed: Sequence[HostProgress]) -> str:
    """Return the hosts that failed, each with the step and the error."""
    return "; ".join(f"{one.host} ({one.last_step.step if one.last_step else m.CHECK}: {(one.error or '').rstrip('.')})" for one in failed)


def end_text(run: MaintenanceRun) -> str:
    """Return how a run ended, as sentences for a person."""
    failed = run.hosts_with(m.FAILED)
    waiting = [f"{one.host} ({one.error or NOT_BEGUN})" for one in run.hosts_with(m.WAITING)]
    parts = [f"The {run.noun} {run.id} is {run.state}{f': {run.reason}' if run.reason else ''}."]
    if failed:
        parts.append(f"Failed: {describe_failures(failed)}.")
    if waiting:
        parts.append(f"Not begun: {'; '.join(waiting)}.")
    down = [one.host for one in run.hosts if one.is_down]
    if down:
        parts.append(f"Out of service: {', '.join(down)}.")
    if run.state != m.FINISHED:
        parts.append(f"To continue where it stopped, run the same command with -e {run.variable}={run.id}.")
    return printable_line(" ".join(parts))


def show_run(run: MaintenanceRun) -> Json:
    """Return the run as a task returns it."""
    return t.cast(Json, {**encode(run), "summary": summarize_hosts(run)})


def list_runs(runs: Sequence[MaintenanceRun], ended: Sequence[MaintenanceRun]) -> list[str]:
    """Return the lines of several runs; if there are none, the last one that has ended."""
    last = max(ended, key=lambda run: run.updated_at, default=None)
    return [line for run in runs for line in list_lines(run)] or ["no open maintenance run", *([f"the last one: {run_line(last)}"] if last else [])]
