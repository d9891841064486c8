# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A ledger in a few words: where it is, and how much of what it keeps."""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s

from .contents import Contents, Entry
from .encoding import Unreadable, decode
from .identity import Identity
from .layout import CLOSED, DOMAINS, HOSTS, OPEN, SET_ASIDE
from .store import Body

_UNREADABLE = "unreadable"


def counts(contents: Contents) -> Body:
    """Return how much the ledger keeps; of open records also how many have which status."""
    statuses = collections.Counter(_status(entry) for entry in contents.entries(OPEN))
    done = sum(statuses[status] for status in s.TOMBSTONE)
    kept = {name: sum(1 for dummy in contents.places(folder)) for name, folder in _KEPT.items()}
    return {"unsettled": sum(statuses.values()) - done, "done": done, **kept, "open_by_status": dict(sorted(statuses.items()))}


_KEPT: t.Final = {"closed": CLOSED, "hosts": HOSTS, "domains": DOMAINS, "set_aside": SET_ASIDE}


def _status(entry: Entry) -> str:
    try:
        return str(decode(entry.data).body.get("status"))
    except Unreadable:
        return _UNREADABLE


def described(identity: Identity, name: str) -> Body:
    """Return what a ledger is known by, where it has come from and where it has gone."""
    moved = identity.moved or {}
    return {"ledger": name, "ledger_id": identity.ledger_id, "copied_from": identity.copied.get("from"), "moved_to": moved.get("to")}


def counted(found: Body) -> str:
    """Return the counts as a person reads them."""
    aside = f", {found['set_aside']} set aside" if found["set_aside"] else ""
    records = f"{found['unsettled']} unsettled, {found['done']} done and {found['closed']} closed records"
    return f"{records}, {found['hosts']} hosts, {found['domains']} domains{aside}"


def text(result: Body) -> str:
    """Return a short text on a ledger, by the keys of L(described) and its C(counts)."""
    gone = f" It was moved to {result['moved_to']}, and is not written any more." if result["moved_to"] else ""
    return f"The ledger {result['ledger']} ({result['ledger_id']}): {counted(result['counts'])}.{gone}"
