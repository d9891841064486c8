# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which guests run at their destination already. The migrate call ends much later: libvirt first ends the source's QEMU."""

from __future__ import annotations

import threading
import typing as t

from .._errors import KvmfleetError
from .._migration.hypervisor import Host
from .._records.clock import utc_now


class ArrivalEvents:
    """Listens at the destinations, on one connection to each for all moves of a watcher.

    It only makes room earlier: where a destination tells nothing, or is cut off, a move has arrived when it has ended.
    """

    def __init__(self, open_host: t.Callable[[str], Host]) -> None:
        self._open_host = open_host
        self._listening: t.Dict[str, Host] = {}
        self._at: t.Dict[str, str] = {}
        self._lock = threading.Lock()
        self._news = threading.Event()

    def expect_at(self, uri: str) -> None:
        """Listen at that destination from now on; nothing where somebody does already, or where it cannot be reached."""
        with self._lock:
            host = self._listening.get(uri)
            if host is not None and host.answers():
                return
            try:
                self._listening[uri] = self._open_host(uri)
                self._listening[uri].listen_for_arrivals(self._arrived)
            except KvmfleetError:
                self._listening.pop(uri, None)
            finally:
                if host is not None:
                    host.close()

    def at(self, uuid: str) -> t.Optional[str]:
        """Return when that guest began to run at its destination with all of its memory (RFC 3339, UTC); null where that was not told."""
        return self._at.get(uuid)

    def stir(self) -> None:
        """End the wait of C(wait): something else has changed."""
        self._news.set()

    def wait(self, seconds: float) -> None:
        """Sleep for so long, or until a guest arrives or C(stir) is called."""
        self._news.wait(seconds)
        self._news.clear()

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            for host in self._listening.values():
                host.close()
            self._listening.clear()

    def _arrived(self, uuid: str) -> None:
        self._at[uuid] = utc_now()
        self._news.set()
