# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The phase of C(cold_migrate) that acts: it takes the lock of each domain, and carries out the moves on their source."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import os
import time
import typing as t
import uuid

from .._libvirt.host import open_host
from .._libvirt.interface import Host, OpenHost
from .._live_watchers import identify_watcher, read_state_file
from .._model import statuses as s
from .._model.clock import BootMoment, boot_moment
from .._model.codec import Json, decode, encode
from .._model.cold_moves import ColdAnswer, ColdOrder
from .._model.errors import Aborted, Conflict, Internal, KvmfleetError, MigrationFailed
from .._model.references import HostRef
from .._module import Result, has_lost_task, require_local, require_root
from .._run_folder import RUN_FOLDER, AlreadyWatched, Ownership, has_begun_last, is_newest, prepare_run_folder
from .hosts import MoveHosts
from .journal import ColdJournal
from .mover import ColdMover
from .steps import DOUBT

# How many domains move at the same time.
PARALLEL = 4
# How long the process of an earlier run is waited for.
LOCK_SECONDS = 60.0
_POLL_SECONDS = 0.5


class _CarryOut(t.TypedDict):
    """The input of L(carry_out_moves)."""

    orders: t.Sequence[Json]


def carry_out_moves(uri: str, work: _CarryOut) -> Result:
    """Carry out the moves in C(work["orders"]), each a L(ColdOrder). Returns C(answers)."""
    require_root()
    require_local(uri)
    prepare_run_folder()
    arrived = boot_moment()
    orders = [decode(ColdOrder, order, "orders") for order in work["orders"]]
    with concurrent.futures.ThreadPoolExecutor(max_workers=PARALLEL) as pool:
        answers = list(pool.map(lambda order: carry_out_order(uri, order, arrived=arrived), orders))
    return {"changed": any(answer.record is not None for answer in answers), "answers": encode(answers)}


def carry_out_order(uri: str, order: ColdOrder, open_one: OpenHost = open_host, folder: str = RUN_FOLDER, arrived: t.Optional[BootMoment] = None) -> ColdAnswer:
    """Carry out one order under the lock of its domain. An order that came too late, or whose domain another process moves, is refused.

    :arg arrived: when it arrived, by default now.
    """
    arrived = arrived or boot_moment()
    try:
        _check_source(open_one(uri), order)
        ownership = _take_lock(order, folder)
    except (KvmfleetError, OSError) as error:
        return _refuse_order(order, error, _may_have_begun(order, folder))
    try:
        refusal = _read_end(order, folder) or _refuse_late(order, arrived, ownership, folder) or _refuse_abandoned(order, folder)
        return refusal or _carry_out_locked(uri, order, ownership, open_one, folder)
    except (KvmfleetError, OSError) as error:
        return _refuse_order(order, error, _may_have_begun(order, folder))
    finally:
        ownership.release_lock()


def _carry_out_locked(uri: str, order: ColdOrder, ownership: Ownership, open_one: OpenHost, folder: str) -> ColdAnswer:
    has_begun = _has_begun(order, folder)
    order = dataclasses.replace(order, adopt=order.adopt or _is_repeated(order, folder))
    try:
        record = order.record.raise_generation(_begin_record(ownership, order))
        journal = ColdJournal(record, identify_watcher(str(uuid.uuid4())), order.adopt, folder)
        if not order.adopt:
            journal.begin()
    except (KvmfleetError, OSError) as error:
        return _refuse_order(order, error, has_begun)
    hosts = MoveHosts(record, uri, order.destination_uri, open_one, time.monotonic, time.sleep)
    try:
        return ColdMover(order, journal, hosts, folder).carry_out()
    except (KvmfleetError, OSError) as error:
        record = journal.finish(DOUBT, f"The move ended early: {str(error).rstrip('.')}. Run the task again: it verifies on both hosts what was done.", None)
        return ColdAnswer(order.uuid, record, Internal.error_code, record.last_detail)


def _is_repeated(order: ColdOrder, folder: str) -> bool:
    """Whether this very order has come before."""
    return not order.adopt and is_newest(order.record.record_id, order.record.generation, order.uuid, folder)


def _has_begun(order: ColdOrder, folder: str) -> bool:
    """Whether another process on this host has begun the move of a new order. It may have been taken over since, which has raised its generation."""
    return not order.adopt and has_begun_last(order.record.record_id, order.uuid, folder)


def _may_have_begun(order: ColdOrder, folder: str) -> bool:
    """Like L(_has_begun), and true if that cannot be read now."""
    try:
        return _has_begun(order, folder)
    except OSError:
        return not order.adopt


def _refuse_late(order: ColdOrder, arrived: BootMoment, ownership: Ownership, folder: str) -> t.Optional[ColdAnswer]:
    """Return the answer to an order that was under way for too long; null if it may begin, or has begun before.

    SSH may have repeated its command: then the same order waits behind others in an earlier process, which has lost its task, and must not begin there later.
    After a boot, this host does not know whether it has begun before.
    """
    if order.adopt or not order.begin_until or _has_begun(order, folder):
        return None
    left = order.begin_until.seconds_since(arrived)
    if left is None:
        return _leave_open(order, f"The source was booted after the survey of domain {order.name}.")
    if left > 0:
        return None
    late = Conflict(f"The order to move domain {order.name} came too late: it was under way for too long.", "Nothing was started. Run the task again.")
    record = order.record.raise_generation(ownership.take_over(order.record.record_id, order.record.generation))
    return ColdAnswer(order.uuid, record.advance(s.FAILED, f"cold mover pid {os.getpid()}", str(late)), late.error_code, str(late))


def _refuse_abandoned(order: ColdOrder, folder: str) -> t.Optional[ColdAnswer]:
    """Return the answer to an order whose task has ended before its turn came; null if it may begin, or has begun before.

    A person who cancels a task expects that no further guest is stopped. What has begun is carried out, and what has not the next run moves.
    """
    if order.adopt or _is_repeated(order, folder) or not has_lost_task():
        return None
    return _refuse_order(order, Aborted(f"The task that was to move domain {order.name} has ended. Nothing was started."))


def _leave_open(order: ColdOrder, why: str) -> ColdAnswer:
    """Return the answer to an order of which this host does not know whether it has begun before."""
    detail = f"{why.rstrip('.')}. Run the task again: it verifies on both hosts whether the move has begun."
    return ColdAnswer(order.uuid, order.record.advance(s.ERROR, f"cold mover pid {os.getpid()}", detail), Internal.error_code, detail)


def _refuse_order(order: ColdOrder, error: t.Union[KvmfleetError, OSError], may_have_begun: bool = False) -> ColdAnswer:
    """Return the answer to an order that is not carried out.

    :arg may_have_begun: whether another process, to which SSH has sent the order before, may have begun the move. It may still live.
    """
    if may_have_begun:
        return _leave_open(order, f"The move of domain {order.name} cannot be followed: {error.message if isinstance(error, KvmfleetError) else error}")
    if isinstance(error, OSError):
        error = Internal(f"The move of domain {order.name} cannot begin on its source: {error}.", "Nothing was changed. Correct this, and run the task again.")
    return ColdAnswer(order.uuid, None, error.error_code, str(error))


def _read_end(order: ColdOrder, folder: str) -> t.Optional[ColdAnswer]:
    """Return how the move of an order has ended that has come before, as its state file tells; null if it has not come before, or has not ended.

    This order may be late: the control node may have read that end already, and closed the record.
    """
    state = read_state_file(order.uuid, folder) if _has_begun(order, folder) else None
    if state is None or state.record.id != order.record.id or state.record.status not in s.CLOSED:
        return None
    record = state.record
    if record.status == s.COMPLETED:
        return ColdAnswer(order.uuid, record, None, "")
    return ColdAnswer(order.uuid, record, MigrationFailed.error_code, str(record.last_detail))


def _check_source(host: Host, order: ColdOrder) -> None:
    """Raise L(Conflict) if this host is not the source of the record: it could take a domain that it does not have for one that has moved."""
    try:
        own = HostRef(None, host.host_id(), host.host_uuid())
    finally:
        host.close()
    source = order.record.source
    if not source.may_be(own):
        raise Conflict(f"This host is not {source.label}, which is the source of record {order.record.id}.", f"Run the task on {source.label}.")


def _take_lock(order: ColdOrder, folder: str) -> Ownership:
    """Wait for the lock of the domain. A process that carries out this very order, which SSH has repeated since, may take as long as it needs."""
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        with contextlib.suppress(AlreadyWatched):
            return Ownership(order.uuid, folder)
        if time.monotonic() >= deadline and not _is_repeated(order, folder):
            break
        time.sleep(_POLL_SECONDS)
    raise Conflict(f"Another process on this host moves domain {order.uuid}, or shuts it down.", "Wait for its end, and run the task again.")


def _begin_record(ownership: Ownership, order: ColdOrder) -> int:
    """Write that this process acts for the record; return the generation."""
    record = order.record
    if order.adopt:
        return ownership.take_over(record.record_id, record.generation)
    ownership.begin_record(record.record_id, record.generation)
    return record.generation
