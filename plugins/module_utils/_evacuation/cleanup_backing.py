# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which images the domains of this host use, also as a backing file of a backing file: an image that one of them needs is not touched.

Libvirt lists the backing files of active domains alone, so the headers of images are read here.
"""

from __future__ import annotations

import os
import struct
import typing as t

_MAX_DEPTH = 64
_MAX_NAME = 4096
# qcow2 (and qcow, its forerunner): magic, version, where the backing file's name is, how long it is (QEMU: docs/interop/qcow2.txt).
_HEADER = struct.Struct(">4sIQI")
_MAGIC = b"QFI\xfb"
# Formats whose images may name a parent in a way that is not read here.
_UNREAD = {b"QED\0": "qed", b"KDMV": "vmdk", b"COWD": "vmdk", b"vhdx": "vhdx", b"conecti": "vpc"}


class Unreadable(Exception):
    """It cannot be told what an image is backed by; the text says why."""


def backing_of(path: str) -> t.Optional[str]:
    """Return the absolute path of the file that an image is backed by, null where there is none. Raises L(Unreadable)."""
    try:
        with open(path, "rb") as stream:
            header = stream.read(_HEADER.size)
            for magic, image_format in _UNREAD.items():
                if header.startswith(magic):
                    raise Unreadable(f"the backing file of {path}, an image of the format {image_format}, cannot be read")
            if len(header) < _HEADER.size or not header.startswith(_MAGIC):
                return None
            _magic, _version, offset, length = _HEADER.unpack(header)
            if not offset or not length:
                return None
            if length > _MAX_NAME:
                raise Unreadable(f"{path} has no proper header")
            stream.seek(offset)
            name = os.fsdecode(stream.read(length))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}") from error
    return _located(name, path)


def _located(name: str, path: str) -> t.Optional[str]:
    if name.startswith("file:"):
        name = name[len("file:") :]
    elif ":" in name.partition("/")[0]:
        if name.startswith("json:"):
            raise Unreadable(f"the backing file of {path} is described in JSON")
        return None
    return os.path.normpath(os.path.join(os.path.dirname(os.path.realpath(path)), name))


def chain_of(path: str) -> t.Iterator[str]:
    """Yield the image and every file below it. Raises L(Unreadable), also for a chain without end."""
    current: t.Optional[str] = path
    for _depth in range(_MAX_DEPTH):
        if current is None:
            return
        yield current
        current = backing_of(current) if os.path.isfile(current) else None
    raise Unreadable(f"the chain of backing files of {path} does not end")


def users_of(path: str, images: t.Iterable[t.Tuple[str, str]]) -> t.List[str]:
    """Return, as parts of a sentence, who of these uses the image, and of whom it cannot be told.

    :arg images: (whose it is, path) of every other image that is in use on this host.
    """
    found = {_use(path, owner, image) for owner, image in images}
    return sorted(use for use in found if use)


def _use(path: str, owner: str, image: str) -> str:
    try:
        return owner if any(_same(path, file) for file in chain_of(image)) else ""
    except Unreadable as error:
        return f"{owner}, it may be: {error}"


def images_beside(path: str) -> t.Iterator[t.Tuple[str, str]]:
    """Yield the other regular files of the image's folder, which may be overlays of it that no domain here knows."""
    folder = os.path.dirname(path)
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False) and not _same(path, entry.path):
                yield f"the image {entry.path}", entry.path


def _same(one: str, other: str) -> bool:
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False
