# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which devices of the source a destination was seen to have, according to what C(protect) wrote about both into the ledger."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._records.hosts import same_host

Body = Mapping[str, t.Any]


def seen_devices(devices: Sequence[Body], entries: Sequence[Body], source: Body, destination: Body) -> list[str]:
    """Return the paths of these devices of the source that the destination has too: under the same path, and with the identity that they have now.

    :arg devices: C(path) and C(store) as the survey found them.
    :arg source: who the source is, by C(host_id) or C(host_uuid); C(destination) the same.
    """
    own, peer = _entry(entries, source), _entry(entries, destination)
    if own is None or peer is None or not own.get("host_id"):
        return []
    reported, sees = own.get("devices") or {}, (peer.get("sees") or {}).get(own["host_id"]) or {}
    return [device["path"] for device in devices if device["store"] and reported.get(device["path"]) == sees.get(device["path"]) == device["store"]]


def _entry(entries: Iterable[Body], host: Body) -> t.Optional[Body]:
    """Return the one entry of that host; None where there is none, or several are."""
    found = [entry for entry in entries if same_host(entry, host)]
    return found[0] if len(found) == 1 else None
