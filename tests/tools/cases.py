# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plugin for pytest that writes into a file which cases begin and end, so that whoever runs pytest can tell a slow run from one that hangs.

It runs on the oldest Python that hosts may have. Each line of the file named by KVMFLEET_CASES is C(begin <case>) or C(end <case>).
"""

from __future__ import annotations

import os
import typing as t

if t.TYPE_CHECKING:
    import pytest

VARIABLE = "KVMFLEET_CASES"
BEGIN, END = "begin", "end"


class Cases:
    """Writes a line for each case that begins or ends."""

    def __init__(self, path: str) -> None:
        self._path = path

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note that a case begins, its fixtures included."""
        self._write(BEGIN, nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Note that it has ended."""
        self._write(END, nodeid)

    def _write(self, event: str, nodeid: str) -> None:
        with open(self._path, "a", encoding="utf-8") as stream:
            stream.write(f"{event} {nodeid}\n")


def pytest_configure(config: pytest.Config) -> None:
    """Take part where the file is named; a worker of xdist leaves it to the process that hears of all cases."""
    path = os.environ.get(VARIABLE)
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Cases(path), "kvmfleet-cases")
