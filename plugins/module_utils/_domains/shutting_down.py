# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Shuts down domains by a request to their guests, several at the same time. It never uses force, and never shuts down a domain that moves."""

from __future__ import annotations

import dataclasses
import time
import typing as t

from .._dataclass import dataclass
from .._facts.disks import find_other_image
from .._libvirt.host import open_host
from .._libvirt.interface import Host
from .._live_watchers import is_alive
from .._model import domain_states
from .._model.boot_guard import NOTED_BY_DRAIN
from .._model.clock import boot_moment
from .._model.errors import Aborted, InvalidArgument, InvalidState, KvmfleetError, TimedOut, Unreachable, error_for_code
from .._model.references import canonical_uuid
from .._model.statuses import FINAL
from .._model.watched_moves import read_watcher
from .._module import Result, check_domain_name, has_lost_task, require_local, require_root
from .._run_folder import RUN_FOLDER, AlreadyWatched, Ownership, note_own_act, prepare_run_folder, read_json, state_path
from .starting import NOTES_FOLDER, note_start

POLL_SECONDS = 0.5
# Guests ignore the power button while they boot.
REPEAT_SECONDS = 30.0
# The event with the reason may arrive slightly after the domain has stopped.
EVENT_SECONDS = 3.0
MAX_WAIT_SECONDS = 86400

LEFT = "migrated"
GRACEFUL = "shutdown"


class ShutdownOptions(t.TypedDict):
    """The options of the module C(domain_shutdown) that select domains."""

    uri: str
    name: t.Optional[str]
    uuid: t.Optional[str]
    uuids: t.Optional[t.Sequence[str]]
    wait_seconds: float
    start_again: bool


class StoppedDomain(t.TypedDict):
    """How a domain stopped, and after how long."""

    reason: str
    elapsed_seconds: float


@dataclass
class DomainShutdown:
    """The shutdown of one domain.

    :arg wait_seconds: how long to wait until the domain is off.
    :arg start_again: whether to note on the host that it is to be started again.
    :arg is_own: whether the caller already holds the lock of the domain, for a move of which the shutdown is a part.
    """

    host: Host
    info: domain_states.DomainInfo
    wait_seconds: float
    folder: str = RUN_FOLDER
    clock: t.Callable[[], float] = time.monotonic
    sleep: t.Callable[[float], None] = time.sleep
    start_again: bool = False
    notes_folder: str = NOTES_FOLDER
    is_own: bool = False
    _ownership: t.Optional[Ownership] = dataclasses.field(default=None, init=False)
    _started: float = dataclasses.field(default=0.0, init=False)
    _asked: float = dataclasses.field(default=0.0, init=False)

    @property
    def domain_text(self) -> str:
        return f"Domain {self.info.name} on {self.host.read_hostname()}"

    def is_off(self) -> bool:
        return not self.info.view.active

    def check_possible(self) -> None:
        """Raise L(InvalidState) if the guest cannot shut itself down now, or would restart."""
        view = self.info.view
        if not self.is_own and self._is_watched():
            raise self._being_moved()
        # Its end would abort the job of a disk too, which the state does not show.
        job = view.job if view.is_busy else self.host.find_other_job(self.info.uuid)
        if job:
            raise InvalidState(f"{self.domain_text} is {view.describe()} and has a job in progress ({job}).", "It was not shut down: wait for the job's end.")
        if view.state != domain_states.RUNNING:
            raise InvalidState(f"{self.domain_text} is {view.describe()}, so its guest cannot react.", "It was not shut down: resume it, or move it.")
        other = find_other_image(self.host, self.info.uuid) if self.start_again and view.persistent else ""
        if other:
            raise InvalidState(f"{self.domain_text} would be started again from another image: {other}.", "It was not shut down: correct its definition.")
        action = self.host.on_poweroff(self.info.uuid)
        if action != "destroy":
            raise InvalidState(
                f"{self.domain_text} has on_poweroff {action} and would not be off.", "It was not shut down: set on_poweroff to destroy, or move it."
            )

    def carry_out(self) -> StoppedDomain:
        """Ask the guest, wait until the domain is off, and return C(reason) and C(elapsed_seconds). Raises as L(begin_shutdown) and L(poll_domain)."""
        self.begin_shutdown()
        try:
            while (done := self.poll_domain()) is None:
                self.sleep(POLL_SECONDS)
            return done
        finally:
            self.end_shutdown()

    def begin_shutdown(self) -> None:
        """Ask the guest. From now on until L(end_shutdown), no move of the domain can begin. Raises L(InvalidState) if one is under way."""
        try:
            self._ownership = None if self.is_own else Ownership(self.info.uuid, self.folder)
        except AlreadyWatched:
            raise self._being_moved() from None
        try:
            self.host.listen_for_stop(self.info.uuid)
            if self.start_again and self.info.view.persistent:
                note_start(self.info.uuid, self.info.name, [NOTED_BY_DRAIN], self.notes_folder, boot_moment().boot_id)
            note_own_act(self.info.uuid, self.folder)
            self._started = self._asked = self.clock()
            self.host.shut_down(self.info.uuid)
        except BaseException:
            self.end_shutdown()
            raise

    def poll_domain(self) -> t.Optional[StoppedDomain]:
        """Return C(reason) and C(elapsed_seconds) of a domain that is off, and null otherwise; the request is repeated from time to time.

        Raises L(InvalidState) if the domain left this host, L(TimedOut) if it still runs at the end of the time, L(Aborted) if the task has ended: then nobody
        waits any more, and the next task must find the domain free. A move of which the shutdown is a part is carried out to its end.
        """
        if not self.is_own and has_lost_task():
            raise Aborted(f"{self.domain_text} was asked to shut down and may be off soon. The task that waited for it has ended.")
        try:
            view = self.host.view_domain(self.info.uuid)
            if not view.active:
                return {"reason": self._find_reason(), "elapsed_seconds": round(self.clock() - self._started, 1)}
            if self.clock() - self._started >= self.wait_seconds:
                raise self._too_late(view)
            if self.clock() - self._asked >= REPEAT_SECONDS and view.state == domain_states.RUNNING and not view.is_busy:
                self._asked = self.clock()
                self.host.shut_down(self.info.uuid)
            return None
        except Unreachable as error:
            raise Unreachable(error.message, f"Domain {self.info.name} was asked to shut down and may be off soon: run the task again.") from error

    def end_shutdown(self) -> None:
        """Let moves of the domain begin again."""
        if self._ownership:
            self._ownership.release_lock()
            self._ownership = None

    def _is_watched(self) -> bool:
        state = read_json(state_path(self.info.uuid, self.folder))
        return isinstance(state, dict) and state.get("status") not in FINAL and is_alive(read_watcher(state.get("watcher")))

    def _being_moved(self) -> InvalidState:
        return InvalidState(
            f"{self.domain_text} is being moved, or shut down by another task.", "It was not shut down: wait for the end of that, or abort the move."
        )

    def _find_reason(self) -> str:
        """Return how the domain stopped."""
        deadline = self.clock() + EVENT_SECONDS
        while not (reason := self._read_reason()) and self.clock() < deadline:
            self.sleep(POLL_SECONDS)
        if not reason:
            raise InvalidState(
                f"{self.domain_text} was asked to shut down and is not active here any more; libvirt did not say how.", "Look for it on the other hosts."
            )
        if reason == LEFT:
            raise InvalidState(
                f"{self.domain_text} was asked to shut down, and has been moved away meanwhile.", "It runs where it was moved to, or shuts down there."
            )
        return reason

    def _read_reason(self) -> t.Optional[str]:
        """Return how the domain stopped, according to its definition or the event. A state that was read while the domain stopped is not reliable."""
        view = self.host.view_domain(self.info.uuid)
        return view.reason if view.state == domain_states.SHUTOFF and view.present else self.host.stopped_by(self.info.uuid)

    def _too_late(self, view: domain_states.DomainView) -> TimedOut:
        return TimedOut(
            f"{self.domain_text} was asked to shut down and is still {view.describe()} after {self.wait_seconds:.0f} s.",
            "It was not destroyed, and may still go off. Look at its console; raise wait_seconds and run again, or move it.",
            changed=True,
        )


def shutdown_of(params: ShutdownOptions) -> DomainShutdown:
    """Return the shutdown that a module's options ask for. Raises L(InvalidArgument) for invalid options, L(Forbidden), or L(NotFound)."""
    check_domain_name(params["name"])
    uuid = canonical_uuid(params["uuid"])
    host = open_requested_host(params)
    return DomainShutdown(host, host.find_domain(name=params["name"], uuid=uuid), params["wait_seconds"], start_again=params["start_again"])


def open_requested_host(params: ShutdownOptions) -> Host:
    """Return the open host of a module's options. Raises what is wrong with them, or L(Forbidden)."""
    if not 1 <= params["wait_seconds"] <= MAX_WAIT_SECONDS:
        raise InvalidArgument(f"wait_seconds is {params['wait_seconds']}.", f"Give a whole number from 1 to {MAX_WAIT_SECONDS}.")
    require_root()
    prepare_run_folder()
    return open_host(require_local(params["uri"]))


@dataclass
class ShutdownResult:
    """The result for one domain.

    :arg changed: whether a shutdown of it was requested, or would be.
    :arg reason: how it stopped; null if it did not stop, or in check mode.
    """

    uuid: str
    name: str
    changed: bool = False
    reason: t.Optional[str] = None
    elapsed_seconds: t.Optional[float] = None
    error: t.Optional[KvmfleetError] = None

    @property
    def is_forced(self) -> bool:
        """Whether the domain is off although its guest did not shut down."""
        return self.changed and self.reason not in (None, GRACEFUL)


def shut_down_together(
    shutdowns: t.Sequence[DomainShutdown], check_mode: bool = False, sleep: t.Callable[[float], None] = time.sleep
) -> t.List[ShutdownResult]:
    """Request all shutdowns, then wait for all of them. Return the results in the same order. A domain that cannot be shut down does not affect the others."""
    stops = [ShutdownResult(one.info.uuid, str(one.info.name)) for one in shutdowns]
    waiting = [(one, stop) for one, stop in zip(shutdowns, stops) if _try_begin(one, stop, check_mode)]
    while waiting:
        waiting = [(one, stop) for one, stop in waiting if _poll_once(one, stop)]
        if waiting:
            sleep(POLL_SECONDS)
    return stops


def shut_down_requested(params: ShutdownOptions, check_mode: bool) -> t.List[ShutdownResult]:
    """Shut down the domains in a module's C(uuids). Raises what is wrong with the options as a whole, or L(Forbidden)."""
    uuids = list(dict.fromkeys(canonical_uuid(uuid) for uuid in params["uuids"] or ()))
    if not uuids:
        raise InvalidArgument("'uuids' is empty.", "Give the UUID of at least one domain. Nothing was changed.")
    host = open_requested_host(params)
    try:
        found = [_find_domain(host, str(uuid), params) for uuid in uuids]
        done = iter(shut_down_together([one for one in found if isinstance(one, DomainShutdown)], check_mode))
        return [next(done) if isinstance(one, DomainShutdown) else one for one in found]
    finally:
        host.close()


def build_result(stops: t.Sequence[ShutdownResult]) -> Result:
    """Return the module's result. Raises the error of the first domain that failed, with the results of all."""
    domains = [{"uuid": stop.uuid, "name": stop.name, "reason": stop.reason, "elapsed_seconds": stop.elapsed_seconds} for stop in stops if stop.error is None]
    failures = [{"uuid": stop.uuid, "name": stop.name, "msg": str(stop.error), "error_code": stop.error.error_code} for stop in stops if stop.error]
    result: Result = {"changed": any(stop.changed for stop in stops), "domains": domains, "failures": failures}
    if failures:
        message = " ".join(failure["msg"] for failure in failures)
        error = error_for_code(failures[0]["error_code"])(message)
        error.result = result
        raise error
    return result


def _find_domain(host: Host, uuid: str, params: ShutdownOptions) -> t.Union[DomainShutdown, ShutdownResult]:
    try:
        return DomainShutdown(host, host.find_domain(uuid=uuid), params["wait_seconds"], start_again=params["start_again"])
    except KvmfleetError as error:
        return ShutdownResult(uuid, uuid, error=error)


def _try_begin(shutdown: DomainShutdown, stop: ShutdownResult, check_mode: bool) -> bool:
    """Ask the guest; return whether it is to be waited for."""
    try:
        if shutdown.is_off():
            stop.reason = shutdown.info.view.reason
            return False
        shutdown.check_possible()
        stop.changed = True
        if not check_mode:
            shutdown.begin_shutdown()
    except KvmfleetError as error:
        stop.changed, stop.error = False, error
        return False
    return not check_mode


def _poll_once(shutdown: DomainShutdown, stop: ShutdownResult) -> bool:
    """Read the state of a domain whose shutdown was requested. Return whether it is still running."""
    try:
        done = shutdown.poll_domain()
        if done is None:
            return True
        stop.reason, stop.elapsed_seconds = done["reason"], done["elapsed_seconds"]
    except KvmfleetError as error:
        stop.error = error
    shutdown.end_shutdown()
    return False
