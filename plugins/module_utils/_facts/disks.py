# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The disks of a definition: where their data are, whether other hosts see them there, and which further files their images need.

The chain in the definition (C(backingStore), C(dataStore)) is what libvirt passes to QEMU. If the definition has no chain, the headers of the images
are read.
"""

from __future__ import annotations

import os
import typing as t
from xml.etree.ElementTree import Element

from .._dataclass import dataclass
from .._libvirt.interface import Host
from .._libvirt.reading import parse_domain_xml
from .._model.codec import ABSENT
from .._model.definition_files import BACKING, DATA, Pools, is_left_out, list_own_servers, locate_source, locate_volume, source_of
from .._model.requests import DiskFile, DiskNeed
from .image_header import FILE, NETWORK, RAW, Files, Header, OwnFiles, Unreadable, locate_name
from .local_stores import Stores
from .storage_queries import StorageQueries

_MAX_DEPTH = 64
_BLOCK = "block"


@dataclass(frozen=True)
class ImageFile:
    """C(role) BACKING or DATA; C(kind) as libvirt names kinds of disks; C(path) is null if it is not a file or device of a host."""

    role: str
    kind: str
    path: str


def list_image_files(disk: Element, files: t.Optional[Files], pools: Pools) -> t.Tuple[t.List[ImageFile], t.Optional[str]]:
    """Return the files that the image of a C(disk) element needs, and why the list may be incomplete; null if it is complete.

    :arg files: null if the images are on another host.
    """
    found: t.List[ImageFile] = []
    try:
        _add_declared(disk, _declared_format(disk), files, pools, found)
    except Unreadable as error:
        return found, str(error)
    return found, None


def list_files_below(path: str, files: t.Optional[Files] = None) -> t.List[ImageFile]:
    """Return all files that an image needs by its header, and by theirs. Raises L(Unreadable), also for a chain that does not end."""
    found: t.List[ImageFile] = []
    _add_from_header(path, files or OwnFiles(), found)
    return found


def _add_declared(node: Element, image_format: t.Optional[str], files: t.Optional[Files], pools: Pools, found: t.List[ImageFile]) -> None:
    """Add what belongs to the image that a C(disk) or C(backingStore) describes; raises L(Unreadable)."""
    if len(found) > _MAX_DEPTH:
        raise Unreadable("its chain of backing files does not end")
    source, below = node.find("source"), node.find("backingStore")
    kind, path = locate_source(node.get("type", ""), source, pools)
    is_local = kind in (FILE, _BLOCK) and path.startswith("/")
    data = source.find("dataStore") if source is not None else None
    if data is not None:
        found.append(_file_from_node(DATA, data, pools))
    if image_format == RAW or not is_local:
        _add_next(below, files, pools, found)
        return
    header = _read_needed_header(path, files, is_needed=below is None)
    if data is None and header.data_file and files is not None:
        found.append(_file_from_name(DATA, header.data_file, path, files))
    if below is not None:
        _add_next(below, files, pools, found)
    elif header.backing and files is not None:
        _add_backing(header, path, files, found)


def _read_needed_header(path: str, files: t.Optional[Files], is_needed: bool) -> Header:
    """Read a header; it may be unreadable if it adds nothing to what is known."""
    try:
        if files is None:
            raise Unreadable(f"the backing files of {path} are known only on its own host")
        return files.read_header(path)
    except Unreadable:
        if is_needed:
            raise
        return Header()


def _add_next(below: t.Optional[Element], files: t.Optional[Files], pools: Pools, found: t.List[ImageFile]) -> None:
    """Add the backing file that a definition names; an empty element is the end of the chain."""
    if below is None or below.find("source") is None:
        return
    found.append(_file_from_node(BACKING, below, pools))
    _add_declared(below, _declared_format(below), files, pools, found)


def _add_backing(header: Header, path: str, files: Files, found: t.List[ImageFile]) -> None:
    backing = _file_from_name(BACKING, str(header.backing), path, files)
    found.append(backing)
    if header.backing_format != RAW and backing.kind != NETWORK:
        _add_from_header(backing.path, files, found)


def _add_from_header(path: str, files: Files, found: t.List[ImageFile]) -> None:
    if len(found) > _MAX_DEPTH:
        raise Unreadable(f"the chain of backing files of {path} does not end")
    header = files.read_header(path)
    if header.data_file:
        found.append(_file_from_name(DATA, header.data_file, path, files))
    if header.backing:
        _add_backing(header, path, files, found)


def _declared_format(node: Element) -> t.Optional[str]:
    """Return the format of an image: a disk without one is raw; that of a backing file has to be determined."""
    if node.tag == "disk":
        driver = node.find("driver")
        return driver.get("type", RAW) if driver is not None else RAW
    found = node.find("format")
    return found.get("type") if found is not None else None


def _file_from_node(role: str, node: Element, pools: Pools) -> ImageFile:
    source = node.find("source")
    kind, path = locate_source(node.get("type", ""), source, pools)
    if not kind:
        raise Unreadable("one of its backing files is in a storage pool that is not known")
    own = list_own_servers(source) if source is not None else []
    if own:
        raise Unreadable(f"one of its backing files is served by its own host ({own[0]})")
    return ImageFile(role, kind, path if kind != NETWORK else "")


def _file_from_name(role: str, name: str, image: str, files: Files) -> ImageFile:
    where = locate_name(name, image)
    if where.kind == NETWORK:
        return ImageFile(role, NETWORK, "")
    if where.kind != FILE:
        raise Unreadable(f"{image} is built on {name[:200]!r}, whose location is not known")
    return ImageFile(role, _BLOCK if files.is_device(where.path) else FILE, where.path)


# Protocols whose volumes have the same name on every host.
_NAMED_BY_THEMSELVES = ("rbd", "iscsi", "sheepdog", "vitastor")


def describe_disks(root: Element, stores: t.Optional[Stores], pools: Pools) -> t.List[DiskNeed]:
    """Return the disks as a request has them.

    :arg stores: of the host that the domain is on; null if that host was queried remotely.
    :arg pools: of that host, by which volumes are found.
    """
    return [_describe_disk(disk, root, stores, pools) for disk in root.findall("devices/disk")]


def _describe_disk(disk: Element, root: Element, stores: t.Optional[Stores], pools: Pools) -> DiskNeed:
    target, source, driver = disk.find("target"), disk.find("source"), disk.find("driver")
    device, kind = disk.get("device", "disk"), disk.get("type", "")
    where = source_of(source)
    image_format = driver.get("type", "raw") if driver is not None else "raw"
    shared, store, size = _prove_storage(kind, source, where, image_format, stores, pools)
    files, problem = list_image_files(disk, stores, pools) if where else ([], None)
    return DiskNeed(
        target=target.get("dev", "") if target is not None else "",
        device=device,
        kind=kind,
        source=where,
        format=image_format,
        readonly=disk.find("readonly") is not None or device == "cdrom",
        shareable=disk.find("shareable") is not None,
        shared=shared,
        store=store,
        optional=is_left_out(disk, root),
        bytes=size,
        below_bytes=_count_below(_find_path(kind, where, pools), size, files, stores) if stores is not None and files else ABSENT,
        files=tuple(_describe_file(file, stores) for file in files),
        files_problem=problem,
    )


def _prove_storage(
    kind: str, source: t.Optional[Element], where: str, image_format: str, stores: t.Optional[Stores], pools: Pools
) -> t.Tuple[t.Optional[bool], t.Optional[str], t.Optional[int]]:
    if source is None or not where:
        return None, None, None
    if kind == "network":
        return (None, None, None) if list_own_servers(source) else (True, _network_store(source, where), None)
    if kind == "volume":
        kind, where = locate_volume(where, pools)
        if kind == _BLOCK:
            # Another host may have another device in the pool of that name.
            return None, _locate_path(kind, where, stores)[1], None
    if kind == "network":
        return True, None, None
    is_file = stores is not None and where.startswith("/") and kind in ("file", "dir")
    return (*_locate_path(kind, where, stores), stores.count_copied_bytes(where, image_format) if stores is not None and is_file else None)


def _count_below(image: str, own_bytes: t.Optional[int], files: t.Sequence[ImageFile], stores: Stores) -> t.Optional[int]:
    """Return what a full copy of an image sends in addition to its own data; null if that is not known."""
    if own_bytes is None:
        return None
    sizes = [stores.count_allocated_bytes(file.path) if file.kind == FILE else None for file in files]
    known = [size for size in sizes if size is not None]
    # What images hide of those below them is not copied.
    rest = max(0, capacity - own_bytes) if (capacity := _read_capacity(image, stores)) is not None else None
    if len(known) < len(sizes):
        return rest
    return sum(known) if rest is None else min(sum(known), rest)


def _read_capacity(image: str, stores: Stores) -> t.Optional[int]:
    try:
        return stores.read_header(image).capacity_bytes
    except Unreadable:
        return None


def _describe_file(file: ImageFile, stores: t.Optional[Stores]) -> DiskFile:
    """Return a file that the image of a disk needs, with its location, and whether other hosts see it there."""
    shared, store = (True, None) if file.kind == "network" else _locate_path(file.kind, file.path, stores)
    return DiskFile(file.role, file.kind, file.path, shared, store)


def _locate_path(kind: str, path: str, stores: t.Optional[Stores]) -> t.Tuple[t.Optional[bool], t.Optional[str]]:
    if stores is None or not path.startswith("/"):
        return None, None
    if kind == "block":
        return stores.locate_device(path)
    return stores.locate_file(path) if kind in ("file", "dir") else (None, None)


def _network_store(source: Element, name: str) -> str:
    protocol, host = source.get("protocol", ""), source.find("host")
    if protocol in _NAMED_BY_THEMSELVES or host is None:
        return f"{protocol}:{name}"
    return f"{protocol}:{host.get('name') or host.get('socket', '')}:{host.get('port', '')}/{name}"


_MEDIA = ("cdrom", "floppy")


def find_other_image(host: Host, uuid: str) -> str:
    """Return why the next start of an active persistent domain of this host would not use the images that it runs on; empty if it would.

    Raises L(NotFound), or L(Forbidden) on a connection that may only read.
    """
    pools, storage = host.read_surroundings().pools or (), StorageQueries()
    running = find_running_disks(parse_domain_xml(host.read_movable_definition(uuid, persistent=False)))
    saved = [disk for disk in describe_disks(parse_domain_xml(host.read_definition(uuid)), None, pools) if disk.target in running]
    reasons = {disk.target: explain_other_image(disk, running[disk.target], pools, storage) for disk in saved}
    return next((f"disk {target}: {why}" for target, why in reasons.items() if why), "")


def find_running_disks(live: t.Optional[Element]) -> t.Dict[str, Element]:
    """Return the disks of a running domain by their targets."""
    disks = live.findall("devices/disk") if live is not None else ()
    return {target.get("dev", ""): disk for disk in disks if (target := disk.find("target")) is not None}


def explain_other_image(disk: DiskNeed, running: Element, pools: Pools, storage: StorageQueries) -> t.Optional[str]:
    """Return why a start from the definition would not use the image that the running domain has as this disk; null if it would, or for a medium.

    libvirt runs a transient disk on an overlay that it deletes at the end: a start is to use the image of the definition.
    """
    now = source_of(running.find("source"))
    if now in ("", disk.source) or not disk.source or disk.readonly or disk.device in _MEDIA or running.find("transient") is not None:
        return None
    paths = [_find_path(disk.kind or "", disk.source, pools), _find_path(running.get("type", ""), now, pools)]
    if all(path.startswith("/") for path in paths) and storage.ask(paths[1], lambda: os.path.realpath(paths[0]) == os.path.realpath(paths[1])):
        return None
    return f"the running domain has {now} as this disk, and its definition has {disk.source}, which may be outdated"


def _find_path(kind: str, source: str, pools: Pools) -> str:
    return locate_volume(source, pools)[1] if kind == "volume" else source
