# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Timing things side by side: in turn, round by round, so that a machine that slows down slows all of them."""

from __future__ import annotations

import statistics
import subprocess
import time
import typing as t
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Seconds = float


@dataclass(frozen=True)
class Series:
    """The same thing, measured several times, in seconds unless its owner says otherwise."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The figure that counts."""
        return statistics.median(self.values)

    def told(self, unit: str = "s", digits: int = 2) -> str:
        """Return median, minimum and maximum in words."""
        return f"{self.median:.{digits}f} {unit} ({min(self.values):.{digits}f} to {max(self.values):.{digits}f})"


def in_turn(measured: Mapping[str, Callable[[], Seconds]], rounds: int) -> dict[str, Series]:
    """Return a series of each, taken in turn; every other round in reverse order, so that none is always first."""
    found: dict[str, list[Seconds]] = {name: [] for name in measured}
    for number in range(rounds):
        names = list(measured) if number % 2 == 0 else list(measured)[::-1]
        for name in names:
            found[name].append(measured[name]())
    return {name: Series(tuple(values)) for name, values in found.items()}


def seconds_of(act: Callable[[], t.Any]) -> Seconds:
    """Return how long a call takes."""
    begin = time.monotonic()
    act()
    return time.monotonic() - begin


def seconds_of_command(command: Sequence[str], env: Mapping[str, str] | None = None, timeout: Seconds = 600) -> Seconds:
    """Return how long a whole process takes. Raises C(subprocess.CalledProcessError), with what it printed, where it fails."""
    begin = time.monotonic()
    subprocess.run(command, env=env, timeout=timeout, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL)
    return time.monotonic() - begin
