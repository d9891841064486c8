# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A host whose identity has come apart from the ledger's, and of which a person says that it is the same host."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, NotFound
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.clock import utc_now

from .._ledger.store import Body, Document, Ledger
from .identity import Identity, by_uuid, entry_of

_OWN = ("name", "machine_id", "host_uuid")


@dataclass(frozen=True)
class Adoption:
    """What the person's word changes.

    C(entry) is the host's as it was read, C(after) as it is to be; C(host_id) is what the host has to be given, null where it has it;
    C(renamed) are the entries of other hosts of that name, as they are to be.
    """

    entry: Document
    after: Body
    host_id: t.Optional[str]
    renamed: list[tuple[Document, Body]]


def adoption(ledger: Ledger, identity: Identity, reason: str, by: str) -> t.Optional[Adoption]:
    """Return what is to be changed, None where nothing has come apart and the host was not discarded.

    Raises L(NotFound) where the ledger does not know the host at all, L(Conflict) where the host has an ID of its own that is not the ledger's: which
    of the two is right is said by the file on the host, and never overwritten.
    """
    try:
        known = entry_of(ledger, identity)
        if known is None:
            raise NotFound(f"The ledger has no host that {identity.name} could be.", "A host gets its entry from the first task of this module with a state.")
        if not known.body.get("discarded"):
            return None
        return _adoption(ledger, known, identity, {"reason": reason, "by": by, "conflict": f"{identity.name} was discarded, and is back."})
    except Conflict as conflict:
        found = _candidate(ledger, identity)
        if found is None or (found.body.get("host_id") and identity.host_id and found.body["host_id"] != identity.host_id):
            raise
        return _adoption(ledger, found, identity, {"reason": reason, "by": by, "conflict": conflict.message})


def write(ledger: Ledger, change: Adoption) -> Body:
    """Write the entries: first of the others, so that no two have one name; return the host's. Raises L(Conflict) where one changed meanwhile."""
    for document, body in change.renamed:
        ledger.put_host(body, document.version)
    # An entry that was kept under the libvirt UUID moves to the host_id by itself, as long as it is the same UUID.
    replaces = change.entry.body["host_key"] in (change.after.get("host_id"), change.after.get("host_uuid"))
    return ledger.put_host(change.after, change.entry.version if replaces else None).body


def _candidate(ledger: Ledger, identity: Identity) -> t.Optional[Document]:
    found = ledger.host(identity.host_id) if identity.host_id else None
    return found or by_uuid(ledger, identity) or ledger.find_host(name=identity.name)


def _adoption(ledger: Ledger, found: Document, identity: Identity, said: Body) -> Adoption:
    before, now = found.body, identity.as_dict()
    host_id = before.get("host_id") or identity.host_id
    known = {key: now[key] if now[key] is not None else before.get(key) for key in _OWN}
    note = {"at": utc_now(), **said, "before": {key: before.get(key) for key in _OWN}, "after": known}
    kept = {key: value for key, value in before.items() if key != "discarded"}
    after = {**kept, **known, "host_id": host_id, "adopted": [*(before.get("adopted") or []), note]}
    own = (after["host_id"], after["host_uuid"])
    others = [document for document in ledger.hosts() if document.body["name"] == identity.name and document.body["host_key"] not in own]
    renamed = [(other, {**other.body, "name": f"{other.body['name']} (until {note['at']})"}) for other in others]
    return Adoption(found, after, host_id if host_id != identity.host_id else None, renamed)
