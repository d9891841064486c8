# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A host's entry before and after a task."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._records.clock import utc_now

from .._ledger.store import Body

SHOWN = ("name", "host_id", "host_uuid", "machine_id", "state", "reason")


def changed_entry(before: t.Optional[Body], identity: Body, state: str, reason: t.Optional[str], by: str) -> Body:
    """Return the entry as it is to be. What the host could not say keeps the value that it had.

    :arg identity: C(name), C(host_id), C(host_uuid) and C(machine_id); null where not known.
    :arg reason: None keeps the reason while the state stays.
    """
    entry: Body = {"fencing": {}, "adopted": [], "host_id": None, "host_uuid": None, "machine_id": None, **(before or {})}
    entry.update({key: value for key, value in identity.items() if value is not None})
    same = before is not None and before["state"] == state
    entry.update(state=state, reason=before["reason"] if before and same and reason is None else reason or None)
    if not same:
        entry["since"] = utc_now()
    if differs(before, entry):
        entry["by"] = by
    return entry


def differs(before: t.Optional[Body], after: Body) -> bool:
    """Whether the task changes the entry."""
    return shown(before) != shown(after)


def shown(entry: t.Optional[Body]) -> Body:
    """Return what a diff shows of an entry."""
    return {key: entry.get(key) for key in SHOWN} if entry else {}
