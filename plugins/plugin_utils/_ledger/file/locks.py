# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Advisory locks between processes: held by an open file, so that they end with the process that holds them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import TimedOut

from .folder import Folder

# The lock of the ledger itself, where those stand who wait for it, and how long they wait.
LOCK_NAME = "ledger.lock"
GATE_NAME = "ledger.gate"
LOCK_SECONDS = 60.0
_FIRST_WAIT_SECONDS = 0.001
_LONGEST_WAIT_SECONDS = 0.02


def _acquired(fd: int, operation: int, timeout_seconds: float) -> bool:
    deadline = time.monotonic() + timeout_seconds
    wait = _FIRST_WAIT_SECONDS
    while True:
        try:
            fcntl.flock(fd, operation | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
        time.sleep(wait)
        wait = min(wait * 2, _LONGEST_WAIT_SECONDS)


@contextlib.contextmanager
def flocked(folder: Folder, name: str, exclusive: bool, timeout_seconds: float) -> Iterator[None]:
    """Hold the lock file of that name in the folder. Raises L(TimedOut) naming the file when it is not had in time."""
    fd = folder.open(name, os.O_RDWR | os.O_CREAT)
    try:
        if not _acquired(fd, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH, timeout_seconds):
            path = os.path.join(folder.path, name)
            raise TimedOut(
                f"The lock {path} was held by another process for more than {timeout_seconds:g} s; nothing was changed.",
                f"Wait for the run that holds it ('fuser {path}' shows its process) and try again.",
            )
        yield
    finally:
        os.close(fd)
