# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which domains of a host use a file as an image: by its path, as a volume of a pool, below another image, or by another path of the same file.

libvirt resolves no links, and the host is usually not this one. One file has one time of change, by whatever path it is reached.
"""

from __future__ import annotations

import contextlib
import os
import typing as t
from xml.etree import ElementTree

from .._model.definition_files import Pools, locate_volume, source_of
from .._model.errors import NotFound
from .._model.libvirt_formats import clean_path, parse_libvirt_xml
from .connection import libvirt_errors
from .folders import LibvirtFolder, has_devices
from .hardware import list_pools
from .values import Volume

if t.TYPE_CHECKING:
    import libvirt

OpenFolder = t.Callable[[str], t.ContextManager[LibvirtFolder]]

# virDomainXMLFlags: what the next start would use.
_INACTIVE = 2


class _Source(t.NamedTuple):
    """Where an image of a domain is: a path, or a volume (C(pool/volume)) whose path is not known."""

    path: str
    volume: str = ""


def find_image_users(connection: libvirt.virConnect, path: str, uri: str, open_folder: OpenFolder) -> t.List[str]:
    """Return the names of the domains that use the file, or may use it. If the definition of a domain does not have the path itself, its name is followed by
    the reason in parentheses.

    If the file exists, the folders of all images of the host are read. Raises L(KvmfleetError) if the host cannot read one of them.
    """
    with libvirt_errors(f"list the pools of {uri}"):
        pools = list_pools(connection)
    with libvirt_errors(f"list the domains of {uri}"):
        domains = connection.listAllDomains()
    users = []
    with contextlib.ExitStack() as stack:
        image = _SearchedImage(path, _HostFiles(open_folder, stack))
        for domain in domains:
            found = _read_domain(domain, pools, uri)
            reason = image.explain_use(found[1]) if found else None
            if found and reason is not None:
                users.append(f"{found[0]} ({reason})" if reason else found[0])
    return users


def _read_domain(domain: libvirt.virDomain, pools: Pools, uri: str) -> t.Optional[t.Tuple[str, t.List[_Source]]]:
    """Return the name of a domain, and the images of its definitions; null if the domain is gone."""
    with contextlib.suppress(NotFound), libvirt_errors(f"read the disks of a domain of {uri}"):
        definitions = [domain.XMLDesc()]
        if domain.isActive() and domain.isPersistent():
            definitions.append(domain.XMLDesc(_INACTIVE))
        roots = [parse_libvirt_xml(definition, "a domain definition") for definition in definitions]
        sources = [_read_source(source, pools) for root in roots for source in root.iterfind("devices/disk//source")]
        return domain.name(), list(dict.fromkeys(source for source in sources if any(source)))
    return None


def _read_source(source: ElementTree.Element, pools: Pools) -> _Source:
    if "pool" not in source.attrib:
        return _Source(next((clean_path(source.attrib[key]) for key in ("file", "dev", "dir") if key in source.attrib), ""))
    volume = source_of(source)
    kind, path = locate_volume(volume, pools)
    if kind == "network" or (kind == "block" and not path):
        return _Source("")
    return _Source(clean_path(path)) if path else _Source("", volume)


class _HostFiles:
    """Finds files of the host; each folder is opened and read once."""

    def __init__(self, open_folder: OpenFolder, stack: contextlib.ExitStack) -> None:
        self._open_folder = open_folder
        self._stack = stack
        self._folders: t.Dict[str, t.Optional[LibvirtFolder]] = {}

    def find_file(self, path: str) -> t.Optional[Volume]:
        """Return the file as it is now; null if it does not exist, or is not a file of a folder."""
        folder_path, name = os.path.split(path)
        if not path.startswith("/") or has_devices(folder_path):
            return None
        if folder_path not in self._folders:
            self._folders[folder_path] = self._read_folder(folder_path)
        folder = self._folders[folder_path]
        return folder.find_volume(name) if folder else None

    def _read_folder(self, path: str) -> t.Optional[LibvirtFolder]:
        try:
            folder = self._stack.enter_context(self._open_folder(path))
        except NotFound:
            return None
        folder.refresh_listing()
        return folder


class _SearchedImage:
    """The image whose users are searched. It may have any number of other paths."""

    def __init__(self, path: str, files: _HostFiles) -> None:
        self._path = clean_path(path)
        self._files = files
        self._before = files.find_file(self._path)

    def explain_use(self, sources: t.Sequence[_Source]) -> t.Optional[str]:
        """Return by what a domain with these images uses this one, empty if by its path; null if it does not."""
        if any(source.path == self._path for source in sources):
            return ""
        reasons = (self._explain_file(source.path) if source.path else self._explain_volume(source.volume) for source in sources)
        return next(filter(None, reasons), None)

    def _explain_volume(self, volume: str) -> str:
        """A volume that is a file has the file's name. Only a link to an image that exists can have another one."""
        if self._before is None and os.path.basename(volume) != os.path.basename(self._path):
            return ""
        return f"possibly: its volume {volume} is in a pool that the host does not have"

    def _explain_file(self, path: str) -> str:
        if self._before is None:
            return ""
        seen: t.Set[str] = set()
        current = path
        while current not in seen:
            seen.add(current)
            file = self._files.find_file(current)
            if file is None:
                return ""
            if self._is_same_file(file):
                return f"as {path}" if current == path else f"below {path}"
            current = clean_path(file.backing_path)
        return ""

    def _is_same_file(self, file: Volume) -> bool:
        """Whether a file that was just read may be the image: the same content, changed neither before nor after what the image shows before and after.

        A guest may write to the image meanwhile.
        """
        before = self._before
        if before is None or file.changed_at < before.changed_at:
            return False
        after = self._files.find_file(self._path)
        return after is not None and _describe_content(file) == _describe_content(after) and file.changed_at <= after.changed_at


def _describe_content(file: Volume) -> t.Tuple[str, int, str]:
    return file.format, file.capacity_bytes, file.backing_path
