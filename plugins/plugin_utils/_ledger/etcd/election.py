# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Elects one of several long-running processes as leader, by a lock of the ledger in etcd.

A leader stops by its own clock before the lock of a process that cannot reach etcd expires there, so that there are never two.
"""

from __future__ import annotations

import contextlib
import threading
import typing as t
from collections.abc import Callable

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import boot_moment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError

from ..rules import check_lock_key
from .client import Client
from .messages import Overtaken, Refused
from .store import LOCK_SECONDS, enter_queue, read_queue

# How long before the end of its lock a leader stops: for what is on its way when it stops.
_MARGIN_SECONDS = 3.0
_ROUND_SECONDS = 1.0
# A round that takes longer is useless.
_PATIENCE_SECONDS = 4.0


class Election(threading.Thread):
    """Takes part until it is stopped. Leaders follow each other in the order in which they have begun.

    :arg name: processes with the same name elect one of them.
    :arg report: receives the sentence about an error, once for each.
    """

    def __init__(self, client: Client, name: str, report: Callable[[str], None], clock: Callable[[], float] = lambda: boot_moment().seconds) -> None:
        super().__init__(name=f"election {name}", daemon=True)
        self._client = client
        self._queue = f"{client.address.prefix}locks/{check_lock_key(name)}/"
        self._report = report
        self._clock = clock
        self._over = threading.Event()
        self._lease: t.Optional[int] = None
        self._key = ""
        self._leads_until = 0.0
        self._last_error = ""

    @property
    def is_leader(self) -> bool:
        """Whether this process leads at this moment."""
        return not self._over.is_set() and self._clock() < self._leads_until

    def run(self) -> None:
        """Take part in the election."""
        self._client.patience_seconds = _PATIENCE_SECONDS
        while not self._over.is_set():
            try:
                self._take_round()
                self._last_error = ""
            except (KvmfleetError, Overtaken, Refused) as error:
                self._note_error(str(error))
            self._over.wait(_ROUND_SECONDS)
        self._resign()

    def stop(self) -> None:
        """Resign soon, and let the next one lead. Returns at once."""
        self._over.set()

    def _take_round(self) -> None:
        """Renew the own place in the queue, and lead if it is the first one and as long as that is certain."""
        asked_at = self._clock()
        if self._lease is None or not self._client.renew_lease(self._lease):
            # The place in the queue has ended with its lease.
            self._leads_until = 0.0
            asked_at = self._clock()
            self._lease = self._client.grant_lease(LOCK_SECONDS)
            self._key = f"{self._queue}{self._lease:016x}"
            own, first = enter_queue(self._client, self._queue, self._key, self._lease)
        else:
            own, first = read_queue(self._client, self._queue, self._key)
        if own is None or first is None:
            self._lease, self._leads_until = None, 0.0
        elif first.key == self._key:
            self._leads_until = asked_at + LOCK_SECONDS - _MARGIN_SECONDS

    def _note_error(self, error: str) -> None:
        if error != self._last_error:
            self._last_error = error
            self._report(error)

    def _resign(self) -> None:
        if self._lease is not None:
            with contextlib.suppress(KvmfleetError, Refused, Overtaken):
                self._client.revoke_lease(self._lease)
