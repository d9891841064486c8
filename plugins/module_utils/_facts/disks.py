# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The disks of a definition: where their bytes are, and whether other hosts see them there."""

from __future__ import annotations

import typing as t
from xml.etree.ElementTree import Element

from .image_files import ImageFile, files_of
from .ports import Stores
from .volumes import Pools, locate_volume, source_of

Json = t.Dict[str, t.Any]

_DROPPED_WHEN_MISSING = ("optional", "requisite")
# Protocols whose volumes have one name in the world, or in the cluster that the definition names.
_NAMED_BY_THEMSELVES = ("rbd", "iscsi", "sheepdog", "vitastor")


def disks_of(root: Element, stores: t.Optional[Stores], pools: Pools) -> t.List[Json]:
    """Return the disks as a request has them.

    :arg stores: of the host that the domain is on; null where that host was asked from afar.
    :arg pools: of that host, by which volumes are found.
    """
    return [_disk(disk, stores, pools) for disk in root.findall("devices/disk")]


def _disk(disk: Element, stores: t.Optional[Stores], pools: Pools) -> Json:
    target, source, driver = disk.find("target"), disk.find("source"), disk.find("driver")
    device, kind = disk.get("device", "disk"), disk.get("type", "")
    where = source_of(source)
    image_format = driver.get("type", "raw") if driver is not None else "raw"
    shared, store, size = _proof(kind, source, where, image_format, stores, pools)
    files, problem = files_of(disk, stores.header if stores else None, pools) if where else ([], None)
    return {
        "target": target.get("dev", "") if target is not None else "",
        "device": device,
        "kind": kind,
        "source": where,
        "format": image_format,
        "readonly": disk.find("readonly") is not None or device == "cdrom",
        "shareable": disk.find("shareable") is not None,
        "shared": shared,
        "store": store,
        "optional": source is not None and source.get("startupPolicy") in _DROPPED_WHEN_MISSING,
        "bytes": size,
        "files": [_file(file, stores) for file in files],
        "files_problem": problem,
    }


def _proof(
    kind: str, source: t.Optional[Element], where: str, image_format: str, stores: t.Optional[Stores], pools: Pools
) -> t.Tuple[t.Optional[bool], t.Optional[str], t.Optional[int]]:
    if source is None or not where:
        return None, None, None
    if kind == "network":
        return True, _network_store(source, where), None
    if kind == "volume":
        kind, where = locate_volume(where, pools)
    if kind == "network":
        return True, None, None
    is_file = stores is not None and where.startswith("/") and kind in ("file", "dir")
    return (*_seen(kind, where, stores), stores.bytes_of(where, image_format) if stores is not None and is_file else None)


def _file(file: ImageFile, stores: t.Optional[Stores]) -> Json:
    """Return a file that a disk's image needs: where it is, and whether other hosts see it there."""
    shared, store = (True, None) if file.kind == "network" else _seen(file.kind, file.path, stores)
    return {"role": file.role, "kind": file.kind, "source": file.path, "shared": shared, "store": store}


def _seen(kind: str, path: str, stores: t.Optional[Stores]) -> t.Tuple[t.Optional[bool], t.Optional[str]]:
    if stores is None or not path.startswith("/"):
        return None, None
    if kind == "block":
        return stores.block(path)
    return stores.file(path) if kind in ("file", "dir") else (None, None)


def _network_store(source: Element, name: str) -> str:
    protocol, host = source.get("protocol", ""), source.find("host")
    if protocol in _NAMED_BY_THEMSELVES or host is None:
        return f"{protocol}:{name}"
    return f"{protocol}:{host.get('name') or host.get('socket', '')}:{host.get('port', '')}/{name}"
