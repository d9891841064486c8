# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Mount points that this machine lacks. They are made once for all labs and removed with the last lab that uses them."""

from __future__ import annotations

import contextlib
import glob
import pathlib
import typing as t

RECORD = pathlib.Path("/run/kvmfleet-lab.mountpoints")


def ensure(folders: t.Iterable[str], files: t.Iterable[str]) -> None:
    """Make the missing mount points and remember which ones were made. Call it with the lock held."""
    for path in map(pathlib.Path, folders):
        for folder in [*reversed(path.parents), path]:
            if not folder.exists():
                _remember(folder)
                folder.mkdir()
    for path in map(pathlib.Path, files):
        if not path.exists():
            _remember(path)
            path.touch()


def remove_unused() -> None:
    """Remove what L(ensure) made, as far as no process of this machine has something mounted there. Call it with the lock held."""
    if not RECORD.exists():
        return
    # a mount point that is removed takes the mounts of other namespaces on it along, silently: so nobody may have one
    mounted = _mounted_anywhere()
    left = [path for path in reversed(RECORD.read_text().splitlines()) if path in mounted or not _remove(pathlib.Path(path))]
    if left:
        RECORD.write_text("".join(f"{path}\n" for path in reversed(left)))
    else:
        RECORD.unlink()


def _remember(path: pathlib.Path) -> None:
    with RECORD.open("a") as record:
        record.write(f"{path}\n")


def _remove(path: pathlib.Path) -> bool:
    if path.is_dir():
        with contextlib.suppress(OSError):
            path.rmdir()
    elif path.exists() and path.stat().st_size == 0:
        path.unlink()
    return not path.exists()


def _mounted_anywhere() -> t.Set[str]:
    found = set()
    for name in glob.glob("/proc/[0-9]*/mountinfo"):
        with contextlib.suppress(OSError), open(name) as lines:
            found.update(line.split(" ", 5)[4] for line in lines)
    return found
