# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Writing once: a transaction may be sent as often as its answer gets lost, and happens one time or never."""

from __future__ import annotations

import os
import time
import typing as t
import uuid
from collections.abc import Callable, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, Unreachable

from ..identity import replaced
from .client import Client
from .failures import Overtaken, Refused
from .identity import Identity, found_at
from .messages import Done, Message, has_value, is_from, one, put, reading

# How long a writer's last number is kept; no answer is waited for nearly as long.
MARK_SECONDS = 3600


class Fence(t.NamedTuple):
    """A lock that is held: whoever took it since has another C(create_revision).

    :arg name: what the lock is called.
    """

    name: str
    key: str
    create_revision: int


class Writer:
    """Counts its transactions in a key of its own, which each of them compares and raises.

    So one that was done already is known by its number, and one that was delayed on its way is refused when it arrives after a later one. Each also
    compares the ledger's identity, and the locks that are held.
    """

    def __init__(self, client: Client, identity: Identity, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._identity = identity
        self._clock = clock
        self._begin()

    def _begin(self) -> None:
        self._mark = f"{self._client.address.prefix}writers/{uuid.uuid4()}"
        self._number = 0
        self._lease = 0
        self._since = self._clock()
        self._pid = os.getpid()

    def write(self, compares: Sequence[Message], acts: Sequence[Message], fences: Sequence[Fence]) -> None:
        """Do all acts of L(messages), if all comparisons hold.

        Raises L(Overtaken) where they do not, L(Conflict) where a lock was lost, L(InvalidState) where the ledger is another one now, and L(Unreachable)
        where it is not known whether it was done.
        """
        self._renew()
        number = str(self._number + 1)
        is_next = is_from(self._mark, 0) if self._number == 0 else has_value(self._mark, str(self._number))
        must = [has_value(self._identity.key, self._identity.value), is_next, *(is_from(fence.key, fence.create_revision) for fence in fences), *compares]
        keys = [self._identity.key, self._mark, *(fence.key for fence in fences)]
        try:
            done = self._client.transaction(must, [*acts, put(self._mark, number, self._lease)], [reading(one(key)) for key in keys])
        except Refused as error:
            # The lease has ended: this process was held up for an hour.
            self._begin()
            raise Overtaken(str(error)) from error
        except Unreachable as error:
            self._begin()
            raise Unreachable(f"{error.message} Whether the last change was written is not known.", error.next_step) from error
        if not done.succeeded:
            self._judge(done, number, fences)
        self._number += 1

    def _renew(self) -> None:
        """Begin a new count where there is none yet, where the key of the old one may end soon, and in a process that was forked."""
        if self._pid != os.getpid() or self._clock() - self._since > MARK_SECONDS / 2:
            self._begin()
        if not self._lease:
            self._lease = self._client.grant(MARK_SECONDS)

    def _judge(self, done: Done, number: str, fences: Sequence[Fence]) -> None:
        """Return where the transaction had been done before; else raise why it was not."""
        identity, mark, *held = done.found
        if mark and mark[0].value.decode("utf-8", "replace") == number:
            return
        if not identity or identity[0].value != self._identity.value:
            raise replaced(identity[0].value if identity else None, found_at(self._client))
        for fence, now in zip(fences, held, strict=True):
            if not now or now[0].create_revision != fence.create_revision:
                raise Conflict(
                    f"The lock {fence.name} of the ledger {self._client.address} was lost: this process was held up for so long that its lock ended. "
                    "Nothing was written.",
                    "Run the task again: it decides anew.",
                )
        if self._number and not mark:
            self._begin()
        raise Overtaken("a document was written by another process")
