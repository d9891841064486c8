# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Who a host is that told of itself, as a place of records; and under which lock it is booked."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import Record, place

from .._ledger.store import Ledger

Body = Mapping[str, t.Any]

HOW_TO_SET_UUID = (
    "Set host_uuid to a UUID of the host's own in /etc/libvirt/libvirtd.conf (in virtqemud.conf where that daemon runs), and restart the daemon: guests run on."
)


def place_told(ledger: t.Optional[Ledger], name: str, facts: Body) -> Record:
    """Return the host that these facts are of. One whose own ID could not be read is looked up in the ledger by libvirt's UUID."""
    host_id, host_uuid = facts.get("host_id"), facts.get("host_uuid")
    if not host_id and host_uuid and ledger is not None:
        host_id = known_id((document.body for document in ledger.hosts()), name, host_uuid)
    return place(name, host_id or None, host_uuid or None)


def known_id(entries: Iterable[Body], name: str, host_uuid: t.Optional[str]) -> t.Optional[str]:
    """Return the host ID that the ledger has for a libvirt UUID; where several hosts have that UUID, the one of this name counts."""
    found = [entry for entry in entries if entry.get("host_id") and host_uuid and entry.get("host_uuid") == host_uuid]
    meant = found if len(found) == 1 else [entry for entry in found if entry["name"] == name]
    return str(meant[0]["host_id"]) if meant else None


def lock_of(where: Body) -> str:
    """Return the name of the lock under which a host is booked."""
    return f"host-{where.get('host_id') or where.get('host_uuid') or 'unknown'}"
