# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Variables that are read from the inventory once in a task."""

from __future__ import annotations

import typing as t

from .._settings import Settings


class ReadOnce(Settings):
    """Settings that remember each answer. What was read by the task itself can be read again by a thread beside it, which must not evaluate templates."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._values: dict[tuple[str, str], t.Any] = {}
        self._known: dict[str, bool] = {}

    def of(self, host: str, variable: str, default: t.Any = None) -> t.Any:
        """Return that variable of that host; the default where the inventory has neither."""
        key = (host, variable)
        if key not in self._values:
            self._values[key] = self._settings.of(host, variable)
        return default if self._values[key] is None else self._values[key]

    def is_known(self, host: str) -> bool:
        """Whether the inventory has the host."""
        if host not in self._known:
            self._known[host] = self._settings.is_known(host)
        return self._known[host]
