# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which store of a host holds a path, and how much room is there."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import dataclass

from .hardware import Hardware, place_with

# Pools whose volumes are files of a file system, which may be the file system of others too.
_ON_FILES = ("dir", "fs", "netfs")

Body = Mapping[str, t.Any]


@dataclass(frozen=True)
class Place:
    """A mounted file system or a storage pool. Sizes in bytes."""

    name: str
    capacity_bytes: int
    available_bytes: int


def place_of(hardware: Hardware, path: str) -> t.Optional[Place]:
    """Return where that path's bytes would be; None where the facts do not tell.

    A mount counts before the pools on it, which share its room; a pool of block devices counts before the mount that its devices stand in.
    """
    pool = place_with(hardware.active_pools, path)
    if pool is not None and (hardware.mounts is None or pool[0]["type"] not in _ON_FILES):
        return _sized(f"pool {pool[0]['name']}", pool[0])
    mount = place_with(hardware.mounts or (), path)
    # What stands in /dev is a device, and no file of the file system that /dev is mounted on.
    return None if mount is None or path.startswith("/dev/") else _sized(f"file system {mount[0]['path']}", mount[0])


class Store(t.NamedTuple):
    """The mount that holds a path.

    :arg identity: of the path, the same on other hosts; None where it has none.
    """

    mount: Body
    identity: t.Optional[str]

    def __str__(self) -> str:
        return self.identity or f"{self.mount.get('kind') or 'a file system'} at {self.mount['path']}"


def store_of(hardware: Hardware, path: str) -> t.Optional[Store]:
    """Return where the path lies; None where the host's mounts are not known."""
    found = place_with(hardware.mounts or (), path)
    if found is None:
        return None
    store = found[0].get("store")
    return Store(found[0], f"{store}/{found[1]}" if store else None)


def has_store(hardware: Hardware, image: str) -> bool:
    """Whether a store is mounted anywhere on the host that holds an image of that identity."""
    stores = [mount["store"] for _root, mount in hardware.mounts or () if mount.get("store")]
    return any(image == store or image.startswith(f"{store}/") for store in stores)


def _sized(name: str, place: Body) -> t.Optional[Place]:
    capacity, available = place.get("capacity_bytes"), place.get("available_bytes")
    return None if capacity is None or available is None else Place(name, capacity, available)
