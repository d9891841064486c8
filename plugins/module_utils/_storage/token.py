# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The token test: are two folders of one path, on two hosts, one store?

A name that nobody has used before is put next to the images on the source and looked for at the destination, and the other way round. One that is
seen on the other side proves one store. None seen proves two: the second look is a lookup by name on the source, which no cache of a network
file system can answer for a name that is new. No image is opened, and nothing is left.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import typing as t
import uuid as uuid_module

from .._durable import sync_folder
from .._errors import KvmfleetError, Unreachable
from .ports import Folder

SHARED = "shared"
SEPARATE = "separate"
UNPROVED = "unproved"
_PREFIX = ".kvmfleet-token-"


@dataclasses.dataclass(frozen=True)
class Finding:
    """What the test has shown; C(why) says, for a person, why it could show nothing."""

    verdict: str
    why: str = ""


def compare(path: str, folder: Folder) -> Finding:
    """Return whether the folder of this host's image and that folder of the other host are one store. Raises L(Unreachable)."""
    folders = sorted({os.path.dirname(path), os.path.dirname(os.path.realpath(path))})
    try:
        is_seen = any(_seen_there(own, folder) for own in folders) or _seen_here(folders, folder)
    except OSError as error:
        return Finding(UNPROVED, f"no token could be put beside {path}: {error.strerror}")
    except Unreachable:
        raise
    except KvmfleetError as error:
        return Finding(UNPROVED, f"no token could be put or looked for there: {error.message.rstrip('.')}")
    return Finding(SHARED if is_seen else SEPARATE)


def _seen_there(own: str, folder: Folder) -> bool:
    with _token(own) as name:
        folder.look()
        return folder.volume(name) is not None


def _seen_here(own: t.Sequence[str], folder: Folder) -> bool:
    name = _new_name()
    folder.create(name, "raw", 0)
    try:
        return any(os.path.lexists(os.path.join(place, name)) for place in own)
    finally:
        folder.remove(name)


@contextlib.contextmanager
def _token(place: str) -> t.Iterator[str]:
    name = _new_name()
    path = os.path.join(place, name)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.fsync(handle)
        os.close(handle)
        sync_folder(place)
        yield name
    finally:
        os.unlink(path)


def _new_name() -> str:
    return f"{_PREFIX}{uuid_module.uuid4().hex}"
