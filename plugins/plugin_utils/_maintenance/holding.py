# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The process that holds a maintenance run: who it is, whether it still exists, and whether another process may take its place."""

from __future__ import annotations

import os
import socket
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import boot_moment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import MaintenanceRun, RunHolder

# In /proc/<pid>/stat, after the name in parentheses: the start time is field 22, the name field 2.
_START_TIME_INDEX = 19


def identify_process(pid: int, by: str, at: str) -> RunHolder:
    """Return the process with that number on this control node as a holder.

    :arg pid: of C(ansible-playbook).
    """
    return RunHolder(by, socket.gethostname(), boot_moment().boot_id, _pid_namespace(), pid, read_start_time(pid) or 0, at)


def read_start_time(pid: int) -> t.Optional[int]:
    """Return when a process began, in ticks since the boot; None if it does not exist, or is a zombie."""
    fields = _read_stat(pid)
    return None if not fields or fields[0] in ("Z", "X") else int(fields[_START_TIME_INDEX])


def _read_stat(pid: int) -> list[str]:
    """Return the fields of a process after its name; none if it does not exist, or is hidden."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
            return stream.read().rpartition(")")[2].split()
    except OSError:
        return []


def _is_hidden(pid: int) -> bool:
    """Whether the process exists, but is of another user, and C(/proc) is mounted with C(hidepid)."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError) and not _read_stat(pid)
    return False


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def is_alive(holder: RunHolder) -> t.Optional[bool]:
    """Whether the process still runs; None if this cannot be known here, as for another control node, another container or a hidden process."""
    here = (boot_moment().boot_id, _pid_namespace())
    if not all(here) or here != (holder.boot_id, holder.pid_namespace):
        return None
    return None if _is_hidden(holder.pid) else read_start_time(holder.pid) == holder.started


def check_take_over(run: MaintenanceRun, holder: RunHolder, alive: t.Optional[bool], is_confirmed: bool) -> None:
    """Raise L(Conflict) unless this process may continue the run.

    :arg holder: this process.
    :arg alive: whether the process that holds the run exists.
    :arg is_confirmed: whether a person states that it does not.
    """
    held_by = run.holder
    if held_by is None or held_by.is_same_process(holder) or alive is False:
        return
    if alive:
        raise Conflict(
            f"The {run.noun} {run.id} is carried out by {held_by.by} since {held_by.since}, and that process still runs. Nothing was changed.",
            f"Wait for it, or control it: kvmfleet.migration.maintenance -e run={run.id} -e request=pause (or resume, or stop).",
        )
    if not is_confirmed:
        raise Conflict(
            f"The {run.noun} {run.id} is carried out by {held_by.by} since {held_by.since}, and it cannot be verified from here whether that process"
            " still runs. Nothing was changed.",
            f"If it does not, run the command again with -e {run.variable.removesuffix('_run')}_take_over=true.",
        )


def check_holder(run: MaintenanceRun, holder: RunHolder) -> None:
    """Raise L(Conflict) unless this process holds the run, and still runs: its workers outlive it if it is killed."""
    if holder.is_same_process(run.holder):
        # In a container that has the /proc of another one, the start of a process is not known.
        if holder.started and is_alive(holder) is False:
            raise Conflict(f"The process that carries out the {run.noun} {run.id} has ended. Nothing was changed.", "Run its command again.")
        return
    now = f"{run.holder.by} holds it since {run.holder.since}" if run.holder else f"it is {run.state}, and nobody holds it"
    raise Conflict(
        f"This process does not hold the {run.noun} {run.id} any more: {now} (term {run.term}).",
        f"Show it with kvmfleet.migration.maintenance -e run={run.id}.",
    )
