# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What the ledger knew before a host was asked for its domains: what changes meanwhile is found by the documents' versions."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s

from .._ledger.rules import holds_domain
from .._ledger.store import Body, Document, Ledger


@dataclass(frozen=True)
class Known:
    """C(documents), C(unsettled) records and the newest C(tombstones) (evacuations that are C(done)), each by the domain's UUID; C(hosts), the entries."""

    documents: t.Mapping[str, Document] = field(default_factory=dict)
    unsettled: t.Mapping[str, Body] = field(default_factory=dict)
    tombstones: t.Mapping[str, Body] = field(default_factory=dict)
    hosts: t.Sequence[Body] = ()


def read(ledger: t.Optional[Ledger]) -> Known:
    """Return what is known; nothing where there is no ledger yet.

    The documents come first: a record that is opened or closed after that raises the version of its domain's document.
    """
    if ledger is None:
        return Known()
    documents = {document.body["uuid"]: document for document in ledger.domains()}
    unsettled = {_uuid(record): record for record in ledger.records(unsettled_only=True) if holds_domain(record)}
    done = sorted(ledger.records(types=[s.EVACUATION], statuses=[s.DONE]), key=lambda record: str(record["updated_at"]))
    return Known(documents, unsettled, {_uuid(record): record for record in done}, [document.body for document in ledger.hosts()])


def _uuid(record: Body) -> str:
    return str(record["domain"]["uuid"]).lower()
