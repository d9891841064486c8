# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Starts a watcher, which takes its domains, reports them, and moves them."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import os
import time
import typing as t

from .._host_identity import read_host_id
from .._libvirt.host import open_host
from .._libvirt.interface import Host, OpenHost
from .._live_watchers import identify_watcher, read_state_file
from .._model import statuses as s
from .._model.clock import boot_moment, utc_now
from .._model.codec import Json, JsonObject, encode
from .._model.errors import Conflict, KvmfleetError
from .._model.libvirt_formats import is_local
from .._model.records import MoveRecord
from .._model.watched_moves import AUTO_PARALLEL, NO_FORCING, NO_LINK_WAIT, StartOrder, Watcher, read_start_order
from .._module import Result, require_local, require_root
from .._run_folder import RUN_FOLDER, Ownership, is_newest, log_path, prepare_run_folder, seen_path, write_json
from .calls import ArrivalEvents, open_again
from .control_files import Admissions, Heartbeat
from .detach import Report, launch_process
from .dirty_rates import DirtyRates
from .journal import Journal
from .mover import Mover
from .window import Pace, Window, make_pace

Facts = t.Dict[str, Json]


def forget_seen_hosts(run_id: str, folder: str = RUN_FOLDER) -> None:
    """Remove the facts that an earlier watcher of this run has written."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(seen_path(run_id, folder))


def write_seen_hosts(orders: t.Sequence[StartOrder], run_id: str, open_host: t.Callable[[str], Host], folder: str = RUN_FOLDER) -> None:
    """Write the current facts of source and destinations by libvirt URI. A host that does not answer is omitted."""
    uris = sorted({uri for order in orders for uri in (order.source_uri, order.destination_uri)})
    with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, len(uris))) as pool:
        answers = list(pool.map(lambda uri: _ask_host(uri, open_host), uris))
    # The file only saves other processes a query: if it cannot be written, they query the hosts themselves.
    with contextlib.suppress(OSError):
        write_json(seen_path(run_id, folder), {"seen": {uri: answer for uri, answer in zip(uris, answers) if answer}})


def _ask_host(uri: str, open_host: t.Callable[[str], Host]) -> t.Optional[Facts]:
    try:
        host = open_host(uri)
        try:
            itself = {"host_uuid": host.host_uuid(), "host_id": read_host_id() if is_local(uri) else host.host_id()}
            return {"gathered_at": utc_now(), **itself, "domains": encode(host.list_states())}
        finally:
            host.close()
    except KvmfleetError:
        return None


_KEEP_SECONDS = 24 * 3600
_SWEPT = (".log", ".heartbeat", ".turns", ".seen", ".new", ".orders", ".taken", ".started")


def start_watcher(orders: t.Sequence[StartOrder], run_id: str, parallel: int, open_host: OpenHost, folder: str = RUN_FOLDER) -> t.Dict[str, Json]:
    """Start a watcher of its own session for these orders, and return what it reports first (L(watch_moves))."""
    prepare_run_folder(folder)
    sweep_folder(folder)
    return launch_process(lambda report: watch_moves(orders, run_id, parallel, open_host, report, folder), log_path(run_id, folder), run_id)


def watch_moves(orders: t.Sequence[StartOrder], run_id: str, parallel: int, open_host: OpenHost, report: Report, folder: str) -> None:
    """Take these orders, report them, and watch their moves to the end.

    The report has C(taken) (domain UUID to generation), C(refused) (domain UUID to C(msg) and C(error_code)) and C(watcher) (this process). If this process
    could not leave the login session, L(launch_process) adds C(session_warning).
    """
    open_host = open_again(open_host)
    arrivals = ArrivalEvents(open_host)
    movers, refused = _take_domains(orders, run_id, open_host, arrivals, folder)
    heartbeat = Heartbeat(run_id, time.monotonic, folder)
    taken = {mover.order.uuid: mover.order.record.generation for mover in movers}
    forget_seen_hosts(run_id, folder)
    report({"taken": taken, "refused": refused, "watcher": encode(identify_watcher(run_id))})
    admissions = Admissions(run_id, folder)
    pace = _choose_pace(parallel, movers, open_host, admissions)
    Window(movers, pace, heartbeat, admissions, arrivals.wait_for_news).run_moves()
    arrivals.close()
    if movers:
        write_seen_hosts([mover.order for mover in movers], run_id, open_host, folder)


def _choose_pace(parallel: int, movers: t.Sequence[Mover], open_host: OpenHost, admissions: Admissions) -> Pace:
    """Return the pace of these moves. Those that share the link are told apart by the dirty rates that the survey has had measured."""
    orders = [mover.order for mover in movers]
    shares_link = parallel == AUTO_PARALLEL and len(orders) > 1
    rates = DirtyRates([order.uuid for order in orders] if shares_link else [], lambda: open_host(orders[0].source_uri))
    return make_pace(parallel, orders, rates, lambda: admissions.sources)


def _take_domains(
    orders: t.Sequence[StartOrder], run_id: str, open_host: OpenHost, arrivals: ArrivalEvents, folder: str
) -> t.Tuple[t.List[Mover], t.Dict[str, t.Dict[str, Json]]]:
    watcher = identify_watcher(run_id)
    movers = []
    refused = {}
    for order in orders:
        try:
            owned, ownership = _take_lock(order, folder)
            journal = _open_journal(owned, watcher, ownership, folder)
        except KvmfleetError as error:
            refused[order.uuid] = error.as_result()
            continue
        movers.append(Mover(owned, journal, ownership, open_host, arrivals))
    return movers, refused


def _open_journal(order: StartOrder, watcher: Watcher, ownership: Ownership, folder: str) -> Journal:
    """Write the first state, which names the watcher to other processes. If it cannot be written, release the domain and raise L(Internal)."""
    state = read_state_file(order.uuid, folder)
    known = state if state and state.record.id == order.record.id else None
    link_wait, forcing, job_started_at = (known.link_wait, known.forcing, known.job_started_at) if known else (NO_LINK_WAIT, NO_FORCING, None)
    journal = Journal(order.record, watcher, folder, link_wait=link_wait, forcing=forcing, job_started_at=job_started_at)
    journal.write_state()
    try:
        journal.require_written()
    except KvmfleetError:
        ownership.release_lock()
        raise
    return journal


def _take_lock(order: StartOrder, folder: str) -> t.Tuple[StartOrder, Ownership]:
    """Take the domain's lock. Return the order with the record and the generation that are valid now."""
    ownership = Ownership(order.uuid, folder)
    try:
        return _begin_record(order, ownership, folder), ownership
    except KvmfleetError:
        ownership.release_lock()
        raise


def _begin_record(order: StartOrder, ownership: Ownership, folder: str) -> StartOrder:
    if not order.adopt:
        _check_late(order, folder)
        ownership.begin_record(str(order.record.id), order.record.generation)
        return order
    record = _read_newest_record(order.record, folder)
    generation = ownership.take_over(str(record.id), record.generation)
    return dataclasses.replace(order, record=dataclasses.replace(record, generation=generation))


def _check_late(order: StartOrder, folder: str) -> None:
    """Raise L(Conflict) for an order that was under way for too long, unless it has begun before: a command that SSH repeats is refused as such.

    After a boot of this host, it is not known whether the order has begun before.
    """
    left = order.begin_until.seconds_since(boot_moment()) if order.begin_until else None
    if left is not None and left <= 0 and not is_newest(str(order.record.id), order.record.generation, order.uuid, folder):
        raise Conflict(f"The order to move domain {order.name} came too late: it was under way for too long.", "Nothing was started. Run the task again.")


def _read_newest_record(record: MoveRecord, folder: str) -> MoveRecord:
    """Return the record as its state file has it, now that this process has the lock.

    Another watcher may have begun the move and died since the control node read it; only this file has the former state of the guest.
    """
    state = read_state_file(record.domain.uuid, folder)
    if state is None or state.record.id != record.id or state.record.generation < record.generation:
        return record
    known = state.record
    # A move that has ended in the meantime is settled again by a query of both hosts, as ordered.
    return dataclasses.replace(record, before=known.before, acts=known.acts) if known.status in s.CLOSED else known


def sweep_folder(folder: str) -> None:
    """Remove the files of runs that are older than a day: the ledger has their results. Two processes may do so at once, and remaining files fail no move."""
    now = time.time()
    for entry in os.scandir(folder):
        if entry.name.endswith(_SWEPT):
            with contextlib.suppress(OSError):
                if now - entry.stat(follow_symlinks=False).st_mtime > _KEEP_SECONDS:
                    os.unlink(entry.path)


class StartWork(t.TypedDict):
    """What the control node orders: the moves, its run, and the maximum number of simultaneous moves, or C(AUTO_PARALLEL)."""

    orders: t.Sequence[JsonObject]
    run_id: str
    parallel: int


def start_moves(uri: str, work: StartWork) -> Result:
    """Start one watcher for the orders in C(work["orders"]); return what it took and what it refused."""
    require_root()
    require_local(uri)
    orders = [read_start_order(document) for document in work["orders"]]
    return {"changed": True, **start_watcher(orders, work["run_id"], work["parallel"], open_host)}
