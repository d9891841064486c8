# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The grant under which a host may leave clean-shutdown tokens, as the ledger has it in the host's entry (C(protected)).

A grant never changes. It has the folders of shared storage in which it can be revoked while the host is off, and the host reads all of them before it
honours a token. When the folders change, the host loses the grant and then gets another.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field

from .._ledger.store import Body


@dataclass(frozen=True)
class Grant:
    """A grant.

    :arg folders: path to nonce of the token that the host has left there; none in a grant of an earlier version, which cannot be revoked elsewhere.
    """

    id: str
    host_id: str
    folders: Body = field(default_factory=dict)

    def for_host(self) -> Body:
        """Return the grant as the phases of hosts take it."""
        return {"grant": self.id, "host_id": self.host_id, "folders": self.folders}


def recorded(entry: Body | None) -> Grant | None:
    """Return the grant that a host may have by its entry."""
    protected = (entry or {}).get("protected") or {}
    token_id = protected.get("token_id")
    return Grant(str(token_id), str((entry or {}).get("host_id")), protected.get("token_folders") or {}) if token_id else None


def as_recorded(grant: Grant | None) -> Body:
    """Return what the entry says of the grant, or of none."""
    return {"token_id": grant.id, "token_folders": grant.folders} if grant else {"token_id": None, "token_folders": None}


def new_grant(entry: Body, folders: Body) -> Grant | None:
    """Return a new grant for a host; None where no folder could revoke it."""
    return Grant(str(uuid.uuid4()), str(entry["host_id"]), dict(folders)) if folders and entry.get("host_id") else None


def revocable_folders(entry: Body, peers: Iterable[Body]) -> Body:
    """Return the folders of a host, with their nonces, that at least one other host was proved to see. Hosts that will not return do not count."""
    folders = entry.get("folders") or {}
    others = [peer for peer in peers if peer.get("host_id") not in (None, entry.get("host_id")) and not peer.get("discarded")]
    sights = [(peer.get("sees") or {}).get(entry.get("host_id")) or {} for peer in others]
    return {folder: nonce for folder, nonce in folders.items() if any(sight.get(folder) == nonce for sight in sights)}
