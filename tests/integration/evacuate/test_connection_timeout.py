# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A server that accepts a connection and is slow has as long as in other tasks of the user: it must not count as silent after the 5 s of a silent port."""

from __future__ import annotations

import json
import os
import pathlib
import socket
import subprocess
import threading
import time

import pytest

PLAY = [
    {
        "hosts": "localhost",
        "gather_facts": False,
        "tasks": [
            {
                "ansible.builtin.include_role": {"name": "kvmfleet.migration.evacuate_host", "tasks_from": "knock.yml"},
                "vars": {"evacuate_host_source": "kvm1"},
            }
        ],
    }
]
# More than the 10 s that Ansible takes where nobody says anything.
OPENING_SECONDS = 13
LIMIT_SECONDS = 180


class SilentDoor:
    """A port that accepts connections and never says anything, as the SSH server of a host that hangs."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.held_seconds: list[float] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                caller, _address = self._listener.accept()
            except OSError:
                return
            with caller:
                begun = time.monotonic()
                while caller.recv(4096):
                    pass
                self.held_seconds.append(time.monotonic() - begun)

    def close(self) -> None:
        self._listener.close()


@pytest.mark.long
@pytest.mark.parametrize("said", ["-T", "ansible.cfg", "ansible_ssh_timeout", "ansible_timeout"])
def test_the_probe_of_the_dead_host_waits_as_long_as_the_users_ssh_timeout(tmp_path: pathlib.Path, said: str) -> None:
    door = SilentDoor()
    host = {"ansible_host": "127.0.0.1", "ansible_port": door.port, **({said: OPENING_SECONDS} if said.startswith("ansible_") else {})}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": {"localhost": {"ansible_connection": "local"}, "kvm1": host}}}))
    (tmp_path / "play.json").write_text(json.dumps(PLAY))
    (tmp_path / "ansible.cfg").write_text(f"[defaults]\ntimeout = {OPENING_SECONDS}\n" if said == "ansible.cfg" else "")
    command = ["ansible-playbook", "-i", "hosts.json", "play.json", *(["-T", str(OPENING_SECONDS)] if said == "-T" else [])]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS)
    door.close()
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(door.held_seconds) == 2, done.stdout
    assert door.held_seconds[1] > OPENING_SECONDS - 1
