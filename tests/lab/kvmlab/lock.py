# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One lab command at a time changes what labs share: addresses and mount points."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import typing as t


@contextlib.contextmanager
def locked(folder: pathlib.Path) -> t.Iterator[None]:
    """Hold the only lock on a folder, made where it is missing and removed at the end where it is empty."""
    descriptor = _open_locked(folder)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()
        os.close(descriptor)


def _open_locked(folder: pathlib.Path) -> int:
    while True:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        # whoever held it before may have removed the folder: then this lock is on nothing
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(folder)):
                return descriptor
        os.close(descriptor)
