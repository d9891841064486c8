# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Leases that are kept alive from a thread of their own, and end with their process."""

from __future__ import annotations

import contextlib
import threading

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import KvmfleetError

from .client import Client
from .failures import Overtaken, Refused

# A dead control node's locks end so long after its last sign of life.
LOCK_SECONDS = 15


class Lease:
    """Granted when it is made; kept alive until it is ended. What was written with it is gone with it.

    :arg seconds: without a sign of life after which it ends.
    """

    def __init__(self, client: Client, seconds: int) -> None:
        self._client = client
        self._seconds = seconds
        self.id = client.grant(seconds)
        self._over = threading.Event()
        self._keeper = threading.Thread(target=self._keep, args=(client.twin(),), name="ledger-lease", daemon=True)
        self._keeper.start()

    def end(self) -> None:
        """Give it back. Where nobody answers it ends by itself."""
        self._over.set()
        with contextlib.suppress(KvmfleetError, Refused):
            self._client.revoke(self.id)

    def _keep(self, client: Client) -> None:
        client.patience_seconds = self._seconds
        while not self._over.wait(self._seconds / 3):
            # One that was lost is found out by the next write, which compares what was written with it.
            with contextlib.suppress(KvmfleetError, Refused, Overtaken):
                client.keep_alive(self.id)
