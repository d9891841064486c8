# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a ledger is known by, whatever keeps it: a document with its UUID, made once."""

from __future__ import annotations

import typing as t
import uuid

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidState, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.schema import SCHEMA

from .encoding import Damaged, Newer, decode, encode
from .keys import is_uuid

NAME = "ledger.json"


class Found(t.NamedTuple):
    """Where the document was read.

    :arg ledger: what the ledger is called in a sentence.
    :arg document: what the document is.
    :arg restore: what to do where it is damaged.
    """

    ledger: str
    document: str
    restore: str


def new() -> tuple[str, bytes]:
    """Return the UUID of a new ledger, and its document."""
    ledger_id = str(uuid.uuid4())
    return ledger_id, encode({"schema": SCHEMA, "ledger_id": ledger_id, "created_at": utc_now()}, 1)


def id_in(data: bytes, found: Found) -> str:
    """Return the UUID in the document. Raises L(NotSupported) for one of a later version, L(InvalidState) for a damaged one."""
    try:
        body = decode(data).body
    except Newer as error:
        raise NotSupported(f"The ledger {found.ledger} is of a later version: {error}.", "Update the collection on this control node.") from error
    except Damaged as error:
        raise InvalidState(f"{found.document} could not be read: {error}. Nothing was changed.", found.restore) from error
    if not is_uuid(body.get("ledger_id")):
        raise InvalidState(f"{found.document} names no ledger_id. Nothing was changed.", found.restore)
    return str(body["ledger_id"])
