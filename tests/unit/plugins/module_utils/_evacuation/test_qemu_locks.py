# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import fcntl
import os
import pathlib
import struct
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation import qemu_locks

_HOLDER = """
import fcntl, os, struct, sys
handle = os.open(sys.argv[1], os.O_RDWR)
for byte in map(int, sys.argv[2:]):
    fcntl.fcntl(handle, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, byte, 1, 0))
print("held", flush=True)
sys.stdin.read()
"""

Hold = t.Callable[..., None]


@pytest.fixture
def image(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "web1.qcow2"
    path.write_bytes(b"QFI\xfb" + bytes(1020))
    return path


@pytest.fixture
def lock_bytes(image: pathlib.Path) -> t.Iterator[Hold]:
    """Lock bytes of the image as QEMU does, in a process of its own."""
    holders = []

    def _hold(*bytes_: int) -> None:
        holder = subprocess.Popen([sys.executable, "-c", _HOLDER, str(image), *map(str, bytes_)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        holders.append(holder)
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"

    yield _hold
    for holder in holders:
        holder.communicate("", timeout=10)


def test_an_image_without_locks_is_free(image: pathlib.Path) -> None:
    assert qemu_locks.probe_lock(str(image)) == (qemu_locks.FREE, "")


# What QEMU 7.2 holds on an image that it writes: consistent reads, writes, resizes; nobody else may write or resize.
@pytest.mark.parametrize("held", [(100, 101, 103, 201, 203), (101,), (201,)])
def test_an_image_that_is_open_for_writing_is_locked(image: pathlib.Path, lock_bytes: Hold, held: tuple[int, ...]) -> None:
    lock_bytes(*held)
    assert qemu_locks.probe_lock(str(image)).state == qemu_locks.LOCKED


def test_an_image_that_is_only_read_is_free(image: pathlib.Path, lock_bytes: Hold) -> None:
    lock_bytes(100)
    assert qemu_locks.probe_lock(str(image)).state == qemu_locks.FREE


@pytest.fixture
def lying_file_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the image be on a file server that reports every lock as free."""
    monkeypatch.setattr(qemu_locks, "_is_byte_held", lambda handle, byte: False)
    monkeypatch.setattr(qemu_locks, "_is_remote", lambda handle: True)


@pytest.mark.usefixtures("lying_file_server")
@pytest.mark.parametrize(("held", "state"), [((101,), qemu_locks.LOCKED), ((201,), qemu_locks.LOCKED), ((100,), qemu_locks.FREE), ((), qemu_locks.FREE)])
def test_a_lock_that_the_server_hides_is_found_by_taking_it(image: pathlib.Path, lock_bytes: Hold, held: tuple[int, ...], state: str) -> None:
    lock_bytes(*held)
    before = (image.read_bytes(), image.stat().st_mtime_ns)
    assert qemu_locks.probe_lock(str(image), may_take=True).state == state
    # The locks that were taken for a moment are free afterwards.
    assert qemu_locks.probe_lock(str(image), may_take=True).state == state
    assert qemu_locks.probe_lock(str(image)).state == qemu_locks.FREE
    assert (image.read_bytes(), image.stat().st_mtime_ns) == before


@pytest.mark.usefixtures("lying_file_server")
def test_an_image_that_is_read_only_here_is_judged_by_the_server(image: pathlib.Path, lock_bytes: Hold, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, flags: int) -> int:
        if flags & os.O_RDWR:
            raise PermissionError(13, "Permission denied", path)
        return opened(path, flags)

    opened = os.open
    lock_bytes(101)
    monkeypatch.setattr(qemu_locks.os, "open", refuse)
    assert qemu_locks.probe_lock(str(image), may_take=True).state == qemu_locks.FREE


def test_the_lock_ends_with_its_holder(image: pathlib.Path) -> None:
    holder = os.open(image, os.O_RDWR)
    fcntl.fcntl(holder, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 101, 1, 0))
    assert qemu_locks.probe_lock(str(image)).state == qemu_locks.LOCKED
    os.close(holder)
    assert qemu_locks.probe_lock(str(image)).state == qemu_locks.FREE


def test_a_missing_image_is_unprovable(tmp_path: pathlib.Path) -> None:
    finding = qemu_locks.probe_lock(str(tmp_path / "gone"))
    assert finding.state == qemu_locks.UNPROVABLE
    assert str(tmp_path / "gone") in finding.why


def test_a_path_that_is_not_a_file_is_unprovable(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", pathlib.Path("/dev/null")):
        assert qemu_locks.probe_lock(str(path)).state == qemu_locks.UNPROVABLE


def test_a_probe_does_not_change_the_image(image: pathlib.Path) -> None:
    before = (image.read_bytes(), image.stat().st_mtime_ns)
    qemu_locks.probe_lock(str(image))
    assert (image.read_bytes(), image.stat().st_mtime_ns) == before
