# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Telling a tool that hangs from one that is slow: the first gives no sign of life for ten minutes, the second may take all the time it needs."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Protocol

HANG_SECONDS = 600.0
_BEGIN, _END = "begin ", "end "


class Watch(Protocol):
    """What counts as a sign of life of a tool."""

    # How the tool is told to end, before its whole process group is.
    first_signal: signal.Signals

    def signs(self) -> int:
        """Return how many signs of life there have been."""

    def describe(self, seconds: float) -> str:
        """Return what hangs, after so many seconds without a sign of life."""


class Output:
    """Whatever the tool prints. Its output is in a file, from which it can be read while the tool runs."""

    first_signal = signal.SIGTERM

    def __init__(self, path: Path) -> None:
        self.path = path
        self._shown = 0

    def signs(self) -> int:
        return self.path.stat().st_size

    def describe(self, seconds: float) -> str:
        lines = [line for line in self.path.read_bytes().decode(errors="replace").splitlines() if line.strip()]
        return f"hung: no output for {seconds:.0f} s after {lines[-1].strip()!r}" if lines else f"hung: no output at all for {seconds:.0f} s"

    def fresh(self) -> str:
        """Return what was printed since the last call."""
        with self.path.open("rb") as stream:
            stream.seek(self._shown)
            content = stream.read()
        self._shown += len(content)
        return content.decode(errors="replace")


class Cases:
    """The cases of pytest that end, as the plugin C(tests/tools/cases.py) writes them down."""

    # It ends the case, tears down, and writes its report.
    first_signal = signal.SIGINT

    def __init__(self, path: Path) -> None:
        self._path = path

    def signs(self) -> int:
        return sum(line.startswith(_END) for line in self._lines())

    def describe(self, seconds: float) -> str:
        running: dict[str, None] = {}
        for line in self._lines():
            if line.startswith(_BEGIN):
                running[line.removeprefix(_BEGIN)] = None
            else:
                running.pop(line.removeprefix(_END), None)
        return f"hung: no case has ended for {seconds:.0f} s, running: {', '.join(running) or 'none (collection, or the end of the run)'}"

    def _lines(self) -> list[str]:
        return self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
