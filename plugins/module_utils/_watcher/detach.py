# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Processes that outlive their module and its login session: in a session and, if systemd runs, in a scope of their own.

A process can be forked in advance, before this process uses libvirt, whose event loop does not survive a fork.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
import typing as t

from .._libvirt.connection import require_no_event_loop
from .._model.codec import Json, JsonObject
from .._model.errors import Internal, KvmfleetError, error_for_code

# Exists if systemd is the system's manager: sd_booted(3).
SYSTEMD_FOLDER = "/run/systemd/system"
# Its name shows a separate process namespace, whose process IDs would be wrong for the manager outside.
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
    """Move this process out of its login session into a scope of its own. Return a warning if systemd runs and this failed, otherwise null.

    The scope is in C(system.slice), depends on no other unit, and is removed when this process has ended.
    """
    if not _is_systemd_running():
        return None
    unit = unit_name(run_id, os.getpid())
    trouble = _start_scope(unit, os.getpid()) or _wait_until_inside(unit)
    return f"{trouble} {_describe_consequence()}" if trouble else None


def scope_command(unit: str, pid: int) -> t.List[str]:
    """Return the command that asks systemd for a scope with this process in it (org.freedesktop.systemd1(5), StartTransientUnit)."""
    properties = {
        "Description": ("s", f"kvmfleet.migration watcher, process {pid}"),
        "Slice": ("s", "system.slice"),
        "CollectMode": ("s", "inactive-or-failed"),
        "PIDs": ("au", "1", str(pid)),
    }
    words = [word for name, value in properties.items() for word in (name, *value)]
    return ["busctl", "call", *_MANAGER, "StartTransientUnit", "ssa(sv)a(sa(sv))", unit, "fail", str(len(properties)), *words, "0"]


def is_in_unit(unit: str) -> bool:
    """Whether this process is in the control group of that unit, according to the kernel."""
    with open(GROUPS, encoding="utf-8", errors="replace") as stream:
        return any(line.rstrip("\n").endswith(f"/{unit}") for line in stream)


def _is_systemd_running() -> bool:
    try:
        with open(FIRST_PROCESS, encoding="utf-8", errors="replace") as stream:
            return stream.read().strip() == "systemd" and os.path.isdir(SYSTEMD_FOLDER)
    except OSError:
        return False


def _start_scope(unit: str, pid: int) -> t.Optional[str]:
    """Request the scope; return why it could not be created."""
    try:
        # Its messages are in the encoding of the locale.
        command = scope_command(unit, pid)
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=True, timeout=CALL_SECONDS)
    except subprocess.TimeoutExpired:
        return f"systemd did not answer within {CALL_SECONDS:.0f} s when it was asked for scope {unit}."
    except (OSError, subprocess.SubprocessError) as error:
        cause = str(getattr(error, "stderr", None) or error).strip().rstrip(".")
        return f"systemd did not start scope {unit}: {cause}."
    return None


def _wait_until_inside(unit: str) -> t.Optional[str]:
    """The call only queues a job: wait until the process is in the scope; return why it is not."""
    limit = time.monotonic() + JOIN_SECONDS
    while not is_in_unit(unit):
        if time.monotonic() >= limit:
            return f"systemd accepted scope {unit}, and {JOIN_SECONDS:.0f} s later the watcher had still not joined it."
        time.sleep(_POLL_SECONDS)
    return None


def _describe_consequence() -> str:
    return (
        "The watcher stays in the login session that started it. Where logind ends the processes of a session (KillUserProcesses=yes), the watcher dies with "
        "the SSH connection: a running migration then continues without its limits (timeout, stall, forced completion) until a task takes it over, and queued "
        "migrations do not start. Check 'busctl status org.freedesktop.systemd1' on the source host, or connect as root."
    )


READY_TIMEOUT_SECONDS = 60.0

Report = t.Callable[[JsonObject], None]


def launch_process(work: t.Callable[[Report], None], log: str, run_id: str) -> t.Dict[str, Json]:
    """Run C(work) in a process of its own, as L(fork_process) does, and return what it reports first."""
    return fork_process(work, log, run_id)()


def fork_process(work: t.Callable[[Report], None], log: str, run_id: str) -> t.Callable[[], t.Dict[str, Json]]:
    """Run C(work) in a process of its own session and, where systemd runs, of its own scope. Return a function that waits for what it reports first.

    C(session_warning) is added to the report if the process could not leave the login session, and describes the consequences.

    C(work) gets a function to report with, once, when it has safely started; a C(KvmfleetError) raised before that is raised by the function returned here.
    Everything that C(work) imports must be imported already: the module's own archive is removed when the module ends.

    Raises L(Internal) if libvirt's event loop runs in this process: its thread would be missing in the new one, and with it keepalive.

    :arg log: file for what the process writes to its standard error.
    :arg run_id: of the run that C(work) belongs to; the scope's name has it.
    """
    require_no_event_loop()
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _run_child(work, reader, writer, log, run_id)
    os.close(writer)
    os.waitpid(child, 0)
    return lambda: read_first_report(reader, READY_TIMEOUT_SECONDS)


def _become_session_leader() -> None:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    os.umask(0o077)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run_child(work: t.Callable[[Report], None], reader: int, writer: int, log: str, run_id: str) -> t.NoReturn:
    beside: t.Dict[str, Json] = {}

    def report(document: JsonObject) -> None:
        os.write(writer, json.dumps({**document, **beside}).encode() + b"\n")
        os.close(writer)

    status = 1
    try:
        os.close(reader)
        _become_session_leader()
        _redirect_standard_streams(log)
        # Before the work begins: a process that dies in between has begun nothing.
        warning = join_own_scope(run_id)
        if warning:
            beside["session_warning"] = warning
        work(report)
        status = 0
    finally:
        exit_process(status)


def exit_process(status: int) -> t.NoReturn:
    """End a forked process, even if the log cannot be written: it must never return into the code of the module and run a second module."""
    try:
        if status:
            traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _redirect_standard_streams(log: str) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    errors = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.dup2(errors, 2)


def read_first_report(reader: int, timeout_seconds: float) -> t.Dict[str, Json]:
    """Return the one document that another process writes into this pipe. Raises the error that it reports, or L(Internal) if it reports nothing."""
    with os.fdopen(reader, encoding="utf-8") as stream:
        if not select.select([stream], [], [], timeout_seconds)[0]:
            raise Internal(f"The watcher did not start within {timeout_seconds:.0f} s.", "Check the load of the host, then run the task again.")
        line = stream.readline()
    if not line:
        raise Internal("The watcher exited before it started its work.", "Its log is under /run/kvmfleet on the source host.")
    document: t.Dict[str, t.Any] = json.loads(line)
    if "error_code" in document:
        raise error_for_code(document.pop("error_code"))(document.pop("msg"), **document)
    return document


# Longer than a watcher may take to begin.
ANSWER_SECONDS = 75.0

Function = t.Callable[[Json], JsonObject]


class SpareProcess:
    """Calls a function once, in a copy of this process from the moment when the spare was made. The copy exits if this process exits without a call."""

    def __init__(self, function: Function) -> None:
        """Fork it.

        :arg function: takes and returns values that JSON can represent.
        """
        request_reader, request_writer = os.pipe()
        answer_reader, answer_writer = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(request_writer)
            os.close(answer_reader)
            _serve_request(function, request_reader, answer_writer)
        os.close(request_reader)
        os.close(answer_writer)
        self._request = os.fdopen(request_writer, "w", encoding="utf-8")
        self._answer = answer_reader

    def call_once(self, argument: Json) -> t.Dict[str, Json]:
        """Return what the function returns for this argument; once only. Raises the error that it raised, or L(Internal) if it died."""
        with self._request as stream:
            json.dump(argument, stream)
        answer = read_first_report(self._answer, ANSWER_SECONDS)
        os.waitpid(self._pid, 0)
        return answer


def _serve_request(function: Function, reader: int, writer: int) -> t.NoReturn:
    """Wait for the argument, whose end is the end of the stream; an empty or torn stream is no request."""
    status = 1
    try:
        with os.fdopen(reader, encoding="utf-8") as stream:
            text = stream.read()
        if text:
            os.write(writer, json.dumps(_answer_request(function, json.loads(text))).encode() + b"\n")
        status = 0
    finally:
        exit_process(status)


def _answer_request(function: Function, argument: Json) -> JsonObject:
    try:
        return function(argument)
    except KvmfleetError as error:
        return error.as_result()
