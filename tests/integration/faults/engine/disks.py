# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""File systems that are full or that nobody may write to: the ledger's, a host's C(/run), a host's images."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import typing as t

from ...support.fleet import Lab

IMAGES = "/var/lib/libvirt/images"
PLACES = {"run": "/run", "images": IMAGES}
IMAGES_MIB = 64
OURS = "/run/kvmfleet"
# Nothing more fits: as large as what is there.
_FULL = 'set -- $(df -k --output=used {place} | tail -n 1); mount -n -o remount,size="$1"k {place}'
_ROOMY = "mount -n -o remount,size={mib}m {place}"
_WRITABLE = f"if grep -q ' {OURS} [^ ]* ro[ ,]' /proc/self/mounts; then umount -l {OURS}; fi"
# What undoes, on a host, whatever a scenario did to its /run.
MEND_RUN = f"{_ROOMY.format(place=PLACES['run'], mib=IMAGES_MIB)}; {_WRITABLE}"


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True, text=True)


@contextlib.contextmanager
def small_ledger(path: pathlib.Path, mib: int) -> t.Iterator[LedgerDisk]:
    """Put the ledger on a file system of its own."""
    path.mkdir(mode=0o700)
    _mount("-t", "tmpfs", "-o", f"size={mib}m,mode=700", "none", str(path))
    disk = LedgerDisk(path, mib)
    try:
        yield disk
    finally:
        disk.allow_writing()
        subprocess.run(["umount", "-l", str(path)], check=True)


class LedgerDisk:
    """The ledger's file system."""

    def __init__(self, path: pathlib.Path, mib: int) -> None:
        self._path = path
        self._mib = mib
        self._is_protected = False

    def fill(self) -> None:
        """Make it as small as what is there, to the page; an empty one has one page left, for 0 would be no limit."""
        there = os.statvfs(self._path)
        used = (there.f_blocks - there.f_bfree) * there.f_frsize
        _mount("-o", f"remount,size={max(used, there.f_frsize)}", str(self._path))

    def make_room(self) -> None:
        _mount("-o", f"remount,size={self._mib}m", str(self._path))

    def write_protect(self) -> None:
        """Make it read-only for whoever opens a file from now on."""
        _mount("--bind", str(self._path), str(self._path))
        _mount("-o", "remount,bind,ro", str(self._path))
        self._is_protected = True

    def allow_writing(self) -> None:
        if self._is_protected:
            subprocess.run(["umount", "-l", str(self._path)], check=True)
            self._is_protected = False


def write_protect_run(lab: Lab, number: int) -> None:
    """Make what the product writes below C(/run) of a host read-only, for whoever opens a file from now on."""
    lab.on(number, "sh", "-c", f"mount -n --bind {OURS} {OURS} && mount -n -o remount,bind,ro {OURS}")


def allow_writing_run(lab: Lab, number: int) -> None:
    """Undo it, where it was done."""
    lab.on(number, "sh", "-c", _WRITABLE)


def own_images(lab: Lab, number: int) -> None:
    """Put a host's images on a file system of their own; a boot undoes it."""
    lab.on(number, "mount", "-n", "-t", "tmpfs", "-o", f"size={IMAGES_MIB}m,mode=711", "tmpfs", IMAGES)


def fill(lab: Lab, number: int, what: str) -> None:
    """Leave no room on a host for what a scenario calls C(run) or C(images)."""
    lab.on(number, "sh", "-c", _FULL.format(place=PLACES[what]))


def make_room(lab: Lab, number: int, what: str) -> None:
    lab.on(number, "sh", "-c", _ROOMY.format(place=PLACES[what], mib=IMAGES_MIB))
