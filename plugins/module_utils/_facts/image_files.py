# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which files a disk needs beside its image: backing files, theirs, and external data files.

What a definition says of the chain (C(backingStore), C(dataStore)) is what libvirt gives to QEMU. Where it says nothing, the headers of the images do.
"""

from __future__ import annotations

import dataclasses
import os
import stat
import typing as t
from xml.etree.ElementTree import Element

from .image_header import FILE, NETWORK, RAW, Header, Unreadable, locate, read_header
from .volumes import Pools, locate_source

BACKING, DATA = "backing", "data"
_MAX_DEPTH = 64
_BLOCK = "block"

ReadHeader = t.Callable[[str], Header]


@dataclasses.dataclass(frozen=True)
class ImageFile:
    """C(role) BACKING or DATA; C(kind) as libvirt names kinds of disks; C(path) null for what is no file or device of a host."""

    role: str
    kind: str
    path: str


def files_of(disk: Element, read: t.Optional[ReadHeader], pools: Pools) -> t.Tuple[t.List[ImageFile], t.Optional[str]]:
    """Return the files that the image of a C(disk) element needs, and why that is not the whole truth; null where it is.

    :arg read: reads a header, raises L(Unreadable); null where the images are on another host.
    """
    found: t.List[ImageFile] = []
    try:
        _add_declared(disk, _format_of(disk), read, pools, found)
    except Unreadable as error:
        return found, str(error)
    return found, None


def files_below(path: str, read: ReadHeader = read_header) -> t.List[ImageFile]:
    """Return all files that an image needs by its header, and by theirs. Raises L(Unreadable), also for a chain that does not end."""
    found: t.List[ImageFile] = []
    _add_read(path, read, found)
    return found


def _add_declared(node: Element, image_format: t.Optional[str], read: t.Optional[ReadHeader], pools: Pools, found: t.List[ImageFile]) -> None:
    """Add what belongs to the image that a C(disk) or C(backingStore) describes; raises L(Unreadable)."""
    if len(found) > _MAX_DEPTH:
        raise Unreadable("its chain of backing files does not end")
    source, below = node.find("source"), node.find("backingStore")
    kind, path = locate_source(node.get("type", ""), source, pools)
    is_local = kind in (FILE, _BLOCK) and path.startswith("/")
    data = source.find("dataStore") if source is not None else None
    if data is not None:
        found.append(_declared(DATA, data, pools))
    if image_format == RAW or not is_local:
        _add_next(below, read, pools, found)
        return
    header = _header_of(path, read, is_needed=below is None)
    if data is None and header.data_file:
        found.append(_named(DATA, header.data_file, path))
    if below is not None:
        _add_next(below, read, pools, found)
    elif header.backing and read is not None:
        _add_backing(header, path, read, found)


def _header_of(path: str, read: t.Optional[ReadHeader], is_needed: bool) -> Header:
    """Read a header; one that says nothing that is not known already may be unreadable."""
    try:
        if read is None:
            raise Unreadable(f"what {path} is built on is known on its own host alone")
        return read(path)
    except Unreadable:
        if is_needed:
            raise
        return Header()


def _add_next(below: t.Optional[Element], read: t.Optional[ReadHeader], pools: Pools, found: t.List[ImageFile]) -> None:
    """Add the backing file that a definition names; an empty element is the end of the chain."""
    if below is None or below.find("source") is None:
        return
    found.append(_declared(BACKING, below, pools))
    _add_declared(below, _format_of(below), read, pools, found)


def _add_backing(header: Header, path: str, read: ReadHeader, found: t.List[ImageFile]) -> None:
    backing = _named(BACKING, str(header.backing), path)
    found.append(backing)
    if header.backing_format != RAW and backing.kind != NETWORK:
        _add_read(backing.path, read, found)


def _add_read(path: str, read: ReadHeader, found: t.List[ImageFile]) -> None:
    if len(found) > _MAX_DEPTH:
        raise Unreadable(f"the chain of backing files of {path} does not end")
    header = read(path)
    if header.data_file:
        found.append(_named(DATA, header.data_file, path))
    if header.backing:
        _add_backing(header, path, read, found)


def _format_of(node: Element) -> t.Optional[str]:
    """Return the format of an image: a disk that does not say it is raw; of a backing file it is to be found out."""
    if node.tag == "disk":
        driver = node.find("driver")
        return driver.get("type", RAW) if driver is not None else RAW
    found = node.find("format")
    return found.get("type") if found is not None else None


def _declared(role: str, node: Element, pools: Pools) -> ImageFile:
    kind, path = locate_source(node.get("type", ""), node.find("source"), pools)
    if not kind:
        raise Unreadable("one of its backing files is in a storage pool that is not known")
    return ImageFile(role, kind, path if kind != NETWORK else "")


def _named(role: str, name: str, image: str) -> ImageFile:
    where = locate(name, image)
    if where.kind == NETWORK:
        return ImageFile(role, NETWORK, "")
    if where.kind != FILE:
        raise Unreadable(f"{image} is built on {name[:200]!r}, of which it is not known where it is")
    return ImageFile(role, _BLOCK if _is_block_device(where.path) else FILE, where.path)


def _is_block_device(path: str) -> bool:
    try:
        return stat.S_ISBLK(os.stat(path).st_mode)
    except OSError:
        return path.startswith("/dev/")
