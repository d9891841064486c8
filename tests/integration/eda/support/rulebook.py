# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real ansible-rulebook on the control node."""

from __future__ import annotations

import ast
import json
import os
import pathlib
import signal
import subprocess
import typing as t

import yaml

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Answer, eventually
from ansible_collections.kvmfleet.migration.tests.integration.support.site import HOSTS

Event = dict[str, t.Any]

# In the lab a host without power is noticed at once; what is waited for is only that it stays away.
GONE_AFTER_SECONDS = 5
START_SECONDS = 240
EVENT_SECONDS = 150
PLAY_SECONDS = 480
END_SECONDS = 120


class Rulebook:
    """A rulebook, running.

    :arg rulebook: the full name of one of a collection, or a file.
    :arg armed: variables that a person sets.
    """

    def __init__(self, site: Control, rulebook: str, **armed: t.Any) -> None:
        name = pathlib.Path(rulebook).name
        self._output = site.folder / f"{name}-{len(list(site.folder.glob(f'{name}-*')))}.log"
        variables = site.folder / "events.json"
        variables.write_text(json.dumps({"kvmfleet_events_hosts": uris(site), "kvmfleet_events_gone_after_seconds": GONE_AFTER_SECONDS, **armed}))
        command = ["ansible-rulebook", "--rulebook", rulebook, "--inventory", site.inventory, "--vars", str(variables)]
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                command, env=site.environment, cwd=site.folder, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    def text(self) -> str:
        """Return all that it has printed."""
        return self._output.read_text(encoding="utf-8", errors="replace")

    def events(self) -> list[Event]:
        """Return the events that the rulebook has printed."""
        return [ast.literal_eval(line) for line in self.text().splitlines() if line.startswith("{") and "'event':" in line]

    def meanwhile(self, ask: t.Callable[[], Answer | None], what: str, seconds: float = EVENT_SECONDS) -> Answer:
        """Return the first answer that is true in a test, while the rulebook runs; what that has printed is shown where there is none in time."""

        def asked() -> Answer | None:
            assert self._process.poll() is None, "the rulebook has ended"
            return ask()

        try:
            return eventually(asked, what, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text()}") from None

    def says(self, words: str, seconds: float = EVENT_SECONDS) -> None:
        """Wait until it has printed these words, however its lines are broken."""
        self.meanwhile(lambda: words in " ".join(self.text().split()), words, seconds)

    def tells(self, seconds: float = EVENT_SECONDS, **wanted: t.Any) -> Event:
        """Wait for an event with these values."""

        def found() -> Event | None:
            return next((event for event in self.events() if all(event.get(key) == value for key, value in wanted.items())), None)

        return self.meanwhile(found, f"an event {wanted}", seconds)

    def kill(self) -> None:
        """Kill it, and what it has begun, as a machine does that loses its power."""
        for process in [] if self.is_over() else self._family():
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self._process.wait(END_SECONDS)

    def end(self) -> None:
        """Ask it to end, as its service manager does; it has to obey. Java takes that signal, and has the exit code that is usual then."""
        assert self._process.poll() is None, self.text()
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(END_SECONDS) in (0, 128 + signal.SIGTERM), self.text()
        assert "Traceback" not in self.text()

    def is_over(self) -> bool:
        """Whether it has ended by itself."""
        return self._process.poll() is not None

    def code(self) -> int:
        """Return the exit code with which it has ended."""
        return self._process.wait(END_SECONDS)

    def _family(self) -> list[int]:
        """Return the process and all that descend from it."""
        children: dict[int, list[int]] = {}
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = int(stat.read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(stat.parent.name))
        found = [self._process.pid]
        for process in found:
            found += children.get(process, [])
        return found


def uris(site: Control) -> dict[str, str]:
    """Return where the rulebook follows each host: at the address that the inventory has, over plain TCP."""
    inventory = yaml.safe_load((pathlib.Path(site.inventory) / "hosts.yml").read_text())
    hosts = inventory["all"]["children"]["kvmfleet_hosts"]["hosts"]
    return {name: f"qemu+tcp://{hosts[name]['ansible_host']}/system" for name in map(site.name, HOSTS)}
