# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The source host as an action plugin reaches it: its module's phases, and one short command that reads and beats."""

from __future__ import annotations

import json
import shlex
import typing as t

from ansible.errors import AnsibleConnectionFailure

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Internal, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import check_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.files import RUN_FOLDER
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.process import number_of, parse_start_ticks

if t.TYPE_CHECKING:
    from ansible_collections.kvmfleet.migration.plugins.plugin_utils._action import FleetAction  # pragma: no cover
    from ansible_collections.kvmfleet.migration.plugins.plugin_utils._moves.turns import Told  # pragma: no cover

State = dict[str, t.Any]

WAIT_SECONDS = 0.8
WAIT_STEPS = 4
_SEEN = '{"seen":'


class SourceHost:
    """Runs things on the host that the task runs on, with the task's own connection and become.

    :arg uri: of that host's own libvirt.
    """

    def __init__(self, action: FleetAction, task_vars: dict[str, t.Any], uri: str) -> None:
        self.name = action.here(task_vars)
        self.seen: dict[str, t.Any] | None = None
        self._action = action
        self._task_vars = task_vars
        self._uri = uri

    def phase(self, phase: str, work: dict[str, t.Any]) -> dict[str, t.Any]:
        """Run one phase of the task's module there. Raises the error it failed with, or L(Unreachable)."""
        return self._action.phase(phase, work, self._uri, self._task_vars)

    def poll(self, run_id: str, counter: int, watchers: dict[str, t.Mapping[str, t.Any]], turns: Told | None) -> dict[str, State]:
        """Write the run's heartbeat, and return the state files of these domains with C(alive) set in each.

        It takes up to C(WAIT_SECONDS), less where a watcher ends meanwhile; C(seen) is then what this run's watcher has found on the hosts of its moves.

        :arg watchers: domain UUID to the watcher that is expected there.
        :arg turns: what the run's watcher is told of moves that wait for their turn.
        Raises L(Unreachable) when the host does not answer this time.
        """
        try:
            outcome = self._action._low_level_execute_command(_poll_command(run_id, counter, watchers, turns))
        except AnsibleConnectionFailure as error:
            raise Unreachable(f"{self.name} cannot be reached: {error}") from error
        if outcome["rc"] != 0:
            raise Unreachable(f"{self.name} did not run the poll: {outcome.get('stderr') or outcome['stdout']}")
        states, self.seen = _parse(outcome["stdout"])
        return states


def _poll_command(run_id: str, counter: int, watchers: dict[str, t.Mapping[str, t.Any]], turns: Told | None) -> str:
    pids = sorted({int(watcher["pid"]) for watcher in watchers.values()})
    parts = [
        f"cd {RUN_FOLDER} && umask 077 && printf %s {counter} > {shlex.quote(run_id)}.heartbeat",
        *([_turns_command(run_id, turns)] if turns else []),
        _wait_command(pids),
        *(f"cat {shlex.quote(uuid)}.json 2>/dev/null" for uuid in watchers),
        f"cat {shlex.quote(run_id)}.seen 2>/dev/null",
        *(f"cat /proc/{pid}/stat 2>/dev/null" for pid in pids),
        "true",
    ]
    return "; ".join(parts)


def _turns_command(run_id: str, turns: Told) -> str:
    """Return what replaces the file of turns in one step: a watcher reads the old one or the new one."""
    name, told = shlex.quote(f"{run_id}.turns"), shlex.quote(json.dumps(turns, separators=(",", ":")))
    return f"printf %s {told} > {name}.new && mv {name}.new {name}"


def _wait_command(pids: t.Sequence[int]) -> str:
    """Return what waits for the end of any of these processes, so that the last word of a watcher is read as soon as it is there."""
    alive = " && ".join(f"[ -d /proc/{pid} ]" for pid in pids)
    return f"n=0; while [ $n -lt {WAIT_STEPS} ] && {alive}; do sleep {WAIT_SECONDS / WAIT_STEPS:.1f}; n=$((n+1)); done"


def _parse(output: str) -> tuple[dict[str, State], dict[str, t.Any] | None]:
    """Read state files (one JSON line each) and lines of /proc/PID/stat; whatever else a login shell prints is passed over."""
    states: dict[str, State] = {}
    running: dict[int, int | None] = {}
    seen: dict[str, t.Any] | None = None
    for line in output.splitlines():
        if line.startswith(_SEEN):
            seen = _seen(line)
        elif line.startswith("{"):
            state = _state(line)
            states[state["domain"]["uuid"]] = state
        elif (pid := number_of(line.split(" ", 1)[0])) is not None:
            running[pid] = parse_start_ticks(line)
    for state in states.values():
        watcher = state["watcher"]
        state["alive"] = watcher["start_ticks"] is not None and running.get(watcher["pid"]) == watcher["start_ticks"]
    return states, seen


def _state(line: str) -> State:
    document = _object(line)
    try:
        watcher = check_record(document).get("watcher")
    except Internal as error:
        raise _unreadable(error.message) from error
    if not isinstance(watcher, dict) or not isinstance(watcher.get("pid"), int) or not isinstance(watcher.get("start_ticks", ""), (int, type(None))):
        raise _unreadable("It names no watcher.")
    return document


def _seen(line: str) -> State:
    seen = _object(line)["seen"]
    if not isinstance(seen, dict):
        raise _unreadable("What it has seen is no object.")
    return seen


def _object(line: str) -> State:
    """Return the object of a line that begins like one."""
    try:
        return t.cast(State, json.loads(line))
    except (ValueError, RecursionError) as error:
        raise _unreadable(f"It is no JSON: {error}.") from error


def _unreadable(why: str) -> Internal:
    return Internal(f"A state file on the source host cannot be read. {why}", "Look under /run/kvmfleet there.")
