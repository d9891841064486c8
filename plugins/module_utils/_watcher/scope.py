# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A systemd scope of the watcher's own: setsid does not leave the login session's scope, and with C(KillUserProcesses=yes) all that is in it ends with it."""

from __future__ import annotations

import os
import subprocess
import time
import typing as t

# There where systemd is the system's manager: sd_booted(3).
SYSTEMD_FOLDER = "/run/systemd/system"
# Its name tells a process namespace of its own, whose process ids would be wrong for the manager outside.
FIRST_PROCESS = "/proc/1/comm"
# The control groups of this process: cgroups(7).
GROUPS = "/proc/self/cgroup"
CALL_SECONDS = 10.0
JOIN_SECONDS = 10.0
_POLL_SECONDS = 0.05
_MANAGER = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")


def unit_name(run_id: str, pid: int) -> str:
    """Return the name of the scope of a run's watcher. A run can have several watchers, one after the other, so the process is in the name."""
    return f"kvmfleet-watcher-{run_id}-{pid}.scope"


def join_own_scope(run_id: str) -> t.Optional[str]:
    """Move this process out of its login session into a scope of its own. Return a warning where systemd runs and that failed, else None.

    The scope is in C(system.slice), depends on no other unit, and is removed when this process has ended.
    """
    if not _is_systemd_running():
        return None
    unit = unit_name(run_id, os.getpid())
    trouble = _start_scope(unit, os.getpid()) or _wait_until_inside(unit)
    return f"{trouble} {_consequence()}" if trouble else None


def start_command(unit: str, pid: int) -> t.List[str]:
    """Return the command that asks systemd for a scope with this process in it (org.freedesktop.systemd1(5), StartTransientUnit)."""
    properties = {
        "Description": ("s", f"kvmfleet.migration watcher, process {pid}"),
        "Slice": ("s", "system.slice"),
        "CollectMode": ("s", "inactive-or-failed"),
        "PIDs": ("au", "1", str(pid)),
    }
    words = [word for name, value in properties.items() for word in (name, *value)]
    return ["busctl", "call", *_MANAGER, "StartTransientUnit", "ssa(sv)a(sa(sv))", unit, "fail", str(len(properties)), *words, "0"]


def is_inside(unit: str) -> bool:
    """Whether this process is in that unit's control group, by the kernel's own word."""
    with open(GROUPS, encoding="utf-8", errors="replace") as stream:
        return any(line.rstrip("\n").endswith(f"/{unit}") for line in stream)


def _is_systemd_running() -> bool:
    try:
        with open(FIRST_PROCESS, encoding="utf-8", errors="replace") as stream:
            return stream.read().strip() == "systemd" and os.path.isdir(SYSTEMD_FOLDER)
    except OSError:
        return False


def _start_scope(unit: str, pid: int) -> t.Optional[str]:
    """Ask for the scope; return why it cannot be had."""
    try:
        subprocess.run(start_command(unit, pid), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=CALL_SECONDS)
    except subprocess.TimeoutExpired:
        return f"systemd did not answer within {CALL_SECONDS:.0f} s when it was asked for scope {unit}."
    except (OSError, subprocess.SubprocessError) as error:
        said = str(getattr(error, "stderr", None) or error).strip().rstrip(".")
        return f"systemd did not start scope {unit}: {said}."
    return None


def _wait_until_inside(unit: str) -> t.Optional[str]:
    """The call only queues a job: wait until the process is in the scope; return why it is not."""
    limit = time.monotonic() + JOIN_SECONDS
    while not is_inside(unit):
        if time.monotonic() >= limit:
            return f"systemd accepted scope {unit}, and {JOIN_SECONDS:.0f} s later the watcher was still not in it."
        time.sleep(_POLL_SECONDS)
    return None


def _consequence() -> str:
    return (
        "The watcher stays in the login session that started it. Where logind ends what a session leaves behind (KillUserProcesses=yes), the watcher dies with "
        "the SSH connection: a migration that runs then goes on without its limits (timeout, stall, forced completion) until a task takes it over, and queued "
        "migrations do not start. Check 'busctl status org.freedesktop.systemd1' on the source host, or connect as root."
    )
