# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""How old facts of a host are: counted from the moment at which this control node received them, on a clock that nobody sets.

The clocks of hosts have no say, nor has the control node's own wall clock, which may be stepped. Facts that another control node received, or this one before
it was started last, or that an earlier version gathered, are of unknown age.
"""

from __future__ import annotations

import functools
import subprocess
import time
import typing as t
from collections.abc import Mapping
from pathlib import Path

# The fact's key with the moment of receipt.
RECEIVED = "received"
# Linux names each start of its kernel, containers included; so does macOS.
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_BOOT_ID_COMMAND = ("sysctl", "-n", "kern.bootsessionuuid")
# A suspended control node ages its facts, too.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

Moment = Mapping[str, t.Any]


def moment() -> dict[str, t.Any]:
    """Return now: C(boot_id), which start of this control node, and C(seconds) since then. Only moments of one start can be compared."""
    return {"boot_id": _boot_id(), "seconds": time.clock_gettime(_CLOCK)}


def received(facts: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the facts with the moment of their receipt, which is now."""
    return {**facts, RECEIVED: moment()}


def age_seconds(facts: Mapping[str, t.Any]) -> float | None:
    """Return how long ago this control node received the facts; None where that cannot be known."""
    then, now = _moment_of(facts), moment()
    return None if then is None or then["boot_id"] != now["boot_id"] else max(0.0, now["seconds"] - then["seconds"])


def is_since(facts: Mapping[str, t.Any], since: Moment) -> bool:
    """Whether this control node received the facts at that L(moment) or later."""
    then = _moment_of(facts)
    return then is not None and then["boot_id"] == since["boot_id"] and bool(then["seconds"] >= since["seconds"])


def is_moment(value: t.Any) -> bool:
    """Whether that is a L(moment) of a start that has a name."""
    if not isinstance(value, Mapping) or not isinstance(value.get("boot_id"), str) or not value["boot_id"]:
        return False
    return isinstance(value.get("seconds"), (int, float)) and not isinstance(value["seconds"], bool)


def _moment_of(facts: Mapping[str, t.Any]) -> Moment | None:
    then = facts.get(RECEIVED)
    return then if is_moment(then) else None


@functools.cache
def _boot_id() -> str:
    """Return the name of this start of the control node; empty where it has none, so that the age of facts is unknown."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        pass
    try:
        return subprocess.run(_BOOT_ID_COMMAND, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
