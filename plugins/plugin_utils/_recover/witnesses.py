# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What other hosts see of a host: what they have read, and what follows from the tokens of a third host, the witness, that both of them have read.

A host leaves its first token in a folder when its first guest arrives there, for example by an evacuation. Until the others have read it, this is what proves
that the guest could be started on them, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject

from .._ledger.documents import HostEntry
from .._ledger.ledger import Ledger
from .._ledger.sights import Sights, list_sights_of, read_own_sights

# What this host calls each folder in which another host has left a token.
FolderNames = Callable[[HostEntry], Mapping[str, str]]

# Each is one more reading of the ledger.
_MOST_WITNESSES = 2


@dataclass(frozen=True)
class _Witness:
    """A host whose token or device this host sees at C(path), which the witness calls C(there)."""

    host_id: str
    path: str
    there: str
    value: str


def keep_folder_names(peer: HostEntry) -> dict[str, str]:
    """Return the folders of a host whose names are the same on all hosts."""
    return {folder: folder for folder in peer.folders or {}}


def infer_sights(ledger: Ledger | None, entries: Iterable[HostEntry], host_id: str | None, names_here: FolderNames) -> Sights:
    """Return, by ID of every other host, the tokens and devices of this host that it has read, or sees because a witness proves it.

    :arg entries: of all hosts, read before this call.
    """
    hosts = list(entries)
    sights: dict[str, JsonObject] = {other: dict(seen) for other, seen in list_sights_of(ledger, hosts, host_id).items()}
    own = next((entry for entry in hosts if host_id and entry.host_id == host_id), None)
    if ledger is None or own is None:
        return sights
    items = {**(own.devices or {}), **(own.folders or {})}
    read: dict[str, Sights] = {}
    witnesses = list(_list_witnesses(own, hosts, read_own_sights(ledger, own), names_here))
    for one in witnesses:
        sights[one.host_id][one.path] = items[one.path]
    for path, value in items.items():
        for one in [one for one in witnesses if one.path == path][:_MOST_WITNESSES]:
            if all(seen.get(path) == value for seen in sights.values()):
                break
            if one.host_id not in read:
                read[one.host_id] = list_sights_of(ledger, hosts, one.host_id)
            for other, seen in read[one.host_id].items():
                if other in sights and seen.get(one.there) == one.value:
                    sights[other][path] = value
    return sights


def _list_witnesses(own: HostEntry, entries: Iterable[HostEntry], seen_by_own: Sights, names_here: FolderNames) -> Iterator[_Witness]:
    """Yield a witness for each folder and device of this host and each other host that has it, too; hosts by their IDs."""
    folders, devices = own.folders or {}, own.devices or {}
    for peer in sorted(entries, key=lambda entry: str(entry.host_id)):
        seen = seen_by_own.get(str(peer.host_id), {})
        if not seen or not peer.host_id or peer.host_id == own.host_id:
            continue
        for there, here in names_here(peer).items():
            nonce = (peer.folders or {}).get(there)
            if nonce and here in folders and seen.get(there) == nonce:
                yield _Witness(peer.host_id, here, there, nonce)
        for path, wwn in (peer.devices or {}).items():
            if wwn and devices.get(path) == wwn == seen.get(path):
                yield _Witness(peer.host_id, path, path, wwn)
