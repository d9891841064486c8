# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What this host knows of its own storage: its capacity, and where its images are."""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import typing as t

from .._model.codec import ABSENT
from .._model.facts import SHARED_KINDS, UNTOLD_KINDS, MountFacts
from .._module import is_root
from .block_devices import Answer, BlockDevices
from .image_header import Files, Header, OwnFiles, Unreadable, read_header
from .mounts import ON_DEMAND, Mount, identify_store, innermost_mount, is_served_locally, may_hang, read_mounts
from .storage_queries import STORAGE_SECONDS, StorageQueries

_T = t.TypeVar("_T")
_Capacity = t.Tuple[int, int]


class LocalStores:
    """Implements L(Stores) for the host that this runs on. Each query has a time limit, as L(StorageQueries) sets it.

    C(denied) are the paths about which this user may not know.
    """

    def __init__(self, mounts: t.Optional[t.Sequence[Mount]] = None) -> None:
        table = read_mounts() if mounts is None else mounts
        self._mounts = {mount.path: mount for mount in table}
        self._storage = StorageQueries(table)
        self._devices = BlockDevices()
        self._files = OwnFiles()
        self._silent: t.Set[str] = set()
        self.denied: t.Set[str] = set()

    def describe_mounts(self) -> t.List[MountFacts]:
        """Return C(mounts) of C(kvmfleet_host)."""
        # Side by side, because one server may serve many of them.
        asked = [mount.path for mount in self._mounts.values() if may_hang(mount) and mount.kind != ON_DEMAND]
        answers = self._storage.ask_each({path: functools.partial(self._measure, path) for path in asked})
        capacities = {path: answer[0] for path, answer in answers.items() if answer}
        self._silent = {path for path, answer in answers.items() if answer is None}
        return [facts for facts in (self._describe_mount(mount, capacities) for mount in self._mounts.values()) if facts]

    def _measure(self, path: str) -> t.Tuple[t.Optional[_Capacity]]:
        """Return the capacity; null for one that has none, or is not there for this process. A server that answers with an error raises C(OSError)."""
        try:
            return (_measure_capacity(path),)
        except PermissionError:
            self.denied.add(path)
        except (FileNotFoundError, ValueError):
            pass
        return (None,)

    def locate_file(self, path: str) -> Answer:
        real = self._ask_in_time(path, lambda: os.path.realpath(path))
        if real is None or self._ask_in_time(real, lambda: _can_follow(real)) is not True:
            return None, None
        mount = self._mounts.get(innermost_mount(real, self._mounts))
        if mount is None or (mount.kind.startswith(UNTOLD_KINDS) and mount.kind not in SHARED_KINDS) or is_served_locally(mount):
            return None, None
        if mount.kind not in SHARED_KINDS:
            return False, None
        store = identify_store(mount)
        return True, f"{store}/{os.path.relpath(real, mount.path)}" if store else None

    def locate_device(self, path: str) -> Answer:
        return self._devices.identify_device(path)

    def count_copied_bytes(self, path: str, image_format: str) -> t.Optional[int]:
        if image_format != "raw":
            return self.count_allocated_bytes(path)
        found = self._ask_in_time(path, lambda: os.stat(path))
        return None if found is None else found.st_size

    def count_allocated_bytes(self, path: str) -> t.Optional[int]:
        found = self._ask_in_time(path, lambda: os.stat(path))
        return None if found is None else found.st_blocks * 512

    def is_device(self, path: str) -> bool:
        found = self._ask_in_time(path, lambda: self._files.is_device(path))
        return path.startswith("/dev/") if found is None else found

    def read_header(self, path: str) -> Header:
        found = self._ask_in_time(path, lambda: _header_or_problem(path))
        if isinstance(found, Header):
            return found
        if found is not None and isinstance(found.__cause__, PermissionError):
            self.denied.add(path)
        raise found or Unreadable(f"{path} cannot be read: its file system did not answer within {STORAGE_SECONDS:.0f} s")

    def _describe_mount(self, mount: Mount, capacities: t.Mapping[str, t.Optional[_Capacity]]) -> t.Optional[MountFacts]:
        """:arg capacities: of mounts that may hang."""
        if mount.kind == ON_DEMAND:
            # To measure it would mount what belongs there. One without it would show its images on the file system around it.
            return None if mount.path.startswith("/proc/") else MountFacts(_make_printable(mount.path), mount.kind, None, None, None)
        measured = capacities.get(mount.path) if may_hang(mount) else self._ask_or_null(mount.path, lambda: self._measure(mount.path)[0])
        if measured == (0, 0) or (measured is None and not self._is_kept(mount)):
            return None
        capacity, available = measured or (None, None)
        store = identify_store(mount)
        silent = True if self._is_silent(mount) else ABSENT
        return MountFacts(_make_printable(mount.path), mount.kind, _make_printable(store) if store else None, capacity, available, silent)

    def _is_silent(self, mount: Mount) -> bool:
        """Whether the server does not answer, or answers with an error, as of a mount that does not wait for it."""
        return mount.path in self._silent or self._storage.was_late(mount.path)

    def _is_kept(self, mount: Mount) -> bool:
        """Whether a mount that could not be measured is listed: one without it would show its images on the file system around it."""
        return self._is_silent(mount) or (mount.path in self.denied and not is_root())

    def _ask_in_time(self, path: str, question: t.Callable[[], _T]) -> t.Optional[_T]:
        answer = self._storage.ask(path, lambda: (self._ask_or_null(path, question),))
        return answer[0] if answer else None

    def _ask_or_null(self, path: str, question: t.Callable[[], _T]) -> t.Optional[_T]:
        try:
            return question()
        except PermissionError:
            self.denied.add(path)
            return None
        except (OSError, ValueError):
            return None


def _header_or_problem(path: str) -> t.Union[Header, Unreadable]:
    try:
        return read_header(path)
    except Unreadable as problem:
        return problem


def _measure_capacity(path: str) -> t.Optional[_Capacity]:
    if not stat.S_ISDIR(os.stat(path).st_mode):
        return None
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def _make_printable(name: str) -> str:
    """Return a name as text: names of files may be any bytes, facts must be text."""
    return name.encode("utf-8", "replace").decode("utf-8")


def _can_follow(path: str) -> bool:
    """Whether this user can follow the path: a folder that the user cannot enter could contain a link to any other folder."""
    with contextlib.suppress(FileNotFoundError):
        os.lstat(path)
    return True


class Stores(Files, t.Protocol):
    """Locates the images of a host; only the host itself can do this."""

    def locate_file(self, path: str) -> t.Tuple[t.Optional[bool], t.Optional[str]]:
        """Whether the file is on storage that other hosts see, and its identity on that storage; null if unknown."""

    def locate_device(self, path: str) -> t.Tuple[t.Optional[bool], t.Optional[str]]:
        """The same of a block device."""

    def count_copied_bytes(self, path: str, image_format: str) -> t.Optional[int]:
        """The bytes that a copy of the image would send: all of a raw image, the allocated part of another one."""

    def count_allocated_bytes(self, path: str) -> t.Optional[int]:
        """The bytes that a file has on its file system."""
