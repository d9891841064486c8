# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Aborts or forces a move from another process: through its watcher, through a new watcher, or through libvirt for a foreign job."""

from __future__ import annotations

import dataclasses
import getpass
import socket
import time
import typing as t
import uuid as uuid_module

from .._facts.own_moves import Migration, list_in_progress, read_unfinished_states
from .._libvirt.host import open_host
from .._libvirt.interface import Host, OpenHost
from .._migration.downtime import SteppedSchedule
from .._migration.flags import MAX_BANDWIDTH_MIB
from .._migration.force import ForcingTerms
from .._migration.monitor import Limits
from .._model import domain_states
from .._model import statuses as s
from .._model.codec import Json, JsonObject, decode, encode
from .._model.errors import InvalidArgument, InvalidState, NotFound, NotSupported, TimedOut, error_for_code
from .._model.policies import GivenPolicy
from .._model.policy_documents import parse_policy
from .._model.record_parts import Before
from .._model.records import MoveRecord
from .._model.references import canonical_uuid
from .._model.watched_moves import StartOrder, StateFile
from .._module import check_domain_name, require_local, require_root
from .._run_folder import RUN_FOLDER, is_alive, prepare_run_folder, read_state_file
from . import control_files
from .detach import SpareProcess
from .follow import POLL_SECONDS, Follower
from .journal import Journal
from .run import start_watcher

Starter = t.Callable[[StartOrder], t.Dict[str, Json]]
# The migration that a module returns: as it is found, or as the state file has it at its end.
Found = t.Union[Migration, StateFile]


@dataclasses.dataclass
class Intervention:
    """One request about one domain's move.

    C(wait_seconds) is how long to wait for the move to be over. C(start_watcher) starts a watcher for an order, in a process that has not used libvirt.
    C(warnings) grows: messages for the operator in addition to the result.
    """

    host: Host
    open_host: OpenHost
    info: domain_states.DomainInfo
    act: str
    by: str
    wait_seconds: float
    start_watcher: Starter
    bandwidth_mib: t.Optional[int] = None
    folder: str = RUN_FOLDER
    warnings: t.List[str] = dataclasses.field(default_factory=list)

    def is_migrating(self) -> bool:
        """Whether a migration of the domain is in progress."""
        return bool(list_in_progress(self.host, read_unfinished_states(self.folder), self.info.uuid))

    def find_migration(self) -> Migration:
        """Return the current migration. Raises L(NotFound) if there is none, L(NotSupported) or L(InvalidState) if it is too late."""
        found = list_in_progress(self.host, read_unfinished_states(self.folder), self.info.uuid)
        if not found:
            raise NotFound(f"Domain {self.info.name} is not being migrated: it is {self.info.view.describe()}.")
        migration = found[0]
        status = migration.record.status
        if self.act == control_files.ABORT and status == s.RUNNING_POST_COPY:
            raise NotSupported(
                f"Domain {self.info.name} is in post-copy: it already runs on its destination, and a return to the source would lose its changes since then.",
                "Wait for the end of the migration. Nothing was changed.",
                migrations=[migration.as_json()],
            )
        if self.act != control_files.ABORT and status in s.BEFORE_JOB | {s.PREPARING}:
            raise InvalidState(f"The migration of domain {self.info.name} is {status}: there is no job to force yet.", migrations=[migration.as_json()])
        return migration

    def build_result(self, found: Found) -> t.Dict[str, Json]:
        """Return what a module returns of an intervention that ended, or would end, with this migration."""
        return {"changed": True, "migrations": [found.as_json()], **({"warnings": self.warnings} if self.warnings else {})}

    def carry_out(self) -> Found:
        """Carry out the request, wait, and return the migration at the end. Raises as L(find_migration), and L(TimedOut) if the wait was not long enough."""
        migration = self.find_migration()
        deadline = time.monotonic() + self.wait_seconds
        if migration.record.id is None:
            return self._intervene_in_foreign_job(migration, deadline)
        if not migration.watched:
            self._give_watcher(migration.record)
        self._ask_watcher(deadline)
        if self.act == control_files.BANDWIDTH:
            return self._read_state() or migration
        return self._await_end(deadline)

    # -- a move of ours ------------------------------------------------------------------------------------------

    def _read_state(self) -> t.Optional[StateFile]:
        return read_state_file(self.info.uuid, self.folder)

    def _give_watcher(self, record: MoveRecord) -> None:
        """Start a watcher for a move whose watcher has died."""
        state, destination_uri = self._read_state(), record.connection.destination_uri if record.connection else ""
        order = StartOrder(state.record if state else record, self.host.uri, destination_uri or "", (), {}, adopt=True, waits=False)
        started = self.start_watcher(order)
        if "session_warning" in started:
            self.warnings.append(str(started["session_warning"]))
        refused = t.cast(t.Mapping[str, t.Mapping[str, str]], started["refused"]).get(self.info.uuid)
        if refused:
            raise error_for_code(refused["error_code"])(refused["msg"])

    def _ask_watcher(self, deadline: float) -> None:
        """Leave the intent and wait for its answer."""
        state = self._read_state()
        if state is None:
            raise self._too_late(None)
        intent = control_files.new_intent(self.act, str(state.record.id), state.record.generation, self.by, self.bandwidth_mib)
        control_files.leave_intent(self.info.uuid, intent, self.folder)
        while time.monotonic() < deadline:
            state = self._read_state()
            answer = state.answers.get(intent.id) if state else None
            if answer is not None:
                self._check_answer(answer, state)
                return
            if state is None or state.record.status in s.FINAL:
                control_files.withdraw_intent(self.info.uuid, intent, self.folder)
                raise self._too_late(state)
            if not is_alive(state.watcher):
                control_files.withdraw_intent(self.info.uuid, intent, self.folder)
                raise InvalidState(
                    f"The watcher of domain {self.info.name} died before it answered; the migration is {state.record.status}.",
                    "Run the task again: a new watcher takes it over.",
                    migrations=[state.as_json()],
                )
            time.sleep(POLL_SECONDS)
        if control_files.withdraw_intent(self.info.uuid, intent, self.folder):
            raise TimedOut(f"The watcher of domain {self.info.name} did not answer within {self.wait_seconds:.0f} s. Nothing was changed.", "Try again.")

    def _check_answer(self, answer: JsonObject, state: t.Optional[StateFile]) -> None:
        if "error_code" in answer:
            raise error_for_code(str(answer["error_code"]))(str(answer["msg"]), migrations=[state.as_json()] if state else [])

    def _await_end(self, deadline: float) -> StateFile:
        while time.monotonic() < deadline:
            state = self._read_state()
            if state is not None and state.record.status in s.FINAL:
                return self._check_end(state)
            time.sleep(POLL_SECONDS)
        last = self._read_state()
        raise TimedOut(
            f"The migration of domain {self.info.name} has not ended within {self.wait_seconds:.0f} s. The watcher has the request and continues.",
            "Check it with migration_info.",
            migrations=[last.as_json() if last else {}],
        )

    def _check_end(self, state: StateFile) -> StateFile:
        if self.act == control_files.ABORT and state.record.status != s.CANCELLED:
            raise self._too_late(state)
        return state

    def _too_late(self, state: t.Optional[StateFile]) -> InvalidState:
        where = f": {state.record.status}. {state.record.history[-1].detail or ''}" if state else "."
        return InvalidState(
            f"The request came too late: the migration of domain {self.info.name} had ended{where}".rstrip(),
            "Nothing was changed.",
            migrations=[state.as_json()] if state else [],
        )

    # -- a foreign job -------------------------------------------------------------------------------------------

    def _intervene_in_foreign_job(self, migration: Migration, deadline: float) -> Migration:
        if self.act == control_files.ABORT:
            self.host.abort_job(self.info.uuid)
            self._await_no_job(deadline)
            if not self.host.view_domain(self.info.uuid).active:
                raise self._too_late(None)
            ended = dataclasses.replace(migration.record, status=s.CANCELLED, reason=s.REASON_OPERATOR)
            return dataclasses.replace(migration, record=ended)
        if self.bandwidth_mib is not None:
            self.host.set_bandwidth_mib(self.info.uuid, self.bandwidth_mib)
        if self.act == control_files.FORCE_COMPLETE:
            return dataclasses.replace(migration, record=self._force_foreign(migration.record, deadline))
        return migration

    def _force_foreign(self, record: MoveRecord, deadline: float) -> MoveRecord:
        """Force a foreign job from this process; return the record with the acts.

        libvirt refuses a switch to post-copy that the job does not permit, and does not report the bandwidth cap of the job. A veto in the policy of the domain
        applies too.
        """
        given = GivenPolicy()
        terms = ForcingTerms(
            post_copy=parse_policy(self.info.policy_xml).values.get("post_copy") is not False,
            capped=self.bandwidth_mib is None,
            suspend_seconds=given.force_suspend_seconds,
            pause_max_seconds=given.force_pause_max_seconds,
            downtime_ms=given.downtime_ms,
        )
        view = self.info.view
        if view.state == domain_states.PAUSED and view.reason != domain_states.MIGRATION:
            # The pause of this process is not a pause of the move, and no reason to abort the move.
            record = dataclasses.replace(record, before=Before(state=domain_states.PAUSED))
        limits = Limits(SteppedSchedule(((0.0, self.host.max_downtime_ms(self.info.uuid)),)), 0, 0)
        journal = Journal(record, None, folder=None)
        follower = Follower(lambda: self.open_host(self.host.uri), self.info.uuid, journal, limits, terms, time.monotonic)
        follower.begin_forcing(self.by)
        while follower.poll_job():
            if time.monotonic() > deadline:
                raise TimedOut(f"The migration of domain {self.info.name} has not ended within {self.wait_seconds:.0f} s. No further measure was taken.")
            time.sleep(follower.pause_seconds)
        return journal.record

    def _await_no_job(self, deadline: float) -> None:
        while self.host.view_domain(self.info.uuid).job != domain_states.JOB_NONE:
            if time.monotonic() > deadline:
                raise TimedOut(f"Domain {self.info.name} still has its job {self.wait_seconds:.0f} s after the abort.", "Check it with migration_info.")
            time.sleep(POLL_SECONDS)


class _DomainOptions(t.TypedDict):
    uri: str
    name: t.Optional[str]
    uuid: t.Optional[str]
    wait_seconds: float


class InterventionOptions(_DomainOptions, total=False):
    """The options of a module that intervenes in a move."""

    bandwidth_mib: t.Optional[int]


def make_early_starter(open_host: OpenHost, folder: str = RUN_FOLDER) -> Starter:
    """Return a function that starts a watcher for one order from a process that is forked now, before this process uses libvirt."""

    def start_one(document: Json) -> t.Dict[str, Json]:
        return start_watcher([decode(StartOrder, document)], str(uuid_module.uuid4()), 1, open_host, folder)

    spare = SpareProcess(start_one)
    return lambda order: spare.call_once(encode(order))


def intervention_of(params: InterventionOptions, act: str) -> Intervention:
    """Return the intervention that a module's options ask for. Raises L(InvalidArgument) for invalid options, L(Forbidden), or L(NotFound)."""
    check_domain_name(params["name"])
    uuid = canonical_uuid(params["uuid"])
    if params["wait_seconds"] < 0:
        raise InvalidArgument(f"wait_seconds is {params['wait_seconds']}.", "Give a number of seconds, or 0.")
    bandwidth = params.get("bandwidth_mib")
    if bandwidth is not None and not 0 <= bandwidth <= MAX_BANDWIDTH_MIB:
        raise InvalidArgument(f"bandwidth_mib is {bandwidth}.", f"Give a whole number from 0 (no cap) to {MAX_BANDWIDTH_MIB}.")
    require_root()
    prepare_run_folder()
    require_local(params["uri"])
    starter = make_early_starter(open_host)
    host = open_host(params["uri"])
    by = f"{getpass.getuser()}@{socket.gethostname()}"
    return Intervention(host, open_host, host.find_domain(name=params["name"], uuid=uuid), act, by, params["wait_seconds"], starter, bandwidth)
