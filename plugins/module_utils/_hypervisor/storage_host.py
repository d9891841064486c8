# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A libvirt host with the images of its domains."""

from __future__ import annotations

import contextlib
import typing as t
from xml.etree import ElementTree

from .._errors import NotFound
from .._storage.ports import Image
from .._xml import parse_libvirts
from .errors import libvirt_errors
from .facts_host import LibvirtFactsHost
from .folder import LibvirtFolder, open_folder


class LibvirtStorageHost(LibvirtFactsHost):
    """Implements L(StorageHost)."""

    def images(self, uuid: str) -> t.List[Image]:
        with libvirt_errors(f"read the disks of domain {uuid} on {self.uri}"):
            domain = self._connection.lookupByUUIDString(uuid)
            return [_image(disk, domain) for disk in _disks(domain.XMLDesc()) if _is_written(disk)]

    def users_of(self, path: str) -> t.List[str]:
        users = []
        for domain in self._all_domains():
            with contextlib.suppress(NotFound), libvirt_errors(f"read the disks of a domain of {self.uri}"):
                if path in _paths(domain.XMLDesc()):
                    users.append(domain.name())
        return users

    def folder(self, path: str) -> t.ContextManager[LibvirtFolder]:
        return open_folder(self._connection, path, self.uri)


def open_storage_host(uri: str, timeout_seconds: t.Optional[float] = None) -> LibvirtStorageHost:
    """Open a host. Raises L(Unreachable)."""
    return LibvirtStorageHost(uri, timeout_seconds)


def _disks(xml: str) -> t.List[ElementTree.Element]:
    return parse_libvirts(xml, "a domain definition").findall("devices/disk")


def _paths(xml: str) -> t.Set[str]:
    """Return the files and devices that stand in a definition as an image, or as what an image is backed by."""
    sources = [source for disk in _disks(xml) for source in disk.iter("source")]
    return {source.attrib[key] for source in sources for key in ("file", "dev", "dir") if key in source.attrib}


def _is_written(disk: ElementTree.Element) -> bool:
    return disk.get("device", "disk") in ("disk", "lun") and disk.find("readonly") is None and disk.find("source") is not None


def _image(disk: ElementTree.Element, domain: t.Any) -> Image:
    source, driver, target = disk.find("source"), disk.find("driver"), disk.find("target")
    kind, name = disk.get("type", ""), target.get("dev", "") if target is not None else ""
    attributes = source.attrib if source is not None else {}
    # A block or network disk is never copied: its size does not matter.
    capacity, allocation = domain.blockInfo(name)[:2] if kind == "file" else (0, 0)
    return Image(
        target=name,
        kind=kind,
        path=next((attributes[key] for key in ("file", "dev", "dir", "volume", "name") if key in attributes), ""),
        format=driver.get("type", "raw") if driver is not None else "raw",
        capacity_bytes=capacity,
        allocation_bytes=allocation,
        shareable=disk.find("shareable") is not None,
        has_backing=disk.find("backingStore/source") is not None,
        backing=tuple(_backing(disk)),
    )


def _backing(disk: ElementTree.Element) -> t.Iterator[str]:
    """Yield the paths of the files that libvirt has open below the image; empty for what is none."""
    below = disk.find("backingStore")
    while below is not None and below.find("source") is not None:
        yield below.find("source").get("file", "")  # type: ignore[union-attr]
        below = below.find("backingStore")
