# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The root of a host: the machine's own, or that of another release, under a layer in which the host keeps what it changes."""

from __future__ import annotations

import pathlib

from .commands import run
from .layout import PACKAGE_FOLDER, Lab

MACHINES = pathlib.Path("/")


def mount(lab: Lab, host: str) -> pathlib.Path:
    """Return the host's root, mounted. It has /dev, /sys and /tmp of the machine and the lab's folders at their places, and no /run and /proc yet."""
    release = lab.release_root(host)
    if release is None:
        return MACHINES
    layer = lab.host_folder(host) / f"release-{release.name}"
    root = layer / "root"
    for name in ("changes", "work", "root"):
        (layer / name).mkdir(parents=True, exist_ok=True)
    layers = f"lowerdir={release},upperdir={layer / 'changes'},workdir={layer / 'work'}"
    run("mount", "-n", "-t", "overlay", "-o", layers, "overlay", str(root))
    for path in ("/dev", "/sys", "/tmp"):
        run("mount", "-n", "--rbind", path, str(at(root, path)))
    for folder in (PACKAGE_FOLDER, lab.state):
        bind(folder, at(root, str(folder)))
    return root


def at(root: pathlib.Path, path: str) -> pathlib.Path:
    """Return where an absolute path of the host is below its root."""
    return root / path.lstrip("/")


def bind(source: pathlib.Path, target: pathlib.Path) -> None:
    """Bind a file or folder, and make the place for it where that is missing."""
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    elif not target.exists():
        target.touch()
    run("mount", "-n", "--bind", str(source), str(target))
