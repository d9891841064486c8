# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Talking JSON over a unix socket of QEMU: its monitor (QMP), and the guest agent in a machine."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import fcntl
import json
import pathlib
import socket
import time
import typing as t

from ...lab.kvmlab.errors import LabError

Answer = t.Any


class Unreachable(LabError):
    """Nobody answers at the other end of a socket, or not in time."""


@dataclasses.dataclass(frozen=True)
class Done:
    """How a command in a machine ended."""

    code: int
    out: str
    err: str


class Monitor:
    """The monitor of one QEMU process."""

    def __init__(self, path: pathlib.Path, timeout_seconds: float = 20) -> None:
        self._path = path
        self._timeout = timeout_seconds

    def execute(self, command: str, **arguments: t.Any) -> Answer:
        """Execute one command and return its answer.

        :raises Unreachable: QEMU does not run, or does not answer.
        :raises LabError: QEMU refuses the command.
        """
        with _conversation(self._path, self._timeout) as say:
            say.receive()
            say.ask("qmp_capabilities", {})
            return say.ask(command, arguments)

    def events(self) -> t.Iterator[t.Mapping[str, Answer]]:
        """Yield what QEMU announces, such as a reset of the machine. Nobody else gets an answer of this monitor meanwhile.

        :raises Unreachable: QEMU does not run, or has ended, or has announced nothing for the time limit of the monitor.
        """
        with _conversation(self._path, self._timeout) as say:
            say.receive()
            say.ask("qmp_capabilities", {})
            while True:
                answer = say.receive()
                if "event" in answer:
                    yield answer


class Agent:
    """The guest agent of one machine. It needs no network, and one client at a time is served."""

    def __init__(self, path: pathlib.Path, timeout_seconds: float = 60) -> None:
        self._path = path
        self._timeout = timeout_seconds

    def execute(self, command: str, **arguments: t.Any) -> Answer:
        """Execute one command of the agent. Raises L(Unreachable) where it does not answer in time."""
        with self._synchronised() as say:
            return say.ask(command, arguments)

    def shut_down(self) -> None:
        """Tell the machine to power itself off; the agent gives no answer to that."""
        with self._synchronised() as say:
            say.send("guest-shutdown", {"mode": "powerdown"})

    @contextlib.contextmanager
    def _synchronised(self) -> t.Iterator[_Conversation]:
        with self._path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with _conversation(self._path, self._timeout) as say:
                number = time.monotonic_ns() & 0x7FFFFFFF
                # What the agent still had to say to somebody else comes first.
                say.send("guest-sync-delimited", {"id": number})
                say.skip_to_answer(number)
                yield say

    def run(self, *argv: str, timeout_seconds: float = 300, stdin: str = "") -> Done:
        """Run a command in the machine as root, and wait for its end.

        :raises Unreachable: the machine does not answer.
        :raises LabError: the command did not end in time; it is left running.
        """
        arguments: t.Dict[str, t.Any] = {"path": argv[0], "arg": list(argv[1:]), "capture-output": True}
        if stdin:
            arguments["input-data"] = base64.b64encode(stdin.encode()).decode()
        pid = self.execute("guest-exec", **arguments)["pid"]
        limit, pause = time.monotonic() + timeout_seconds, 0.1
        while time.monotonic() < limit:
            status = self.execute("guest-exec-status", pid=pid)
            if status["exited"]:
                out, err = (base64.b64decode(status.get(key, "")).decode(errors="replace") for key in ("out-data", "err-data"))
                return Done(status.get("exitcode", 128 + status.get("signal", 0)), out, err)
            time.sleep(pause)
            pause = min(pause * 1.5, 1)
        raise LabError(f"{argv[0]} did not end within {timeout_seconds:g} s in the machine of {self._path.parent.name}.")


class _Conversation:
    def __init__(self, connection: socket.socket, name: str) -> None:
        self._file = connection.makefile("rwb")
        self._name = name

    def send(self, command: str, arguments: t.Mapping[str, t.Any]) -> None:
        self._file.write(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        self._file.flush()

    def receive(self) -> Answer:
        line = self._file.readline()
        if not line:
            raise Unreachable(f"{self._name} closed the connection.")
        return json.loads(line[line.rfind(b"\xff") + 1 :])

    def skip_to_answer(self, number: int) -> None:
        """Read until the agent has answered with that number."""
        while True:
            with contextlib.suppress(json.JSONDecodeError):
                if self.receive().get("return") == number:
                    return

    def ask(self, command: str, arguments: t.Mapping[str, t.Any]) -> Answer:
        self.send(command, arguments)
        while True:
            answer = self.receive()
            if "error" in answer:
                raise LabError(f"{self._name} refused {command}: {answer['error'].get('desc')}")
            if "return" in answer:
                return answer["return"]


@contextlib.contextmanager
def _conversation(path: pathlib.Path, timeout_seconds: float) -> t.Iterator[_Conversation]:
    name = f"{path.parent.name}/{path.stem}"
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout_seconds)
        try:
            connection.connect(str(path))
            yield _Conversation(connection, name)
        except (OSError, json.JSONDecodeError) as exc:
            raise Unreachable(f"{name} does not answer: {exc}") from exc
