# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The QEMU process of a domain: how much memory it may lock, as zero-copy locks the pages that it sends, whether it still is the installed QEMU, and whether
its guest has run in it."""

from __future__ import annotations

import os
import typing as t

from .measurements import list_processor_times

# Where the system's libvirt daemon keeps the process IDs of its domains.
_PID_FOLDER = "run/libvirt/qemu"
_LIMIT = "Max locked memory"
# What the kernel adds to the path of a program whose file is gone (proc(5)).
_REMOVED = " (deleted)"
UNLIMITED_BYTES = 2**63 - 1
# How libvirt starts QEMU for a guest that arrives, or whose memory is restored.
_INCOMING = b"-incoming"
# A virtual processor that was only created has used about a millisecond.
_CREATED_NS = 10_000_000


def read_memory_lock(name: str, root: str = "/") -> t.Optional[int]:
    """Return how many bytes the QEMU process of the domain may lock now; None if that cannot be read.

    :arg root: the folder that has C(proc) and C(run).
    """
    try:
        with open(_process_path(name, "limits", root), encoding="ascii") as stream:
            return _parse_limit(stream.read())
    except (OSError, ValueError):
        return None


def is_program_replaced(name: str, root: str = "/") -> bool:
    """Whether the file of the program that the domain runs on was removed or replaced since its start, as by an upgrade; false if that cannot be read.

    libvirt reports the version of the installed program only.

    :arg root: the folder that has C(proc) and C(run).
    """
    try:
        return os.readlink(_process_path(name, "exe", root)).endswith(_REMOVED)
    except (OSError, ValueError):
        return False


def waits_since_arrival(name: str, root: str = "/") -> bool:
    """Whether the memory of the guest came from another process, and the guest has not run since; false if that cannot be read.

    :arg root: the folder that has C(proc) and C(run).
    """
    try:
        with open(_process_path(name, "cmdline", root), "rb") as stream:
            arrived = _INCOMING in stream.read().split(b"\0")
        times = list_processor_times(_process_path(name, "task", root)) if arrived else []
    except (OSError, ValueError, IndexError):
        return False
    return bool(times) and max(one.run_ns for one in times) < _CREATED_NS


def _process_path(name: str, file: str, root: str) -> str:
    """Return the path of a file of the domain's process. Raises C(OSError) or C(ValueError) if its process ID cannot be read."""
    with open(os.path.join(root, _PID_FOLDER, f"{name}.pid"), encoding="ascii") as stream:
        return os.path.join(root, "proc", str(int(stream.read())), file)


def _parse_limit(text: str) -> t.Optional[int]:
    """Return the soft limit: libvirt may be unable to raise it, for example in a container."""
    for line in text.splitlines():
        if line.startswith(_LIMIT):
            soft = line[len(_LIMIT) :].split()[0]
            return UNLIMITED_BYTES if soft == "unlimited" else int(soft)
    return None
