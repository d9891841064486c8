# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Mount points that this machine lacks. They are made once for all labs, and removed with the last lab."""

from __future__ import annotations

import contextlib
import hashlib
import pathlib
import typing as t

from .commands import run
from .errors import LabError
from .layout import Lab

REGISTER = pathlib.Path("/run/kvmfleet-lab.register")
MADE = REGISTER / "made"


def ensure(lab: Lab, folders: t.Iterable[str], files: t.Iterable[str]) -> None:
    """Make the missing mount points, and remember them and the lab that uses them. Call it with the lock held."""
    REGISTER.mkdir(exist_ok=True)
    _entry(lab).write_text(str(lab.state))
    for path in map(pathlib.Path, folders):
        for folder in [*reversed(path.parents), path]:
            if not folder.exists():
                _remember(folder)
                folder.mkdir()
    for path in map(pathlib.Path, files):
        if not path.exists():
            _remember(path)
            path.touch()


def expect(folder: str) -> None:
    """Remember a folder that somebody else is about to make and mount on for the lab, where it does not exist yet."""
    if not pathlib.Path(folder).exists():
        _remember(pathlib.Path(folder))


def release(lab: Lab) -> None:
    """Forget a lab, and remove the mount points with the last one. Call it with the lock held.

    Removing one that another lab needs would silently take the mounts of that lab's hosts along: hence the register.
    """
    if not REGISTER.is_dir():
        return
    _entry(lab).unlink(missing_ok=True)
    if any(pathlib.Path(entry.read_text()).exists() for entry in REGISTER.glob("lab-*")):
        return
    for path in reversed(MADE.read_text().splitlines() if MADE.exists() else []):
        _remove(pathlib.Path(path))
    for entry in REGISTER.iterdir():
        entry.unlink()
    REGISTER.rmdir()


def require_sole(lab: Lab) -> None:
    """Raise L(LabError) where another state folder holds a lab of the same prefix: the names of namespaces are the machine's."""
    for entry in REGISTER.glob("lab-*"):
        state = pathlib.Path(entry.read_text())
        if state.name == lab.prefix and state != lab.state and state.exists():
            raise LabError(f"There is a lab '{lab.prefix}' in {state} already. Name that one with --state {state.parent}, or choose another prefix.")


def _entry(lab: Lab) -> pathlib.Path:
    return REGISTER / f"lab-{hashlib.sha256(str(lab.state).encode()).hexdigest()[:16]}"


def _remember(path: pathlib.Path) -> None:
    with MADE.open("a") as record:
        record.write(f"{path}\n")


def _remove(path: pathlib.Path) -> None:
    """Remove what is empty; what somebody else uses by now stays."""
    if path.is_dir() and not any(path.iterdir()):
        # a folder bound to itself, as ip makes one for namespaces, looks like no mount point: so it is simply tried
        run("umount", "-n", str(path), check=False)
        with contextlib.suppress(OSError):
            path.rmdir()
    elif path.is_file() and not path.stat().st_size:
        path.unlink()
