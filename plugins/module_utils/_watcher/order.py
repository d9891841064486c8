# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What the control node asks a watcher to do about one domain."""

from __future__ import annotations

import dataclasses
import typing as t

from .._records.schema import Record, check_record


@dataclasses.dataclass
class Order:
    """One move: its record, and how libvirt is to be asked.

    C(adopt) is true for a move that somebody began before: it is followed, or settled where its job has ended.
    C(waits) is true for one that may not begin before its run says that it is its turn.
    """

    record: Record
    source_uri: str
    destination_uri: str
    flags: t.List[str]
    parameters: t.Dict[str, t.Any]
    adopt: bool = False
    waits: bool = False

    @property
    def uuid(self) -> str:
        """The domain's UUID."""
        return str(self.record["domain"]["uuid"])

    @property
    def name(self) -> str:
        """The domain's name, for messages."""
        return str(self.record["domain"]["name"])


def order_from(document: t.Mapping[str, t.Any]) -> Order:
    """Return the order of a document that came from the control node; a move that was begun before is asked for as it was then.

    Raises L(Internal) where its record is none.
    """
    record = check_record(document["record"])
    begun = record.get("connection", {})
    return Order(
        record=record,
        source_uri=document["source_uri"],
        destination_uri=document["destination_uri"],
        flags=list(begun.get("flags") or document.get("flags", ())),
        parameters=dict(begun.get("parameters") or document.get("parameters", {})),
        adopt=bool(document.get("adopt", False)),
        waits=bool(document.get("waits", False)),
    )
