# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Where the bytes of a C(source) element are, volumes of storage pools included."""

from __future__ import annotations

import typing as t
from xml.etree.ElementTree import Element

Pools = t.Sequence[t.Mapping[str, t.Any]]

# Pools whose volumes are files, and those whose volumes are block devices; all others are of the network.
_FILE_POOLS = ("dir", "fs", "netfs")
_BLOCK_POOLS = ("logical", "disk", "iscsi", "scsi", "mpath", "zfs")


def source_of(source: t.Optional[Element]) -> str:
    """Return where a disk's bytes are: a path, C(pool/volume), or the name of a network disk; empty for an empty drive."""
    attributes = source.attrib if source is not None else {}
    if "pool" in attributes:
        return f"{attributes['pool']}/{attributes.get('volume', '')}"
    return next((attributes[key] for key in ("file", "dev", "name", "dir", "path") if key in attributes), "")


def locate_source(kind: str, source: t.Optional[Element], pools: Pools) -> t.Tuple[str, str]:
    """Return kind and path of a source of that kind, those of what it is in its pool for a volume; both empty where the pool is not known."""
    where = source_of(source)
    return locate_volume(where, pools) if kind == "volume" else (kind, where)


def locate_volume(where: str, pools: Pools) -> t.Tuple[str, str]:
    """Return kind and path of C(pool/volume); both empty where the pool is not known, no path where it has none."""
    name, _slash, volume = where.partition("/")
    pool = next((pool for pool in pools if pool["name"] == name), None)
    if pool is None:
        return "", ""
    if pool["type"] not in _FILE_POOLS + _BLOCK_POOLS:
        return "network", ""
    return "file" if pool["type"] in _FILE_POOLS else "block", f"{pool['path']}/{volume}" if pool["path"] else ""
