# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What both hosts say of a domain's images before any of them is copied. Leaves both hosts as they were."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import typing as t

from .._errors import KvmfleetError, NotFound
from .ports import Folder, Image, StorageHost, Volume
from .token import SEPARATE, SHARED, UNPROVED, Finding, compare

Facts = t.Dict[str, t.Any]

# How much of a base is compared: so many pieces of it, evenly spread.
_SAMPLES, _SAMPLE_BYTES = 64, 65536
# A client of a network file system may hold back for so long what it has written, and with it the file's time of change.
_SETTLED_SECONDS = 30.0


def inspect(images: t.Sequence[Image], destination: StorageHost) -> t.List[Facts]:
    """Return for each image C({image, verdict, why, existing, used_by, available_bytes, same_file, other_base}), as JSON can carry it.

    Runs on the source. C(existing) is the file of that path at the destination, C(used_by) the domains and images there that use it, C(same_file)
    why that file may be the image itself, reached another way, C(other_base) why what it is built on there is something else.
    """
    with contextlib.ExitStack() as stack:
        folders = _Folders(destination, stack)
        return [{"image": dataclasses.asdict(image), **_inspect(image, destination, folders)} for image in images]


class _Folders:
    """Opens each folder of the destination once, and compares it once."""

    def __init__(self, host: StorageHost, stack: contextlib.ExitStack) -> None:
        self._host = host
        self._stack = stack
        self._known: t.Dict[str, t.Tuple[t.Optional[Folder], Finding]] = {}

    def of(self, path: str) -> t.Tuple[t.Optional[Folder], Finding]:
        # Two images of one folder can be links into two stores.
        place = f"{os.path.dirname(path)}\0{os.path.dirname(os.path.realpath(path))}"
        if place not in self._known:
            self._known[place] = self._open(path)
        return self._known[place]

    def _open(self, path: str) -> t.Tuple[t.Optional[Folder], Finding]:
        place = os.path.dirname(path)
        try:
            folder = self._stack.enter_context(self._host.folder(place))
        except NotFound:
            return None, Finding(UNPROVED, f"the destination has no folder {place}")
        return folder, compare(path, folder)


def _inspect(image: Image, destination: StorageHost, folders: _Folders) -> Facts:
    if image.kind == "network":
        return _facts(Finding(SHARED))
    if image.kind != "file" or not os.path.isabs(image.path):
        return _facts(Finding(UNPROVED, f"it is of the kind {image.kind!r}, of which only a person knows whether both hosts see the same bytes"))
    folder, finding = folders.of(image.path)
    if folder is None or finding.verdict != SEPARATE:
        return _facts(finding)
    existing = folder.volume(os.path.basename(image.path))
    other_base = next(filter(None, (_other_base(path, folders) for path in image.backing)), "") if existing else ""
    return {
        **_facts(finding),
        "existing": dataclasses.asdict(existing) if existing else None,
        "used_by": [*destination.users_of(image.path), *folder.users(image.path)],
        "available_bytes": folder.available_bytes(),
        "same_file": _may_be_same(image.path, existing) if existing else "",
        "other_base": other_base,
    }


def _facts(finding: Finding) -> Facts:
    return {"verdict": finding.verdict, "why": finding.why, "existing": None, "used_by": [], "available_bytes": 0, "same_file": "", "other_base": ""}


def _other_base(path: str, folders: _Folders) -> str:
    """Say why the destination's file of a base's path is not that base; empty where it is one store, or where no sample differs.

    A base is never copied, and to read all of it would cost what an incremental copy saves: what was made differently differs nearly everywhere.
    """
    if not path:
        return "one of its bases is no file"
    folder, finding = folders.of(path)
    if finding.verdict == SHARED:
        return ""
    if folder is None or folder.volume(os.path.basename(path)) is None:
        return f"{path} is not there"
    try:
        return _difference(path, folder)
    except OSError as error:
        return f"{path} cannot be read here: {error.strerror}"
    except KvmfleetError as error:
        return f"{path} cannot be read there: {error.message}"


def _difference(path: str, folder: Folder) -> str:
    with open(path, "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        last = max(0, size - _SAMPLE_BYTES)
        for offset in sorted({last * number // (_SAMPLES - 1) for number in range(_SAMPLES)}):
            stream.seek(offset)
            # One byte more at the end shows a longer file.
            length = _SAMPLE_BYTES + 1
            if stream.read(length) != folder.read(os.path.basename(path), offset, length):
                return f"{path} there is another file: what it holds at byte {offset} is different"
    return ""


def _may_be_same(path: str, existing: Volume) -> str:
    """Say why the destination's file may be this image under a link: one file has one time of change, whoever asks for it."""
    try:
        # Opened, because that is when a network file system asks its server again.
        with open(path, "rb") as stream:
            changed_at = os.fstat(stream.fileno()).st_ctime
    except OSError as error:
        return f"the image itself cannot be looked at: {error.strerror}"
    if abs(existing.changed_at - changed_at) <= _SETTLED_SECONDS:
        return f"the file there was changed within {_SETTLED_SECONDS:.0f} s of the image itself"
    return ""
