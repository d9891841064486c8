# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What others ask of a watcher: a file each, taken once; the answer stands in the state file."""

from __future__ import annotations

import dataclasses
import os
import typing as t
import uuid as uuid_module

from .files import RUN_FOLDER, read_json, state_path, write_json

ABORT = "abort"
FORCE_COMPLETE = "force_complete"
BANDWIDTH = "bandwidth"

_ACTS = (ABORT, FORCE_COMPLETE, BANDWIDTH)
_SUFFIX = ".intent"


@dataclasses.dataclass(frozen=True)
class Intent:
    """Something that is to happen to one move: to the record of that id in that generation, and to no other.

    C(bandwidth_mib) goes with C(bandwidth) and C(force_complete): the cap from then on, 0 for none.
    """

    act: str
    record: str
    generation: int
    by: str
    bandwidth_mib: t.Optional[int] = None
    id: str = dataclasses.field(default_factory=lambda: str(uuid_module.uuid4()))


def leave(domain_uuid: str, intent: Intent, folder: str = RUN_FOLDER) -> None:
    """Put an intent where the domain's watcher finds it."""
    write_json(_path(domain_uuid, intent.id, folder), dataclasses.asdict(intent))


def withdraw(domain_uuid: str, intent: Intent, folder: str = RUN_FOLDER) -> bool:
    """Take an intent back; false where the watcher has taken it already."""
    try:
        os.unlink(_path(domain_uuid, intent.id, folder))
    except FileNotFoundError:
        return False
    return True


def take(domain_uuid: str, record: str, generation: int, folder: str = RUN_FOLDER) -> t.List[Intent]:
    """Return the intents for this move and remove them; those for another record or generation are removed unheeded."""
    found = []
    for path in _left(domain_uuid, folder):
        intent = _intent(read_json(path))
        try:
            os.unlink(path)
        except FileNotFoundError:
            # It was taken back meanwhile: whoever removes the file decides, and the asker was told that nothing happens.
            continue
        if intent and (intent.record, intent.generation) == (record, generation):
            found.append(intent)
    return found


def _left(domain_uuid: str, folder: str) -> t.List[str]:
    """Return the paths of all intents of that domain; none where somebody has removed the folder."""
    prefix = _prefix(domain_uuid, folder)
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    return [os.path.join(folder, name) for name in names if name.startswith(prefix) and name.endswith(_SUFFIX)]


def _intent(document: t.Any) -> t.Optional[Intent]:
    try:
        intent = Intent(**document)
    except TypeError:
        return None
    return intent if _is_whole(intent) else None


def _is_whole(intent: Intent) -> bool:
    texts = all(isinstance(text, str) for text in (intent.record, intent.by, intent.id))
    cap = intent.bandwidth_mib
    return texts and intent.act in _ACTS and (cap is None or (isinstance(cap, int) and not isinstance(cap, bool) and cap >= 0))


def _path(domain_uuid: str, intent_id: str, folder: str) -> str:
    return os.path.join(folder, f"{_prefix(domain_uuid, folder)}{uuid_module.UUID(intent_id)}{_SUFFIX}")


def _prefix(domain_uuid: str, folder: str) -> str:
    return os.path.basename(state_path(domain_uuid, folder))[: -len("json")]
