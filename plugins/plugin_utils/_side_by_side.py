# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Runs a module on many hosts side by side, from within a task whose loop would take one host after the other.

A play of Ansible's own does this, so that the connections, privileges and variables of each host are those that the loop would give it. It has no output:
neither the screen nor AWX sees it.
"""

from __future__ import annotations

import contextlib
import re
import signal
import typing as t
from collections.abc import Iterator, Mapping, Sequence

from ansible import constants as C
from ansible import context
from ansible.executor.process import worker
from ansible.executor.task_queue_manager import TaskQueueManager
from ansible.playbook.play import Play
from ansible.plugins.action import ActionBase
from ansible.utils.context_objects import CLIArgs

from ansible_collections.kvmfleet.migration.plugins.module_utils._logins import DROPPED_LOGIN

Result = dict[str, t.Any]

# Silent hosts take their time to connect, and each needs a process on the control node.
MAX_AT_ONCE = 32
_ANSWER = "__kvmfleet_answer"
_INHERITED_KEYWORDS = ("become", "become_exe", "become_flags", "become_method", "become_user", "check_mode", "environment", "port", "remote_user")
# Options of ansible-playbook that choose tasks, and that would leave out the only task of the play or ask a person about it.
_CHOOSES_ALL_TASKS = {"step": False, "start_at_task": None, "tags": ("all",), "skip_tags": ()}


def run_side_by_side(action: ActionBase, hosts: Sequence[str], args: Mapping[str, t.Any], task_vars: Result) -> dict[str, Result]:
    """Return what the module of this task returns on each of these hosts of the inventory, as the loop would register it.

    A host that is not in the inventory is missing, and one whose login was dropped. The time limit of the task applies to each host. The process must end with
    the task: C(--limit), and options that choose tasks, no longer apply in it.
    """
    hostvars = task_vars["hostvars"]
    inventory, variables = hostvars._inventory, hostvars._variable_manager
    inventory.remove_restriction()
    inventory.subset(None)
    context.CLIARGS = CLIArgs({**context.CLIARGS, **_CHOOSES_ALL_TASKS})
    known = [host for host in hosts if inventory.get_host(host)]
    if not known:
        return {}
    play = Play.load(_describe_play(action, known, args), variable_manager=variables, loader=action._loader)
    with _restored_signals():
        queue = TaskQueueManager(inventory=inventory, variable_manager=variables, loader=action._loader, passwords=_find_passwords(), forks=_count_at_once())
        queue.load_callbacks = queue.send_callback = _tell_nobody
        try:
            queue.run(play)
        finally:
            queue.cleanup()
        answers = {host: hostvars.raw_get(host).get(_ANSWER) for host in known}
    return {host: dict(answer) for host, answer in answers.items() if answer and not _is_dropped(answer)}


def _is_dropped(answer: Result) -> bool:
    """Whether the login at a host was dropped, as servers do at random when many begin at once: the hosts may be behind the same one (MaxStartups)."""
    return bool(answer.get("unreachable") and re.search(DROPPED_LOGIN, str(answer.get("msg"))))


def _count_at_once() -> int:
    """Return how many hosts are asked at once: no more than the number of forks, if a person has chosen it."""
    forks, (default, origin) = context.CLIARGS["forks"], C.config.get_config_value_and_origin("DEFAULT_FORKS")
    return MAX_AT_ONCE if (forks, origin) == (default, "default") else min(forks, MAX_AT_ONCE)


def _tell_nobody(*_args: object, **_more: object) -> None:
    """Take the place of Ansible's callbacks."""


@contextlib.contextmanager
def _restored_signals() -> Iterator[None]:
    """Suspend the time limit of this task, which the processes of the play would inherit, and restore the handlers that end it with its children."""
    left = signal.alarm(0)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.alarm(left)


def _describe_play(action: ActionBase, hosts: Sequence[str], args: Mapping[str, t.Any]) -> Result:
    task, play = action._task, action._task.get_play()
    of_role = task._role.get_vars(task.get_dep_chain()) if task._role else {}
    inherited = {name: value for name in _INHERITED_KEYWORDS if (value := getattr(task, name)) is not None}
    # A host whose own connection is local, as the control node's, must not make the others local.
    connection = {} if str(play.connection).endswith("local") else {"connection": play.connection}
    query = {
        task.action: dict(args),
        "name": task.get_name(),
        "register": _ANSWER,
        "vars": {**of_role, **task.get_vars()},
        "timeout": task.timeout,
        "ignore_errors": True,
        "ignore_unreachable": True,
        "debugger": "never",
        **inherited,
    }
    return {
        "name": task.get_name(),
        "hosts": list(hosts),
        "gather_facts": False,
        **connection,
        "strategy": "ansible.builtin.linear",
        "any_errors_fatal": False,
        "vars": play.get_vars(),
        "vars_files": play.get_vars_files(),
        "tasks": [query],
    }


def _find_passwords() -> dict[str, str]:
    """Return the passwords of the command line. The context of the action has, instead of them, what variables give the host that is asked first."""
    given = worker.current_worker._play_context
    return {kind: value for kind, value in (("conn_pass", given.password), ("become_pass", given.become_pass)) if value}
