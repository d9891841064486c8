# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Clocks that can jump: that of the control node, and those of the hosts."""

from __future__ import annotations

import pathlib

from ansible_collections.kvmfleet.migration.tests.integration.faults.engine.clocks import Clock
from ansible_collections.kvmfleet.migration.tests.integration.faults.engine.moments import PROBE
from ansible_collections.kvmfleet.migration.tests.integration.support.site import Site

from .actions import HOSTS

CONTROL = 0
_WRAPPER = """#!/bin/sh
[ -e '{mark}' ] && export {clock}
exec /usr/bin/python3 "$@"
"""


class Clocks:
    """A process that is begun while a clock is wrong goes by that clock, and sees it jump back."""

    def __init__(self, site: Site, folder: pathlib.Path) -> None:
        self._site = site
        self._folder = folder
        self._right = dict(site.environment)
        self._marks = {number: folder / f"wrong-{number}" for number in (CONTROL, *HOSTS)}
        self._clocks = {number: Clock(folder / f"clock-{number}") for number in (CONTROL, *HOSTS)}
        for number in HOSTS:
            words = " ".join(f"{key}='{value}'" for key, value in self._environment(number).items())
            wrapper = folder / f"python-{number}"
            wrapper.write_text(_WRAPPER.format(mark=self._marks[number], clock=words), encoding="utf-8")
            wrapper.chmod(0o755)
            site.variable(number, "ansible_python_interpreter", str(wrapper))

    def jump(self, number: int, seconds: int) -> None:
        """Let a clock be wrong by so many seconds; 0 is right."""
        self._clocks[number].jump(seconds)
        if seconds:
            self._marks[number].touch()
        else:
            self._marks[number].unlink(missing_ok=True)
        if number == CONTROL:
            self._site.environment = {**self._right, **(self._environment(CONTROL) if seconds else {})}

    def begin_later(self, days: int) -> dict[str, str]:
        """Return the environment of a process of the control node whose clock is so many days ahead, which no other process sees."""
        clock = Clock(self._folder / "clock-later")
        clock.jump(days * 86_400)
        return {**self._right, **self._environment_of(clock, CONTROL)}

    def right(self) -> None:
        """Let all clocks be right."""
        for number in self._clocks:
            self.jump(number, 0)

    def _environment(self, number: int) -> dict[str, str]:
        return self._environment_of(self._clocks[number], number)

    def _environment_of(self, clock: Clock, number: int) -> dict[str, str]:
        path = f"{PROBE}:{self._right.get('PYTHONPATH', '')}" if number == CONTROL else str(PROBE)
        return {**clock.environment, "PYTHONPATH": path}
