# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Runs a program within a time limit, in a session of its own of which nothing is left afterwards."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
import typing as t
from dataclasses import dataclass, field

from .config import SEARCH_PATH

KEPT_BYTES = 64 * 1024
_PIECE_BYTES = 64 * 1024
_TICK_SECONDS = 0.05
_REAP_SECONDS = 5
_PIECES_AFTER_THE_END = 64


@dataclass
class Finished:
    """How a program ended.

    :arg exit_code: None when it was killed at the limit; negative for a signal that somebody else sent.
    :arg output: the end of what it wrote, both streams.
    :arg torn: there was more before.
    """

    exit_code: int | None = None
    output: bytes = field(default=b"", repr=False)
    torn: bool = False

    def add(self, piece: bytes) -> None:
        """Take what it wrote next."""
        kept = self.output + piece
        self.torn = self.torn or len(kept) > KEPT_BYTES
        self.output = kept[-KEPT_BYTES:]


def run(program: str, stdin: bytes, limit_seconds: float) -> Finished:
    """Run a program without arguments and with an environment of its own; at the limit it and its process group are killed.

    What it left behind in its process group is killed at its end, too; what has left the group is not waited for. Raises OSError when it cannot be started.
    """
    deadline = time.monotonic() + limit_seconds
    pipe = subprocess.PIPE
    process = subprocess.Popen([program], stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, cwd="/", env=_environment(), start_new_session=True)
    finished = Finished()
    try:
        with selectors.DefaultSelector() as selector:
            _talk(process, selector, stdin, finished, deadline)
    finally:
        _end(process)
    return finished


def _environment() -> dict[str, str]:
    """Return what an agent may know of ours: where programs are, and whose keys and known hosts it may use."""
    return {"PATH": SEARCH_PATH, "LC_ALL": "C", "HOME": os.path.expanduser("~")}


def _talk(process: subprocess.Popen[bytes], selector: selectors.BaseSelector, stdin: bytes, finished: Finished, deadline: float) -> None:
    """Write and read until the program has ended or the time is over."""
    source, sink = t.cast("t.IO[bytes]", process.stdout).fileno(), t.cast("t.IO[bytes]", process.stdin).fileno()
    os.set_blocking(source, False)
    os.set_blocking(sink, False)
    selector.register(source, selectors.EVENT_READ)
    selector.register(sink, selectors.EVENT_WRITE)
    while process.poll() is None and (left := deadline - time.monotonic()) > 0:
        if not selector.get_map():
            time.sleep(min(left, _TICK_SECONDS))
        for key, dummy in selector.select(min(left, _TICK_SECONDS)):
            if key.fd == source:
                _read(selector, source, finished)
            else:
                stdin = _write(process, selector, sink, stdin)
    finished.exit_code = process.poll()
    _kill_group(process)
    for dummy in range(_PIECES_AFTER_THE_END):
        if source not in selector.get_map() or not _read(selector, source, finished):
            break


def _read(selector: selectors.BaseSelector, source: int, finished: Finished) -> bool:
    """Take one piece, if there is one."""
    try:
        piece = os.read(source, _PIECE_BYTES)
    except BlockingIOError:
        return False
    finished.add(piece)
    if not piece:
        selector.unregister(source)
    return bool(piece)


def _write(process: subprocess.Popen[bytes], selector: selectors.BaseSelector, sink: int, stdin: bytes) -> bytes:
    """Write what fits and return the rest. A program that does not read its input is no error."""
    try:
        stdin = stdin[os.write(sink, stdin) :]
    except BlockingIOError:
        return stdin
    except BrokenPipeError:
        stdin = b""
    if not stdin:
        selector.unregister(sink)
        t.cast("t.IO[bytes]", process.stdin).close()
    return stdin


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        # Nothing is left of it, or only what runs as another user: that is not ours to wait for.
        pass


def _end(process: subprocess.Popen[bytes]) -> None:
    _kill_group(process)
    for stream in (process.stdin, process.stdout):
        if stream and not stream.closed:
            stream.close()
    try:
        process.wait(_REAP_SECONDS)
    except subprocess.TimeoutExpired:
        pass
