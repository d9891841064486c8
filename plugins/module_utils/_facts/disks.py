# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The disks of a definition: where their bytes are, and whether other hosts see them there."""

from __future__ import annotations

import typing as t
from xml.etree.ElementTree import Element

from .ports import Stores

Json = t.Dict[str, t.Any]
Pools = t.Sequence[t.Mapping[str, t.Any]]

_DROPPED_WHEN_MISSING = ("optional", "requisite")
# Pools whose volumes are files, and those whose volumes are block devices; all others are of the network.
_FILE_POOLS = ("dir", "fs", "netfs")
_BLOCK_POOLS = ("logical", "disk", "iscsi", "scsi", "mpath", "zfs")
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
    shared, store, size = _proof(kind, source, where, driver.get("type", "raw") if driver is not None else "raw", stores, pools)
    return {
        "target": target.get("dev", "") if target is not None else "",
        "device": device,
        "kind": kind,
        "source": where,
        "readonly": disk.find("readonly") is not None or device == "cdrom",
        "shareable": disk.find("shareable") is not None,
        "shared": shared,
        "store": store,
        "optional": source is not None and source.get("startupPolicy") in _DROPPED_WHEN_MISSING,
        "bytes": size,
    }


def source_of(source: t.Optional[Element]) -> str:
    """Return where a disk's bytes are: a path, C(pool/volume), or the name of a network disk; empty for an empty drive."""
    attributes = source.attrib if source is not None else {}
    if "pool" in attributes:
        return f"{attributes['pool']}/{attributes.get('volume', '')}"
    return next((attributes[key] for key in ("file", "dev", "name", "dir", "path") if key in attributes), "")


def _proof(
    kind: str, source: t.Optional[Element], where: str, image_format: str, stores: t.Optional[Stores], pools: Pools
) -> t.Tuple[t.Optional[bool], t.Optional[str], t.Optional[int]]:
    if source is None or not where:
        return None, None, None
    if kind == "network":
        return True, _network_store(source, where), None
    if kind == "volume":
        kind, where = _volume(where, pools)
    if kind == "network":
        return True, None, None
    if stores is None or not where.startswith("/"):
        return None, None, None
    if kind == "block":
        return (*stores.block(where), None)
    return (*stores.file(where), stores.bytes_of(where, image_format)) if kind in ("file", "dir") else (None, None, None)


def _volume(where: str, pools: Pools) -> t.Tuple[str, str]:
    """Return kind and path of a volume by its pool; no path where the pool is not known."""
    name, _slash, volume = where.partition("/")
    pool = next((pool for pool in pools if pool["name"] == name), None)
    if pool is None:
        return "", ""
    if pool["type"] not in _FILE_POOLS + _BLOCK_POOLS:
        return "network", ""
    return "file" if pool["type"] in _FILE_POOLS else "block", f"{pool['path']}/{volume}" if pool["path"] else ""


def _network_store(source: Element, name: str) -> str:
    protocol, host = source.get("protocol", ""), source.find("host")
    if protocol in _NAMED_BY_THEMSELVES or host is None:
        return f"{protocol}:{name}"
    return f"{protocol}:{host.get('name') or host.get('socket', '')}:{host.get('port', '')}/{name}"
