# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A watcher: takes its domains, says which it has, and moves them."""

from __future__ import annotations

import contextlib
import os
import time
import typing as t

from .._errors import Internal, KvmfleetError
from .._migration.hypervisor import OpenHost
from .._records import schema
from .._records import statuses as s
from .arrivals import ArrivalEvents
from .detach import Report, launch
from .files import RUN_FOLDER, log_path, read_json, record_in, run_folder, state_path
from .heartbeat import Heartbeat
from .journal import Journal
from .look import forget, look
from .mover import Mover
from .order import Order
from .ownership import Ownership
from .process import identity
from .turns import Turns
from .window import Window

_KEEP_SECONDS = 24 * 3600
_SWEPT = (".log", ".heartbeat", ".turns", ".seen", ".new")


def start_watcher(orders: t.Sequence[Order], run_id: str, parallel: int, open_host: OpenHost, folder: str = RUN_FOLDER) -> t.Dict[str, t.Any]:
    """Start a watcher of its own session for these orders, and return what it took.

    The result has C(taken) (domain UUID to generation), C(refused) (domain UUID to C(msg) and C(error_code)), C(watcher) (its process),
    and C(session_warning) where the watcher could not leave the login session.
    """
    run_folder(folder)
    _sweep(folder)

    def work(report: Report) -> None:
        arrivals = ArrivalEvents(open_host)
        movers, refused = _take(orders, run_id, open_host, arrivals, folder)
        heartbeat = Heartbeat(run_id, time.monotonic, folder)
        taken = {mover.order.uuid: mover.order.record["generation"] for mover in movers}
        forget(run_id, folder)
        report({"taken": taken, "refused": refused, "watcher": identity(run_id)})
        Window(movers, parallel, heartbeat, Turns(run_id, folder), arrivals.wait).run()
        arrivals.close()
        if movers:
            look([mover.order for mover in movers], run_id, open_host, folder)

    return launch(work, log_path(run_id, folder), run_id)


def _take(orders: t.Sequence[Order], run_id: str, open_host: OpenHost, arrivals: ArrivalEvents, folder: str) -> t.Tuple[t.List[Mover], t.Dict[str, t.Any]]:
    watcher = identity(run_id)
    movers = []
    refused = {}
    for order in orders:
        try:
            ownership = _own(order, folder)
            journal = _journal(order, watcher, ownership, folder)
        except KvmfleetError as error:
            refused[order.uuid] = error.as_result()
            continue
        movers.append(Mover(order, journal, ownership, open_host, arrivals))
    return movers, refused


def _journal(order: Order, watcher: t.Mapping[str, t.Any], ownership: Ownership, folder: str) -> Journal:
    """Write the first state, from which others know who watches. Raises L(Internal), and gives the domain up, where that cannot be written."""
    journal = Journal(order.record, watcher, folder)
    journal.write()
    try:
        journal.require_written()
    except KvmfleetError:
        ownership.release()
        raise
    return journal


def _own(order: Order, folder: str) -> Ownership:
    ownership = Ownership(order.uuid, folder)
    if order.adopt:
        order.record = _caught_up(order.record, folder)
        order.record["generation"] = ownership.take_over(order.record["id"], order.record["generation"])
    else:
        ownership.begin(order.record["id"], order.record["generation"])
    return ownership


def _caught_up(record: schema.Record, folder: str) -> schema.Record:
    """Return the record as its state file has it, now that the lock is ours.

    Since the control node asked, another watcher may have begun the move and died: what the guest was before is written there alone.
    """
    state = read_json(state_path(record["domain"]["uuid"], folder))
    if not isinstance(state, dict) or state.get("id") != record["id"]:
        return record
    try:
        known = schema.check_record(record_in(state))
    except Internal:
        return record
    if known["generation"] < record["generation"]:
        return record
    # One that has ended there is settled once more by asking both hosts, as it was ordered.
    return {**record, "before": known["before"], "acts": known["acts"]} if known["status"] in s.CLOSED else known


def _sweep(folder: str) -> None:
    """Remove what runs of more than a day ago left: their last word is in the ledger. Two may sweep at once, and no move fails for what is left."""
    now = time.time()
    for entry in os.scandir(folder):
        if entry.name.endswith(_SWEPT):
            with contextlib.suppress(OSError):
                if now - entry.stat(follow_symlinks=False).st_mtime > _KEEP_SECONDS:
                    os.unlink(entry.path)
