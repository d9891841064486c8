# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The namespaces of a host: who is in them, how to enter them, how to end all that runs there."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import signal
import time
import typing as t

from .errors import LabError

NETNS = pathlib.Path("/run/netns")
_CLONE_NEWNET = 0x40000000


def exists(namespace: str) -> bool:
    return (NETNS / namespace).exists()


def pids(namespace: str) -> t.List[int]:
    """Return the processes in a network namespace, as this machine numbers them."""
    try:
        wanted = (NETNS / namespace).stat()
    except FileNotFoundError:
        return []
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if is_member(pid, wanted)]


def is_member(pid: int, wanted: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(f"/proc/{pid}/ns/net"), wanted)
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        return False


def kill_all(namespace: str, timeout_seconds: float = 120) -> None:
    """Kill every process in a network namespace and wait until none is left.

    :raises LabError: some process survives, e.g. because it waits for a device.
    """
    limit = time.monotonic() + timeout_seconds
    while alive := pids(namespace):
        if time.monotonic() > limit:
            raise LabError(f"Processes {alive} of the namespace {namespace} do not end. Look at them with: ps -fp {','.join(map(str, alive))}")
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


@contextlib.contextmanager
def entered_network(namespace: str) -> t.Iterator[None]:
    """Let this thread, and what it starts meanwhile, be in a network namespace. Raises C(OSError)."""
    library = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net", "rb") as own, open(NETNS / namespace, "rb") as other:
        _enter(library, other.fileno())
        try:
            yield
        finally:
            _enter(library, own.fileno())


def _enter(library: ctypes.CDLL, namespace: int) -> None:
    if library.setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "The network namespace cannot be entered.")


def in_network(namespace: str, *command: str) -> t.List[str]:
    """Return the command line that runs a command in a network namespace alone."""
    return ["nsenter", f"--net={NETNS / namespace}", "--", *command]


def in_host(init_pid: int, *command: str) -> t.List[str]:
    """Return the command line that runs a command in all namespaces of the host with that first process."""
    return ["nsenter", "--target", str(init_pid), "--net", "--mount", "--uts", "--pid", "--root", "--wd=/", "--", *command]
