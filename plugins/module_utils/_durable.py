# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Files that survive a power cut: content and name are on disk when a function returns. All functions raise C(OSError)."""

from __future__ import annotations

import contextlib
import os
import uuid as uuid_module


def replace_file(path: str, text: str, mode: int) -> None:
    """Write a file of this mode in one step: readers, and a host that loses its power, see the old content or the whole new one."""
    temporary = f"{path}.{uuid_module.uuid4()}.new"
    try:
        create_file(temporary, text, mode)
        os.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_folder(os.path.dirname(path))


def create_file(path: str, text: str, mode: int) -> None:
    """Write a file that does not exist yet, with this mode whatever the umask is. Its name is on disk only after L(sync_folder)."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        os.fchmod(stream.fileno(), mode)
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def sync_folder(folder: str) -> None:
    """Flush the names in a folder to disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
