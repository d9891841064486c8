# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The source host as an action plugin uses it: the phases of its module, and one short command that reads state files and writes the heartbeat."""

from __future__ import annotations

import json
import shlex
import typing as t
from dataclasses import field

from ansible.errors import AnsibleConnectionFailure

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Json, JsonObject, decode, encode
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
from ansible_collections.kvmfleet.migration.plugins.module_utils._run_folder import RUN_FOLDER

if t.TYPE_CHECKING:
    from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction  # pragma: no cover

WAIT_SECONDS = 1.0
WAIT_STEPS = 10
_SEEN = '{"seen":'

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


class SourceHost:
    """Runs phases and commands on the host that the task runs on, with the task's own connection and become.

    :arg uri: of that host's own libvirt.
    :arg module: whose phases run; by default the module of the task.
    """

    def __init__(self, action: FleetAction, task_vars: dict[str, Json], uri: str, module: str | None = None) -> None:
        self.name = action.target_host(task_vars)
        self.seen: t.Mapping[str, JsonObject] | None = None
        self._action = action
        self._task_vars = task_vars
        self._uri = uri
        self._module = module

    def run_phase(self, phase: str, work: JsonObject) -> JsonObject:
        """Run one phase of the module on the source host. Raises the error of the phase, or L(Unreachable)."""
        return self._action.run_phase(phase, work, self._uri, self._task_vars, module=self._module)

    def prepare_moves(self, questions: t.Sequence[SurveyQuestion]) -> Survey:
        """Return the survey of these moves, with what a watcher has written about each. Raises as L(run_phase)."""
        return read_survey(self.run_phase("prepare", {"wanted": encode(questions)})["survey"])

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
        try:
            outcome = self._action._low_level_execute_command(_poll_command(run_id, counter, watchers, news))
        except AnsibleConnectionFailure as error:
            raise Unreachable(f"{self.name} cannot be reached: {error}") from error
        if outcome["rc"] != 0:
            raise Unreachable(f"{self.name} did not run the poll: {outcome.get('stderr') or outcome['stdout']}")
        states, self.seen = _parse_output(outcome["stdout"])
        return states


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
