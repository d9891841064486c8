# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Running a tool: its output is shown, and it cannot hang for ever."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from .hangs import HANG_SECONDS, Output, Watch

GRACE_SECONDS = 30
# What a tool that hung may take to tear down what it made, and to write its report.
TEAR_DOWN_SECONDS = 180
LOOK_SECONDS = 0.5
HUNG = 124

_running: set[subprocess.Popen[bytes]] = set()
# Held while a tool starts: it is one of those that run as soon as there is a process.
_starting = threading.Lock()


@dataclass(frozen=True)
class Ended:
    """How a tool ended, and what it printed. C(hang) says in words what hung, where it was ended for that; its code is C(HUNG) then."""

    code: int
    hang: str = ""
    output: str = ""


def run(
    argv: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    *,
    watch: Watch | None = None,
    hang_seconds: float | None = None,
    quiet: bool = False,
) -> Ended:
    """Run a tool to its end, or until it has given no sign of life for so long. Its output is shown as it comes.

    :arg watch: what counts as a sign of life; what it prints, where nothing is given.
    :arg hang_seconds: C(HANG_SECONDS) where nothing is given.
    :arg quiet: show its output only when it has failed.
    """
    print("+", *argv, flush=True)
    with tempfile.TemporaryDirectory(prefix="kvmfleet-output-") as folder:
        path = Path(folder, "output")
        with path.open("wb") as stream:
            output = Output(path)
            ended = _run(argv, cwd, env, stream, output, watch or output, HANG_SECONDS if hang_seconds is None else hang_seconds, quiet)
        _show("passed\n" if quiet and not ended.code else output.fresh())
        ended = replace(ended, output=path.read_text(encoding="utf-8", errors="replace"))
    if ended.hang:
        print(f"{argv[0]} {ended.hang}", flush=True)
    return ended


def end_all() -> None:
    """Tell all tools that other threads of this process run to end; those threads then see them end."""
    with _starting:
        told = tuple(_running)
    for process in told:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)


def _run(argv: Sequence[str], cwd: Path, env: Mapping[str, str], stream: IO[bytes], output: Output, watch: Watch, hang_seconds: float, quiet: bool) -> Ended:
    with _start(argv, cwd, env, stream) as process:
        try:
            return _follow(process, output, watch, hang_seconds, quiet)
        finally:
            _running.discard(process)
            _end_group(process)


def _start(argv: Sequence[str], cwd: Path, env: Mapping[str, str], stream: IO[bytes]) -> subprocess.Popen[bytes]:
    with _starting:
        process = subprocess.Popen(argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True)
        _running.add(process)
    return process


def _follow(
    process: subprocess.Popen[bytes],
    output: Output,
    watch: Watch,
    hang_seconds: float,
    quiet: bool,
    clock: Callable[[], float] = time.monotonic,
) -> Ended:
    """Show what the tool prints until it ends; tell it to end where it hangs."""
    signs, heard_at = watch.signs(), clock()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return Ended(process.wait(LOOK_SECONDS))
        if not quiet:
            _show(output.fresh())
        if (now_signs := watch.signs()) != signs:
            signs, heard_at = now_signs, clock()
        elif (silent := clock() - heard_at) > hang_seconds:
            hang = watch.describe(silent)
            process.send_signal(watch.first_signal)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(TEAR_DOWN_SECONDS)
            return Ended(HUNG, hang)


def _show(text: str) -> None:
    if text:
        print(text, end="", flush=True)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End what the tool left of its process group: politely first, so that it can tear down what it made."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            continue
