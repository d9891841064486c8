# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Folders and files of a host, read and written through libvirt's storage pools.

The pool of a folder is used if it has one. Otherwise a temporary pool is created, and removed afterwards.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
import typing as t
import uuid as uuid_module

from .._model.errors import Conflict, Internal, NotFound
from .._model.libvirt_formats import clean_path, escape_text, parse_libvirt_xml, parse_number
from .connection import libvirt_binding, libvirt_errors, translate_error
from .values import Permissions, Volume

if t.TYPE_CHECKING:
    import libvirt

# Numbers from virErrorNumber.
_INTERNAL_ERROR = 1
_OPERATION_FAILED = 9
_SYSTEM_ERROR = 38
_NO_POOL = 49
_NO_VOLUME = 50
_OPERATION_INVALID = 55
_VOLUME_EXISTS = 90
_RPC_DOMAIN = 7

# Another user of the pool has stopped it: it was transient, or it is defined and no longer active.
_STOPPED = (_NO_POOL, _OPERATION_INVALID)
# Another process is creating a pool of this folder at this moment, or a volume in it.
_BUSY = (_INTERNAL_ERROR, _OPERATION_FAILED)
_PATIENCE_SECONDS = 5.0
# Full allocation of an image takes time.
_ALLOCATION_SECONDS = 60.0
_PAUSE_SECONDS = 0.05
_READ_BYTES = 4096
_RANDOM = random.SystemRandom()

_POOL = "<pool type='dir'><name>kvmfleet-{name}</name><target><path>{path}</path></target></pool>"
_VOLUME = "<volume><name>{name}</name><capacity unit='bytes'>{capacity}</capacity><target><format type='{format}'/>{compat}</target></volume>"
# The default of libvirt is the older version of qcow2, which cannot keep the bitmaps of incremental backups.
_QCOW2_VERSION = "<compat>1.1</compat>"

_OWNED = "<permissions><mode>{mode:04o}</mode><owner>{uid}</owner><group>{gid}</group></permissions>"
_OWNED_VOLUME = "<volume><name>{name}</name><capacity unit='bytes'>{capacity}</capacity><target><format type='raw'/>{permissions}</target></volume>"
_OWNED_POOL = "<pool type='dir'><name>kvmfleet-{name}</name><target><path>{path}</path>{permissions}</target></pool>"
_SENT_BYTES = 256 * 1024
_RAW = "raw"

T = t.TypeVar("T")


class _SharedPool:
    """The pool of a folder. Libvirt permits one for a folder, so tasks that use the folder at the same time share it.

    The task that started the pool stops it, even while another one uses it. A call that finds it stopped starts it again and is repeated.
    """

    def __init__(self, connection: libvirt.virConnect, path: str, uri: str) -> None:
        self._connection = connection
        self._path = path
        self._uri = uri
        self._started: t.List[libvirt.virStoragePool] = []
        self._pool = self._open_patiently()

    def call_active(self, act: t.Callable[[libvirt.virStoragePool], T]) -> T:
        """Return the result of C(act) on the pool. Raises libvirt's error unless the error is that the pool is stopped."""
        return _retry_while_busy(lambda: self._on_active(act), _STOPPED)

    def call_idle(self, act: t.Callable[[libvirt.virStoragePool], T]) -> T:
        """Like L(call_active), for calls that libvirt refuses while a volume is being created in the pool."""
        return _retry_while_busy(lambda: self._on_active(act), (*_STOPPED, _INTERNAL_ERROR), _ALLOCATION_SECONDS)

    def close(self) -> None:
        """Stop the pool that this task has started. A pool in which another task is creating a volume is left active."""
        for pool in self._started:
            _stop_pool(pool)

    def _on_active(self, act: t.Callable[[libvirt.virStoragePool], T]) -> T:
        try:
            return act(self._pool)
        except libvirt_binding().libvirtError as error:
            if error.get_error_code() in _STOPPED:
                self._pool = self._open_patiently()
                # Another task may have started the pool and read the folder long ago.
                _retry_while_busy(self._pool.refresh, (_INTERNAL_ERROR,), _ALLOCATION_SECONDS)
            raise

    def _open_patiently(self) -> libvirt.virStoragePool:
        return _retry_while_busy(self._open_pool, (*_STOPPED, *_BUSY))

    def _open_pool(self) -> libvirt.virStoragePool:
        """Return the active pool of the folder. Start one if there is none."""
        active = self._find_active()
        if active is not None:
            return active
        pool = self._find_inactive()
        if pool is None:
            pool = self._connection.storagePoolCreateXML(_POOL.format(name=uuid_module.uuid4(), path=escape_text(self._path)))
        else:
            pool.create()
        self._started.append(pool)
        return pool

    def _find_active(self) -> t.Optional[libvirt.virStoragePool]:
        try:
            return self._connection.storagePoolLookupByTargetPath(self._path)
        except libvirt_binding().libvirtError as error:
            if error.get_error_code() == _NO_POOL:
                return None
            raise

    def _find_inactive(self) -> t.Optional[libvirt.virStoragePool]:
        """Return the pool that is defined for the folder and not active: libvirt permits no second one of the type C(dir).

        A pool of another type is left alone: to start and stop it mounts and unmounts a file system.
        """
        flags = libvirt_binding().VIR_CONNECT_LIST_STORAGE_POOLS_INACTIVE | libvirt_binding().VIR_CONNECT_LIST_STORAGE_POOLS_DIR
        return next((pool for pool in self._connection.listAllStoragePools(flags) if _find_target_path(pool.XMLDesc()) == self._path), None)


def _stop_pool(pool: libvirt.virStoragePool) -> None:
    try:
        _retry_while_busy(pool.destroy, (_INTERNAL_ERROR,))
    except libvirt_binding().libvirtError as error:
        if error.get_error_code() not in (*_STOPPED, _INTERNAL_ERROR):
            raise


def _retry_while_busy(act: t.Callable[[], T], passing: t.Collection[int], seconds: float = _PATIENCE_SECONDS) -> T:
    """Repeat a call that fails with one of these libvirt errors, because other tasks use the folder at this moment."""
    until = time.monotonic() + seconds
    while True:
        try:
            return act()
        except libvirt_binding().libvirtError as error:
            if error.get_error_code() not in passing or time.monotonic() > until:
                raise
        time.sleep(_PAUSE_SECONDS * _RANDOM.uniform(0.5, 2.0))


class LibvirtFolder:
    """Implements L(Folder) over an active pool."""

    def __init__(self, connection: libvirt.virConnect, pool: _SharedPool, path: str) -> None:
        self.path = path
        self._connection = connection
        self._pool = pool

    def refresh_listing(self) -> None:
        with libvirt_errors(f"read the folder {self.path}"):
            self._pool.call_idle(lambda pool: pool.refresh())

    def available_bytes(self) -> int:
        with libvirt_errors(f"read the free space in {self.path}"):
            return int(self._pool.call_active(lambda pool: pool.info())[3])

    def find_volume(self, name: str) -> t.Optional[Volume]:
        try:
            return _parse_volume(self._pool.call_active(lambda pool: pool.storageVolLookupByName(name).XMLDesc()))
        except libvirt_binding().libvirtError as error:
            self._check_missing(error, name)
            return None

    def list_names(self) -> t.List[str]:
        """Return all names in the folder, as of the last refresh."""
        with libvirt_errors(f"list the folder {self.path}"):
            return list(self._pool.call_active(lambda pool: pool.listVolumes()))

    def find_users(self, path: str) -> t.List[str]:
        with libvirt_errors(f"list the folder {self.path}"):
            found = self._pool.call_active(lambda pool: [_describe_volume(volume) for volume in pool.listAllVolumes()])
        return [volume.name for volume in map(_parse_volume, filter(None, found)) if clean_path(volume.backing_path) == clean_path(path)]

    def read_piece(self, name: str, offset: int = 0, length: int = _READ_BYTES) -> bytes:
        """Return a piece of a file, by default its beginning; less at the end of the file."""
        with libvirt_errors(f"read {os.path.join(self.path, name)}"):
            return self._pool.call_active(lambda pool: self._download_piece(pool.storageVolLookupByName(name), offset, length))

    def create_image(self, name: str, image_format: str, capacity_bytes: int) -> None:
        self.refresh_listing()
        compat = _QCOW2_VERSION if image_format == "qcow2" else ""
        xml = _VOLUME.format(name=escape_text(name), capacity=capacity_bytes, format=escape_text(image_format), compat=compat)
        try:
            self._pool.call_active(lambda pool: pool.createXML(xml))
        except libvirt_binding().libvirtError as error:
            ours = translate_error(error, f"create {os.path.join(self.path, name)}")
            raise (Conflict(ours.message) if error.get_error_code() == _VOLUME_EXISTS else ours) from error

    def remove_file(self, name: str) -> None:
        self.refresh_listing()
        try:
            self._pool.call_idle(lambda pool: pool.storageVolLookupByName(name).delete())
        except libvirt_binding().libvirtError as error:
            self._check_missing(error, name)

    def write_file(self, name: str, content: bytes, permissions: Permissions) -> None:
        xml = _describe_new_file(name, len(content), permissions)
        self._create_volume(name, lambda pool: self._upload(pool.createXML(xml), content))

    def copy_file(self, name: str, new_name: str, permissions: Permissions) -> None:
        self.refresh_listing()
        original = self.find_volume(name)
        if original is not None and original.format != _RAW:
            # Libvirt would convert an image that it recognizes, such as firmware variables in qcow2.
            self.write_file(new_name, self._read_whole(name), permissions)
            return
        # Libvirt flushes the data of a volume that it copies, and not that of one that it receives.
        self._create_volume(new_name, lambda pool: self._copy_volume(pool, name, new_name, permissions))

    def _create_volume(self, name: str, create: t.Callable[[libvirt.virStoragePool], None]) -> None:
        try:
            self._pool.call_active(create)
        except libvirt_binding().libvirtError as error:
            ours = translate_error(error, f"write {os.path.join(self.path, name)}")
            raise (Conflict(ours.message) if error.get_error_code() == _VOLUME_EXISTS else ours) from error

    def _read_whole(self, name: str) -> bytes:
        pieces = [self.read_piece(name, 0, _SENT_BYTES)]
        while len(pieces[-1]) == _SENT_BYTES:
            pieces.append(self.read_piece(name, len(pieces) * _SENT_BYTES, _SENT_BYTES))
        return b"".join(pieces)

    @staticmethod
    def _copy_volume(pool: libvirt.virStoragePool, name: str, new_name: str, permissions: Permissions) -> None:
        original = pool.storageVolLookupByName(name)
        pool.createXMLFrom(_describe_new_file(new_name, int(original.info()[1]), permissions), original)

    def _upload(self, volume: libvirt.virStorageVol, content: bytes) -> None:
        stream = self._connection.newStream()
        volume.upload(stream, 0, len(content))
        try:
            for offset in range(0, len(content), _SENT_BYTES):
                _send(stream, content[offset : offset + _SENT_BYTES])
            stream.finish()
        except libvirt_binding().libvirtError:
            stream.abort()
            raise

    def _download_piece(self, volume: libvirt.virStorageVol, offset: int, length: int) -> bytes:
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
        except libvirt_binding().libvirtError:
            stream.abort()
            raise
        stream.abort()
        return content[:length]

    def _check_missing(self, error: libvirt.libvirtError, name: str) -> None:
        """Raise the error unless it means that the volume does not exist."""
        if error.get_error_code() != _NO_VOLUME:
            raise translate_error(error, f"use {os.path.join(self.path, name)}") from error


@contextlib.contextmanager
def open_folder(connection: libvirt.virConnect, path: str, uri: str) -> t.Iterator[LibvirtFolder]:
    """Open the folder. The pool is afterwards in the state that it had before. Raises L(NotFound) if it cannot be opened, or has devices instead of files."""
    if has_devices(path):
        raise NotFound(f"{path} is a folder of devices.")
    try:
        pool = _SharedPool(connection, path, uri)
    except libvirt_binding().libvirtError as error:
        ours = translate_error(error, f"open the folder {path} on {uri}")
        # A missing folder, or a path that is not a folder, is reported as a system error, like a lost connection.
        is_local = error.get_error_code() == _SYSTEM_ERROR and error.get_error_domain() != _RPC_DOMAIN
        raise (NotFound(ours.message) if is_local else ours) from error
    try:
        yield LibvirtFolder(connection, pool, path)
    finally:
        with libvirt_errors(f"stop the pool of {path} on {uri}"):
            pool.close()


def has_devices(path: str) -> bool:
    """Whether a folder has devices instead of files."""
    # A pool of the folder /dev would open each device, and the watchdog of the host resets the host after that.
    inside = f"{clean_path(path)}/"
    return inside.startswith("/dev/") and not inside.startswith("/dev/shm/")  # noqa: S108 - nothing is written there


def make_folder(connection: libvirt.virConnect, path: str, uri: str, permissions: Permissions) -> None:
    """Make a folder, and those above it; nothing happens if it exists."""
    owned = _OWNED.format(**permissions._asdict())
    xml = _OWNED_POOL.format(name=uuid_module.uuid4(), path=escape_text(path), permissions=owned)
    with libvirt_errors(f"make the folder {path} on {uri}"):
        _stop_pool(connection.storagePoolCreateXML(xml, libvirt_binding().VIR_STORAGE_POOL_CREATE_WITH_BUILD))


def _describe_new_file(name: str, size: int, permissions: Permissions) -> str:
    return _OWNED_VOLUME.format(name=escape_text(name), capacity=size, permissions=_OWNED.format(**permissions._asdict()))


def _send(stream: libvirt.virStream, piece: bytes) -> None:
    """Send a piece; libvirt may take less of it at a time."""
    while piece:
        piece = piece[stream.send(piece) :]


def _describe_volume(volume: libvirt.virStorageVol) -> t.Optional[str]:
    """Return libvirt's description of a volume, null for one that is gone."""
    try:
        return str(volume.XMLDesc())
    except libvirt_binding().libvirtError as error:
        if error.get_error_code() == _NO_VOLUME:
            return None
        raise


def _find_target_path(xml: str) -> t.Optional[str]:
    return parse_libvirt_xml(xml, "a storage pool").findtext("target/path")


def _parse_volume(xml: str) -> Volume:
    """Read libvirt's description of a volume; all sizes in it are in bytes."""
    root = parse_libvirt_xml(xml, "a storage volume")
    image_format = root.find("target/format")
    return Volume(
        name=root.findtext("name") or "",
        format=image_format.get("type", "") if image_format is not None else "",
        capacity_bytes=parse_number(root.findtext("capacity")),
        allocation_bytes=parse_number(root.findtext("allocation")),
        backing_path=root.findtext("backingStore/path") or "",
        changed_at=_parse_seconds(root.findtext("target/timestamps/ctime") or "0"),
    )


def _parse_seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise Internal(f"libvirt says that a storage volume was changed at {text[:40]!r}, which is not a time.") from error
