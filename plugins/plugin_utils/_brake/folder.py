# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The brake's folder on the control node: who has acted, under a lock, durable before anybody acts; and the file that disarms."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import typing as t
from collections.abc import Callable, Iterator, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Forbidden, Internal, Unsafe
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.folder import Folder
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.locks import flocked
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import state_path

from .places import Place

STATE = "brake.json"
LOCK = "brake.lock"
DISARMED = "disarmed"
_LOCK_SECONDS = 30.0

Change = Callable[[Sequence[Place]], list[Place]]


def default_folder() -> str:
    """Return the folder of the user who runs this: C(kvmfleet/events)."""
    return state_path("events")


def change_places(path: str, change: Change, write: bool) -> tuple[list[Place], list[Place]]:
    """Return the places before and after a change; where it writes, they are on disk then.

    Raises what C(change) raises, L(Unsafe) for a file that cannot be read, L(Forbidden) or L(Internal) for a folder that cannot be used,
    L(TimedOut) where another process holds the lock.
    """
    with _reported(path):
        if write:
            os.makedirs(path, mode=0o700, exist_ok=True)
        elif not os.path.isdir(path):
            return [], change([])
        with Folder.at(path) as folder, flocked(folder, LOCK, exclusive=True, timeout_seconds=_LOCK_SECONDS):
            before = _read(folder)
            after = change(before)
            if write and after != before:
                folder.write(STATE, json.dumps({"places": [place.as_dict() for place in after]}, indent=1).encode() + b"\n")
            return before, after


def check_armed(path: str, host: str) -> None:
    """Raise L(Forbidden) where somebody has made the file that disarms; whatever it is and whoever may read it, it counts."""
    where = os.path.join(path, DISARMED)
    if os.path.lexists(where):
        raise Forbidden(f"Reactions to events are disarmed: there is {where}. Nothing was done for {host}.", "Remove the file to arm them again.")


def _read(folder: Folder) -> list[Place]:
    try:
        data = folder.read(STATE)
    except FileNotFoundError:
        return []
    try:
        return [_place(item) for item in json.loads(data)["places"]]
    except (ValueError, TypeError, KeyError) as error:
        raise Unsafe(
            f"{os.path.join(folder.path, STATE)} cannot be read ({error}), so it is not known on which hosts was acted already. Nothing was done.",
            "Look at it, and remove it when you know.",
        ) from error


def _place(item: t.Any) -> Place:
    at = datetime.datetime.fromisoformat(item["at"])
    if at.tzinfo is None:
        raise ValueError(f"{item['at']} has no zone")
    return Place(str(item["reaction"]), str(item["host"]), at)


@contextlib.contextmanager
def _reported(path: str) -> Iterator[None]:
    try:
        yield
    except PermissionError as error:
        raise Forbidden(_cannot_use(path, error), "Name a folder you may write with 'folder'.") from error
    except OSError as error:
        raise Internal(_cannot_use(path, error), "Repair it, or name another with 'folder'.") from error


def _cannot_use(path: str, error: OSError) -> str:
    return f"Failed to use the brake's folder {path}: {error.strerror}. Nothing was done."
