# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Logins that an SSH server drops because too many others are not authenticated yet (MaxStartups, 10:30:100 unless configured)."""

from __future__ import annotations

import re
import typing as t

from .._records import schema

# What OpenSSH's client prints then. It has no exit code of its own for that.
DROPPED = r"kex_exchange_identification|banner exchange|Connection (closed|reset) by \S+ port"
_DROPPED = re.compile(DROPPED)

TRIES = 5
_FIRST_PAUSE_SECONDS = 2.0


def is_worth_another_try(message: str, tries: int, record: schema.Record) -> bool:
    """Whether a migrate call that failed is repeated: libvirt's own login to the destination was dropped, and nothing of the guest has moved.

    :arg message: the error message of the call.
    :arg tries: how many calls were made.
    """
    progress = record["progress"]
    has_moved = progress["memory_processed_bytes"] or progress["disk_processed_bytes"]
    was_ended = any(str(entry["act"]).startswith("abort") for entry in record["acts"])
    return tries < TRIES and not has_moved and not was_ended and bool(_DROPPED.search(message))


def pause_seconds(tries: int, share: float) -> float:
    """Return how long to wait before the next try: twice as long each time, and at random, so that logins that were dropped together do not return together.

    :arg share: a random number from 0 to 1.
    """
    return t.cast(float, _FIRST_PAUSE_SECONDS * 2 ** (tries - 1) * (0.5 + share))
