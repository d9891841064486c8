# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Queries of files whose storage may not answer: a file server that hangs must not cost a wait for each image of each domain."""

from __future__ import annotations

import functools
import os
import typing as t

from .._time_limits import PendingAnswer, wait_for_each
from .mounts import ON_DEMAND, Mount, innermost_mount, is_shared_mount, may_hang, read_mounts

T = t.TypeVar("T")

STORAGE_SECONDS = 5.0
# A busy server may be late once.
_LATE_ANSWERS = 2
# The kernel follows no more in one path.
_MOST_LINKS = 40


class StorageQueries:
    """Asks storage with a time limit. A file system that was late twice is not asked again by this object.

    :arg mounts: the table of mounts; this host's own by default.
    """

    def __init__(self, mounts: t.Optional[t.Sequence[Mount]] = None) -> None:
        self._mounts = {mount.path: mount for mount in (read_mounts() if mounts is None else mounts)}
        # The mount point of each path that was asked about, after its links.
        self._found: t.Dict[str, str] = {}
        self._late: t.Dict[str, int] = {}
        self._has_probed = False

    def ask(self, path: str, question: t.Callable[[], T]) -> t.Optional[T]:
        """Return the answer to a question about a path; null if it failed (OSError, ValueError), or if its file system is late."""
        return self.ask_each({path: question})[path]

    def ask_each(self, questions: t.Mapping[str, t.Callable[[], T]]) -> t.Dict[str, t.Optional[T]]:
        """Return the answers to questions about these paths, which are asked side by side; each is null as in L(ask)."""
        asked = {path: PendingAnswer(functools.partial(self._answer, path, question)) for path, question in questions.items() if not self._is_given_up(path)}
        answers = wait_for_each(STORAGE_SECONDS, asked)
        self._count_late(asked)
        if self._late and not self._has_probed:
            self._has_probed = True
            self._probe_servers()
        return {path: answers.get(path) for path in questions}

    def _probe_servers(self) -> None:
        """Find the mounts that are late, side by side: one server may serve many, and the next questions would wait for each of them."""
        probed = [mount.path for mount in self._mounts.values() if may_hang(mount) and mount.kind != ON_DEMAND]
        for _turn in range(_LATE_ANSWERS):
            asked = {path: PendingAnswer(functools.partial(os.statvfs, path)) for path in probed if not self._is_given_up(path)}
            wait_for_each(STORAGE_SECONDS, asked)
            self._count_late(asked)
            probed = [path for path in asked if self.was_late(path)]

    def _count_late(self, asked: t.Mapping[str, PendingAnswer[t.Any]]) -> None:
        for mount_point in {self._mount_point(path) for path, answer in asked.items() if answer.is_late}:
            self._late[mount_point] = self._late.get(mount_point, 0) + 1

    def _answer(self, path: str, question: t.Callable[[], T]) -> t.Optional[T]:
        # Here, because also a file system of this host may hang, as on a disk that is gone.
        self._found[path] = innermost_mount(self._follow_own_links(path), self._mounts)
        return None if self._is_given_up(path) else question()

    def _is_given_up(self, path: str) -> bool:
        return self._late.get(self._mount_point(path), 0) >= _LATE_ANSWERS

    def path_exists(self, path: str) -> t.Optional[bool]:
        """Whether there is a file or link of that name; null if its file system is late."""
        return self.ask(path, lambda: os.path.lexists(path))

    def is_on_shared_mount(self, path: str) -> bool:
        """Whether the file is on a file system for which L(is_shared_mount) holds. While its storage is late, links on a file server are not followed."""
        real = self.ask(path, lambda: os.path.realpath(path))
        mount = self._mounts.get(innermost_mount(real, self._mounts) if real else self._mount_point(path))
        return mount is not None and is_shared_mount(mount)

    def was_late(self, path: str) -> bool:
        """Whether the file system of this path has left a question unanswered."""
        return self._mount_point(path) in self._late

    def _mount_point(self, path: str) -> str:
        return self._found.get(path) or innermost_mount(path, self._mounts)

    def _follow_own_links(self, path: str) -> str:
        """Return the path after those links that are on file systems of this host itself: a link on a file server cannot be read without waiting for it."""
        here, ahead, followed = "/", path.split("/")[::-1], 0
        while ahead:
            name = ahead.pop()
            if name == "..":
                here = os.path.dirname(here)
            elif name not in ("", "."):
                here, target = os.path.join(here, name), None
                if not self._is_on_server(here) and followed < _MOST_LINKS:
                    target = _read_link(here)
                if target is not None:
                    followed += 1
                    here = "/" if target.startswith("/") else os.path.dirname(here)
                    ahead += target.split("/")[::-1]
        return here

    def _is_on_server(self, path: str) -> bool:
        mount = self._mounts.get(innermost_mount(path, self._mounts))
        return mount is not None and may_hang(mount)


def _read_link(path: str) -> t.Optional[str]:
    """Return what a link contains; null if the path is no link, or cannot be read."""
    try:
        return os.readlink(path)
    except OSError:
        return None
