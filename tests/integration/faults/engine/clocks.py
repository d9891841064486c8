# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Clocks that can be set, for the product's processes on one machine: the others on it keep the real time."""

from __future__ import annotations

import pathlib

LIBRARY = pathlib.Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")


class Clock:
    """:arg file: what the library reads at every question for the time. Monotonic clocks are the real ones, as after a real jump."""

    def __init__(self, file: pathlib.Path) -> None:
        assert LIBRARY.exists(), f"{LIBRARY} is missing: install the package libfaketime"
        self._file = file
        self.jump(0)

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to go by this clock."""
        real = {"DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_NO_CACHE": "1"}
        return {"LD_PRELOAD": str(LIBRARY), "FAKETIME_TIMESTAMP_FILE": str(self._file), **real}

    def jump(self, seconds: int) -> None:
        """Go so many seconds before (or, less than 0, after) the real time."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n")
        new.replace(self._file)
