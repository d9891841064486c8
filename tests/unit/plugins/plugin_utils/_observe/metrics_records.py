# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Records that have ended as a test says, in a ledger of files."""

from __future__ import annotations

import dataclasses
import typing as t
import uuid

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger

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
    domain = DomainRef(str(uuid.uuid4()), "web1")
    stored = ledger.open_record(new_record(record_type, domain, HostRef("kvm1", None, None), HostRef("kvm2", None, None), {}, "root@control", forced=forced))
    for word in ON_THE_WAY[record_type][status]:
        stored = further(ledger, stored, word, reason, **result)
    return stored


def further(ledger: Ledger, stored: Stored, status: str, reason: str | None = None, **result: t.Any) -> Stored:
    """Bring a record to its next status."""
    record = dataclasses.replace(stored.record, result=dataclasses.replace(stored.record.result, **result))
    return ledger.update_record(stored, record.advance(status, "root@control", reason=reason))
