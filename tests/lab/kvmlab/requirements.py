# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the machine must have. A missing program is named with its Debian package."""

from __future__ import annotations

import os
import pathlib
import shutil
import typing as t

from .commands import succeeds
from .errors import LabError

PROGRAMS = {
    "ip": "iproute2",
    "iptables": "iptables",
    "libvirtd": "libvirt-daemon-system",
    "nsenter": "util-linux",
    "qemu-img": "qemu-utils",
    "qemu-system-x86_64": "qemu-system-x86",
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "unshare": "util-linux",
    "virsh": "libvirt-clients",
}
MOUNTS = pathlib.Path("/proc/self/mountinfo")
OPTIONAL_PROGRAMS = {"bindfs": "bindfs", "debootstrap": "debootstrap", "qemu-nbd": "qemu-utils", "sudo": "sudo", "swtpm_setup": "swtpm swtpm-tools"}


def require_root() -> None:
    """Raise L(LabError) unless this is root: namespaces, mounts and libvirtd need it."""
    if os.geteuid():
        raise LabError("The lab makes namespaces and mounts: run it as root, e.g. with sudo.")


def require_machine() -> None:
    """Raise L(LabError) with all that is missing on this machine for a lab at all."""
    require_root()
    require_mounted_root()
    missing = sorted({package for program, package in PROGRAMS.items() if not find_program(program)})
    if not _has_python_libvirt():
        missing.append("python3-libvirt")
    if missing:
        raise LabError(f"Packages are missing. Install them with: apt install -y --no-install-recommends {' '.join(missing)}")


def require_mounted_root(mounts: pathlib.Path = MOUNTS) -> None:
    """Raise L(LabError) where C(/) is a plain folder, as in a chroot: namespaces of mounts need a mount there.

    :arg mounts: the table of mounts that this process sees.
    """
    if not any(line.split()[4] == "/" for line in mounts.read_text(encoding="utf-8").splitlines()):
        raise LabError(
            "/ is not a mount point, as in a chroot into a plain folder, so no host can have mounts of its own. "
            "Leave the chroot, bind the folder to itself (mount --bind FOLDER FOLDER), and enter it again."
        )


def require_program(program: str, purpose: str) -> str:
    """Return the path of a program that only one feature needs; raise L(LabError) with its package where it is missing."""
    path = find_program(program)
    if not path:
        raise LabError(f"{program} is missing, which {purpose} needs. Install it with: apt install -y --no-install-recommends {OPTIONAL_PROGRAMS[program]}")
    return path


def find_program(program: str) -> t.Optional[str]:
    """Return the path of a program, looked for in the folders for administrators too."""
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"]))


def _has_python_libvirt() -> bool:
    return find_program("/usr/bin/python3") is not None and succeeds("/usr/bin/python3", "-c", "import libvirt")
