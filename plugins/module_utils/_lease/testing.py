# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The test that the watchdog daemon of a host runs: whether the host may keep running."""

from __future__ import annotations

import os
import signal
import sys
import typing as t

from .._model.clock import boot_moment
from .._model.errors import Internal
from .._model.leases import HELD
from .asking import ask_peers
from .config import LeaseConfig, read_config
from .state import Promise, all_hosts, read_lease_state
from .view import ENDED, OwnView, Verdict, judge, judge_promises, needs_peers
from .watchdog import ASK_SECONDS, has_been_tested

KEEPS_RUNNING = 0
RESET = 254
"""For the watchdog daemon of Debian: reset the host at once."""
LIMIT_SECONDS = ASK_SECONDS
"""The test ends within this time; without an answer by then, the host is reset."""


def run_test() -> int:
    """Return the exit code for the watchdog daemon, and print why."""
    signal.signal(signal.SIGALRM, _end_late)
    signal.alarm(LIMIT_SECONDS)
    verdict = decide()
    (sys.stdout if verdict.keeps_running else sys.stderr).write(f"{verdict.why}\n")
    return KEEPS_RUNNING if verdict.keeps_running else RESET


def decide() -> Verdict:
    """Return whether the host may keep running. The peers are asked only if its lease and its grace have ended, and the service has not asked them lately."""
    own = _read_own()
    left = own.runs_until - boot_moment().seconds
    if not needs_peers(own.view, boot_moment().seconds):
        return judge(own.view, boot_moment().seconds, "", (), {})
    if left > 0:
        return Verdict(True, f"The lease has ended, but the host may run on for another {left:.1f} s.")
    try:
        config = read_config()
    except Internal as error:
        return Verdict(False, f"The lease has ended, and the peers are unknown. {error}")
    return _ask(config, own.promises or (all_hosts(config),))


def _ask(config: LeaseConfig, promises: t.Sequence[Promise]) -> Verdict:
    answers = ask_peers(config.fleet, [config.store, *(one.store for one in promises)])
    # The service may have renewed the lease meanwhile, or it knows what its file has lost.
    if answers[config.store].get(config.host_id) == HELD:
        return Verdict(True, "The service of this host says that the lease is held.")
    told = [(one.fleets, answers[one.store]) for one in promises]
    return judge_promises(_read_own().view, boot_moment().seconds, config.host_id, told)


class _Own(t.NamedTuple):
    """What the host knows itself.

    :arg runs_until: until when it runs in any case.
    """

    view: OwnView
    promises: t.Tuple[Promise, ...] = ()
    runs_until: float = 0.0


def _read_own() -> _Own:
    """Return what the host knows itself. A state that is lost counts as a lease that has ended."""
    try:
        state = read_lease_state()
    except Internal:
        return _Own(ENDED)
    own = _Own(state.view, state.promises, state.runs_until) if state else _Own(OwnView())
    return own._replace(view=ENDED) if not own.view.was_held and has_been_tested() else own


def _end_late(_number: int, _frame: object) -> t.NoReturn:
    os.write(2, b"The test of the lease did not end in time.\n")
    os._exit(RESET)
