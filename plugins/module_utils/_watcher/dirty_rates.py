# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""How fast the guests of a watcher write before their moves, as the survey has had it measured."""

from __future__ import annotations

import contextlib
import time
import typing as t

from .._libvirt.interface import Host
from .._model.errors import KvmfleetError

# A dirty rate from the survey of these moves, or of their plan.
RECENT_SECONDS = 300
# The survey has started measurements of a second, and the watcher begins before they have ended.
MEASURED_WITHIN_SECONDS = 1.5


class DirtyRates:
    """The dirty rates of domains. Those that are not known at first are read again until their measurements must have ended.

    :arg open_source: opens the host of the domains.
    """

    def __init__(self, uuids: t.Sequence[str], open_source: t.Callable[[], Host], clock: t.Callable[[], float] = time.monotonic) -> None:
        self._unknown = list(uuids)
        self._open_source = open_source
        self._clock = clock
        self._until = clock() + MEASURED_WITHIN_SECONDS
        self._rates: t.Dict[str, int] = {}

    def read_new(self) -> None:
        """Read the rates that have become known. A host that does not answer is asked again the next time."""
        if not self._unknown:
            return
        with contextlib.suppress(KvmfleetError), contextlib.closing(self._open_source()) as host:
            self._rates.update(host.recent_dirty_rates(self._unknown, RECENT_SECONDS))
        is_late = self._clock() >= self._until
        self._unknown = [] if is_late else [uuid for uuid in self._unknown if uuid not in self._rates]

    def rate_of(self, uuid: str) -> t.Optional[int]:
        """Return the rate in bytes a second: null as long as it may still be measured, C(0) if it is not known."""
        return None if uuid in self._unknown else self._rates.get(uuid, 0)
