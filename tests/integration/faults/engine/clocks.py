# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Clocks that can be set, for the product's Python on one machine: all else on it keeps the real time."""

from __future__ import annotations

import pathlib


class Clock:
    """:arg file: what the probe reads at every question for the time. Monotonic clocks are the real ones, as after a real jump."""

    def __init__(self, file: pathlib.Path) -> None:
        self._file = file
        self.jump(0)

    @property
    def environment(self) -> dict[str, str]:
        """What a Python of a scenario needs to go by this clock."""
        return {"KVMFLEET_CLOCK": str(self._file)}

    def jump(self, seconds: int) -> None:
        """Go so many seconds before (or, less than 0, after) the real time."""
        new = self._file.with_suffix(".new")
        new.write_text(str(seconds))
        new.replace(self._file)
