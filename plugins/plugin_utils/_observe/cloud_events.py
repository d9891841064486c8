# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The envelope of every notice: an event of CloudEvents 1.0."""

from __future__ import annotations

import typing as t
import uuid
from collections.abc import Callable

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject, encode

EVENT_TYPE_PREFIX = "io.github.kvmfleet.migration"
MAX_DETAIL_CHARACTERS = 1000
_SPECVERSION, _CONTENT_TYPE = "1.0", "application/json"
_Data = t.TypeVar("_Data")


@dataclass(frozen=True)
class CloudEvent:
    """An event of CloudEvents 1.0; each kind of notice adds its C(data).

    :arg specversion: of CloudEvents.
    :arg id: of the event; a notice that is sent twice has the same.
    :arg source: the ID of the ledger, as C(urn:uuid:...).
    :arg time: when it happened.
    :arg datacontenttype: of C(data).
    """

    specversion: str
    id: str
    source: str
    type: str
    subject: str
    time: str
    datacontenttype: str


_NewNotice = Callable[[str, str, str, str, str, str, str, _Data], CloudEvent]


def encode_event(notice: _NewNotice[_Data], data: _Data, kind: str, subject: str, at: str, ledger_id: str, key: str = "", name: str = "") -> JsonObject:
    """Return the event as JSON.

    :arg notice: its class.
    :arg kind: e.g. C(move.started).
    :arg key: the UUID from which its ID is made, with C(name); by default these are the subject, and its kind and time.
    """
    own_id = str(uuid.uuid5(uuid.UUID(key or subject), name or f"{kind} {at}"))
    event = notice(_SPECVERSION, own_id, f"urn:uuid:{ledger_id}", f"{EVENT_TYPE_PREFIX}.{kind}", subject, at, _CONTENT_TYPE, data)
    return t.cast("JsonObject", encode(event))


def kind_of_event(event: JsonObject) -> str:
    """Return the kind of an event, e.g. C(move.started)."""
    return str(event["type"]).removeprefix(f"{EVENT_TYPE_PREFIX}.")


def data_of_event(event: JsonObject) -> JsonObject:
    """Return what the event says happened."""
    return t.cast("JsonObject", event["data"])
