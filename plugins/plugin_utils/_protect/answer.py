# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What C(protect) tells of what it saved. Never a definition: it may hold passwords."""

from __future__ import annotations

import datetime
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.plugins.module_utils._printable import printable

from .._ledger.store import Body
from .._memory.missing import sentence
from .documents import KEPT, Judgement

_HIDDEN = "definition"


@dataclass
class Outcome:
    """What became of a host's domains."""

    saved: list[Body] = field(default_factory=list)
    unchanged: list[Body] = field(default_factory=list)
    missing: list[Body] = field(default_factory=list)
    conflicts: list[Body] = field(default_factory=list)
    skipped: list[Body] = field(default_factory=list)
    unproved: list[Body] = field(default_factory=list)
    # By store, the domains whose locks there outlive this host.
    kept_locks: dict[str, list[str]] = field(default_factory=dict)
    missing_records: list[Body] = field(default_factory=list)
    before: dict[str, Body] = field(default_factory=dict)
    after: dict[str, Body] = field(default_factory=dict)

    def lock_warnings(self) -> list[str]:
        """Return a sentence on each store that keeps the locks of a host that has died."""
        return [
            f"{store} is mounted by NFS 3, which keeps the locks of a host that dies until that host is back: {', '.join(sorted(set(names)))} could not be"
            " started elsewhere meanwhile. Mount it by NFS 4, whose locks end with a lease."
            for store, names in sorted(self.kept_locks.items())
        ]

    def as_result(self) -> Body:
        """Return the lists, each by name."""
        lists = {key: getattr(self, key) for key in ("saved", "unchanged", "missing", "conflicts", "skipped", "unproved")}
        named = {key: sorted(value, key=lambda entry: (str(entry["name"]), str(entry["uuid"]), str(entry.get("target")))) for key, value in lists.items()}
        return {**named, "missing_records": self.missing_records}


def entry(body: Body) -> Body:
    """Return a saved domain as it is listed, with its age: how long ago this was written, in whole seconds."""
    protected = body.get("protected") or {}
    return {
        "uuid": body["uuid"],
        "name": body["name"],
        "state": protected.get("state"),
        "state_at": protected.get("state_at"),
        "saved_at": protected.get("at"),
        "age_seconds": age_seconds(protected.get("at")),
        "possible_hosts": [place.get("host") for place in body.get("possible_hosts") or []],
    }


def notes(result: Body, unwritable: Mapping[str, str]) -> list[str]:
    """Return, a sentence each, what a person should know of a protected host; empty where all is well.

    :arg unwritable: the folders in which it could leave no token, and why.
    """
    sentences = [
        *(conflict["msg"] for conflict in result["conflicts"]),
        *map(sentence, result["missing_records"]),
        *(f"Domain {one['name']} is not saved now: {one['reason']}." for one in result["skipped"]),
        *(f"Domain {one['name']} is not here any more, and the ledger does not know where it went; {_last(one)}." for one in result["missing"]),
        *(f"{_disk(one)} could not be started elsewhere: {one['reason']}." for one in result["unproved"]),
        *(f"No token could be left in {folder}: {why}." for folder, why in sorted(unwritable.items())),
        *([result["guard"]["note"]] if result["guard"]["note"] else []),
    ]
    return [printable(sentence) for sentence in sentences]


def _last(one: Body) -> str:
    return f"saved {one['saved_at']}, then {one['state']}" if one["saved_at"] else "it was never saved"


def _disk(one: Body) -> str:
    return f"Domain {one['name']} with its disk {one['target']}{' (' + one['path'] + ')' if one['path'] else ''}" if one["target"] else f"Domain {one['name']}"


def age_seconds(at: t.Optional[str]) -> t.Optional[int]:
    """Return how long ago that was; null for never, and for what is no time."""
    try:
        then = datetime.datetime.fromisoformat(at) if at else None
        return max(0, int((datetime.datetime.now(datetime.UTC) - then).total_seconds())) if then else None
    except (TypeError, ValueError):
        return None


def shown(body: t.Optional[Body], judgement: Judgement) -> Body:
    """Return what a diff shows of a document: what has changed in it, and of a definition only that it has."""
    protected = (body or {}).get("protected") or {}
    found: Body = {}
    for key in judgement.changed:
        value = protected.get(key) if key in KEPT or key == "host" else (body or {}).get(key)
        found[key] = value if key != _HIDDEN or value is None else "not shown, it may hold passwords" + (" (changed)" if body is judgement.body else "")
    return found
