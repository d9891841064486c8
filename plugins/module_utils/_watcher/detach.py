# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Leaving the module's process and the login session behind, so that a move is watched to its end whoever goes away."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import traceback
import typing as t

from .._errors import Internal, error_for_code
from .._hypervisor.library import require_no_event_loop
from .scope import join_own_scope

READY_TIMEOUT_SECONDS = 60.0

Report = t.Callable[[t.Mapping[str, t.Any]], None]


def launch(work: t.Callable[[Report], None], log: str, run_id: str) -> t.Dict[str, t.Any]:
    """Run C(work) in a process of its own session and, where systemd runs, of its own scope. Return what it reports first.

    C(session_warning) is added to that where the process could not leave the login session, and says what follows.

    C(work) gets a function to report with, once, when it is safely begun; a C(KvmfleetError) raised before that is raised here.
    Everything that C(work) imports must be imported already: the module's own archive is removed when the module ends.

    Raises L(Internal) where libvirt's event loop runs in this process: its thread would be missing in the new one, and with it keepalive.

    :arg log: file for what the process writes to its standard error.
    :arg run_id: of the run that C(work) belongs to; the scope's name has it.
    """
    require_no_event_loop()
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _run(work, reader, writer, log, run_id)
    os.close(writer)
    os.waitpid(child, 0)
    return first_report(reader, READY_TIMEOUT_SECONDS)


def _become_session_leader() -> None:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    os.umask(0o077)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run(work: t.Callable[[Report], None], reader: int, writer: int, log: str, run_id: str) -> t.NoReturn:
    beside: t.Dict[str, t.Any] = {}

    def report(document: t.Mapping[str, t.Any]) -> None:
        os.write(writer, json.dumps({**document, **beside}).encode() + b"\n")
        os.close(writer)

    status = 1
    try:
        os.close(reader)
        _become_session_leader()
        _redirect_standard_streams(log)
        # Before the work begins: whoever dies in between has begun nothing.
        warning = join_own_scope(run_id)
        if warning:
            beside["session_warning"] = warning
        work(report)
        status = 0
    finally:
        exit_process(status)


def exit_process(status: int) -> t.NoReturn:
    """End a forked process here, even where the log cannot be written: it must never return into the module's code and run a second module."""
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


def first_report(reader: int, timeout_seconds: float) -> t.Dict[str, t.Any]:
    """Return the one document that another process writes into this pipe. Raises the error that it reports, or L(Internal) where it reports nothing."""
    with os.fdopen(reader, encoding="utf-8") as stream:
        if not select.select([stream], [], [], timeout_seconds)[0]:
            raise Internal(f"The watcher did not begin within {timeout_seconds:.0f} s.", "Look at the host's load and run the task again.")
        line = stream.readline()
    if not line:
        raise Internal("The watcher ended before it began.", "Its log is under /run/kvmfleet on the source host.")
    document: t.Dict[str, t.Any] = json.loads(line)
    if "error_code" in document:
        raise error_for_code(document.pop("error_code"))(document.pop("msg"), **document)
    return document
