# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Tries to connect to a dead host as Ansible does: with the connection plugin, the user and the jump hosts of the inventory.

The attempt has a process of its own, which can be ended: a connection may wait for a host without power for a quarter of an hour.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import selectors
import signal
import time
import types
import typing as t
from collections.abc import Callable, Mapping

from ansible import constants as C
from ansible.errors import AnsibleAuthenticationFailure, AnsibleConnectionFailure, AnsibleError
from ansible.plugins.loader import connection_loader
from ansible.utils.display import Display

from ansible_collections.kvmfleet.migration.plugins.module_utils._evacuation.peers import SSH_ANSWERS, SSH_SECONDS, SSH_SILENT, SSH_UNKNOWN
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Unsafe, printable_line

from .._action import FleetAction
from .._settings.variables import Settings
from .fleet_answers import SourceAnswers

if t.TYPE_CHECKING:
    from ansible.playbook.play_context import PlayContext
    from ansible.playbook.task import Task
    from ansible.plugins.connection import ConnectionBase

# How much longer than the user's own limit the attempt may take. A shorter limit would end it before SSH can report that the host is silent.
GRACE_SECONDS = 50.0
_SSH_PLUGINS = ("ssh", "ansible.builtin.ssh", "smart")
# SSH waits for the first line of a server behind a jump host, or of a server that hangs: then the user's own limit applies.
_SLOW_LOGIN = "banner exchange"
# What a server that rejects a connection says, or SSH about it; in lower case.
_REJECTIONS = (
    *("permission denied", "host key verification failed", "authentication fail", "unable to negotiate", "connection refused"),
    "administratively prohibited",
)
# SSH says this of a key of its user that it cannot read, and goes on without it.
_UNREADABLE_KEY = "load key "
_CHUNK_BYTES = 65536

# Opens a connection within so many seconds, and returns what a program says there.
Connect = Callable[[float], str]


class Connector:
    """Opens connections to one host as Ansible does for a task. The variables are read once.

    :arg own_variables: of the host for which the task runs, as the inventory has them: the play context has their password and timeout. The variables of the
      task itself also have those of the command line.
    """

    def __init__(self, host: str, settings: Settings, context: PlayContext, task: Task, own_variables: Mapping[str, Json]) -> None:
        name = str(settings.of(host, "ansible_connection") or task.connection or C.DEFAULT_TRANSPORT)
        self._name = "ssh" if name in _SSH_PLUGINS else name
        self._context = context.copy()
        # What SSH says shows whether the host is silent. The result of a task without a log is not shown anyway.
        self._context.no_log = False
        self._context.remote_addr = str(settings.of(host, "ansible_host", host))
        if any(own_variables.get(variable) is not None for variable in C.MAGIC_VARIABLE_MAPPING["password"]):
            self._context.password = None
        # The connection plugin does not read this variable.
        general = C.DEFAULT_TIMEOUT if own_variables.get("ansible_timeout") is not None else context.timeout
        self._keywords = {**task.dump_attrs(), "timeout": settings.of(host, "ansible_timeout", general)}
        del self._keywords["retries"]
        if self._context.password:
            self._keywords["password"] = self._context.password
        names = C.config.get_plugin_vars("connection", self._open()._load_name)
        self._variables: Mapping[str, Json] = {one: value for one in names if (value := settings.of(host, one)) is not None} | {"inventory_hostname": host}

    @property
    def password(self) -> str | None:
        """The password of the command line."""
        return t.cast("str | None", self._keywords.get("password"))

    def read_user_seconds(self) -> float:
        """Return how long the user lets a connection take to open."""
        connection = self._prepare({})
        return float(connection.get_option("timeout") if connection.has_option("timeout") else C.DEFAULT_TIMEOUT)

    def connect(self, seconds: float, program: str = "true") -> str:
        """Open a new connection and run a program, by default one that does nothing; return its output.

        Raises C(AnsibleConnectionFailure) if the host is silent.

        :arg seconds: how long SSH may take to connect. Other plugins have the limits of the user.
        """
        # A persistent connection to a host without power hangs until TCP gives up.
        own: dict[str, Json] = {"control_path": "none", "reconnection_retries": 0, "timeout": int(seconds)} if self._name == "ssh" else {}
        output: bytes = self._prepare(own).exec_command(program, sudoable=False)[1]
        return output.decode(errors="replace")

    def _open(self) -> ConnectionBase:
        return t.cast("ConnectionBase", connection_loader.get(self._name, self._context, None))

    def _prepare(self, own: Mapping[str, Json]) -> ConnectionBase:
        connection = self._open()
        connection.set_options(task_keys=self._keywords, var_options=dict(self._variables), direct=dict(own))
        return connection


def make_probe(action: FleetAction, host: str, task_vars: dict[str, Json], program: str = "true") -> AnsibleProbe:
    """Return an attempt to connect to a host of the inventory as Ansible does for that task."""
    own_variables = t.cast("t.Any", task_vars["hostvars"]).raw_get(task_vars["inventory_hostname"])
    connector = Connector(host, action.settings(task_vars), action._play_context, action._task, own_variables)
    return AnsibleProbe(host, functools.partial(connector.connect, program=program), connector.read_user_seconds())


class AnsibleProbe:
    """One attempt. It begins when the context is entered, and is ended when the context is left.

    :arg host: for messages.
    :arg connect: opens a connection within that number of seconds, see L(Connector.connect).
    :arg user_seconds: how long the user lets a connection take to open.
    """

    def __init__(self, host: str, connect: Connect, user_seconds: float, grace_seconds: float = GRACE_SECONDS) -> None:
        self._host = host
        self._connect = connect
        self._user_seconds = user_seconds
        self._limit_seconds = user_seconds + grace_seconds
        self._process = 0
        self._pipe = -1

    def __enter__(self) -> AnsibleProbe:
        """Begin. The process is forked here, so that no thread may run yet."""
        self._begun = time.monotonic()
        self._pipe, answer = os.pipe()
        self._process = os.fork()
        if not self._process:
            self._try_in_child(answer)
        os.close(answer)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None) -> None:
        """End the attempt with all its programs."""
        os.close(self._pipe)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)

    def read_answer(self) -> tuple[str, str]:
        """Return the result of L(try_connection), or C(SSH_UNKNOWN) if there is none in time."""
        received, end = b"", self._begun + self._limit_seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._pipe, selectors.EVENT_READ)
            while selector.select(max(0.0, end - time.monotonic())):
                chunk = os.read(self._pipe, _CHUNK_BYTES)
                received += chunk
                if not chunk:
                    return _parse_answer(received)
        return SSH_UNKNOWN, (
            f"after {self._limit_seconds:.0f} s, the connection was neither open nor refused. If a ControlPath is configured for Ansible, close the persistent"
            " connection to this host (ssh -O exit), and run this again"
        )

    def require_silence(self) -> None:
        """Return if the host is silent. Raises L(SourceAnswers) if it answers, L(Unsafe) if that is not known in time."""
        says, why = self.read_answer()
        if says == SSH_SILENT:
            return
        if says == SSH_ANSWERS:
            raise SourceAnswers(f"{self._host} answers Ansible. A host that answers is never evacuated.", "Drain it, or switch it off. Nothing was started.")
        raise Unsafe(
            f"Cannot determine whether {self._host} answers Ansible: {why}.",
            "A host that answers is never evacuated. Drain it, or switch it off. Nothing was started.",
        )

    def _try_in_child(self, answer: int) -> t.NoReturn:
        """Write the result to that pipe and exit. Nothing of Ansible's own output may come from here."""
        try:
            os.setsid()
            silence = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(silence, stream)
            # In a worker, the display sends its lines to the main process, over a queue that this process must not hold when it is ended.
            display = Display()
            display._final_q, display.verbosity = None, 0
            os.write(answer, json.dumps(try_connection(self._connect, self._user_seconds)).encode())
        finally:
            os._exit(0)


def try_connection(connect: Connect, user_seconds: float) -> tuple[str, str]:
    """Return whether the host answers: C(SSH_ANSWERS) with its answer, C(SSH_SILENT), or C(SSH_UNKNOWN) with the reason.

    A server that rejects the connection is that of the host or of a jump host before it, so the host is not known to be silent.

    A connection may take L(SSH_SECONDS) to open. If a login has begun by then, behind a jump host for example, it is repeated with the limit of the user.
    """
    try:
        try:
            return SSH_ANSWERS, connect(SSH_SECONDS)
        except AnsibleConnectionFailure as error:
            if _is_rejected(error) or _SLOW_LOGIN not in str(error) or user_seconds <= SSH_SECONDS:
                raise
            return SSH_ANSWERS, connect(user_seconds)
    except AnsibleConnectionFailure as error:
        return (SSH_UNKNOWN, f"it, or a jump host before it, rejects the login: {_one_line(error)}") if _is_rejected(error) else (SSH_SILENT, "")
    except (AnsibleError, OSError, ValueError) as error:
        return SSH_UNKNOWN, _one_line(error)


def _is_rejected(error: AnsibleConnectionFailure) -> bool:
    lines = [line for line in str(error).lower().splitlines() if _UNREADABLE_KEY not in line]
    return isinstance(error, AnsibleAuthenticationFailure) or any(words in line for line in lines for words in _REJECTIONS)


def _one_line(error: Exception) -> str:
    return printable_line(str(error).strip().rstrip("."))[:1000]


def _parse_answer(received: bytes) -> tuple[str, str]:
    try:
        says, why = json.loads(received)
    except ValueError:
        return SSH_UNKNOWN, "the attempt ended without a result"
    return str(says), str(why)
