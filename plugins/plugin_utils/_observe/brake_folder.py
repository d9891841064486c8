# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The folder of the brake on this control node: a file that disarms all reactions, and the slots of a version that kept them here."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden, Internal, Unsafe
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.file.folder import Folder
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import state_path

from .brake import Slot, read_time

STATE_FILE = "brake.json"
# The name of the state file once its slots are in the ledger.
MOVED_FILE = "brake.json.moved"
DISARMING_FILE = "disarmed"
_ARM_AGAIN = "Remove the file to arm them again."


def default_folder() -> str:
    """Return the folder of the user who runs this: C(kvmfleet/events)."""
    return state_path("events")


def is_disarmed(path: str) -> bool:
    """Whether the file that disarms exists, whatever its type and permissions."""
    return os.path.lexists(os.path.join(path, DISARMING_FILE))


def check_armed(path: str, host: str) -> None:
    """Raise L(Forbidden) if the file that disarms exists."""
    if is_disarmed(path):
        raise Forbidden(f"{_disarmed_text(path)} Nothing was done for {host}.", _ARM_AGAIN)


def _disarmed_text(path: str) -> str:
    return f"Reactions to events are disarmed: there is {os.path.join(path, DISARMING_FILE)}."


def disarmed_lines(path: str) -> list[str]:
    """Return a line for a person if the file that disarms exists, with what arms the reactions again."""
    return [f"{_disarmed_text(path)} {_ARM_AGAIN}"] if is_disarmed(path) else []


def read_old_slots(path: str) -> list[Slot]:
    """Return the slots that are in the folder and not in the ledger yet.

    Raises L(Unsafe) for a file that cannot be read, L(Forbidden) or L(Internal) for a folder that cannot be used.
    """
    with _translate_errors(path):
        if not os.path.lexists(os.path.join(path, STATE_FILE)):
            return []
        with Folder.open_path(path) as folder:
            return _read_slots(folder)


def join_slots(slots: Sequence[Slot], old: Sequence[Slot]) -> list[Slot]:
    """Return the slots with those of the folder, each once."""
    return [*(slot for slot in old if slot not in slots), *slots]


def retire_old_slots(path: str) -> None:
    """Rename the file, whose slots are in the ledger now. Several runs may do this."""
    with _translate_errors(path), Folder.open_path(path) as folder, contextlib.suppress(FileNotFoundError):
        folder.move_file(STATE_FILE, folder, MOVED_FILE)


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
    return Slot(str(item["reaction"]), str(item["host"]), read_time(str(item["at"])))


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
