# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The test that the watchdog daemon of a host runs: whether the host may keep running."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import typing as t

from .._model.clock import boot_moment
from .._model.errors import Internal
from .asking import ask_peers
from .config import LeaseConfig, read_config
from .state import note_test, read_lease_state
from .view import OwnView, Verdict, judge, needs_peers

KEEPS_RUNNING = 0
RESET = 254
"""For the watchdog daemon of Debian: reset the host at once."""
LIMIT_SECONDS = 5
"""The test ends within this time; without an answer by then, the host is reset."""
# Of a host whose state cannot be read: a lease that has ended.
_ENDED = OwnView(held_until=sys.float_info.min)


def run_test() -> int:
    """Return the exit code for the watchdog daemon, and print why."""
    signal.signal(signal.SIGALRM, _end_late)
    signal.alarm(LIMIT_SECONDS)
    with contextlib.suppress(OSError):
        note_test()
    verdict = decide()
    (sys.stdout if verdict.keeps_running else sys.stderr).write(f"{verdict.why}\n")
    return KEEPS_RUNNING if verdict.keeps_running else RESET


def decide() -> Verdict:
    """Return whether the host may keep running. The peers are asked only if its lease has ended."""
    own, fleets = _read_own()
    if not needs_peers(own, boot_moment().seconds):
        return judge(own, boot_moment().seconds, "", fleets, {})
    try:
        config = read_config()
    except Internal as error:
        return Verdict(False, f"The lease has ended, and the peers are unknown. {error}")
    return _ask(config)


def _ask(config: LeaseConfig) -> Verdict:
    answers = ask_peers(config.peers)
    # The service may have renewed the lease meanwhile.
    own, fleets = _read_own()
    return judge(own, boot_moment().seconds, config.host_id, [*fleets, config.host_ids], answers)


def _read_own() -> t.Tuple[OwnView, t.Sequence[t.Sequence[str]]]:
    try:
        state = read_lease_state()
    except Internal:
        return _ENDED, ()
    return (state.view, state.fleets) if state else (OwnView(), ())


def _end_late(_number: int, _frame: object) -> t.NoReturn:
    os.write(2, b"The test of the lease did not end in time.\n")
    os._exit(RESET)
