# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Aborting or forcing a move from another process: by asking its watcher, by giving it one, or through libvirt where the move is not ours."""

from __future__ import annotations

import dataclasses
import getpass
import socket
import time
import typing as t
import uuid as uuid_module

from .._errors import InvalidArgument, InvalidState, NotFound, NotSupported, TimedOut, error_for_code
from .._facts.migrations import ListedHost, canonical_uuid, in_progress, read_states
from .._hypervisor.host import open_host
from .._migration import hypervisor as h
from .._migration.flags import MAX_BANDWIDTH_MIB
from .._migration.force import Terms
from .._migration.monitor import Limits
from .._migration.policy import DEFAULTS
from .._migration.schedule import Stepped
from .._module import check_domain_name, require_local, require_root
from .._policy.document import parse
from .._records import statuses as s
from .._records.schema import Record
from . import intents
from .files import RUN_FOLDER, read_json, record_in, run_folder, state_path
from .follow import POLL_SECONDS, Follower
from .journal import Journal
from .order import Order
from .process import is_alive
from .run import start_watcher
from .spare import SpareProcess

Starter = t.Callable[[Order], t.Dict[str, t.Any]]


@dataclasses.dataclass
class Intervention:
    """One request about one domain's move.

    C(wait_seconds) is how long to wait for the move to be over. C(start_watcher) starts a watcher for an order, in a process that has not used libvirt.
    C(warnings) grows: what the operator is to be told beside the result.
    """

    host: ListedHost
    open_host: h.OpenHost
    info: h.DomainInfo
    act: str
    by: str
    wait_seconds: float
    start_watcher: Starter
    bandwidth_mib: t.Optional[int] = None
    folder: str = RUN_FOLDER
    warnings: t.List[str] = dataclasses.field(default_factory=list)

    def is_migrating(self) -> bool:
        """Whether there is anything to intervene in."""
        return bool(in_progress(self.host, read_states(self.folder), self.info.uuid))

    def current(self) -> Record:
        """Return the migration as it stands. Raises L(NotFound) where there is none, L(NotSupported) or L(InvalidState) where it is too late."""
        found = in_progress(self.host, read_states(self.folder), self.info.uuid)
        if not found:
            raise NotFound(f"Domain {self.info.name} is not being migrated: it is {self.info.view.describe()}.")
        record = found[0]
        if self.act == intents.ABORT and record["status"] == s.RUNNING_POST_COPY:
            raise NotSupported(
                f"Domain {self.info.name} is in post-copy: it runs on its destination already, and going back would lose what it did there.",
                "Wait for the end of the migration. Nothing was changed.",
                migrations=[record],
            )
        if self.act != intents.ABORT and record["status"] in s.BEFORE_JOB | {s.PREPARING}:
            raise InvalidState(f"The migration of domain {self.info.name} is {record['status']}: there is no job to force yet.", migrations=[record])
        return record

    def result(self, record: Record) -> t.Dict[str, t.Any]:
        """Return what a module returns of an intervention that ended, or would end, with this record."""
        return {"changed": True, "migrations": [record], **({"warnings": self.warnings} if self.warnings else {})}

    def carry_out(self) -> Record:
        """Do it, wait, and return the record at the end. See L(current) for what is raised; L(TimedOut) when waiting was in vain."""
        record = self.current()
        deadline = time.monotonic() + self.wait_seconds
        if record["id"] is None:
            return self._foreign(record, deadline)
        if not record["watched"]:
            self._give_watcher(record)
        self._ask(deadline)
        if self.act == intents.BANDWIDTH:
            return self._state() or record
        return self._await_end(deadline)

    # -- a move of ours ------------------------------------------------------------------------------------------

    def _state(self) -> t.Optional[Record]:
        state = read_json(state_path(self.info.uuid, self.folder))
        return state if isinstance(state, dict) else None

    def _give_watcher(self, record: Record) -> None:
        """Start a watcher for a move whose own has died."""
        order = Order(record_in(self._state() or record), self.host.uri, record.get("connection", {}).get("destination_uri", ""), [], {}, adopt=True)
        started = self.start_watcher(order)
        if "session_warning" in started:
            self.warnings.append(started["session_warning"])
        refused = started["refused"].get(self.info.uuid)
        if refused:
            raise error_for_code(refused["error_code"])(refused["msg"])

    def _ask(self, deadline: float) -> None:
        """Leave the intent and wait for its answer."""
        state = self._state()
        if state is None:
            raise self._too_late(None)
        intent = intents.Intent(self.act, state["id"], state["generation"], self.by, self.bandwidth_mib)
        intents.leave(self.info.uuid, intent, self.folder)
        while time.monotonic() < deadline:
            state = self._state()
            answer = (state or {}).get("answers", {}).get(intent.id)
            if answer is not None:
                self._check(answer, state)
                return
            if state is None or state["status"] in s.FINAL:
                intents.withdraw(self.info.uuid, intent, self.folder)
                raise self._too_late(state)
            if not is_alive(state.get("watcher")):
                intents.withdraw(self.info.uuid, intent, self.folder)
                raise InvalidState(
                    f"The watcher of domain {self.info.name} died before it answered; the migration is {state['status']}.",
                    "Run the task again: a new watcher takes it over.",
                    migrations=[state],
                )
            time.sleep(POLL_SECONDS)
        if intents.withdraw(self.info.uuid, intent, self.folder):
            raise TimedOut(f"The watcher of domain {self.info.name} did not answer within {self.wait_seconds:.0f} s. Nothing was changed.", "Try again.")

    def _check(self, answer: t.Mapping[str, t.Any], state: t.Optional[Record]) -> None:
        if "error_code" in answer:
            raise error_for_code(answer["error_code"])(str(answer["msg"]), migrations=[state] if state else [])

    def _await_end(self, deadline: float) -> Record:
        while time.monotonic() < deadline:
            state = self._state()
            if state is not None and state["status"] in s.FINAL:
                return self._ended(state)
            time.sleep(POLL_SECONDS)
        raise TimedOut(
            f"The migration of domain {self.info.name} has not ended within {self.wait_seconds:.0f} s; it was asked to, and goes on.",
            "Look at it with migration_info.",
            migrations=[self._state() or {}],
        )

    def _ended(self, state: Record) -> Record:
        if self.act == intents.ABORT and state["status"] != s.CANCELLED:
            raise self._too_late(state)
        return state

    def _too_late(self, state: t.Optional[Record]) -> InvalidState:
        where = f": {state['status']}. {state['history'][-1]['detail']}" if state else "."
        return InvalidState(
            f"It was too late: the migration of domain {self.info.name} had ended{where}".rstrip(), "Nothing was changed.", migrations=[state] if state else []
        )

    # -- somebody else's move ------------------------------------------------------------------------------------

    def _foreign(self, record: Record, deadline: float) -> Record:
        if self.act == intents.ABORT:
            self.host.abort(self.info.uuid)
            self._await_no_job(deadline)
            if not self.host.view(self.info.uuid).active:
                raise self._too_late(None)
            return {**record, "status": s.CANCELLED, "reason": s.REASON_OPERATOR}
        if self.bandwidth_mib is not None:
            self.host.set_bandwidth_mib(self.info.uuid, self.bandwidth_mib)
        if self.act == intents.FORCE_COMPLETE:
            self._force_foreign(record, deadline)
        return record

    def _force_foreign(self, record: Record, deadline: float) -> None:
        """Climb the ladder ourselves. Whether the job may switch to post-copy libvirt says when it is asked to; its cap it does not tell.

        What the domain's own policy forbids is not done to it here either.
        """
        terms = Terms(
            post_copy=parse(self.info.policy_xml).values.get("post_copy") is not False,
            capped=self.bandwidth_mib is None,
            suspend_seconds=DEFAULTS["force_suspend_seconds"],
            pause_max_seconds=DEFAULTS["force_pause_max_seconds"],
            downtime_ms=DEFAULTS["downtime_ms"],
        )
        view = self.info.view
        if view.state == h.PAUSED and view.reason != h.MIGRATION:
            # Its own pause is no pause of the move, and no reason to give the move up.
            record["before"] = {"state": h.PAUSED}
        limits = Limits(Stepped(((0.0, self.host.max_downtime_ms(self.info.uuid)),)), 0, 0)
        follower = Follower(lambda: self.open_host(self.host.uri), self.info.uuid, Journal(record, {}, folder=None), limits, terms, time.monotonic)
        follower.begin_forcing(self.by)
        while follower.poll():
            if time.monotonic() > deadline:
                raise TimedOut(f"The migration of domain {self.info.name} has not ended within {self.wait_seconds:.0f} s; forcing it stopped there.")
            time.sleep(follower.pause)

    def _await_no_job(self, deadline: float) -> None:
        while self.host.view(self.info.uuid).job != h.JOB_NONE:
            if time.monotonic() > deadline:
                raise TimedOut(f"Domain {self.info.name} still has its job {self.wait_seconds:.0f} s after the abort.", "Look at it with migration_info.")
            time.sleep(POLL_SECONDS)


def early_starter(open_host: h.OpenHost, folder: str = RUN_FOLDER) -> Starter:
    """Return what starts a watcher for one order, from a process forked now: before libvirt is used in this one."""

    def start(document: t.Dict[str, t.Any]) -> t.Dict[str, t.Any]:
        return start_watcher([Order(**document)], str(uuid_module.uuid4()), 1, open_host, folder)

    spare = SpareProcess(start)
    return lambda order: spare.call(dataclasses.asdict(order))


def intervention_of(params: t.Mapping[str, t.Any], act: str) -> Intervention:
    """Return the intervention that a module's options ask for. Raises what is wrong with them, L(Forbidden), or L(NotFound)."""
    check_domain_name(params["name"])
    uuid = canonical_uuid(params["uuid"])
    if params["wait_seconds"] < 0:
        raise InvalidArgument(f"wait_seconds is {params['wait_seconds']}.", "Give a number of seconds, or 0.")
    bandwidth = params.get("bandwidth_mib")
    if bandwidth is not None and not 0 <= bandwidth <= MAX_BANDWIDTH_MIB:
        raise InvalidArgument(f"bandwidth_mib is {bandwidth}.", f"Give a whole number from 0 (no cap) to {MAX_BANDWIDTH_MIB}.")
    require_root()
    run_folder()
    require_local(params["uri"])
    starter = early_starter(open_host)
    host = open_host(params["uri"])
    by = f"{getpass.getuser()}@{socket.gethostname()}"
    return Intervention(host, open_host, host.find(name=params["name"], uuid=uuid), act, by, params["wait_seconds"], starter, bandwidth)
