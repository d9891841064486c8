# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long each operation of a ledger takes, in one process."""

from __future__ import annotations

import contextlib
import time
import typing as t
from collections.abc import Iterator

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger

Seconds = dict[str, list[float]]
_TIMED = (
    "open_record",
    "update_record",
    "find_unsettled",
    "read_record",
    "find_host",
    "read_hosts",
    "list_hosts",
    "read_domain",
    "find_domains",
    "list_closed_since",
)


class Timed:
    """A ledger that a task has opened. What it was asked, and how long that took, is added to C(seconds)."""

    def __init__(self, ledger: Ledger, seconds: Seconds) -> None:
        self._ledger = ledger
        self._seconds = seconds

    def __getattr__(self, name: str) -> t.Any:
        found = getattr(self._ledger, name)
        return self._timed(name, found) if name in _TIMED else found

    def list_records(self, **conditions: t.Any) -> Iterator[MoveRecord]:
        """Read all of them at once, which is what is timed."""
        kind = "records (open)" if conditions.get("unsettled_only") else "records (closed)"
        return iter(self._timed(kind, lambda: list(self._ledger.list_records(**conditions)))())

    @contextlib.contextmanager
    def hold_lock(self, key: str, timeout_seconds: float = 30) -> Iterator[None]:
        """Time the wait for the lock."""
        begin = time.monotonic()
        with self._ledger.hold_lock(key, timeout_seconds):
            self._seconds.setdefault(f"lock ({key.partition('-')[0]})", []).append(time.monotonic() - begin)
            yield

    def _timed(self, name: str, call: t.Callable[..., t.Any]) -> t.Callable[..., t.Any]:
        def timed(*given: t.Any, **options: t.Any) -> t.Any:
            begin = time.monotonic()
            try:
                return call(*given, **options)
            finally:
                self._seconds.setdefault(name, []).append(time.monotonic() - begin)

        return timed
