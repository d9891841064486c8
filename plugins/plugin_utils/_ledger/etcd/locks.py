# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Locks between control nodes: whoever asked first has them first, and they end with the process that holds them."""

from __future__ import annotations

import contextlib
import getpass
import os
import random
import socket
import time
import typing as t
from collections.abc import Iterator

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, TimedOut

from . import lease as leases
from .client import Client
from .failures import Refused
from .messages import Done, KeyValue, Message, coded, end_of, is_from, one, put, reading
from .writer import Fence

_FIRST_WAIT_SECONDS = 0.01
_LONGEST_WAIT_SECONDS = 0.2

Places = tuple[t.Optional[KeyValue], t.Optional[KeyValue]]


@contextlib.contextmanager
def held(client: Client, name: str, timeout_seconds: float) -> Iterator[Fence]:
    """Hold the lock of that name. Raises L(TimedOut), naming who has it, where it is not had in time."""
    queue = f"{client.address.prefix}locks/{name}/"
    lease = leases.Lease(client, leases.LOCK_SECONDS)
    try:
        own = _wait(client, queue, f"{queue}{lease.id:016x}", lease.id, name, timeout_seconds)
        yield Fence(name, own.key, own.create_revision)
    finally:
        lease.end()


def _queued(client: Client, queue: str, key: str, lease: int) -> Places:
    """Take a place in the queue; return it and the first one. The key is ours alone, so that this can be sent any number of times."""
    reads = _reads(queue, key)
    try:
        return _places(client.transaction([is_from(key, 0)], [put(key, _me(), lease), *reads], reads))
    except Refused:
        # The lease has ended already, and the place with it.
        return None, None


def _places(done: Done) -> Places:
    own, first = done.found
    return own[0] if own else None, first[0] if first else None


def _wait(client: Client, queue: str, key: str, lease: int, name: str, timeout_seconds: float) -> KeyValue:
    """Return the own place in the queue once it is the first."""
    own, first = _queued(client, queue, key, lease)
    deadline, wait = time.monotonic() + timeout_seconds, _FIRST_WAIT_SECONDS
    while own is not None and first is not None and first.key != key:
        if time.monotonic() >= deadline:
            raise TimedOut(
                f"The lock {name} of the ledger {client.address} was held by {first.value.decode('utf-8', 'replace')} for more than {timeout_seconds:g} s; "
                "nothing was changed.",
                f"Wait for the run that holds it and try again; the lock of a control node that died ends by itself within {leases.LOCK_SECONDS} s.",
            )
        time.sleep(wait * random.uniform(0.5, 1))  # noqa: S311  spreads those that wait
        wait = min(wait * 2, _LONGEST_WAIT_SECONDS)
        own, first = _places(client.transaction([], _reads(queue, key), []))
    if own is None or first is None:
        raise Conflict(f"The place in the queue for the lock {name} of the ledger {client.address} was lost: this process was held up.", "Run the task again.")
    return own


def _reads(queue: str, key: str) -> list[Message]:
    """Read the own place, and who is first in the queue."""
    first = {"key": coded(queue), "range_end": coded(end_of(queue)), "limit": "1", "sort_order": "ASCEND", "sort_target": "CREATE"}
    return [reading(one(key)), reading(first)]


def _me() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.geteuid())
    return f"{user}@{socket.gethostname()} pid {os.getpid()}"
