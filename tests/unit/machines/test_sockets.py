# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Talking to QEMU and to the guest agent: answers, events between them, refusals, silence."""

from __future__ import annotations

import base64
import json
import pathlib
import socket
import threading
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.lab.kvmlab.errors import LabError
from ansible_collections.kvmfleet.migration.tests.machines.kvmmachines.sockets import Agent, Monitor, Unreachable

Answer = t.Callable[[dict[str, t.Any]], list[t.Any]]


class Server:
    """Serves one unix socket in a thread, and answers each line with what a function makes of it."""

    def __init__(self, path: pathlib.Path, answer: Answer, greeting: t.Any = None) -> None:
        self.path, self.asked = path, []  # type: t.Any, list[dict[str, t.Any]]
        self._answer, self._greeting = answer, greeting
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, dummy = self._socket.accept()
            with connection, connection.makefile("rwb") as file:
                if self._greeting:
                    self._say(file, self._greeting)
                for line in file:
                    asked = json.loads(line)
                    self.asked.append(asked)
                    for answer in self._answer(asked):
                        self._say(file, answer)

    @staticmethod
    def _say(file: t.IO[bytes], what: t.Any) -> None:
        file.write(what if isinstance(what, bytes) else json.dumps(what).encode() + b"\n")
        file.flush()


def of_agent(asked: dict[str, t.Any]) -> list[t.Any]:
    if asked["execute"] == "guest-sync-delimited":
        # What somebody else had asked for, and half a line, come before the answer.
        return [{"return": 5}, b"{torn\n", b"\xff" + json.dumps({"return": asked["arguments"]["id"]}).encode() + b"\n"]
    if asked["execute"] == "guest-exec":
        return [{"return": {"pid": 7}}]
    return [{"return": {"exited": True, "exitcode": 3, "out-data": base64.b64encode(b"said").decode()}}]


def test_an_event_before_the_answer_is_skipped(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "monitor.sock"
    Server(path, lambda asked: [{"event": "STOP"}, {"return": {"running": True}}], greeting={"QMP": {}})
    assert Monitor(path).execute("query-status") == {"running": True}


def test_a_refusal_names_the_command_and_the_reason(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "monitor.sock"
    Server(path, lambda asked: [{"return": {}} if asked["execute"] == "qmp_capabilities" else {"error": {"desc": "no such file"}}], greeting={"QMP": {}})
    with pytest.raises(LabError, match="refused migrate: no such file"):
        Monitor(path).execute("migrate", uri="exec:cat")


def test_a_command_in_a_machine_returns_exit_code_and_output(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "agent.sock"
    server = Server(path, of_agent)
    done = Agent(path).run("/bin/sh", "-c", "true", stdin="input")
    assert (done.code, done.out, done.err) == (3, "said", "")
    started = next(asked for asked in server.asked if asked["execute"] == "guest-exec")
    assert started["arguments"]["arg"] == ["-c", "true"]
    assert base64.b64decode(started["arguments"]["input-data"]) == b"input"


def test_an_agent_that_is_silent_is_unreachable(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "agent.sock"
    Server(path, lambda asked: [])
    with pytest.raises(Unreachable, match="does not answer"):
        Agent(path, timeout_seconds=0.3).run("true")


def test_a_missing_socket_is_unreachable(tmp_path: pathlib.Path) -> None:
    with pytest.raises(Unreachable):
        Monitor(tmp_path / "monitor.sock").execute("query-status")
