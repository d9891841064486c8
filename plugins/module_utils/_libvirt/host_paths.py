# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whether paths exist on a host, as far as libvirt can tell."""

from __future__ import annotations

import os
import typing as t

from .._model.errors import KvmfleetError, NotFound, Unreachable
from .._model.libvirt_formats import parse_libvirt_xml
from .connection import libvirt_binding, libvirt_errors

if t.TYPE_CHECKING:
    import libvirt
from .folders import open_folder


class HostPaths:
    """Answers for one connection; each folder is read once."""

    def __init__(self, connection: libvirt.virConnect, uri: str) -> None:
        self._connection = connection
        self._uri = uri
        self._folders: t.Dict[str, t.Optional[t.Set[str]]] = {}
        self._devices: t.Optional[t.Set[str]] = None

    def has_path(self, path: str) -> t.Optional[bool]:
        """Return whether the path exists; null if unknown. Raises L(Unreachable)."""
        path = os.path.normpath(path)
        if not os.path.isabs(path):
            return None
        try:
            return self._is_device(path) if path.startswith("/dev/") else self._is_file(path)
        except Unreachable:
            raise
        except KvmfleetError:
            return None

    def _is_file(self, path: str) -> bool:
        folder, name = os.path.split(path)
        if folder not in self._folders:
            self._folders[folder] = self._list_folder(folder)
        names = self._folders[folder]
        return names is not None and name in names

    def _list_folder(self, folder: str) -> t.Optional[t.Set[str]]:
        """Return the contents of a folder; null if the folder does not exist."""
        try:
            with open_folder(self._connection, folder, self._uri) as opened:
                opened.refresh_listing()
                return set(opened.list_names())
        except NotFound:
            return None

    def _is_device(self, path: str) -> t.Optional[bool]:
        """A device may have other names, so a device that is not found may still exist."""
        try:
            self._connection.storageVolLookupByPath(path)
        except libvirt_binding().libvirtError:
            return True if path in self._block_devices() else None
        return True

    def _block_devices(self) -> t.Set[str]:
        if self._devices is None:
            with libvirt_errors(f"list the block devices of {self._uri}"):
                found = self._connection.listAllDevices(libvirt_binding().VIR_CONNECT_LIST_NODE_DEVICES_CAP_STORAGE)
                roots = [parse_libvirt_xml(device.XMLDesc(0), "a node device") for device in found]
            self._devices = {root.findtext("capability/block") or "" for root in roots}
        return self._devices
