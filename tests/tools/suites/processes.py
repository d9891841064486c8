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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

GRACE_SECONDS = 30
DIED = 124

_running: set[subprocess.Popen[bytes]] = set()


def run(argv: Sequence[str], cwd: Path, env: Mapping[str, str], timeout_seconds: float) -> int:
    """Run a tool and return its exit code; C(DIED) when it was ended for its time. Its output is shown as it comes."""
    print("+", *argv, flush=True)
    return _run(argv, cwd, env, timeout_seconds, None)


def run_quietly(argv: Sequence[str], cwd: Path, env: Mapping[str, str], timeout_seconds: float) -> int:
    """Like L(run), for a tool that says much: its output is shown when it has failed, and only then."""
    print("+", *argv, flush=True)
    with tempfile.TemporaryFile() as output:
        code = _run(argv, cwd, env, timeout_seconds, output)
        output.seek(0)
        print(output.read().decode(errors="replace") if code else "passed", flush=True)
    return code


def end_all() -> None:
    """Tell all tools that other threads of this process run to end; those threads then see them end."""
    for process in tuple(_running):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)


def _run(argv: Sequence[str], cwd: Path, env: Mapping[str, str], timeout_seconds: float, output: IO[bytes] | None) -> int:
    with subprocess.Popen(argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True) as process:
        _running.add(process)
        try:
            return process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            print(f"{argv[0]} was ended after {timeout_seconds:.0f} s", flush=True)
            return DIED
        finally:
            _running.discard(process)
            _end_group(process)


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
