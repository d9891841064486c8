# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What became of a record, in the few words that a report sorts and colours by."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s

COMPLETED = "completed"
EVACUATED = "evacuated"
UNDER_WAY = "under way"
REFUSED = "refused"
CANCELLED = "cancelled"
FAILED = "failed"
UNCERTAIN = "uncertain"
OUTCOMES = (COMPLETED, EVACUATED, UNDER_WAY, REFUSED, CANCELLED, FAILED, UNCERTAIN)

# The domain is not where the move was to bring it, and nothing more will come of that record by itself.
NOT_MOVED = (REFUSED, CANCELLED, FAILED, UNCERTAIN)
_BY_STATUS = {
    s.COMPLETED: COMPLETED,
    s.DONE: EVACUATED,
    s.CONFLICT: REFUSED,
    s.CANCELLED: CANCELLED,
    s.FAILED: FAILED,
    s.ERROR: UNCERTAIN,
}


def outcome_of(status: str) -> str:
    """Return the outcome of a record of that status."""
    return _BY_STATUS.get(status, UNDER_WAY)
