# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A spare watcher: its process starts with the survey of the moves, and waits for their orders while the control node decides.

The orders come in a file, which the spare watcher takes by renaming it. Whoever renames the file first, the spare watcher or the control node, decides: orders
that the control node has withdrawn are never taken, and another watcher may be started for them.
"""

from __future__ import annotations

import contextlib
import os
import time
import typing as t

from .._facts import survey_phases
from .._libvirt.host import open_host
from .._libvirt.interface import OpenHost
from .._live_watchers import identify_watcher
from .._model.clock import boot_moment
from .._model.codec import Json, JsonObject, encode
from .._model.errors import KvmfleetError
from .._model.watched_moves import read_start_order
from .._module import Result, require_local, require_root
from .._run_folder import RUN_FOLDER, log_path, orders_path, prepare_run_folder, read_json, started_path, taken_path, write_json
from .detach import Report, fork_process
from .run import StartWork, sweep_folder, watch_moves

# How long a spare watcher waits for its orders: longer than the control node needs for them, unless its ledger hangs.
SPARE_SECONDS = 60.0
POLL_SECONDS = 0.02

T = t.TypeVar("T")


def fork_spare_watcher(run_id: str, open_host: OpenHost, folder: str = RUN_FOLDER) -> t.Callable[[], JsonObject]:
    """Start a process that waits for the orders of this run. The function that is returned gives it as C(watcher), perhaps with C(session_warning)."""
    prepare_run_folder(folder)
    sweep_folder(folder)
    return fork_process(lambda report: _serve_run(run_id, open_host, report, folder), log_path(run_id, folder), run_id)


def _serve_run(run_id: str, open_host: OpenHost, report: Report, folder: str) -> None:
    watcher = identify_watcher(run_id)
    report({"watcher": encode(watcher)})
    work = _wait_for_orders(run_id, watcher.pid, folder)
    if work:
        orders = [read_start_order(document) for document in work["orders"]]
        # The file is left: this process may end before the control node has read it.
        started = started_path(run_id, watcher.pid, folder)
        watch_moves(orders, run_id, work["parallel"], open_host, lambda document: write_json(started, document), folder)


def _wait_for_orders(run_id: str, pid: int, folder: str) -> t.Optional[StartWork]:
    """Return the orders, which from then on are this process's; null if none came in time."""
    taken, deadline = taken_path(run_id, pid, folder), time.monotonic() + SPARE_SECONDS
    while time.monotonic() < deadline:
        try:
            os.rename(orders_path(run_id, pid, folder), taken)
        except FileNotFoundError:
            time.sleep(POLL_SECONDS)
            continue
        work = t.cast("t.Optional[StartWork]", read_json(taken))
        os.unlink(taken)
        return work
    return None


class _PrepareMoves(t.TypedDict, total=False):
    """The input of L(prepare_moves)."""

    wanted: t.Sequence[Json]
    run_id: str


def prepare_moves(uri: str, work: _PrepareMoves) -> Result:
    """Survey source and destinations of the moves in C(work["wanted"]), with what a watcher has written about each. Changes nothing.

    C(at) is the moment of this answer, by which L(start_moves) tells orders that come too late. With C(work["run_id"]), C(spare) is a watcher that waits for
    the orders of this run. It only saves time: without it, L(start_moves) starts one.
    """
    require_root()
    require_local(uri)
    run_id = work.get("run_id")
    # Before libvirt is used, whose event loop does not survive a fork. Until its report is read, it leaves the login session.
    read_spare = _try_spare(lambda: fork_spare_watcher(run_id, open_host)) if run_id else None
    surveyed = {**survey_phases.prepare_moves(uri, {"wanted": work["wanted"]}), "at": encode(boot_moment())}
    spare = _try_spare(read_spare) if read_spare else None
    return {**surveyed, "spare": spare} if spare else surveyed


def _try_spare(step: t.Callable[[], T]) -> t.Optional[T]:
    with contextlib.suppress(KvmfleetError, OSError):
        return step()
    return None
