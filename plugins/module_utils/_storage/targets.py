# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The targets of a move's copied disks: made before its job, and removed after a move that failed where this move made them."""

from __future__ import annotations

import os
import typing as t

from .._errors import Conflict, KvmfleetError, NotFound, Unsafe
from .._records import schema
from .plan import FILL, REPLACE
from .ports import Folder, StorageHost
from .token import SEPARATE, compare

TARGET_ACT = "make_target"
_NOTHING = "Nothing was started."

Intend = t.Callable[[str, str], None]
Copy = t.MutableMapping[str, t.Any]


def copies_of(record: schema.Record) -> t.List[t.Dict[str, t.Any]]:
    """Return the copies that a record plans; none for a move that copies nothing."""
    return t.cast(t.List[t.Dict[str, t.Any]], record.get("storage", {}).get("disks", []))


def make_targets(record: schema.Record, destination: StorageHost, intend: Intend) -> None:
    """Make the images that are to be copied into; C(made) is set in each copy that this move has made.

    What the plan was built on is looked at again: time may have passed in a queue. Raises L(Unsafe) or L(Conflict) where it no longer holds.

    :arg intend: writes down what is about to be done, and with it the record.
    """
    for copy in copies_of(record):
        with destination.folder(os.path.dirname(copy["path"])) as folder:
            _check(copy, folder, destination)
            if copy["action"] != FILL:
                _make(copy, folder, intend)


def remove_targets(record: schema.Record, destination: StorageHost) -> t.List[str]:
    """Remove the images that this move has made; return the paths. A file that a domain uses by now is left alone."""
    removed = []
    for copy in copies_of(record):
        if copy.get("made") and not destination.users_of(copy["path"]):
            with destination.folder(os.path.dirname(copy["path"])) as folder:
                folder.remove(os.path.basename(copy["path"]))
            copy["made"] = False
            removed.append(copy["path"])
    return removed


def has_made(record: schema.Record) -> bool:
    """Whether images that this move has made are at the destination."""
    return any(copy.get("made") for copy in copies_of(record))


def _check(copy: Copy, folder: Folder, destination: StorageHost) -> None:
    path = copy["path"]
    finding = compare(path, folder)
    if finding.verdict != SEPARATE:
        raise Unsafe(f"The folder of {path} is no longer proved separate on the two hosts ({finding.why or finding.verdict}).", _NOTHING)
    users = [*destination.users_of(path), *folder.users(path)]
    if users:
        raise Conflict(f"{', '.join(users)} uses {path} at the destination by now.", _NOTHING)
    existing = folder.volume(os.path.basename(path))
    if copy["action"] == FILL and existing is None:
        raise NotFound(f"The target {path} is gone from the destination.", _NOTHING)
    if copy["bytes"] > folder.available_bytes() + (existing.allocation_bytes if existing else 0):
        raise Conflict(f"There is no longer room for {path} at the destination: {copy['bytes']} bytes are needed.", _NOTHING)


def _make(copy: Copy, folder: Folder, intend: Intend) -> None:
    name = os.path.basename(copy["path"])
    intend(TARGET_ACT, f"{copy['path']} ({copy['action']})")
    if copy["action"] == REPLACE:
        # Removed, not written over: should the file be a link, then only the link goes.
        folder.remove(name)
    try:
        folder.create(name, copy["format"], copy["capacity_bytes"])
    except KvmfleetError as error:
        raise type(error)(f"The target of disk {copy['target']} could not be made at the destination: {error.message}", _NOTHING) from error
    copy["made"] = True
    intend(f"{TARGET_ACT}_done", copy["target"])
