# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""How much memory the QEMU process of a domain may lock: zero-copy locks the pages that it sends."""

from __future__ import annotations

import os
import typing as t

# Where the system's libvirt daemon keeps the process IDs of its domains.
_PID_FOLDER = "run/libvirt/qemu"
_LIMIT = "Max locked memory"
UNLIMITED_BYTES = 2**63 - 1


def read_memory_lock(name: str, root: str = "/") -> t.Optional[int]:
    """Return how many bytes the QEMU process of the domain may lock now; None if that cannot be read.

    :arg root: the folder that has C(proc) and C(run).
    """
    try:
        with open(os.path.join(root, _PID_FOLDER, f"{name}.pid"), encoding="ascii") as stream:
            pid = int(stream.read())
        with open(os.path.join(root, "proc", str(pid), "limits"), encoding="ascii") as stream:
            return _parse_limit(stream.read())
    except (OSError, ValueError):
        return None


def _parse_limit(text: str) -> t.Optional[int]:
    """Return the soft limit: libvirt may be unable to raise it, for example in a container."""
    for line in text.splitlines():
        if line.startswith(_LIMIT):
            soft = line[len(_LIMIT) :].split()[0]
            return UNLIMITED_BYTES if soft == "unlimited" else int(soft)
    return None
