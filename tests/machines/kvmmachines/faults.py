# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bad networks and wrong clocks."""

from __future__ import annotations

import time
import typing as t

from ...lab.kvmlab.errors import LabError, UsageError
from . import qemu
from .layout import Fleet, Machine


def impair(fleet: Fleet, machine: Machine, delay_ms: t.Optional[int], loss_percent: t.Optional[float], rate_mbit: t.Optional[float]) -> None:
    """Delay, lose and slow down what a machine sends; without anything of it, end that."""
    words: t.List[str] = []
    if delay_ms is not None:
        words += ["delay", f"{delay_ms}ms"]
    if loss_percent is not None:
        if not 0 <= loss_percent <= 100:
            raise UsageError(f"A loss is 0 to 100 percent, not {loss_percent:g}.")
        words += ["loss", f"{loss_percent}%"]
    if rate_mbit is not None:
        words += ["rate", f"{rate_mbit}mbit"]
    if words:
        _run(fleet, machine, "tc", "qdisc", "replace", "dev", qemu.CARD, "root", "netem", *words)
    elif is_impaired(fleet, machine):
        _run(fleet, machine, "tc", "qdisc", "del", "dev", qemu.CARD, "root")


def is_impaired(fleet: Fleet, machine: Machine) -> bool:
    return "netem" in _run(fleet, machine, "tc", "qdisc", "show", "dev", qemu.CARD)


def set_clock(fleet: Fleet, machine: Machine, ahead_seconds: float) -> None:
    """Set a machine's clock so many seconds ahead of this machine's; fewer than 0 is behind."""
    qemu.agent(fleet, machine).execute("guest-set-time", time=int((time.time() + ahead_seconds) * 1e9))


def read_clock(fleet: Fleet, machine: Machine) -> float:
    """Return how many seconds a machine's clock is ahead of this machine's; a slow answer makes it a little less."""
    return float(_run(fleet, machine, "date", "+%s.%N")) - time.time()


def _run(fleet: Fleet, machine: Machine, *command: str) -> str:
    done = qemu.agent(fleet, machine).run(*command)
    if done.code:
        raise LabError(f"'{' '.join(command)}' failed on {machine.name}: {done.err.strip()}")
    return done.out
