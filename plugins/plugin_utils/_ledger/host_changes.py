# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Hosts' documents, whatever keeps them: kept under the host_id, or under libvirt's UUID as long as no host_id is known."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Conflict
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import SCHEMA

from .access import Access
from .layout import HOSTS, place_of
from .rules import check_host, document_overtaken
from .store import Body, Document


def only_one(documents: list[Document], name: t.Optional[str], host_uuid: t.Optional[str]) -> t.Optional[Document]:
    """Return the document that meets what is given (not None), or None. Raises L(Conflict), naming all, where several do."""
    found = [
        document for document in documents if name in (None, document.body["name"]) and (host_uuid is None or host_uuid.lower() == document.body["host_uuid"])
    ]
    if len(found) > 1:
        keys = ", ".join(f"{document.body['host_key']} ({document.body['name']})" for document in found)
        raise Conflict(
            f"The ledger has several hosts for {name or host_uuid!r}: {keys}.",
            "Say which one is meant with 'adopt_identity' of the module host.",
            documents=[document.body for document in found],
        )
    return found[0] if found else None


def put(current: Access, body: Body, version: t.Optional[int], ledger_id: str) -> Document:
    """Write the document; one kept under the libvirt UUID moves to the host_id in the same unit. See L(Ledger.put_host)."""
    new = check_host({"schema": SCHEMA, **body}, ledger_id)
    key, host_uuid = new["host_key"], new["host_uuid"]
    present = current.read(place_of(HOSTS, key))
    provisional = _provisional(current, new)
    base = present or provisional
    if (base.version if base else None) != version:
        raise document_overtaken(f"the host {new['name']!r} ({key})", base.body if base else None)
    if not new["host_id"]:
        _refuse_second(current, new)
    if present and provisional:
        _refuse_looser(new, provisional.body)
    document = Document(new, (version or 0) + 1)
    if provisional:
        current.commit([(place_of(HOSTS, key), document.version, new)], [place_of(HOSTS, host_uuid)])
    else:
        current.write(place_of(HOSTS, key), document.version, new)
    return document


def _provisional(current: Access, new: Body) -> t.Optional[Document]:
    """Return the document that this host has under its libvirt UUID, while C(new) brings a host_id."""
    if not new["host_id"] or not new["host_uuid"]:
        return None
    document = current.read(place_of(HOSTS, new["host_uuid"]))
    return document if document and not document.body["host_id"] else None


def _refuse_second(current: Access, new: Body) -> None:
    for document in current.read_all(HOSTS):
        if document.body["host_uuid"] == new["host_uuid"] and document.body["host_id"]:
            raise Conflict(
                f"The host with libvirt UUID {new['host_uuid']} is known as {document.body['name']!r} ({document.body['host_id']}).",
                "Change that document.",
                document=document.body,
            )


def _refuse_looser(new: Body, provisional: Body) -> None:
    # Of two documents that turn out to be one host the stricter word stays: a cordon must not get lost by a merge.
    if provisional["state"] not in ("enabled", new["state"]):
        raise Conflict(
            f"The host {new['name']!r} is also kept as {provisional['name']!r} ({provisional['host_key']}), in state '{provisional['state']}'.",
            f"Write it with state '{provisional['state']}', then change the state.",
            document=provisional,
        )
