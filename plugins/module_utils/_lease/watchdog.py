# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The hardware watchdog of a host, as its lease names it."""

from __future__ import annotations

import os
import typing as t

from .._model.leases import LeaseWatchdog
from .state import TESTED_FILE, seconds_since_test

DEVICE = "/dev/watchdog0"
_FOLDER = "sys/class/watchdog/watchdog0"
# The daemon asks at least that often; see watchdog(8).
_LONGEST_PAUSE_SECONDS = 10


def read_watchdog(root: str = "/") -> t.Optional[LeaseWatchdog]:
    """Return the watchdog of the host; null for a host without one."""
    identity, timeout = _read_text(root, "identity"), _read_text(root, "timeout")
    if identity is None or timeout is None or not timeout.isdecimal():
        return None
    asked = seconds_since_test(os.path.join(root, TESTED_FILE.lstrip("/")))
    is_bound = _read_text(root, "state") == "active" and asked is not None and asked <= _LONGEST_PAUSE_SECONDS
    seconds = int(timeout)
    return LeaseWatchdog(DEVICE, identity, seconds, _read_text(root, "nowayout") == "1", is_bound, seconds + _LONGEST_PAUSE_SECONDS)


def _read_text(root: str, name: str) -> t.Optional[str]:
    try:
        with open(os.path.join(root, _FOLDER, name), encoding="ascii", errors="replace") as stream:
            return stream.read(256).strip()
    except OSError:
        return None
