# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images that hosts have by NFS 3, and the locks that the server itself has on them: on some kernels it does not tell others of them."""

from __future__ import annotations

from .machines import Machines

FOLDER = "/srv/images3"
MOUNT = f"mkdir -p {FOLDER}; mount -t nfs -o vers=3 nfs:/srv/images {FOLDER}; findmnt -n -o OPTIONS {FOLDER}"


def mount_everywhere(machines: Machines) -> None:
    for number in machines.numbers:
        assert "vers=3" in machines.on(number, MOUNT)


def image_of(guest: str) -> str:
    return f"{FOLDER}/{guest}.qcow2"


def is_locked(machines: Machines, guest: str) -> bool:
    """Whether the server has a lock on a guest's image, whoever holds it."""
    return bool(int(machines.on("nfs", f'grep -c "POSIX.*:$(stat -c %i /srv/images/{guest}.qcow2) " /proc/locks || true')))
