# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A folder of a libvirt host through a storage pool: the pool that is there already, else one of our own that is gone afterwards."""

from __future__ import annotations

import contextlib
import os
import random
import time
import typing as t
import uuid as uuid_module
from xml.sax.saxutils import escape

from .._errors import Conflict, Internal, NotFound
from .._facts.cpusets import number_of
from .._storage.ports import Volume
from .._xml import parse_libvirts
from .errors import libvirt_errors, translated
from .library import libvirt

# Numbers from virErrorNumber.
_INTERNAL_ERROR = 1
_OPERATION_FAILED = 9
_SYSTEM_ERROR = 38
_NO_POOL = 49
_NO_VOLUME = 50
_OPERATION_INVALID = 55
_VOLUME_EXISTS = 90
_RPC_DOMAIN = 7

# Somebody who shares the pool has stopped it: it was transient, or it is defined and not active any more.
_STOPPED = (_NO_POOL, _OPERATION_INVALID)
# Somebody else is making a pool of this folder at this moment, or is making a volume in it.
_BUSY = (_INTERNAL_ERROR, _OPERATION_FAILED)
_PATIENCE_SECONDS = 5.0
# An image that is allocated as a whole takes its time.
_ALLOCATION_SECONDS = 60.0
_PAUSE_SECONDS = 0.05
_READ_BYTES = 4096
_RANDOM = random.SystemRandom()

_POOL = "<pool type='dir'><name>kvmfleet-{name}</name><target><path>{path}</path></target></pool>"
_VOLUME = "<volume><name>{name}</name><capacity unit='bytes'>{capacity}</capacity><target><format type='{format}'/></target></volume>"

T = t.TypeVar("T")


class _Pool:
    """The pool of a folder. Libvirt permits one for a folder, so tasks that use the folder at the same time share it.

    The task that started the pool stops it, even while another one uses it. A call that finds it stopped starts it again and is repeated.
    """

    def __init__(self, connection: t.Any, path: str, uri: str) -> None:
        self._connection = connection
        self._path = path
        self._uri = uri
        self._started: t.List[t.Any] = []
        self._pool = self._opened()

    def call(self, act: t.Callable[[t.Any], T]) -> T:
        """Return what C(act) makes of the pool. Raises libvirt's error where that is not about the pool being stopped."""
        return _patiently(lambda: self._on_active(act), _STOPPED)

    def call_idle(self, act: t.Callable[[t.Any], T]) -> T:
        """Do likewise what libvirt refuses as long as any volume is being made there."""
        return _patiently(lambda: self._on_active(act), (*_STOPPED, _INTERNAL_ERROR), _ALLOCATION_SECONDS)

    def close(self) -> None:
        """Stop what this task has started. A pool in which another task is making a volume at length stays: it does no harm."""
        for pool in self._started:
            _stop(pool)

    def _on_active(self, act: t.Callable[[t.Any], T]) -> T:
        try:
            return act(self._pool)
        except libvirt().libvirtError as error:
            if error.get_error_code() in _STOPPED:
                self._pool = self._opened()
                # Another task that started it may have read the folder long ago.
                _patiently(self._pool.refresh, (_INTERNAL_ERROR,), _ALLOCATION_SECONDS)
            raise

    def _opened(self) -> t.Any:
        return _patiently(self._open, (*_STOPPED, *_BUSY))

    def _open(self) -> t.Any:
        """Return the active pool of the folder, started where there is none."""
        active = self._active()
        if active is not None:
            return active
        pool = self._inactive()
        if pool is None:
            pool = self._connection.storagePoolCreateXML(_POOL.format(name=uuid_module.uuid4(), path=escape(self._path)))
        else:
            pool.create()
        self._started.append(pool)
        return pool

    def _active(self) -> t.Any:
        try:
            return self._connection.storagePoolLookupByTargetPath(self._path)
        except libvirt().libvirtError as error:
            if error.get_error_code() == _NO_POOL:
                return None
            raise

    def _inactive(self) -> t.Any:
        """Return the pool that is defined for the folder and not active: libvirt permits no second one of the type C(dir).

        A pool of another type is left alone: to start and stop it mounts and unmounts a file system.
        """
        flags = libvirt().VIR_CONNECT_LIST_STORAGE_POOLS_INACTIVE | libvirt().VIR_CONNECT_LIST_STORAGE_POOLS_DIR
        return next((pool for pool in self._connection.listAllStoragePools(flags) if _target_of(pool.XMLDesc()) == self._path), None)


def _stop(pool: t.Any) -> None:
    try:
        _patiently(pool.destroy, (_INTERNAL_ERROR,))
    except libvirt().libvirtError as error:
        if error.get_error_code() not in (*_STOPPED, _INTERNAL_ERROR):
            raise


def _patiently(act: t.Callable[[], T], passing: t.Collection[int], seconds: float = _PATIENCE_SECONDS) -> T:
    """Repeat what fails with one of these libvirt errors, because others use the folder at this moment."""
    until = time.monotonic() + seconds
    while True:
        try:
            return act()
        except libvirt().libvirtError as error:
            if error.get_error_code() not in passing or time.monotonic() > until:
                raise
        time.sleep(_PAUSE_SECONDS * _RANDOM.uniform(0.5, 2.0))


class LibvirtFolder:
    """Implements L(Folder) over an active pool."""

    def __init__(self, connection: t.Any, pool: _Pool, path: str) -> None:
        self.path = path
        self._connection = connection
        self._pool = pool

    def look(self) -> None:
        with libvirt_errors(f"read the folder {self.path}"):
            self._pool.call_idle(lambda pool: pool.refresh())

    def available_bytes(self) -> int:
        with libvirt_errors(f"read the room in {self.path}"):
            return int(self._pool.call(lambda pool: pool.info())[3])

    def volume(self, name: str) -> t.Optional[Volume]:
        try:
            return _parsed(self._pool.call(lambda pool: pool.storageVolLookupByName(name).XMLDesc()))
        except libvirt().libvirtError as error:
            self._check_missing(error, name)
            return None

    def names(self) -> t.List[str]:
        """Return the names of everything in the folder, as of the last look."""
        with libvirt_errors(f"list the folder {self.path}"):
            return list(self._pool.call(lambda pool: pool.listVolumes()))

    def users(self, path: str) -> t.List[str]:
        with libvirt_errors(f"list the folder {self.path}"):
            found = self._pool.call(lambda pool: [_described(volume) for volume in pool.listAllVolumes()])
        return [volume.name for volume in map(_parsed, filter(None, found)) if volume.backing_path == path]

    def read(self, name: str, offset: int = 0, length: int = _READ_BYTES) -> bytes:
        """Return a piece of a file, by default its beginning; less where the file ends."""
        with libvirt_errors(f"read {os.path.join(self.path, name)}"):
            return self._pool.call(lambda pool: self._piece(pool.storageVolLookupByName(name), offset, length))

    def create(self, name: str, image_format: str, capacity_bytes: int) -> None:
        self.look()
        xml = _VOLUME.format(name=escape(name), capacity=capacity_bytes, format=escape(image_format))
        try:
            self._pool.call(lambda pool: pool.createXML(xml))
        except libvirt().libvirtError as error:
            ours = translated(error, f"create {os.path.join(self.path, name)}")
            raise (Conflict(ours.message) if error.get_error_code() == _VOLUME_EXISTS else ours) from error

    def remove(self, name: str) -> None:
        self.look()
        try:
            self._pool.call_idle(lambda pool: pool.storageVolLookupByName(name).delete())
        except libvirt().libvirtError as error:
            self._check_missing(error, name)

    def _piece(self, volume: t.Any, offset: int, length: int) -> bytes:
        stream = self._connection.newStream()
        volume.download(stream, offset, length)
        content = b""
        try:
            while len(content) < length:
                some = stream.recv(length)
                if not some:
                    stream.finish()
                    return content
                content += some
        except libvirt().libvirtError:
            stream.abort()
            raise
        stream.abort()
        return content[:length]

    def _check_missing(self, error: t.Any, name: str) -> None:
        """Raise the error, unless it says that there is no such volume."""
        if error.get_error_code() != _NO_VOLUME:
            raise translated(error, f"use {os.path.join(self.path, name)}") from error


@contextlib.contextmanager
def open_folder(connection: t.Any, path: str, uri: str) -> t.Iterator[LibvirtFolder]:
    """Give the folder. A pool that was not active, or not there, is so again afterwards. Raises L(NotFound) where it cannot be opened."""
    try:
        pool = _Pool(connection, path, uri)
    except libvirt().libvirtError as error:
        ours = translated(error, f"open the folder {path} on {uri}")
        # A folder that is not there, or is none, comes as an error of the system, as a lost connection does.
        is_local = error.get_error_code() == _SYSTEM_ERROR and error.get_error_domain() != _RPC_DOMAIN
        raise (NotFound(ours.message) if is_local else ours) from error
    try:
        yield LibvirtFolder(connection, pool, path)
    finally:
        with libvirt_errors(f"stop the pool of {path} on {uri}"):
            pool.close()


def _described(volume: t.Any) -> t.Optional[str]:
    """Return libvirt's description of a volume, null for one that is gone."""
    try:
        return str(volume.XMLDesc())
    except libvirt().libvirtError as error:
        if error.get_error_code() == _NO_VOLUME:
            return None
        raise


def _target_of(xml: str) -> t.Optional[str]:
    return parse_libvirts(xml, "a storage pool").findtext("target/path")


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
