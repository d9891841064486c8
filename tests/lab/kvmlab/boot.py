# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The first process of a host, up to when its file systems are mounted. Then it enters its root, and what goes on is of the release there."""

from __future__ import annotations

import os
import pathlib
import signal
import sys
import typing as t
import uuid

from . import hostdisk, hostroot
from .commands import run
from .layout import PYTHON, Lab
from .namespaces import NETNS

# Folders of /run with their modes. The folder of the collection is as its modules and the boot guard make it.
RUN_FOLDERS = {"kvmfleet": 0o700, "lock": 0o755, "sshd": 0o755}
BOOT_ID = "/proc/sys/kernel/random/boot_id"


def main(prefix: str, state_root: str, host: str) -> t.NoReturn:
    lab = Lab.named(prefix, state_root)
    folder = lab.host_folder(host)
    # /proc is still the one of the machine here: it knows this process by the number that others enter the host with
    (folder / "init.pid").write_text(os.readlink("/proc/self"))
    # this copy of the machine's mounts would keep the namespaces of other labs alive after their end
    run("umount", "-n", "-R", str(NETNS), check=False)
    root = hostroot.mount(lab, host)
    _mount_run(lab, folder, root)
    run("mount", "-n", "-t", "proc", "proc", str(hostroot.at(root, "/proc")))
    _mount_private(folder, root)
    _mount_boot_id(folder, root)
    run("hostname", host)
    os.chroot(root)
    os.chdir("/")
    os.execv(PYTHON, [PYTHON, "-m", "kvmlab.services", prefix, state_root, host])


def _mount_run(lab: Lab, folder: pathlib.Path, root: pathlib.Path) -> None:
    """Give the host an empty C(/run), without the machine's D-Bus and systemd, and with the lab's state at the same place."""
    new = folder / "run"
    new.mkdir(exist_ok=True)
    run("mount", "-n", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(new))
    for name, mode in RUN_FOLDERS.items():
        (new / name).mkdir(mode)
    if pathlib.Path("/run") in lab.state.parents:
        hostroot.bind(lab.state, new / lab.state.relative_to("/run"))
    run("mount", "-n", "--rbind", str(new), str(hostroot.at(root, "/run")))


def _mount_private(folder: pathlib.Path, root: pathlib.Path) -> None:
    for target, source in {**hostdisk.FOLDERS, **hostdisk.FILES}.items():
        hostroot.bind(folder / source, hostroot.at(root, target))


def _mount_boot_id(folder: pathlib.Path, root: pathlib.Path) -> None:
    """Give each boot an ID of its own, as on a real host; the kernel's is the machine's."""
    own = folder / "boot-id"
    own.write_text(f"{uuid.uuid4()}\n")
    hostroot.bind(own, hostroot.at(root, BOOT_ID))


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    main(*sys.argv[1:])
