# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The host half of C(migration_abort) and C(migration_force_complete).

A move is aborted or forced through its watcher, or through a new watcher. A foreign job is aborted through libvirt, and forced by a process of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
import typing as t
import uuid as uuid_module

from .._dataclass import dataclass
from .._facts.own_moves import Migration, find_in_progress
from .._host_identity import read_host_id
from .._libvirt.host import open_host
from .._libvirt.interface import Host, OpenHost
from .._live_watchers import is_alive, read_state_file
from .._migration.force import UNLIMITED_MIB, ForcingTerms
from .._migration.policy import merge_layers, why_no_post_copy
from .._model import domain_states
from .._model import statuses as s
from .._model.codec import ABSENT, Absent, Json, JsonObject, decode, encode
from .._model.errors import Conflict, InvalidState, KvmfleetError, NotFound, NotSupported, TimedOut, error_for_code
from .._model.policies import SOURCE_DOMAIN
from .._model.policy_documents import parse_policy
from .._model.record_parts import Before, Connection
from .._model.records import MoveRecord
from .._model.references import HostRef
from .._model.watched_moves import StartOrder, StateFile, record_in
from .._module import Phase, Result, require_local, require_root
from .._run_folder import RUN_FOLDER, prepare_run_folder
from .._time_limits import limit_questions
from . import control_files
from .detach import SpareProcess
from .follow import POLL_SECONDS
from .foreign import ForcingOrder, describe_forcing, is_being_forced, read_forcing, start_forcing
from .journal import Journal
from .run import start_watcher
from .silent_hosts import SETTLING

# How long a watcher has to take a request, also if the task does not wait for the end of the move.
ANSWER_SECONDS = 3.0

# The migration that a module returns: as it is found, or as the state file has it at its end.
Found = t.Union[Migration, StateFile]


class Starters(t.Protocol):
    """Starts processes that outlive this one, from one that has not used libvirt; one in all."""

    def start_watcher(self, order: StartOrder) -> t.Dict[str, Json]:
        """Start a watcher for this order, and return what it reports first."""

    def start_forcing(self, order: ForcingOrder) -> t.Dict[str, Json]:
        """Start a process that forces a foreign job, and return what it reports first."""


@dataclass
class Intervention:
    """One request about one domain's move.

    C(wait_seconds) is how long to wait for the move to be over. C(notes) grows: messages for the operator in addition to the result.

    :arg by: the person who makes the request.
    :arg record_id: the record of the one move that is meant; null for a foreign job.
    :arg foreign: the record that the control node has opened of a foreign job.
    """

    host: Host
    open_host: OpenHost
    info: domain_states.DomainInfo
    act: str
    by: str
    wait_seconds: float
    starters: Starters
    bandwidth_mib: t.Optional[int] = None
    folder: str = RUN_FOLDER
    record_id: t.Union[str, Absent, None] = ABSENT
    foreign: t.Optional[MoveRecord] = None
    notes: t.List[str] = dataclasses.field(default_factory=list)

    def find_migration(self) -> Migration:
        """Return the current migration. Raises L(NotFound) if there is none, L(NotSupported) or L(InvalidState) if it is too late.

        Raises L(Conflict), with the current one, if it is not the one that is meant.
        """
        migration = find_in_progress(self.host, self.info.uuid, self.folder)
        if migration is None:
            raise NotFound(describe_absence(self.info))
        if self.record_id is not ABSENT and migration.record.id != self.record_id:
            raise Conflict(
                f"Domain {self.info.name} is being moved for {describe_job(migration.record)} now, which another task has begun.",
                "Check it with migration_info, then run the task again. Nothing was changed.",
                migrations=[migration.as_json()],
            )
        refusal = find_refusal(self.act, self.info, migration)
        if refusal is not None:
            raise refusal
        return migration

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
        """Start a watcher for a move whose watcher has died. Recovering the move from post-copy requires the flags and parameters of its job."""
        state, begun = self._read_state(), record.connection or Connection()
        order = StartOrder(
            record=state.record if state else record,
            source_uri=self.host.uri,
            destination_uri=begun.destination_uri or "",
            flags=begun.flags or (),
            parameters=begun.parameters or {},
            adopt=True,
            waits=False,
        )
        started = self._note_warning(self.starters.start_watcher(order))
        refused = t.cast(t.Mapping[str, t.Mapping[str, str]], started["refused"]).get(self.info.uuid)
        if refused:
            raise error_for_code(refused["error_code"])(refused["msg"])

    def _note_warning(self, started: t.Dict[str, Json]) -> t.Dict[str, Json]:
        """Return what a process has reported first; note its warning if it could not leave the login session."""
        if "session_warning" in started:
            self.notes.append(str(started["session_warning"]))
        return started

    def _ask_watcher(self, deadline: float) -> None:
        """Leave the intent and wait for its answer."""
        deadline = max(deadline, time.monotonic() + ANSWER_SECONDS)
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
            if (state.waits_for or "").startswith(SETTLING) and control_files.withdraw_intent(self.info.uuid, intent, self.folder):
                raise self._unsettled(state)
            if not is_alive(state.watcher):
                control_files.withdraw_intent(self.info.uuid, intent, self.folder)
                raise InvalidState(
                    f"The watcher of domain {self.info.name} died before it answered; the migration is {state.record.status}.",
                    "Run the task again: a new watcher takes it over.",
                    migrations=[state.as_json()],
                )
            time.sleep(POLL_SECONDS)
        if control_files.withdraw_intent(self.info.uuid, intent, self.folder):
            raise TimedOut(
                f"The watcher of domain {self.info.name} did not answer within {max(self.wait_seconds, ANSWER_SECONDS):.0f} s. Nothing was changed.",
                "Try again.",
                migrations=_show_states(state),
            )

    def _check_answer(self, answer: JsonObject, state: t.Optional[StateFile]) -> None:
        if "error_code" in answer:
            raise error_for_code(str(answer["error_code"]))(str(answer["msg"]), migrations=_show_states(state))

    def _await_end(self, deadline: float) -> StateFile:
        while time.monotonic() < deadline:
            state = self._read_state()
            if state is not None and state.record.status in s.FINAL:
                return self._check_end(state)
            time.sleep(POLL_SECONDS)
        raise TimedOut(
            f"The migration of domain {self.info.name} has not ended within {self.wait_seconds:.0f} s. The watcher has the request and continues.",
            "Check it with migration_info.",
            changed=True,
            migrations=_show_states(self._read_state()),
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
            migrations=_show_states(state),
        )

    def _unsettled(self, state: StateFile) -> InvalidState:
        return InvalidState(
            f"The request came too late: the job of the migration of domain {self.info.name} has ended, and the migration {state.waits_for}.",
            "Its watcher writes the result when the hosts have answered; check it with migration_info. Nothing was changed.",
            migrations=[state.as_json()],
        )

    # -- a foreign job -------------------------------------------------------------------------------------------

    def _intervene_in_foreign_job(self, migration: Migration, deadline: float) -> Migration:
        record = self.foreign or migration.record
        if self.act == control_files.ABORT:
            self.host.abort_job(self.info.uuid)
            self._await_no_job(deadline, dataclasses.replace(migration, record=record))
            return dataclasses.replace(migration, record=self._end_aborted(record))
        if self.act == control_files.FORCE_COMPLETE:
            return self._force_foreign(dataclasses.replace(migration, record=record), deadline)
        self.host.set_bandwidth_mib(self.info.uuid, self.bandwidth_mib or UNLIMITED_MIB)
        return migration

    def _end_aborted(self, record: MoveRecord) -> MoveRecord:
        """Return the record of a foreign job that was aborted. Raises L(InvalidState) if the guest had left by then."""
        view = self.host.view_domain(self.info.uuid)
        if not view.active:
            raise self._too_late(None)
        journal = Journal(record, None, folder=None, by=self.by)
        journal.note_event("abort_end", f"The guest is {view.describe()} on the source.")
        journal.advance_status(s.CANCELLED, "A job of another tool was aborted.", s.REASON_OPERATOR)
        return journal.record

    def _force_foreign(self, migration: Migration, deadline: float) -> Migration:
        """Have a foreign job forced, wait, and return it with the acts.

        Raises L(TimedOut) if the wait was not long enough, and L(InvalidState) if the process that forces the job has ended before the job.
        """
        order = self._order_forcing(migration.record)
        self._note_warning(self.starters.start_forcing(order))
        while is_being_forced(self.info.uuid, self.folder):
            if time.monotonic() >= deadline:
                raise TimedOut(
                    f"The migration of domain {self.info.name} has not ended within {self.wait_seconds:.0f} s. "
                    f"{describe_forcing(order, read_forcing(self.info.uuid, self.folder))}",
                    "Check it with migration_info; migration_abort ends it, unless it is in post-copy.",
                    changed=True,
                    migrations=[self._add_acts(migration).as_json()],
                )
            time.sleep(POLL_SECONDS)
        return self._check_forced(self._add_acts(migration))

    def _check_forced(self, migration: Migration) -> Migration:
        # The connection of this process can have been lost during the wait.
        with contextlib.closing(self.open_host(self.host.uri)) as host:
            view = host.view_domain(self.info.uuid)
        if view.is_leaving:
            raise InvalidState(
                f"The process that forced the migration of domain {self.info.name} has ended, and the migration has not: the domain is {view.describe()} on "
                f"{migration.record.source.label}.",
                "Check it with migration_info. If it is not in post-copy, force it again, or let the guest run there with migration_abort.",
                migrations=[migration.as_json()],
            )
        return migration

    def _add_acts(self, migration: Migration) -> Migration:
        """Return the migration with what the process that forces it has written."""
        record, state = migration.record, read_forcing(self.info.uuid, self.folder)
        if state is None:
            return migration
        return dataclasses.replace(migration, record=dataclasses.replace(state.record, id=record.id, acts=(*record.acts, *state.record.acts)))

    def _order_forcing(self, record: MoveRecord) -> ForcingOrder:
        """Return the order to force a foreign job.

        libvirt refuses a switch to post-copy that the job does not permit, and does not report the bandwidth cap of the job. The policy of the domain applies
        too, and what cannot be read of it forbids post-copy. What earlier tasks have done to a job of the domain is not continued.
        """
        own = parse_policy(self.info.policy_xml)
        given, why_not = merge_layers([(SOURCE_DOMAIN, own.values)]), why_no_post_copy(own)
        if why_not:
            self.notes.append(f"The migration of domain {self.info.name} is not switched to post-copy: {why_not}.")
        terms = ForcingTerms(
            post_copy=not why_not,
            capped=True,
            suspend_seconds=given.force_suspend_seconds,
            pause_max_seconds=given.force_pause_max_seconds,
            downtime_ms=given.downtime_ms,
            bandwidth_mib=self.bandwidth_mib or UNLIMITED_MIB,
        )
        view = self.info.view
        if view.state == domain_states.PAUSED and view.reason != domain_states.MIGRATION:
            # The pause of this process is not a pause of the move, and no reason to abort the move.
            record = dataclasses.replace(record, before=Before(state=domain_states.PAUSED))
        started = dataclasses.replace(record, id=record.id or str(uuid_module.uuid4()), acts=())
        return ForcingOrder(self.host.uri, started, self.by, terms, self.host.max_downtime_ms(self.info.uuid))

    def _await_no_job(self, deadline: float, migration: Migration) -> None:
        while self.host.view_domain(self.info.uuid).job != domain_states.JOB_NONE:
            if time.monotonic() > deadline:
                raise TimedOut(
                    f"Domain {self.info.name} still has its job {self.wait_seconds:.0f} s after the abort.",
                    "Check it with migration_info.",
                    changed=True,
                    migrations=[migration.as_json()],
                )
            time.sleep(POLL_SECONDS)


def _show_states(state: t.Optional[StateFile]) -> t.List[JsonObject]:
    """Return the state file as C(migrations) of a result has it; empty if there is none."""
    return [state.as_json()] if state else []


def describe_absence(info: domain_states.DomainInfo) -> str:
    """Return the message that the domain is not being migrated."""
    return f"Domain {info.name} is not being migrated: it is {info.view.describe()}."


def describe_job(record: MoveRecord) -> str:
    """Return what a job is for: a record, or another tool."""
    return f"record {record.id}" if record.id else "a tool that is not of this collection"


def find_refusal(act: str, info: domain_states.DomainInfo, migration: Migration) -> t.Optional[KvmfleetError]:
    """Return why this act is impossible with the migration as it is; null if it is possible."""
    status = migration.record.status
    if act == control_files.ABORT and status == s.RUNNING_POST_COPY:
        return NotSupported(
            f"Domain {info.name} is in post-copy: it already runs on its destination, and a return to the source would lose its changes since then.",
            "Wait for the end of the migration. Nothing was changed.",
            migrations=[migration.as_json()],
        )
    if act != control_files.ABORT and status in s.BEFORE_JOB | {s.PREPARING}:
        return InvalidState(f"The migration of domain {info.name} is {status}: there is no job to force yet.", migrations=[migration.as_json()])
    return None


class EarlyProcess:
    """The starters of a process that is forked now, before this process uses libvirt."""

    def __init__(self, open_host: OpenHost, folder: str = RUN_FOLDER) -> None:
        self._open_host = open_host
        self._folder = folder
        self._spare = SpareProcess(self._start_process)

    def start_watcher(self, order: StartOrder) -> t.Dict[str, Json]:
        """Start a watcher for this order, and return what it reports first."""
        return self._spare.call_once({"watch": encode(order)})

    def start_forcing(self, order: ForcingOrder) -> t.Dict[str, Json]:
        """Start a process that forces a foreign job, and return what it reports first."""
        return self._spare.call_once({"force": encode(order)})

    def _start_process(self, argument: Json) -> t.Dict[str, Json]:
        document = t.cast(JsonObject, argument)
        if "force" in document:
            return start_forcing(decode(ForcingOrder, document["force"]), self._open_host, self._folder)
        return start_watcher([decode(StartOrder, document["watch"])], str(uuid_module.uuid4()), 1, self._open_host, self._folder)


class _Look(t.TypedDict):
    """The input of L(look_at_move)."""

    act: str
    name: t.Optional[str]
    uuid: t.Optional[str]


@limit_questions
def look_at_move(uri: str, work: _Look, folder: str = RUN_FOLDER) -> Result:
    """Return the host, the domain and its migration, and why the act is impossible. Changes nothing.

    Of a domain that is not on this host, or is not being migrated, C(absence) says so.
    """
    require_root()
    require_local(uri)
    host = open_host(uri)
    try:
        return {"changed": False, "host": encode(_identify_host(host)), **_describe_move(host, work, folder)}
    finally:
        host.close()


def _describe_move(host: Host, work: _Look, folder: str) -> Result:
    try:
        info = host.find_domain(name=work["name"], uuid=work["uuid"])
    except NotFound as error:
        return {"domain": None, "migration": None, "refusal": None, "absence": str(error)}
    migration = find_in_progress(host, info.uuid, folder)
    refusal = find_refusal(work["act"], info, migration) if migration else None
    return {
        "domain": encode(info),
        "migration": migration.as_json() if migration else None,
        "refusal": {"msg": str(refusal), "error_code": refusal.error_code} if refusal else None,
        "absence": None if migration else describe_absence(info),
    }


def _identify_host(host: Host) -> HostRef:
    try:
        host_id = read_host_id()
    except KvmfleetError:
        # An abort does not depend on the identity of the host.
        host_id = None
    return HostRef(host.read_hostname(), host_id, host.host_uuid())


class _CarryOut(t.TypedDict):
    """The input of L(carry_out)."""

    act: str
    by: str
    uuid: str
    id: t.Optional[str]
    record: t.Optional[JsonObject]
    bandwidth_mib: t.Optional[int]
    wait_seconds: float


def carry_out(uri: str, work: _CarryOut, folder: str = RUN_FOLDER) -> Result:
    """Carry out a request about the move of C(work["id"]), or about a foreign job, and return it at its end with notes for the operator."""
    require_root()
    prepare_run_folder(folder)
    require_local(uri)
    starters = EarlyProcess(open_host, folder)
    host = open_host(uri)
    info, opened = host.find_domain(uuid=work["uuid"]), work["record"]
    intervention = Intervention(
        host, open_host, info, work["act"], work["by"], work["wait_seconds"], starters, work["bandwidth_mib"], folder, work["id"], _read_opened(opened)
    )
    found = intervention.carry_out()
    return {"changed": True, "migrations": [found.as_json()], "notes": intervention.notes}


def _read_opened(document: t.Optional[JsonObject]) -> t.Optional[MoveRecord]:
    """Return the record that the control node opened of a foreign job; without an ID if there is no ledger to keep it."""
    return decode(MoveRecord, record_in(document)) if document else None


PHASES: t.Dict[str, Phase] = {"look": look_at_move, "carry_out": carry_out}
