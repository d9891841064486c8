# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The error that a task ends with when a move did not end as C(completed)."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Aborted, Conflict, Internal, KvmfleetError, MigrationFailed, TimedOut
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s

_TIMEOUTS = (s.REASON_TIMEOUT, s.REASON_STALLED, s.REASON_PAUSE_OVERRUN, s.REASON_QUEUE_TIMEOUT)

_NEXT_STEPS = {
    s.REASON_TIMEOUT: "It writes memory faster than it could be moved: try auto_converge, more bandwidth, or a longer timeout_seconds.",
    s.REASON_STALLED: "Look at the network between the two hosts, then run the task again.",
    s.REASON_CONTROLLER_LOST: "Run the task again.",
    s.REASON_QUEUE_TIMEOUT: "Run the task again when they have ended. One whose task was killed counts until that task is run again.",
    s.REASON_OPERATOR: "Somebody cancelled it; run the task again when it is wanted after all.",
}

# Libvirt does not always give the cause: of a full disk it may say only that an AppArmor profile cannot be loaded.
_AFTER_FAILURE = "If that does not give the cause, read libvirt's log on both hosts (journalctl -u libvirtd) and look for a full disk; then run the task again."


def error_of(record: t.Mapping[str, t.Any]) -> KvmfleetError | None:
    """Return the error for a record's last status, or none for one that completed."""
    status, reason = record["status"], record["reason"]
    if status == s.COMPLETED:
        return None
    ends = f"from {record['source']['host']} to {record['destination']['host']}"
    why = f"{status} ({reason})" if reason else status
    message = f"Domain {record['domain']['name']} was not moved {ends}: {why}. {record['history'][-1]['detail']}".rstrip()
    if status == s.ERROR:
        return Internal(message, "Look at both hosts; run the same task again to settle the record once they answer.", migrations=[record])
    next_step = _NEXT_STEPS.get(reason, _AFTER_FAILURE if status == s.FAILED else None)
    return _class_of(status, reason)(message, next_step, migrations=[record])


def _class_of(status: str, reason: str | None) -> type[KvmfleetError]:
    if status == s.CONFLICT:
        return Conflict
    if status == s.CANCELLED:
        return TimedOut if reason in _TIMEOUTS else Aborted
    return MigrationFailed if status == s.FAILED else Internal
