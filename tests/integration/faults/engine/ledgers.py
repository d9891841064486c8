# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What keeps a scenario's ledger, and what may happen to that: a folder, or the lab's etcd."""

from __future__ import annotations

import contextlib
import json
import pathlib
import shutil
import typing as t

from ...support.fleet import Lab
from . import disks

FILES, ETCD = "files", "etcd"
KINDS = (FILES, ETCD)
_QUOTA_MIB = 16


class Store(t.Protocol):
    """What a scenario can do to its ledger, whatever keeps it."""

    def fill(self) -> None:
        """Let nothing more be written."""

    def make_room(self) -> None:
        """Let it be written again."""

    def back_up(self) -> None:
        """Keep it as it is now."""

    def restore(self, as_new: bool) -> None:
        """Put it back to what was kept, with all that was written since gone.

        :arg as_new: what keeps it is another one than before.
        """

    def mend(self) -> None:
        """Undo what was done, but a restored backup."""


class Folder:
    """:arg disk: the file system that it has for itself, if any."""

    def __init__(self, path: pathlib.Path, disk: disks.LedgerDisk | None) -> None:
        self._path = path
        self._copy = path.with_name("ledger-backup")
        self.disk = disk

    def fill(self) -> None:
        assert self.disk is not None
        self.disk.fill()

    def make_room(self) -> None:
        assert self.disk is not None
        self.disk.make_room()

    def back_up(self) -> None:
        shutil.copytree(self._path, self._copy)

    def restore(self, as_new: bool) -> None:
        assert not as_new
        # As when a disk is put back: nothing of what is there now stays.
        shutil.rmtree(self._path)
        shutil.copytree(self._copy, self._path)

    def mend(self) -> None:
        if self.disk is not None:
            self.disk.allow_writing()
            self.disk.make_room()


class Etcd:
    """Three members of the lab, which are there as long as the scenario."""

    def __init__(self, lab: Lab, folder: pathlib.Path) -> None:
        self._lab = lab
        self._copy = folder / "etcd-backup"
        self._is_full = False
        self.where = str(json.loads(lab("etcd", "variables"))["kvmfleet_ledger"])

    def do(self, action: str, which: str) -> None:
        """Kill, stop, freeze, thaw or start members: a number, C(leader) or C(all)."""
        self._lab("etcd", action, which)

    def fill(self) -> None:
        self._lab("etcd", "fill")
        self._is_full = True

    def make_room(self) -> None:
        self._lab("etcd", "make-room")
        self._is_full = False

    def compact(self) -> None:
        """Forget the revisions that are not the newest, and give their room back."""
        self._lab("etcd", "compact")

    def accept(self) -> None:
        """Write the id of the cluster into the ledger, as its refusal says."""
        self._lab("etcd", "accept")

    def back_up(self) -> None:
        self._lab("etcd", "backup", str(self._copy))

    def restore(self, as_new: bool) -> None:
        self._lab("etcd", "restore", str(self._copy), *(["--as-new"] if as_new else []))

    def mend(self) -> None:
        self.do("thaw", "all")
        # What is missing is started, and all are waited for.
        self._lab("etcd", "up")
        if self._is_full:
            self.make_room()


@contextlib.contextmanager
def etcd(lab: Lab, folder: pathlib.Path) -> t.Iterator[Etcd]:
    """Give a new cluster; it is taken down whatever happens."""
    lab("etcd", "down")
    try:
        lab("etcd", "up", "--quota-mib", str(_QUOTA_MIB))
        yield Etcd(lab, folder)
    finally:
        lab("etcd", "down")
