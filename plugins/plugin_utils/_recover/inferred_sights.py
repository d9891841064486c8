# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What other hosts see of a host: what they have read, and what follows from the token of a third host that both of them see.

A host leaves its first token in a folder when its first guest arrives there, for example by an evacuation. Until the others have read it, this is what proves
that the guest could be started on them, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json

from .._ledger.documents import HostEntry
from .._ledger.ledger import Ledger
from .._ledger.sights import Sights, list_sights_of, read_own_sights

# What this host calls each folder in which another host has left a token.
FolderNames = Callable[[HostEntry], Mapping[str, str]]

# For each folder or device. Each is one more reading of the ledger.
_MOST_THIRD_HOSTS = 2


@dataclass(frozen=True)
class _CommonItem:
    """A folder or device of another host that this host has, too: here at C(path), C(there) by the name of the other one, with its token or WWN."""

    host_id: str
    path: str
    there: str
    value: str


def keep_folder_names(peer: HostEntry) -> dict[str, str]:
    """Return the folders of a host whose names are the same on all hosts."""
    return {folder: folder for folder in peer.folders or {}}


def infer_sights(ledger: Ledger | None, entries: Iterable[HostEntry], host_id: str | None, names_here: FolderNames) -> Sights:
    """Return, by ID of every other host, which tokens and devices of this host it sees: those that it has read, and those that follow from common ones.

    :arg entries: of all hosts, read before this call.
    """
    hosts = list(entries)
    sights: dict[str, dict[str, Json]] = {other: dict(seen) for other, seen in list_sights_of(ledger, hosts, host_id).items()}
    own = next((entry for entry in hosts if host_id and entry.host_id == host_id), None)
    if ledger is None or own is None:
        return sights
    items = {**(own.devices or {}), **(own.folders or {})}
    common: dict[str, list[_CommonItem]] = {}
    for one in _list_common_items(own, hosts, read_own_sights(ledger, own), names_here):
        sights[one.host_id][one.path] = items[one.path]
        common.setdefault(one.path, []).append(one)
    read = functools.cache(lambda third_id: list_sights_of(ledger, hosts, third_id))
    for path, found in common.items():
        for one in found[:_MOST_THIRD_HOSTS]:
            if any(seen.get(path) != items[path] for seen in sights.values()):
                _add_readers(sights, one, items[path], read(one.host_id))
    return sights


def _add_readers(sights: Mapping[str, dict[str, Json]], one: _CommonItem, value: str | None, sights_of_third: Sights) -> None:
    """Add those who have read it at the third host: they see this host's own one, too."""
    for other, seen in sights_of_third.items():
        if other in sights and seen.get(one.there) == one.value:
            sights[other][one.path] = value


def _list_common_items(own: HostEntry, entries: Iterable[HostEntry], seen_by_own: Sights, names_here: FolderNames) -> Iterator[_CommonItem]:
    """Yield what this host and others have in common, by the IDs of the others."""
    folders, devices = own.folders or {}, own.devices or {}
    for peer in sorted(entries, key=lambda entry: str(entry.host_id)):
        seen = seen_by_own.get(str(peer.host_id), {})
        if not seen or not peer.host_id or peer.host_id == own.host_id:
            continue
        for there, here in names_here(peer).items():
            nonce = (peer.folders or {}).get(there)
            if nonce and here in folders and seen.get(there) == nonce:
                yield _CommonItem(peer.host_id, here, there, nonce)
        for path, wwn in (peer.devices or {}).items():
            if wwn and devices.get(path) == wwn == seen.get(path):
                yield _CommonItem(peer.host_id, path, path, wwn)
