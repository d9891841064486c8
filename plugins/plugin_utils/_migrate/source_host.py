# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The source host as an action plugin uses it: the phases of its module, and short commands.

One gives a spare watcher its orders; the other one reads state files and writes the heartbeat.
"""

from __future__ import annotations

import json
import os
import shlex
import time
import typing as t
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment, HostClock, read_moment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent, Json, JsonObject, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.domain_states import DomainInfo
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import (
    StateFile,
    Survey,
    SurveyQuestion,
    Watcher,
    read_state,
    read_survey,
    record_in,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._proc_files import parse_number, parse_start_ticks
from ansible_collections.kvmfleet.migration.plugins.module_utils._run_folder import RUN_FOLDER, orders_path, started_path
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction, connection_errors

# How long an order may be under way. Commands that SSH has delivered or repeated later begin nothing.
ORDER_SECONDS = 300.0
WAIT_SECONDS = 1.0
WAIT_STEPS = 10
# How long a spare watcher may take to report what it took.
START_SECONDS = 60
START_STEPS = 3000
_SEEN = '{"seen":'
_WITHDRAWN = "kvmfleet-orders-withdrawn"

# Under "given" the moves that may start, under "ended" those that were given up, each by the ID of its record.
AdmissionAnswers = dict[str, dict[str, str]]
# These, and under "sources" how many sources send to a destination, by its libvirt URI.
WatcherNews = t.Mapping[str, t.Mapping[str, t.Union[str, int]]]


@dataclass(frozen=True)
class PolledState:
    """A state file, as read by one poll.

    :arg watcher: the process that it names.
    :arg is_alive: whether that process lived then.
    """

    state: StateFile
    watcher: Watcher
    is_alive: bool

    @property
    def record(self) -> MoveRecord:
        """The record as the file has it."""
        return self.state.record

    @property
    def waits_for(self) -> str | None:
        """What the move waits for."""
        return self.state.waits_for


@dataclass(frozen=True)
class Looked:
    """What the phase C(look) returns.

    :arg domain: null if the host does not have it.
    :arg migration: the record of the migration in progress, with C(watched); without ID for a foreign job.
    :arg refusal: why the act is impossible.
    :arg absence: that the domain is not there, or is not being migrated.
    """

    host: HostRef
    domain: t.Optional[DomainInfo]
    migration: t.Optional[JsonObject]
    refusal: t.Optional[JsonObject]
    absence: t.Optional[str]
    extra: JsonObject = field(default_factory=dict)

    @property
    def info(self) -> DomainInfo:
        """The domain. Raises L(Internal) if the host does not have it."""
        if self.domain is None:
            raise Internal("The host returned a migration without its domain.", "Report this as a bug. Nothing was changed.")
        return self.domain

    @property
    def record(self) -> MoveRecord | None:
        """The record of the migration in progress; of a foreign job a description."""
        return decode(MoveRecord, record_in(self.migration)) if self.migration else None


@dataclass(frozen=True)
class SpareWatcher:
    """A process on the source that waits for the orders of a run.

    :arg session_warning: why it could not leave the login session.
    """

    watcher: Watcher
    session_warning: t.Union[str, Absent, None] = ABSENT
    extra: JsonObject = field(default_factory=dict)


class SourceHost:
    """Runs phases and commands on the host that the task runs on, with the task's own connection and become.

    :arg uri: of that host's own libvirt.
    :arg module: whose phases run; by default the module of the task.
    """

    def __init__(self, action: FleetAction, task_vars: dict[str, Json], uri: str, module: str | None = None) -> None:
        self.name = action.target_host(task_vars)
        self.seen: t.Mapping[str, JsonObject] | None = None
        self._clock: HostClock | None = None
        self._spare: SpareWatcher | None = None
        self._action = action
        self._task_vars = task_vars
        self._uri = uri
        self._module = module

    def run_phase(self, phase: str, work: JsonObject) -> JsonObject:
        """Run one phase of the module on the source host. Raises the error of the phase, or L(Unreachable)."""
        return self._action.run_phase(phase, work, self._uri, self._task_vars, module=self._module)

    def prepare_moves(self, questions: t.Sequence[SurveyQuestion], run_id: str | None = None) -> Survey:
        """Return the survey of these moves, with what a watcher has written about each. Raises as L(run_phase).

        :arg run_id: of the run that will probably start moves: a spare watcher then waits for its orders.
        """
        # The orders are sent as input of a command, which Ansible supports where it pipelines modules.
        run = {"run_id": run_id} if run_id and self._action._is_pipelining_enabled("new") else {}
        answer = self.run_phase("prepare", {"wanted": encode(questions), **run})
        at = read_moment(answer["at"])
        self._clock = HostClock(at, time.monotonic()) if at else None
        if run_id:
            self._spare = decode(SpareWatcher, answer["spare"]) if answer.get("spare") else None
        return read_survey(answer["survey"])

    def order_until(self) -> BootMoment | Absent:
        """Return until when an order that is given now may arrive, on the clock of this host; absent without a survey, or without a name of its boot."""
        return self._clock.moment_of(time.monotonic() + ORDER_SECONDS) if self._clock else ABSENT

    def start_watcher(self, work: JsonObject) -> JsonObject:
        """Start a watcher for the orders in C(work["orders"]), and return what it took and what it refused. Raises as L(run_phase).

        It is the spare watcher of the last survey, if that still waits. One that may have got the orders of a lost connection gets them again.
        """
        spare, self._spare = self._spare, None
        try:
            report = self._order_moves(spare, work) if spare else None
        except Unreachable:
            self._spare = spare
            raise
        return report or self.run_phase("start", work)

    def look_at_move(self, act: str, name: str | None, uuid: str | None) -> Looked:
        """Return the migration of a domain, and whether a person's act is possible. Changes nothing. Raises as L(run_phase)."""
        return decode(Looked, self.run_phase("look", {"act": act, "name": name, "uuid": uuid}))

    def poll_states(self, run_id: str, counter: int, watchers: t.Mapping[str, Watcher], news: WatcherNews | None) -> dict[str, PolledState]:
        """Write the run's heartbeat, and return the state files of these domains.

        It takes up to C(WAIT_SECONDS), less if a watcher ends in the meantime; C(seen) then has the facts of hosts that this run's watcher has read.

        :arg watchers: domain UUID to the watcher that is expected there.
        :arg news: what the run's watcher is told.
        Raises L(Unreachable) when the host does not answer this time.
        """
        states, self.seen = _parse_output(self._run_command("the poll", _poll_command(run_id, counter, watchers, news)))
        return states

    def _order_moves(self, spare: SpareWatcher, work: JsonObject) -> JsonObject | None:
        """Give a spare watcher its orders; return its report, or None if it will never take them. Raises L(Unreachable), and L(Internal) if it dies."""
        command = _order_command(str(work["run_id"]), spare.watcher.pid)
        output = self._run_command("the start of the moves", command, json.dumps(work, separators=(",", ":")).encode())
        report = next((line for line in output.splitlines() if line.startswith("{")), None)
        if report is not None:
            return {**_parse_object(report), **({"session_warning": spare.session_warning} if spare.session_warning else {})}
        if _WITHDRAWN in output.split():
            return None
        raise Internal(
            f"The watcher on {self.name} exited before it started its work, or has not reported within {START_SECONDS} s.",
            "Its log is under /run/kvmfleet there. Run the task again: it follows or settles what has begun.",
        )

    def _run_command(self, name: str, command: str, text: bytes | None = None) -> str:
        """Return the output of a command on the host. Raises L(Unreachable) if it could not be run.

        :arg text: its input.
        """
        with connection_errors(self.name):
            outcome = self._action._low_level_execute_command(command, in_data=text)
        if outcome["rc"] != 0:
            raise Unreachable(f"{self.name} did not run {name}: {outcome.get('stderr') or outcome['stdout']}")
        return str(outcome["stdout"])


def _order_command(run_id: str, pid: int) -> str:
    """Return the command that leaves its input as the orders of a spare watcher, and prints its report, or C(_WITHDRAWN) if it has not taken them.

    Renaming the file of the orders decides: either the spare watcher has taken them, or it never will. If SSH repeats the command, the report is there already.
    """
    orders, started = (shlex.quote(os.path.basename(path)) for path in (orders_path(run_id, pid), started_path(run_id, pid)))
    new, waits = f"{orders}.new", f"[ ! -e {started} ] && [ -d /proc/{pid} ]"
    parts = [
        # Without space for the orders, the module reports that.
        f"{{ cd {RUN_FOLDER} && umask 077 && cat > {new} && {{ [ -e {started} ] || mv {new} {orders}; }}; }} || {{ rm -f {new}; echo {_WITHDRAWN}; exit 0; }}",
        f"n=0; while [ $n -lt {START_STEPS} ] && {waits}; do sleep {START_SECONDS / START_STEPS:.2f}; n=$((n+1)); done",
        f"cat {started} 2>/dev/null || {{ mv {orders} {new} 2>/dev/null && echo {_WITHDRAWN}; }}",
        f"rm -f {new}",
    ]
    return "; ".join(parts)


def _poll_command(run_id: str, counter: int, watchers: t.Mapping[str, Watcher], news: WatcherNews | None) -> str:
    pids = sorted({watcher.pid for watcher in watchers.values()})
    parts = [
        f"cd {RUN_FOLDER} && umask 077 && printf %s {counter} > {shlex.quote(run_id)}.heartbeat",
        *([_news_command(run_id, news)] if news else []),
        _wait_command(pids),
        *(f"cat {shlex.quote(uuid)}.json 2>/dev/null" for uuid in watchers),
        f"cat {shlex.quote(run_id)}.seen 2>/dev/null",
        *(f"cat /proc/{pid}/stat 2>/dev/null" for pid in pids),
        "true",
    ]
    return "; ".join(parts)


def _news_command(run_id: str, news: WatcherNews) -> str:
    """Return the command that replaces the file of the watcher's news in one step: a watcher reads the old one or the new one."""
    name, content = shlex.quote(f"{run_id}.turns"), shlex.quote(json.dumps(news, separators=(",", ":")))
    return f"printf %s {content} > {name}.new && mv {name}.new {name}"


def _wait_command(pids: t.Sequence[int]) -> str:
    """Return the command that waits for the end of any of these processes, so that the final state of a watcher is read at once."""
    alive = " && ".join(f"[ -d /proc/{pid} ]" for pid in pids)
    return f"n=0; while [ $n -lt {WAIT_STEPS} ] && {alive}; do sleep {WAIT_SECONDS / WAIT_STEPS:.1f}; n=$((n+1)); done"


def _parse_output(output: str) -> tuple[dict[str, PolledState], t.Mapping[str, JsonObject] | None]:
    """Read state files (one JSON line each) and lines of /proc/PID/stat; other output of a login shell is ignored."""
    states: dict[str, tuple[StateFile, Watcher]] = {}
    running: dict[int, int | None] = {}
    seen: t.Mapping[str, JsonObject] | None = None
    for line in output.splitlines():
        if line.startswith(_SEEN):
            seen = _parse_seen(line)
        elif line.startswith("{"):
            state, watcher = _parse_state(line)
            states[state.record.domain.uuid] = state, watcher
        elif (pid := parse_number(line.split(" ", 1)[0])) is not None:
            running[pid] = parse_start_ticks(line)
    return {uuid: PolledState(state, watcher, _is_running(watcher, running)) for uuid, (state, watcher) in states.items()}, seen


def _is_running(watcher: Watcher, running: t.Mapping[int, int | None]) -> bool:
    return watcher.start_ticks is not None and running.get(watcher.pid) == watcher.start_ticks


def _parse_state(line: str) -> tuple[StateFile, Watcher]:
    try:
        state = read_state(_parse_object(line))
    except Internal as error:
        raise _unreadable_error(error.message) from error
    if state.watcher is None or state.watcher.start_ticks is ABSENT:
        raise _unreadable_error("It names no watcher.")
    return state, state.watcher


def _parse_seen(line: str) -> t.Mapping[str, JsonObject]:
    seen = _parse_object(line)["seen"]
    if not isinstance(seen, dict):
        raise _unreadable_error("The state that it has seen is not an object.")
    return t.cast("t.Mapping[str, JsonObject]", seen)


def _parse_object(line: str) -> JsonObject:
    """Return the JSON object in a line that begins like one."""
    try:
        return t.cast(JsonObject, json.loads(line))
    except (ValueError, RecursionError) as error:
        raise _unreadable_error(f"It is not JSON: {error}.") from error


def _unreadable_error(why: str) -> Internal:
    return Internal(f"A state file on the source host cannot be read. {why}", "Check /run/kvmfleet on that host.")
