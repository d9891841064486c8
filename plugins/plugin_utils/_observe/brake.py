# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The brake on reactions to events: a limit on the number of hosts within a time window.

Slots are written to a folder on the control node, under a lock and before a reaction acts. A file in that folder disarms all reactions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
import typing as t
from collections.abc import Callable, Iterator, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, Forbidden, Internal, InvalidArgument, Unsafe, printable_line
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.folder import Folder, hold_file_lock
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import state_path

# Older slots are removed, so that the file stays small.
LONGEST_WINDOW_MINUTES = 31 * 24 * 60


class Slot(t.NamedTuple):
    """An action of a reaction on a host.

    :arg at: the time of the action, in UTC.
    """

    reaction: str
    host: str
    at: datetime.datetime

    def as_dict(self) -> dict[str, str]:
        """Return the slot as the file and the task's result have it."""
        return {"reaction": self.reaction, "host": self.host, "at": self.at.isoformat(timespec="milliseconds").replace("+00:00", "Z")}


@dataclasses.dataclass(frozen=True)
class SlotRequest:
    """The request for an action.

    :arg hosts: on how many different hosts the reaction may act within the window, this one included.
    """

    reaction: str
    host: str
    hosts: int
    window_minutes: int

    def __post_init__(self) -> None:
        """Raise L(InvalidArgument) for an invalid limit, and for names that cannot be printed in a message."""
        for name in ("host", "reaction"):
            value = getattr(self, name)
            if not value.strip() or not value.isprintable():
                raise InvalidArgument(f"{name} is {value!r}.", "Give a name. Nothing was changed.")
        if self.hosts < 1:
            raise InvalidArgument(
                f"hosts is {self.hosts}.", "Give at least 1; to prevent all reactions, create the file that disarms them. Nothing was changed."
            )
        if not 1 <= self.window_minutes <= LONGEST_WINDOW_MINUTES:
            raise InvalidArgument(f"window_minutes is {self.window_minutes}.", f"Give 1 to {LONGEST_WINDOW_MINUTES}. Nothing was changed.")


def slots_in_window(slots: Sequence[Slot], request: SlotRequest, now: datetime.datetime) -> list[Slot]:
    """Return the slots of this reaction in the window. Slots in the future count, too: setting the clock back frees nothing."""
    since = now - datetime.timedelta(minutes=request.window_minutes)
    return [slot for slot in slots if slot.reaction == request.reaction and slot.at > since]


def take_slot(slots: Sequence[Slot], request: SlotRequest, now: datetime.datetime) -> list[Slot]:
    """Return the slots with one for this host. A host that has one keeps it and its time, so that an interrupted reaction can continue.

    Raises L(Conflict) if no slot is free.
    """
    within = slots_in_window(slots, request, now)
    if any(slot.host == request.host for slot in within):
        return list(slots)
    others = {slot.host for slot in within}
    if len(others) >= request.hosts:
        free = max(min(slot.at for slot in within) + datetime.timedelta(minutes=request.window_minutes), now)
        raise Conflict(
            f"The brake holds: '{request.reaction}' has acted on {', '.join(sorted(map(printable_line, others)))} within {request.window_minutes} minutes, "
            f"and may act on {request.hosts} host{'s' if request.hosts > 1 else ''} in that time. Nothing was done for {request.host}.",
            f"Find out what is wrong with the fleet, and handle by hand what {request.host} needs; the brake releases at {free:%Y-%m-%d %H:%M} UTC.",
        )
    young = now - datetime.timedelta(minutes=LONGEST_WINDOW_MINUTES)
    kept = [slot for slot in slots if slot.at > young and (slot.reaction, slot.host) != (request.reaction, request.host)]
    return [*kept, Slot(request.reaction, request.host, now)]


def release_slot(slots: Sequence[Slot], request: SlotRequest) -> list[Slot]:
    """Return the slots without this host's."""
    return [slot for slot in slots if (slot.reaction, slot.host) != (request.reaction, request.host)]


STATE_FILE = "brake.json"
LOCK_FILE = "brake.lock"
DISARMING_FILE = "disarmed"
_LOCK_SECONDS = 30.0

Change = Callable[[Sequence[Slot]], list[Slot]]


def default_folder() -> str:
    """Return the folder of the user who runs this: C(kvmfleet/events)."""
    return state_path("events")


def change_slots(path: str, change: Change, write: bool) -> tuple[list[Slot], list[Slot]]:
    """Return the slots before and after a change; a change is on disk when this returns.

    Raises what C(change) raises, L(Unsafe) for a file that cannot be read, L(Forbidden) or L(Internal) for a folder that cannot be used,
    L(TimedOut) if another process holds the lock.
    """
    with _translate_errors(path):
        if write:
            os.makedirs(path, mode=0o700, exist_ok=True)
        elif not os.path.isdir(path):
            return [], change([])
        with Folder.open_path(path) as folder, hold_file_lock(folder, LOCK_FILE, exclusive=True, timeout_seconds=_LOCK_SECONDS):
            before = _read_slots(folder)
            after = change(before)
            if write and after != before:
                folder.write_file(STATE_FILE, json.dumps({"places": [slot.as_dict() for slot in after]}, indent=1).encode() + b"\n")
            return before, after


def check_armed(path: str, host: str) -> None:
    """Raise L(Forbidden) if the file that disarms exists, whatever its type and permissions."""
    where = os.path.join(path, DISARMING_FILE)
    if os.path.lexists(where):
        raise Forbidden(f"Reactions to events are disarmed: there is {where}. Nothing was done for {host}.", "Remove the file to arm them again.")


def _read_slots(folder: Folder) -> list[Slot]:
    try:
        data = folder.read_file(STATE_FILE)
    except FileNotFoundError:
        return []
    try:
        return [_parse_slot(item) for item in json.loads(data)["places"]]
    except (ValueError, TypeError, KeyError) as error:
        raise Unsafe(
            f"{os.path.join(folder.path, STATE_FILE)} cannot be read ({error}), so the hosts of earlier reactions are not known. Nothing was done.",
            "Check the file, and remove it when you know those hosts.",
        ) from error


def _parse_slot(item: JsonObject) -> Slot:
    at = datetime.datetime.fromisoformat(str(item["at"]))
    if at.tzinfo is None:
        raise ValueError(f"{item['at']} has no time zone")
    return Slot(str(item["reaction"]), str(item["host"]), at)


@contextlib.contextmanager
def _translate_errors(path: str) -> Iterator[None]:
    try:
        yield
    except PermissionError as error:
        raise Forbidden(_cannot_use(path, error), "Set 'folder' to a folder that you may write.") from error
    except OSError as error:
        raise Internal(_cannot_use(path, error), "Repair it, or set 'folder' to another one.") from error


def _cannot_use(path: str, error: OSError) -> str:
    return f"Failed to use the brake's folder {path}: {error.strerror}. Nothing was done."
