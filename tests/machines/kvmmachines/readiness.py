# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Waiting until a machine has booted and does its work."""

from __future__ import annotations

import pathlib
import time
import typing as t

from ...lab.kvmlab.errors import LabError
from .qemu import last_lines, serial_log
from .sockets import Agent, Unreachable

ASK = "systemctl is-system-running; systemctl --failed --no-legend --plain | cut -d' ' -f1"


PANIC = "Kernel panic - not syncing"


class NotReady(LabError):
    """A machine has not booted, or not as it should."""


def wait_for(is_so: t.Callable[[], bool], what: str, seconds: float, pause: float = 0.5) -> None:
    """Return when that is so. Raises L(NotReady) when it is not in time."""
    limit = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > limit:
            raise NotReady(f"Not within {seconds:g} s: {what}.")
        time.sleep(pause)


def wait_until_running(agent: Agent, folder: pathlib.Path, seconds: float, is_on: t.Callable[[], bool]) -> None:
    """Return when systemd has started all that it should.

    :arg folder: of the serial log.
    :raises NotReady: it is not in time, QEMU has ended, or a unit has failed; with the last lines of the serial log.
    """
    limit, last = time.monotonic() + seconds, "its guest agent has not answered"
    earlier = len(serial_log(folder))
    while time.monotonic() < limit:
        if not is_on():
            raise _not_ready(folder, "its QEMU has ended")
        _require_no_panic(folder, earlier)
        try:
            state, dummy, failed = agent.run("/bin/sh", "-c", ASK, timeout_seconds=60).out.partition("\n")
        except Unreachable:
            state, failed = "", ""
        if state == "running":
            return
        if state == "degraded":
            raise _not_ready(folder, f"these units failed: {', '.join(failed.split())}")
        last = f"systemd says '{state}'" if state else last
        time.sleep(1)
    raise _not_ready(folder, f"{last} after {seconds:g} s")


def _require_no_panic(folder: pathlib.Path, earlier: int) -> None:
    """Raise L(NotReady) where the kernel has panicked, after so many characters of the serial log: it boots again at once, and for ever."""
    log = serial_log(folder)
    begin = log.find(PANIC, earlier)
    if begin >= 0:
        end = log.find("\n", begin)
        raise _not_ready(folder, "its kernel panicked", log[: end if end >= 0 else None])


def _not_ready(folder: pathlib.Path, why: str, log: t.Optional[str] = None) -> NotReady:
    shown = last_lines(serial_log(folder) if log is None else log)
    return NotReady(f"The machine {folder.name} did not boot: {why}. The end of its serial log:\n{shown}")
