# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The notice of a host that could not be fenced: its data, and whether it is true by the host's document."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.evidence import FENCING_IMPOSSIBLE

from .._ledger.documents import HostEntry
from .cloud_events import MAX_DETAIL_CHARACTERS, CloudEvent, encode_event

FENCING_KIND = f"host.{FENCING_IMPOSSIBLE}"


@dataclass(frozen=True)
class HostNoticeData:
    """What happened to a host.

    :arg host: its inventory name.
    :arg host_id: the collection's own ID of the host.
    :arg state: C(fencing_impossible).
    :arg by: who found it out: user, control node and process.
    :arg detail: which devices were called, and what a person can do.
    """

    host: str
    host_id: t.Optional[str]
    state: str
    by: str
    detail: str


@dataclass(frozen=True)
class HostNotice(CloudEvent):
    """A notice of a host: an event of CloudEvents 1.0.

    :arg data: what happened.
    """

    data: HostNoticeData


def make_host_events(after: HostEntry, detail: str, ledger_id: str) -> list[JsonObject]:
    """Return the event of a host that could not be fenced; none for any other host."""
    data, at = _make_host_data(after, detail[:MAX_DETAIL_CHARACTERS]), after.fencing and after.fencing.since
    key = after.host_id
    return [encode_event(HostNotice, data, FENCING_KIND, key, at, ledger_id)] if data and at and key else []


def _make_host_data(entry: HostEntry, detail: str) -> HostNoticeData | None:
    """Return the data of the notice about the host; None if it can be fenced as far as is known."""
    fencing = entry.fencing
    if not fencing or not fencing.is_impossible:
        return None
    return HostNoticeData(entry.name, entry.host_id, FENCING_IMPOSSIBLE, fencing.by or "", detail)


def is_in_entry(at: str, entry: HostEntry) -> bool:
    """Whether the document of the host has what a notice of that time says."""
    return bool(entry.fencing and entry.fencing.is_impossible and entry.fencing.since == at)
