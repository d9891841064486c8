# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which status may follow which. Everything else is refused, on the host and on the control node alike."""

from __future__ import annotations

import typing as t

from .._errors import Internal
from . import statuses as s

_END_OF_MOVE = (s.FAILED, s.CANCELLED, s.ERROR)

_NEXT: t.Dict[str, t.Dict[str, t.Tuple[str, ...]]] = {
    s.LIVE_MIGRATION: {
        # An adopted job enters at running; a settling run may find a move that never began, or one that ended unseen.
        s.ACCEPTED: (s.CONFLICT, s.SCHEDULED, s.RUNNING, s.RUNNING_POST_COPY, s.COMPLETED) + _END_OF_MOVE,
        s.SCHEDULED: (s.CONFLICT, s.QUEUED, s.RUNNING, s.RUNNING_POST_COPY, s.COMPLETED) + _END_OF_MOVE,
        s.QUEUED: (s.PREPARING, s.RUNNING, s.RUNNING_POST_COPY, s.COMPLETED) + _END_OF_MOVE,
        s.PREPARING: (s.RUNNING, s.RUNNING_POST_COPY, s.COMPLETED) + _END_OF_MOVE,
        s.RUNNING: (s.RUNNING_POST_COPY, s.COMPLETED) + _END_OF_MOVE,
        s.RUNNING_POST_COPY: (s.COMPLETED,) + _END_OF_MOVE,
        s.ERROR: (s.RUNNING, s.RUNNING_POST_COPY, s.COMPLETED, s.FAILED, s.CANCELLED),
    },
    s.EVACUATION: {
        s.ACCEPTED: (s.CONFLICT, s.PRE_MIGRATING, s.FAILED, s.ERROR),
        s.PRE_MIGRATING: (s.DONE, s.FAILED, s.ERROR),
        s.DONE: (s.COMPLETED, s.ERROR),
        s.ERROR: (s.PRE_MIGRATING, s.DONE, s.COMPLETED, s.FAILED),
    },
}


def may_follow(record_type: str, status: str, following: str) -> bool:
    """Whether a record of that type in C(status) may be written with status C(following) (the same one always may)."""
    return status == following or following in _NEXT[record_type].get(status, ())


def check_transition(record_type: str, status: str, following: str) -> None:
    """Raise L(Internal) where C(following) may not come after C(status)."""
    if not may_follow(record_type, status, following):
        raise Internal(f"A {record_type} record may not go from '{status}' to '{following}'.")
