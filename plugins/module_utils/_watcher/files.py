# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The files under /run/kvmfleet on the source host: state, lock and heartbeat. All are the superuser's alone."""

from __future__ import annotations

import json
import os
import stat
import typing as t
import uuid as uuid_module

from .._errors import Forbidden, InvalidArgument

RUN_FOLDER = "/run/kvmfleet"
# What stands in a state, or is told of one, beside the record.
_BESIDE = ("watcher", "answers", "waits_for", "alive", "watched")


def run_folder(folder: str = RUN_FOLDER) -> str:
    """Return the folder, made where missing. Raises L(Forbidden) where it is not a folder of ours that only we can write."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        status = os.lstat(folder)
    except OSError as error:
        raise Forbidden(f"{folder} cannot be used: {error.strerror}.", "The module needs root on the host: set become.") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise Forbidden(f"{folder} is not a folder that only this user can write.", "Remove it and run again.")
    if status.st_mode & 0o077:
        # A guard of version 0.1.0 that ran first has made it readable for all.
        os.chmod(folder, 0o700)
    return folder


def state_path(domain_uuid: str, folder: str = RUN_FOLDER) -> str:
    """Return where the state of that domain's move stands."""
    return os.path.join(folder, f"{_checked(domain_uuid)}.json")


def record_in(state: t.Mapping[str, t.Any]) -> t.Dict[str, t.Any]:
    """Return the record in a state: without what is said of its watcher."""
    return {key: value for key, value in state.items() if key not in _BESIDE}


def lock_path(domain_uuid: str, folder: str = RUN_FOLDER) -> str:
    """Return the lock of that domain."""
    return os.path.join(folder, f"{_checked(domain_uuid)}.lock")


def heartbeat_path(run_id: str, folder: str = RUN_FOLDER) -> str:
    """Return where a run says that it is still there."""
    return os.path.join(folder, f"{_checked(run_id)}.heartbeat")


def turns_path(run_id: str, folder: str = RUN_FOLDER) -> str:
    """Return where a run says which of its waiting moves have their turn."""
    return os.path.join(folder, f"{_checked(run_id)}.turns")


def seen_path(run_id: str, folder: str = RUN_FOLDER) -> str:
    """Return where a run's watcher writes, at its end, who is on the hosts of its moves."""
    return os.path.join(folder, f"{_checked(run_id)}.seen")


def log_path(run_id: str, folder: str = RUN_FOLDER) -> str:
    """Return where a watcher's own troubles are written."""
    return os.path.join(folder, f"{_checked(run_id)}.log")


def write_json(path: str, document: t.Any) -> None:
    """Replace the file in one step: a reader sees the old document or the new one, on one line."""
    temporary = f"{path}.{os.getpid()}.new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        json.dump(document, stream, separators=(",", ":"))
        stream.write("\n")
    os.replace(temporary, path)


def read_json(path: str) -> t.Any:
    """Return the document of a file; null where there is none, or where what is there is no JSON."""
    try:
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)
    except (FileNotFoundError, ValueError, RecursionError):
        return None


def _checked(identifier: str) -> str:
    try:
        return str(uuid_module.UUID(identifier))
    except (ValueError, AttributeError, TypeError) as error:
        raise InvalidArgument(f"{identifier!r} is no UUID.") from error
