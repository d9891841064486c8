# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The words a record may have as its type, status and reason, and which statuses still hold the domain."""

from __future__ import annotations

LIVE_MIGRATION = "live-migration"
EVACUATION = "evacuation"
TYPES = (LIVE_MIGRATION, EVACUATION)

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

# Nothing of such a record can still happen by itself or by us.
CLOSED = frozenset({COMPLETED, CONFLICT, FAILED, CANCELLED})
# Kept among the open documents, yet it holds no lock: a tombstone for the source of an evacuation.
TOMBSTONE = frozenset({DONE})
# The domain is ours until this is settled: one such live migration a domain is the lock.
UNSETTLED = frozenset({ACCEPTED, SCHEDULED, QUEUED, PREPARING, RUNNING, RUNNING_POST_COPY, ERROR, PRE_MIGRATING})
# No libvirt job was asked for yet.
BEFORE_JOB = frozenset({ACCEPTED, SCHEDULED, QUEUED})
# A watcher's last word.
FINAL = CLOSED | {ERROR}

# Lines of a history that are no status.
ABORT_START = "abort_start"

REASON_OPERATOR = "operator"
REASON_TIMEOUT = "timeout"
REASON_STALLED = "stalled"
REASON_PAUSE_OVERRUN = "pause_overrun"
REASON_CONTROLLER_LOST = "controller_lost"
REASON_QUEUE_TIMEOUT = "queue_timeout"
CANCEL_REASONS = (REASON_OPERATOR, REASON_TIMEOUT, REASON_STALLED, REASON_PAUSE_OVERRUN, REASON_CONTROLLER_LOST, REASON_QUEUE_TIMEOUT)
