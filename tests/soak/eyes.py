# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Looking at the hosts of a lab from inside each, past its network and past the product."""

from __future__ import annotations

import json
import pathlib
import select
import subprocess
import threading
import typing as t

from ansible_collections.kvmfleet.migration.tests.lab.kvmlab import host as lab_host
from ansible_collections.kvmfleet.migration.tests.lab.kvmlab import namespaces
from ansible_collections.kvmfleet.migration.tests.lab.kvmlab.layout import Lab

from .actions import HOSTS
from .looks import OFF, Host, Look, Place

OBSERVER = pathlib.Path(__file__).with_name("observer.py")
# A libvirtd that starts a guest holds its answers back for a while.
PATIENCE_SECONDS = 5.0


class Eye:
    """The observer of one host, started anew whenever the host was off or it did not answer."""

    def __init__(self, lab: Lab, number: int) -> None:
        self._lab = lab
        self._host = lab.host_name(number)
        self._process: subprocess.Popen[str] | None = None
        self._init: int | None = None

    def is_on(self) -> bool:
        return lab_host.is_on(self._lab, self._host)

    def ask(self, question: str) -> t.Any:
        """Return the answer; none where nobody answers."""
        process = self._there()
        if process is None or process.stdin is None or process.stdout is None:
            return None
        try:
            process.stdin.write(f"{question}\n")
            process.stdin.flush()
            if select.select([process.stdout], [], [], PATIENCE_SECONDS)[0]:
                return json.loads(process.stdout.readline())
        except (OSError, ValueError):
            pass
        self.close()
        return None

    def close(self) -> None:
        """End the observer."""
        if self._process:
            self._process.kill()
            self._process.communicate()
        self._process = None

    def _there(self) -> subprocess.Popen[str] | None:
        init = lab_host.init_pid(self._lab, self._host)
        if init != self._init:
            self.close()
            self._init = init
        if self._process is None and init:
            command = namespaces.in_host(init, "/usr/bin/python3", str(OBSERVER))
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return self._process


class Eyes:
    """:arg prefix: the lab's."""

    def __init__(self, prefix: str) -> None:
        self._eyes = {number: Eye(Lab.named(prefix), number) for number in HOSTS}
        self._lock = threading.Lock()

    def look(self) -> Look:
        """Look at one host after the other."""
        with self._lock:
            return {number: _seen(eye) for number, eye in self._eyes.items()}

    def watchers(self) -> dict[int, list[int]]:
        """Return the processes that watch moves, by host and as the host numbers them."""
        with self._lock:
            return {number: eye.ask("watchers") or [] for number, eye in self._eyes.items() if eye.is_on()}

    def close(self) -> None:
        with self._lock:
            for eye in self._eyes.values():
                eye.close()


def _seen(eye: Eye) -> Host:
    answer = eye.ask("look") if eye.is_on() else None
    if answer is None:
        # It may have lost its power while it was asked.
        return Host(True, None, None) if eye.is_on() else OFF
    guests = answer["guests"]
    places = None if guests is None else {name: Place(*words) for name, words in guests.items()}
    return Host(True, places, answer["processes"])
