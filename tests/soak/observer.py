# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a lab host and says, a line for a line, what its libvirt and its processes are: one process for the whole soak, for a look must be quick."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import sys
import typing as t

import libvirt

STATES = {
    libvirt.VIR_DOMAIN_RUNNING: "running",
    libvirt.VIR_DOMAIN_BLOCKED: "running",
    libvirt.VIR_DOMAIN_PAUSED: "paused",
    libvirt.VIR_DOMAIN_SHUTDOWN: "in shutdown",
    libvirt.VIR_DOMAIN_SHUTOFF: "shut off",
    libvirt.VIR_DOMAIN_CRASHED: "crashed",
}
REASONS = {
    (libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_POSTCOPY): "post-copy",
    (libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_POSTCOPY_FAILED): "post-copy failed",
    (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_POSTCOPY): "post-copy",
    (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_POSTCOPY_FAILED): "post-copy failed",
    (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION): "migration",
}
GUEST = re.compile(rb"(?:^|,)guest=([^,]+)")
LOCK = re.compile(r"/run/kvmfleet/.*[.]lock$")


class Observer:
    """Holds one connection, and makes a new one when libvirtd was away."""

    def __init__(self) -> None:
        self._connection: t.Optional[libvirt.virConnect] = None

    def guests(self) -> t.Optional[t.Dict[str, t.List[str]]]:
        """Return state and reason of every domain; none where libvirt does not answer."""
        found = self._asked() if self._connection else None
        return self._asked() if found is None else found

    def _asked(self) -> t.Optional[t.Dict[str, t.List[str]]]:
        try:
            self._connection = self._connection or libvirt.open("qemu:///system")
            return dict(filter(None, map(_domain, self._connection.listAllDomains())))
        except libvirt.libvirtError:
            self._connection = None
            return None

    @staticmethod
    def processes() -> t.Dict[str, int]:
        """Return the QEMU processes by their guest."""
        return {guest: pid for pid in _pids() for guest in _guest_of(pid)}

    @staticmethod
    def watchers() -> t.List[int]:
        """Return the processes that hold a lock of a move: a watcher is who has it open."""
        return [pid for pid in _pids() if _has_lock(pid)]


def _domain(domain: libvirt.virDomain) -> t.Optional[t.Tuple[str, t.List[str]]]:
    try:
        state, reason = domain.state()
        return domain.name(), [STATES.get(state, str(state)), REASONS.get((state, reason), str(reason))]
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return None
        raise


def _pids() -> t.List[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _guest_of(pid: int) -> t.List[str]:
    with contextlib.suppress(OSError):
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"qemu-system" in words[0]:
            return [match[1].decode() for match in map(GUEST.search, words) if match][:1]
    return []


def _has_lock(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return any(LOCK.match(os.readlink(f"/proc/{pid}/fd/{name}")) for name in os.listdir(f"/proc/{pid}/fd"))
    return False


def main() -> None:
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    observer = Observer()
    for line in sys.stdin:
        if line.strip() == "watchers":
            answer: t.Any = observer.watchers()
        else:
            answer = {"guests": observer.guests(), "processes": observer.processes()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
