# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What operators run beside each other: begun, killed, and waited for."""

from __future__ import annotations

import pathlib
import re
import subprocess
import time
import typing as t

from ansible_collections.kvmfleet.migration.tests.integration.faults.engine.tasks import NEVER_ENDED, Run
from ansible_collections.kvmfleet.migration.tests.integration.support.site import Site

from .model import Violation

# A drain of a whole host, with every limit on its way.
LIMIT_SECONDS = 420
# Our own errors are told in a sentence.
BROKEN = re.compile(r"^(?:\S*: )?Traceback \(most recent call last\)|MODULE FAILURE: No start of json", re.MULTILINE)


class Tasks:
    """:arg folder: for what each prints."""

    def __init__(self, site: Site, folder: pathlib.Path) -> None:
        self._site = site
        self._folder = folder
        self._begun: dict[Run, float] = {}
        self._killed: list[Run] = []
        self._commands: dict[Run, tuple[str, list[str], t.Optional[dict[str, str]]]] = {}
        self._count = 0
        folder.mkdir()

    @property
    def running(self) -> list[Run]:
        """Those that have not ended, the oldest first."""
        return [run for run in self._begun if run.code == NEVER_ENDED]

    def ad_hoc(self, host: int, module: str, arguments: t.Mapping[str, t.Any], ledger: bool = True, environment: t.Optional[dict[str, str]] = None) -> Run:
        """Begin a task of one module on a host.

        :arg environment: of its process, where it is not that of all tasks.
        """
        return self._begin(f"{module} on {host}", self._site.ad_hoc_command(host, module, arguments, ledger), environment)

    def playbook(self, name: str, **variables: t.Any) -> Run:
        """Begin one of the collection's playbooks."""
        return self._begin(name, self._site.playbook_command(name, variables))

    def _begin(self, name: str, command: list[str], environment: t.Optional[dict[str, str]] = None) -> Run:
        self._count += 1
        log = self._folder / f"{self._count:04}-{name.replace(' ', '-')}.log"
        with open(log, "wb") as output:
            output.write(f"{' '.join(command)}\n".encode())
            output.flush()
            given, folder = environment or self._site.environment, self._site.folder
            process = subprocess.Popen(command, env=given, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        run = Run(f"{name} ({log.name})", process, log)
        self._begun[run] = time.monotonic()
        self._commands[run] = (name, command, environment)
        return run

    def again(self) -> str:
        """Begin the task that was killed last once more; return what it is."""
        if not self._killed:
            return "nobody was killed"
        return self._begin(*self._commands[self._killed[-1]]).name

    def kill(self, which: int, whole: bool) -> str:
        """Kill one of those that run, the last being 0; return what was killed.

        :arg whole: its workers too, as when the control node loses its power.
        """
        running = self.running
        if not running:
            return "nobody"
        run = running[-1 - which % len(running)]
        if whole:
            run.kill_all()
        else:
            run.kill()
        del self._begun[run]
        self._killed.append(run)
        return run.name

    def collect(self) -> None:
        """Forget those that have ended. Raises L(Violation) for one that has broken, or never ends."""
        for run, begun in list(self._begun.items()):
            if run.code != NEVER_ENDED:
                del self._begun[run], self._commands[run]
                check(run)
            elif time.monotonic() - begun > LIMIT_SECONDS:
                raise Violation(f"the task {run.name} has not ended within {LIMIT_SECONDS} s:\n{run.summary[-3000:]}")

    def end_all(self) -> None:
        """Kill whatever is left of all of them."""
        for run in [*self._begun, *self._killed]:
            run.kill_all()


def check(run: Run) -> None:
    """Raise L(Violation) where a task ended by an error that is none of ours."""
    found = BROKEN.search(run.text)
    if found:
        raise Violation(f"the task {run.name} broke:\n{run.text[found.start() :][:3000]}")
