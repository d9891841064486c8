# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Notes on a host of the domains that are to be started there again, because a drain has shut them down or a boot was held. They survive boots."""

from __future__ import annotations

import contextlib
import os
import typing as t
import uuid as uuid_module

from ._errors import Forbidden, InvalidArgument
from ._guard.program import sync_folder, write_json
from ._records.clock import utc_now
from ._watcher.files import read_json

FOLDER = "/var/lib/kvmfleet/start-again"
DRAIN = "drain"

Document = t.Dict[str, t.Any]


def note(uuid: str, name: t.Optional[str], why: t.Sequence[str], folder: str = FOLDER) -> bool:
    """Note on disk that the domain is to be started again; return whether that was new. Reasons are added to those of an earlier note."""
    path = _path(uuid, folder)
    try:
        before = _read(path, uuid)
        whys = sorted({*(before["why"] if before else []), *why})
        if before and before["why"] == whys:
            return False
        write_json(path, {"uuid": _checked(uuid), "name": name, "why": whys, "at": before["at"] if before else utc_now()})
        return True
    except OSError as error:
        raise Forbidden(f"It cannot be noted in {folder} that domain {name} is to be started again: {error.strerror}.", "Set become: true.") from error


def forget(uuid: str, folder: str = FOLDER) -> bool:
    """Remove the domain's note; return whether there was one."""
    try:
        os.unlink(_path(uuid, folder))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise Forbidden(f"The note of domain {uuid} in {folder} cannot be removed: {error.strerror}.", "Set become: true.") from error
    sync_folder(folder)
    return True


def is_noted(uuid: str, folder: str = FOLDER) -> bool:
    """Whether there is a note of that domain."""
    return _read(_path(uuid, folder), uuid) is not None


def notes(folder: str = FOLDER) -> t.Tuple[t.List[Document], t.List[str]]:
    """Return the notes by name, each C({uuid, name, why, at}), and the paths of files that are none."""
    found, damaged = [], []
    for entry in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        stem, suffix = os.path.splitext(entry)
        if suffix == ".json":
            path = os.path.join(folder, entry)
            document = _read(path, stem)
            if document:
                found.append(document)
            elif os.path.lexists(path):
                damaged.append(path)
    return sorted(found, key=lambda one: (str(one["name"]), one["uuid"])), damaged


def _read(path: str, uuid: str) -> t.Optional[Document]:
    """Return the note; null where there is none, or what is there was torn or written by hand."""
    document = read_json(path)
    if not isinstance(document, dict) or document.get("uuid") != uuid.lower() or not isinstance(document.get("at"), str):
        return None
    with contextlib.suppress(InvalidArgument):
        _checked(uuid)
        whys = document.get("why")
        if isinstance(whys, list) and all(isinstance(why, str) for why in whys) and isinstance(document.get("name"), (str, type(None))):
            return {key: document[key] for key in ("uuid", "name", "why", "at")}
    return None


def _path(uuid: str, folder: str) -> str:
    return os.path.join(folder, f"{_checked(uuid)}.json")


def _checked(uuid: str) -> str:
    try:
        return str(uuid_module.UUID(uuid))
    except (ValueError, AttributeError, TypeError) as error:
        raise InvalidArgument(f"{uuid!r} is no UUID.") from error
