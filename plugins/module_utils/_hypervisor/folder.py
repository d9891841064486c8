# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A folder of a libvirt host through a storage pool: the pool that is there already, else one of our own that is gone afterwards."""

from __future__ import annotations

import contextlib
import os
import typing as t
import uuid as uuid_module
from xml.sax.saxutils import escape

from .._errors import Conflict, Internal, NotFound
from .._facts.cpusets import number_of
from .._storage.ports import Volume
from .._xml import parse_libvirts
from .errors import libvirt_errors, translated
from .library import libvirt

_SYSTEM_ERROR = 38
_RPC_DOMAIN = 7
_NO_POOL = 49
_NO_VOLUME = 50
_VOLUME_EXISTS = 90

_POOL = "<pool type='dir'><name>kvmfleet-{name}</name><target><path>{path}</path></target></pool>"
_VOLUME = "<volume><name>{name}</name><capacity unit='bytes'>{capacity}</capacity><target><format type='{format}'/></target></volume>"


class LibvirtFolder:
    """Implements L(Folder) over an active pool."""

    def __init__(self, pool: t.Any, path: str) -> None:
        self.path = path
        self._pool = pool

    def look(self) -> None:
        with libvirt_errors(f"read the folder {self.path}"):
            self._pool.refresh()

    def available_bytes(self) -> int:
        with libvirt_errors(f"read the room in {self.path}"):
            return int(self._pool.info()[3])

    def volume(self, name: str) -> t.Optional[Volume]:
        found = self._find(name)
        return _parsed(found.XMLDesc()) if found is not None else None

    def names(self) -> t.List[str]:
        """Return the names of everything in the folder, as of the last look."""
        with libvirt_errors(f"list the folder {self.path}"):
            return list(self._pool.listVolumes())

    def users(self, path: str) -> t.List[str]:
        with libvirt_errors(f"list the folder {self.path}"):
            volumes = [_parsed(volume.XMLDesc()) for volume in self._pool.listAllVolumes()]
        return [volume.name for volume in volumes if volume.backing_path == path]

    def create(self, name: str, image_format: str, capacity_bytes: int) -> None:
        self.look()
        xml = _VOLUME.format(name=escape(name), capacity=capacity_bytes, format=escape(image_format))
        try:
            self._pool.createXML(xml)
        except libvirt().libvirtError as error:
            ours = translated(error, f"create {os.path.join(self.path, name)}")
            raise (Conflict(ours.message) if error.get_error_code() == _VOLUME_EXISTS else ours) from error

    def remove(self, name: str) -> None:
        self.look()
        found = self._find(name)
        if found is not None:
            with libvirt_errors(f"remove {os.path.join(self.path, name)}"):
                found.delete()

    def _find(self, name: str) -> t.Any:
        try:
            return self._pool.storageVolLookupByName(name)
        except libvirt().libvirtError as error:
            if error.get_error_code() == _NO_VOLUME:
                return None
            raise translated(error, f"look for {os.path.join(self.path, name)}") from error


@contextlib.contextmanager
def open_folder(connection: t.Any, path: str, uri: str) -> t.Iterator[LibvirtFolder]:
    """Give the folder. A pool that was not active, or not there, is so again afterwards. Raises L(NotFound) where it cannot be opened."""
    pool, is_ours = _active_pool(connection, path, uri)
    try:
        yield LibvirtFolder(pool, path)
    finally:
        if is_ours:
            with libvirt_errors(f"stop the pool of {path} on {uri}"):
                pool.destroy()


def _active_pool(connection: t.Any, path: str, uri: str) -> t.Tuple[t.Any, bool]:
    try:
        pool = _pool_at(connection, path)
        if pool is None:
            return connection.storagePoolCreateXML(_POOL.format(name=uuid_module.uuid4(), path=escape(path))), True
        if pool.isActive():
            return pool, False
        pool.create()
    except libvirt().libvirtError as error:
        ours = translated(error, f"open the folder {path} on {uri}")
        # A folder that is not there, or is none, comes as an error of the system, as a lost connection does.
        is_local = error.get_error_code() == _SYSTEM_ERROR and error.get_error_domain() != _RPC_DOMAIN
        raise (NotFound(ours.message) if is_local else ours) from error
    return pool, True


def _pool_at(connection: t.Any, path: str) -> t.Any:
    try:
        return connection.storagePoolLookupByTargetPath(path)
    except libvirt().libvirtError as error:
        if error.get_error_code() == _NO_POOL:
            return None
        raise


def _parsed(xml: str) -> Volume:
    """Read libvirt's description of a volume; all sizes in it are in bytes."""
    root = parse_libvirts(xml, "a storage volume")
    image_format = root.find("target/format")
    return Volume(
        name=root.findtext("name") or "",
        format=image_format.get("type", "") if image_format is not None else "",
        capacity_bytes=number_of(root.findtext("capacity")),
        allocation_bytes=number_of(root.findtext("allocation")),
        backing_path=root.findtext("backingStore/path") or "",
        changed_at=_seconds(root.findtext("target/timestamps/ctime") or "0"),
    )


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise Internal(f"libvirt says that a storage volume was changed at {text[:40]!r}, which is no time.") from error
