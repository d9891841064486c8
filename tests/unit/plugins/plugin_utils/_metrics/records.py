# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Records that have ended as a test says, in a ledger of files."""

from __future__ import annotations

import copy
import typing as t
import uuid

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import advance, new_record, place
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.store import Ledger, Stored

Record = dict[str, t.Any]
ON_THE_WAY = {
    s.LIVE_MIGRATION: {
        s.CONFLICT: (s.CONFLICT,),
        s.ERROR: (s.RUNNING, s.ERROR),
        s.RUNNING: (s.RUNNING,),
        s.COMPLETED: (s.RUNNING, s.COMPLETED),
        s.FAILED: (s.RUNNING, s.FAILED),
        s.CANCELLED: (s.RUNNING, s.CANCELLED),
    },
    s.EVACUATION: {
        s.CONFLICT: (s.CONFLICT,),
        s.DONE: (s.PRE_MIGRATING, s.DONE),
        s.COMPLETED: (s.PRE_MIGRATING, s.DONE, s.COMPLETED),
        s.FAILED: (s.PRE_MIGRATING, s.FAILED),
    },
}


def ended(ledger: Ledger, status: str, record_type: str = s.LIVE_MIGRATION, reason: str | None = None, forced: str | None = None, **result: t.Any) -> Stored:
    """Write a record that ends, or stands, in that status with these figures."""
    domain = {"uuid": str(uuid.uuid4()), "name": "web1"}
    stored = ledger.open_record(new_record(record_type, domain, place("kvm1"), place("kvm2"), {}, "root@control", forced=forced))
    for word in ON_THE_WAY[record_type][status]:
        stored = further(ledger, stored, word, reason, **result)
    return stored


def further(ledger: Ledger, stored: Stored, status: str, reason: str | None = None, **result: t.Any) -> Stored:
    """Bring a record to its next status."""
    record = copy.deepcopy(stored.record)
    record["result"].update(result)
    advance(record, status, "root@control", reason=reason)
    return ledger.update(stored, record)
