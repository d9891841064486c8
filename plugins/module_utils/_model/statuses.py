# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The types, statuses and reasons of records, which statuses hold the domain, and which status may follow another. Also the states of hosts."""

from __future__ import annotations

import typing as t

from .errors import Internal

LIVE_MIGRATION = "live-migration"
COLD_MIGRATION = "cold-migration"
EVACUATION = "evacuation"
TYPES = (LIVE_MIGRATION, COLD_MIGRATION, EVACUATION)
# The types of records by which a task moves a domain from its host to another one, both of which answer.
MOVE_TYPES = (LIVE_MIGRATION, COLD_MIGRATION)

HOST_STATES = (ENABLED, MAINTENANCE, FENCED) = ("enabled", "maintenance", "fenced")

ACCEPTED = "accepted"
SCHEDULED = "scheduled"
QUEUED = "queued"
PREPARING = "preparing"
RUNNING = "running"
RUNNING_POST_COPY = "running (post-copy)"
COMPLETED = "completed"
CONFLICT = "conflict"
FAILED = "failed"
CANCELLED = "cancelled"
ERROR = "error"
PRE_MIGRATING = "pre-migrating"
DONE = "done"

# The move of such a record has ended, and nothing changes it any more.
CLOSED = frozenset({COMPLETED, CONFLICT, FAILED, CANCELLED})
# Kept among the open documents, but without a lock: a tombstone for the source of an evacuation.
TOMBSTONE = frozenset({DONE})
# Such a record is the lock of its domain until it is settled: a domain has at most one.
UNSETTLED = frozenset({ACCEPTED, SCHEDULED, QUEUED, PREPARING, RUNNING, RUNNING_POST_COPY, ERROR, PRE_MIGRATING})
# No libvirt job was requested yet.
BEFORE_JOB = frozenset({ACCEPTED, SCHEDULED, QUEUED})
# The statuses with which a watcher ends.
FINAL = CLOSED | {ERROR}

# The words of lines of history that are not a status. A line that a person has caused has that person as writer, and begins with REASON_OPERATOR.
ABORT_START = "abort_start"
ABORT_END = "abort_end"
FORCE_COMPLETE = "force_complete"
# Of a record that a newer one has superseded: nothing is left over on this end of it any more.
SOURCE_CLEANED = "source_cleaned"
DESTINATION_CLEANED = "destination_cleaned"

REASON_OPERATOR = "operator"
REASON_TIMEOUT = "timeout"
REASON_STALLED = "stalled"
REASON_PAUSE_OVERRUN = "pause_overrun"
REASON_CONTROLLER_LOST = "controller_lost"
REASON_QUEUE_TIMEOUT = "queue_timeout"
REASON_BUSY = "busy"
CANCEL_REASONS = (
    REASON_OPERATOR,
    REASON_TIMEOUT,
    REASON_STALLED,
    REASON_PAUSE_OVERRUN,
    REASON_CONTROLLER_LOST,
    REASON_QUEUE_TIMEOUT,
    REASON_BUSY,
)
# A move that was completed, and what was left to do for a person.
REASON_DEFINITION_LEFT = "definition_left"
REASON_CHECKPOINTS_LOST = "checkpoints_lost"
# An evacuation that was refused, because the domain may be what kills its hosts.
REASON_RESTART_LIMIT = "restart_limit"

_END_OF_MOVE = (FAILED, CANCELLED, ERROR)

_NEXT: t.Dict[str, t.Dict[str, t.Tuple[str, ...]]] = {
    LIVE_MIGRATION: {
        # An adopted job enters at running; a settling run may find a move that never began, or one that ended unseen.
        ACCEPTED: (CONFLICT, SCHEDULED, RUNNING, RUNNING_POST_COPY, COMPLETED) + _END_OF_MOVE,
        SCHEDULED: (CONFLICT, QUEUED, RUNNING, RUNNING_POST_COPY, COMPLETED) + _END_OF_MOVE,
        QUEUED: (PREPARING, RUNNING, RUNNING_POST_COPY, COMPLETED) + _END_OF_MOVE,
        PREPARING: (RUNNING, RUNNING_POST_COPY, COMPLETED) + _END_OF_MOVE,
        RUNNING: (RUNNING_POST_COPY, COMPLETED) + _END_OF_MOVE,
        RUNNING_POST_COPY: (COMPLETED,) + _END_OF_MOVE,
        ERROR: (RUNNING, RUNNING_POST_COPY, COMPLETED, FAILED, CANCELLED),
    },
    COLD_MIGRATION: {
        # A cold move has no job of libvirt: it is running from before the first act on a host until both hosts were asked for its result.
        ACCEPTED: (CONFLICT, SCHEDULED, COMPLETED) + _END_OF_MOVE,
        SCHEDULED: (CONFLICT, QUEUED, COMPLETED) + _END_OF_MOVE,
        QUEUED: (RUNNING, COMPLETED) + _END_OF_MOVE,
        RUNNING: (COMPLETED,) + _END_OF_MOVE,
        ERROR: (RUNNING, COMPLETED, FAILED, CANCELLED),
    },
    EVACUATION: {
        ACCEPTED: (CONFLICT, PRE_MIGRATING, FAILED, ERROR),
        PRE_MIGRATING: (DONE, FAILED, ERROR),
        DONE: (COMPLETED, ERROR),
        ERROR: (PRE_MIGRATING, DONE, COMPLETED, FAILED),
    },
}


def may_follow(record_type: str, status: str, following: str) -> bool:
    """Whether a record of that type in C(status) may be written with status C(following) (the same one always may)."""
    return status == following or following in _NEXT[record_type].get(status, ())


def check_transition(record_type: str, status: str, following: str) -> None:
    """Raise L(Internal) if C(following) may not come after C(status)."""
    if not may_follow(record_type, status, following):
        raise Internal(f"A {record_type} record cannot change from '{status}' to '{following}'.")
