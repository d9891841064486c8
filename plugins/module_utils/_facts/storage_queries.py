# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Queries of files whose storage may not answer: a file server that hangs must not cost a wait for each image of each domain."""

from __future__ import annotations

import os
import typing as t

from .._time_limits import PendingAnswer
from .mounts import Mount, innermost_mount, is_shared_mount, may_hang, read_mounts

T = t.TypeVar("T")

STORAGE_SECONDS = 5.0
# A busy server may be late once.
_LATE_ANSWERS = 2


class StorageQueries:
    """Asks storage with a time limit. Storage that was late twice is not asked again by this object.

    :arg mounts: the table of mounts; this host's own by default.
    """

    def __init__(self, mounts: t.Optional[t.Sequence[Mount]] = None) -> None:
        self._mounts = {mount.path: mount for mount in (read_mounts() if mounts is None else mounts)}
        self._late: t.Dict[str, int] = {}

    def ask(self, folder: str, question: t.Callable[[], T]) -> t.Optional[T]:
        """Return the answer to a question about files in a folder; null if it failed (OSError, ValueError), or if the storage of the folder is late."""
        storage = self._find_storage(folder)
        if self._late.get(storage, 0) >= _LATE_ANSWERS:
            return None
        pending = PendingAnswer(question)
        answer = pending.wait(STORAGE_SECONDS)
        if pending.is_late:
            self._late[storage] = self._late.get(storage, 0) + 1
        return answer

    def path_exists(self, path: str) -> t.Optional[bool]:
        """Whether there is a file or link of that name; null if its storage is late."""
        return self.ask(os.path.dirname(path), lambda: os.path.lexists(path))

    def is_on_shared_mount(self, path: str) -> bool:
        """Whether the file is on a file system for which L(is_shared_mount) holds. While its storage is late, the path counts as it is, without links."""
        real = self.ask(os.path.dirname(path), lambda: os.path.realpath(path)) or path
        mount = self._mounts.get(innermost_mount(real, self._mounts))
        return mount is not None and is_shared_mount(mount)

    def was_late(self, folder: str) -> bool:
        """Whether the storage of this folder has left a question unanswered."""
        return self._find_storage(folder) in self._late

    def _find_storage(self, folder: str) -> str:
        """Return the mount point of a folder on a file system of a network, otherwise the folder: a link in it may lead to one."""
        mount = self._mounts.get(innermost_mount(folder, self._mounts))
        return mount.path if mount and may_hang(mount) else folder
