# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What this machine must have for a fleet. A missing program is named with its Debian package."""

from __future__ import annotations

import pathlib
import shutil

from ...lab.kvmlab.errors import LabError
from ...lab.kvmlab.requirements import find_program

PROGRAMS = {
    "debootstrap": "debootstrap",
    "fence_ipmilan": "fence-agents",
    "ip": "iproute2",
    "ipmi_sim": "openipmi",
    "ipmitool": "ipmitool",
    "mkfs.ext4": "e2fsprogs",
    "nsenter": "util-linux",
    "qemu-img": "qemu-utils",
    "qemu-system-x86_64": "qemu-system-x86",
    "ssh-keygen": "openssh-client",
}
GIB = 2**30


def require_programs() -> None:
    """Raise L(LabError) with all packages that are missing on this machine."""
    missing = sorted({package for program, package in PROGRAMS.items() if not find_program(program)})
    if missing:
        raise LabError(f"Packages are missing. Install them with: apt install -y --no-install-recommends {' '.join(missing)}")


def require_room(folder: pathlib.Path, gib: float) -> None:
    """Raise L(LabError) unless a folder's file system has so much room."""
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < gib * GIB:
        raise LabError(
            f"{folder} has {free / GIB:.1f} GiB of room, and {gib:g} GiB are needed. "
            f"Make room, or choose another place with --cache or $KVMFLEET_MACHINES_CACHE."
        )


def require_memory(mib: int) -> None:
    """Raise L(LabError) unless this machine has so much memory to give away."""
    lines = dict(line.split(":", 1) for line in pathlib.Path("/proc/meminfo").read_text().splitlines())
    available = int(lines["MemAvailable"].split()[0]) // 1024
    if available < mib:
        raise LabError(f"The machines need {mib} MiB of memory, and {available} MiB are available. End something, or start fewer hosts with --hosts.")
