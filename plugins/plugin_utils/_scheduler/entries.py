# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Finding the ledger's word on a host. Where several entries could be meant, the one that forbids counts."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._records.hosts import same_host
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import place

from .host_state import ENABLED

Body = Mapping[str, t.Any]


def entry_of(entries: Iterable[Body], name: str, host_uuid: t.Optional[str] = None, host_id: t.Optional[str] = None) -> t.Optional[Body]:
    """Return the entry that belongs to the host by host ID or name, or by libvirt's UUID where one ID is not known; None where there is none.

    Identity that has come apart permits nothing: any of these entries that is not enabled is returned before one that is.
    """
    here = place(None, host_id, host_uuid)
    meant = [entry for entry in entries if entry.get("name") == name or same_host(entry, here)]
    return next((entry for entry in meant if entry.get("state", ENABLED) != ENABLED), meant[0] if meant else None)
