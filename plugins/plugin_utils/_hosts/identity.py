# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which entry of the ledger is this host's. Identity that has come apart is a conflict, and a person's to settle."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict, NotFound

from .._ledger.host_changes import only_one
from .._ledger.store import Body, Document, Ledger

HOST_ID_FILE = "/var/lib/kvmfleet/host-id"
_ADOPT = " with adopt_identity of kvmfleet.migration.host. Nothing was changed."
_OR_ADOPT = ", or say that it is with adopt_identity of kvmfleet.migration.host. Nothing was changed."


@dataclass(frozen=True)
class Identity:
    """Who a host says it is; null is what could not be read."""

    name: str
    host_id: t.Optional[str]
    host_uuid: t.Optional[str]
    machine_id: t.Optional[str]

    def as_dict(self) -> Body:
        """Return it as it stands in the entry."""
        return {"name": self.name, "host_id": self.host_id, "host_uuid": self.host_uuid, "machine_id": self.machine_id}


def entry_by_name(ledger: t.Optional[Ledger], name: str) -> Document:
    """Return the entry of a host that is not asked. Raises L(NotFound), or L(Conflict) where several have that name."""
    found = ledger.find_host(name=name) if ledger else None
    if found is None:
        raise NotFound(
            f"The ledger has no host {name!r}.",
            "A host gets its entry from the first task of kvmfleet.migration.host that runs on it while it answers. Nothing was changed.",
        )
    return found


def entry_of(ledger: Ledger, identity: Identity) -> t.Optional[Document]:
    """Return the host's entry, or None where it has none yet. Raises L(Conflict) where it cannot be told whether an entry is this host's."""
    found = ledger.host(identity.host_id) if identity.host_id else None
    if found is None:
        found = by_uuid(ledger, identity)
    if found is None:
        found = ledger.find_host(name=identity.name)
    elif _others_of_that_name(ledger, found, identity.name):
        raise Conflict(f"The ledger has another host of the name {identity.name!r}.", f"Give each host of the inventory one name{_OR_ADOPT}")
    if found is not None:
        _check_same(found.body, identity)
    return found


def by_uuid(ledger: Ledger, identity: Identity) -> t.Optional[Document]:
    """Return the entry that has the host's libvirt UUID, or None. Raises L(Conflict) where several have it.

    Some boards all have one UUID: an entry with another name and another machine ID is another host.
    """
    if not identity.host_uuid:
        return None
    return only_one([document for document in ledger.hosts() if not _is_another(document.body, identity)], None, identity.host_uuid)


def _is_another(entry: Body, identity: Identity) -> bool:
    now = identity.as_dict()
    return all(entry.get(key) and now[key] and entry[key] != now[key] for key in ("name", "machine_id")) and entry.get("host_id") != identity.host_id


def _others_of_that_name(ledger: Ledger, found: Document, name: str) -> bool:
    return any(other.body["name"] == name and other.body["host_key"] != found.body["host_key"] for other in ledger.hosts())


def _check_same(entry: Body, identity: Identity) -> None:
    known = entry.get("host_id")
    if known and identity.host_id and known != identity.host_id:
        raise Conflict(
            f"{identity.name} says it is {identity.host_id}, the ledger has {known} for it.",
            f"If it is the same host, write {known} into {HOST_ID_FILE} there. Nothing was changed.",
        )
    if known and not identity.host_id:
        raise Conflict(
            f"{identity.name} has lost its identity: the ledger has {known} for it, and there is no {HOST_ID_FILE}.",
            f"If it is the same host, write {known} into that file there{_OR_ADOPT}",
        )
    if _all_changed(entry, identity):
        raise Conflict(
            f"Two hosts say they are {known}: {entry['name']} in the ledger, and {identity.name}, with other machine and libvirt UUIDs.",
            f"If {HOST_ID_FILE} of {identity.name} is a copy, remove it there. If it is the same host, say so{_ADOPT}",
        )
    if not known and entry.get("host_uuid") and entry["host_uuid"] != identity.host_uuid:
        now = identity.host_uuid or "none: libvirt does not answer"
        raise Conflict(
            f"The ledger's host {entry['name']} has the libvirt UUID {entry['host_uuid']}, {identity.name} has {now}.",
            f"Start libvirt there if it is the same host{_OR_ADOPT}",
        )


def _all_changed(entry: Body, identity: Identity) -> bool:
    now = identity.as_dict()
    return all(entry.get(key) and now[key] and entry[key] != now[key] for key in ("name", "machine_id", "host_uuid"))
