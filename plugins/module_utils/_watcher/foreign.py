# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Forces the job of another tool, in a process that outlives the task and its login session.

A guest that is suspended for the end of its migration must not stay suspended because a task has waited for its maximum time, or because its session was lost.
"""

from __future__ import annotations

import os
import time
import typing as t
import uuid as uuid_module

from .._dataclass import dataclass
from .._libvirt.interface import OpenHost
from .._live_watchers import identify_watcher, read_state_file
from .._migration.downtime import SteppedSchedule
from .._migration.force import ForcingTerms, pause_limit_seconds
from .._migration.monitor import Limits
from .._model import domain_states
from .._model import statuses as s
from .._model.codec import Json, encode
from .._model.errors import Conflict, KvmfleetError
from .._model.records import MoveRecord
from .._model.watched_moves import StateFile, Watcher
from .._run_folder import RUN_FOLDER, AlreadyWatched, Ownership, is_locked, log_path, prepare_run_folder
from .calls import open_again
from .detach import Report, launch_process
from .follow import Follower
from .journal import Journal
from .run import sweep_folder

# Between two polls of a source that does not answer.
SILENT_SECONDS = 1.0


@dataclass(frozen=True)
class ForcingOrder:
    """The job of another tool that is to be forced.

    :arg record: of the job, with an ID and without acts.
    :arg by: the person who forces it.
    :arg allowed_ms: the downtime that is allowed now.
    """

    uri: str
    record: MoveRecord
    by: str
    terms: ForcingTerms
    allowed_ms: int

    @property
    def uuid(self) -> str:
        """The domain's UUID."""
        return self.record.domain.uuid


def forcing_folder(folder: str = RUN_FOLDER) -> str:
    """Return the folder with the locks and state files of these jobs. A state file in the run folder would be taken for that of a move of this collection."""
    return os.path.join(folder, "forcing")


class JobForcing:
    """Forces one job until it has ended, and holds the lock of this meanwhile.

    Raises L(Conflict) if another process forces the job already, L(Internal) if the state cannot be written.
    """

    def __init__(self, order: ForcingOrder, watcher: Watcher, open_host: OpenHost, folder: str, clock: t.Callable[[], float] = time.monotonic) -> None:
        self._ownership = _take_lock(order, forcing_folder(folder))
        journal = Journal(order.record, watcher, forcing_folder(folder), by=order.by)
        limits = Limits(SteppedSchedule(((0.0, order.allowed_ms),)), 0, 0)
        self._follower = Follower(lambda: open_again(open_host)(order.uri), order.uuid, journal, limits, order.terms, clock)
        self._follower.begin_forcing(s.REASON_OPERATOR, order.by)
        journal.write_state()
        journal.require_written()

    @property
    def pause_seconds(self) -> float:
        """How long to sleep until the next poll, in seconds."""
        return self._follower.pause_seconds if self._follower.is_answering else SILENT_SECONDS

    def poll_job(self) -> bool:
        """Carry out what is due. Return whether anything can be due later: a post-copy that has failed cannot be forced."""
        return self._follower.poll_job() and not self._follower.is_broken

    def close(self) -> None:
        """End forcing, which releases the lock."""
        self._follower.close()
        self._ownership.release_lock()


def _take_lock(order: ForcingOrder, folder: str) -> Ownership:
    try:
        return Ownership(order.uuid, folder)
    except AlreadyWatched as error:
        raise Conflict(
            f"The migration of domain {order.record.domain.name} on {order.record.source.label} is being forced already, by an earlier task.",
            "Wait for its end, or abort it with migration_abort; migration_info shows it. Nothing was changed.",
        ) from error


def start_forcing(order: ForcingOrder, open_host: OpenHost, folder: str = RUN_FOLDER) -> t.Dict[str, Json]:
    """Start a process of its own session that forces the job, and return what it reports first: perhaps C(session_warning), as L(launch_process) adds it.

    Raises what L(JobForcing) raises.
    """
    prepare_run_folder(forcing_folder(folder))
    sweep_folder(folder)
    run_id = str(uuid_module.uuid4())
    return launch_process(lambda report: _force_job(order, run_id, open_host, report, folder), log_path(run_id, folder), run_id)


def _force_job(order: ForcingOrder, run_id: str, open_host: OpenHost, report: Report, folder: str) -> None:
    watcher = identify_watcher(run_id)
    try:
        forcing = JobForcing(order, watcher, open_host, folder)
    except KvmfleetError as error:
        report(error.as_result())
        return
    report({"watcher": encode(watcher)})
    while forcing.poll_job():
        time.sleep(forcing.pause_seconds)
    forcing.close()


def is_being_forced(domain_uuid: str, folder: str = RUN_FOLDER) -> bool:
    """Whether a process forces the job of that domain."""
    return is_locked(domain_uuid, forcing_folder(folder))


def read_forcing(domain_uuid: str, folder: str = RUN_FOLDER) -> t.Optional[StateFile]:
    """Return what the last process that has forced a job of that domain has written; null if that cannot be read."""
    return read_state_file(domain_uuid, forcing_folder(folder))


def describe_forcing(order: ForcingOrder, state: t.Optional[StateFile]) -> str:
    """Return where the guest is while its job is being forced, and what ends a pause."""
    source, process = order.record.source.label, f"Process {state.watcher.pid}" if state and state.watcher else "A process"
    if state is not None and state.record.status == s.RUNNING_POST_COPY:
        return "The guest runs on its destination, in post-copy."
    if state is None or state.forcing.paused_at is None:
        guest = "paused, as before the migration," if order.record.before.state == domain_states.PAUSED else "running"
        return f"The guest is {guest} on {source}. {process} continues there to force the migration."
    predicted_ms = state.record.result.predicted_downtime_ms
    predicted = f" (predicted: {predicted_ms / 1000:.0f} s)" if predicted_ms else ""
    return (
        f"The guest is paused on {source} until the migration ends{predicted}. {process} continues there, and aborts the migration if the pause lasts "
        f"longer than {pause_limit_seconds(predicted_ms, order.terms):.0f} s: the guest then runs on {source}."
    )
