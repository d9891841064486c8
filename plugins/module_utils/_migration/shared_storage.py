# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Determines which images two hosts share, by a token test from both sides.

A name that nobody has used before is created next to the images on the source and searched at the destination, and the other way round. A name that
is found on the other side proves shared storage. If neither is found, the storage is not shared: the second search is a lookup by name on the source, and no
cache of a network file system has an answer for a new name. No image is opened for the test, and no file is left behind; the one of a test that was killed is
removed by a later test in its folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import stat
import typing as t
import uuid as uuid_module

from .._dataclass import dataclass
from .._files import sync_folder
from .._libvirt.interface import Folder, Host
from .._libvirt.values import Image, Volume
from .._model.codec import Json
from .._model.definition_files import SEPARATE, SHARED, UNPROVED
from .._model.errors import KvmfleetError, NotFound, Unreachable
from .._model.libvirt_formats import clean_path

_FILE_PREFIX = ".kvmfleet-token-"
_FILE_NAME = re.compile(re.escape(_FILE_PREFIX) + "[0-9a-f]{32}")
# No test takes as long.
_LEFT_SECONDS = 86400.0


@dataclass(frozen=True)
class Finding:
    """The result of the test. C(why) states why nothing was proved."""

    verdict: str
    why: str = ""


def compare_folders(path: str, folder: Folder) -> Finding:
    """Return whether the folder of this host's image and that folder of the other host are one store. Raises L(Unreachable)."""
    folders = sorted({os.path.dirname(path), os.path.dirname(os.path.realpath(path))})
    try:
        is_seen = any(_is_seen_there(own, folder) for own in folders) or _is_seen_here(folders, folder)
    except OSError as error:
        return Finding(UNPROVED, f"no token could be written next to {path}: {error.strerror}")
    except Unreachable:
        raise
    except KvmfleetError as error:
        return Finding(UNPROVED, f"no token could be written or read there: {error.message.rstrip('.')}")
    return Finding(SHARED if is_seen else SEPARATE)


def _is_seen_there(own: str, folder: Folder) -> bool:
    with temporary_token(own) as name:
        folder.refresh_listing()
        return folder.find_volume(name) is not None


def _is_seen_here(own: t.Sequence[str], folder: Folder) -> bool:
    name = _new_name()
    folder.create_image(name, "raw", 0)
    try:
        return any(os.path.lexists(os.path.join(folder_path, name)) for folder_path in own)
    finally:
        folder.remove_file(name)


@contextlib.contextmanager
def temporary_token(folder_path: str) -> t.Iterator[str]:
    """Yield the name of a new file in a folder of this host, and remove the file afterwards. Raises C(OSError)."""
    name = _new_name()
    path = os.path.join(folder_path, name)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.fsync(handle)
        created_at = os.fstat(handle).st_mtime
        os.close(handle)
        sync_folder(folder_path)
        yield name
    finally:
        os.unlink(path)
    _remove_left_tokens(folder_path, created_at)


def _remove_left_tokens(folder_path: str, now: float) -> None:
    """Remove the tokens of killed tests. Both times are those of the folder's file system, whose clock may differ from this host's."""
    # Whoever empties the folder at the same time may be faster.
    with contextlib.suppress(OSError), os.scandir(folder_path) as entries:
        for entry in entries:
            if not _FILE_NAME.fullmatch(entry.name):
                continue
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) and not status.st_size and now - status.st_mtime > _LEFT_SECONDS:
                os.unlink(entry.path)


def _new_name() -> str:
    return f"{_FILE_PREFIX}{uuid_module.uuid4().hex}"


Facts = t.Dict[str, Json]

# The number and size of the samples of a base that are compared, evenly spread.
_SAMPLES, _SAMPLE_BYTES = 64, 65536
# The time by which a client of a network file system may delay its writes, and with them the file's time of change.
_SETTLED_SECONDS = 30.0


def inspect_images(images: t.Sequence[Image], destination: Host) -> t.List[Facts]:
    """Return for each image C({image, verdict, why, existing, used_by, available_bytes, same_file, other_base}), as JSON can carry it.

    Runs on the source. C(existing) is the file of that path at the destination, C(used_by) the domains and images there that use it, C(same_file)
    why that file may be the image itself, reached by another path, C(other_base) why its backing file there is a different one.
    """
    with contextlib.ExitStack() as stack:
        folders = _ComparedFolders(destination, stack)
        return [{"image": dataclasses.asdict(image), **_inspect_image(image, destination, folders)} for image in images]


class _ComparedFolders:
    """Opens each folder of the destination once, and compares it once."""

    def __init__(self, host: Host, stack: contextlib.ExitStack) -> None:
        self._host = host
        self._stack = stack
        self._known: t.Dict[str, t.Tuple[t.Optional[Folder], Finding]] = {}

    def open_compared(self, path: str, there: str) -> t.Tuple[t.Optional[Folder], Finding]:
        """Return the destination's folder of the file C(there), and whether it and the folder of this host's C(path) are one store."""
        # Two images of one folder can be links into two stores.
        folders = f"{os.path.dirname(path)}\0{os.path.dirname(os.path.realpath(path))}\0{os.path.dirname(there)}"
        if folders not in self._known:
            self._known[folders] = self._open_folder(path, os.path.dirname(there))
        return self._known[folders]

    def _open_folder(self, path: str, folder_path: str) -> t.Tuple[t.Optional[Folder], Finding]:
        try:
            folder = self._stack.enter_context(self._host.open_folder(folder_path))
        except NotFound:
            return None, Finding(UNPROVED, f"the destination has no folder {folder_path} that libvirt can open")
        return folder, compare_folders(path, folder)


def _inspect_image(image: Image, destination: Host, folders: _ComparedFolders) -> Facts:
    if image.kind == "network":
        return _describe_finding(Finding(SHARED))
    if image.kind != "file" or not os.path.isabs(image.path):
        return _describe_finding(Finding(UNPROVED, f"its kind is {image.kind!r}: only a person can know whether both hosts see the same data"))
    folder, finding = folders.open_compared(image.path, image.path)
    if folder is None or finding.verdict != SEPARATE:
        return _describe_finding(finding)
    existing = folder.find_volume(os.path.basename(image.path))
    bases = zip(image.backing, _find_bases_there(image, existing)) if existing else ()
    other_base = next(filter(None, (_explain_other_base(path, there, folders) for path, there in bases)), "")
    return {
        **_describe_finding(finding),
        "existing": dataclasses.asdict(existing) if existing else None,
        "used_by": [*destination.users_of(image.path), *folder.find_users(image.path)],
        "available_bytes": folder.available_bytes(),
        "same_file": explain_same_file(image.path, existing) if existing else "",
        "other_base": other_base,
    }


def _describe_finding(finding: Finding) -> Facts:
    return {"verdict": finding.verdict, "why": finding.why, "existing": None, "used_by": [], "available_bytes": 0, "same_file": "", "other_base": ""}


def _find_bases_there(image: Image, existing: Volume) -> t.List[str]:
    """Return the paths of the backing files at the destination: the one that the target names, and those that the source has below it."""
    named = clean_path(existing.backing_path)
    return [named if os.path.isabs(named) else path for path in image.backing[:1]] + list(image.backing[1:])


def _explain_other_base(path: str, there: str, folders: _ComparedFolders) -> str:
    """Return why the destination's file C(there) is not the base at that path; empty if it is one store, or if no sample differs.

    A base is never copied, and reading all of it would cost what an incremental copy saves. Samples suffice, because different images differ almost everywhere.
    """
    if not path:
        return "one of its backing images is not a file"
    folder, finding = folders.open_compared(path, there)
    if finding.verdict == SHARED:
        return ""
    if folder is None or folder.find_volume(os.path.basename(there)) is None:
        return f"{there} is not there"
    try:
        return _find_difference(path, there, folder)
    except OSError as error:
        return f"{path} cannot be read on the source: {error.strerror}"
    except KvmfleetError as error:
        return f"{there} cannot be read on the destination: {error.message}"


def _find_difference(path: str, there: str, folder: Folder) -> str:
    with open(path, "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        last = max(0, size - _SAMPLE_BYTES)
        for offset in sorted({last * number // (_SAMPLES - 1) for number in range(_SAMPLES)}):
            stream.seek(offset)
            # One byte more at the end shows a longer file.
            length = _SAMPLE_BYTES + 1
            if stream.read(length) != folder.read_piece(os.path.basename(there), offset, length):
                return f"{there} on the destination is another file: its content at byte {offset} differs"
    return ""


def explain_same_file(path: str, existing: Volume) -> str:
    """Return why the destination's file may be this image, reached by a link: one file has the same time of change on both hosts."""
    try:
        # Opened, because a network file system then queries its server again.
        with open(path, "rb") as stream:
            changed_at = os.fstat(stream.fileno()).st_ctime
    except OSError as error:
        return f"the image itself cannot be examined: {error.strerror}"
    if abs(existing.changed_at - changed_at) <= _SETTLED_SECONDS:
        return f"the file on the destination was changed within {_SETTLED_SECONDS:.0f} s of the image itself"
    return ""
