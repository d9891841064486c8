# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What copying storage needs of a hypervisor. The destination is reached by libvirt alone; the libvirt side and the fake of the tests implement it."""

from __future__ import annotations

import dataclasses
import typing as t

from .._migration import hypervisor as h


@dataclasses.dataclass(frozen=True)
class Image:
    """The image behind a domain's disk. Sizes in bytes: what the guest sees, and what is allocated of it.

    C(backing) are the paths of the files below it, where these are files.
    """

    target: str
    kind: str
    path: str
    format: str
    capacity_bytes: int
    allocation_bytes: int
    shareable: bool = False
    has_backing: bool = False
    backing: t.Tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Volume:
    """A file of a folder. C(changed_at) is its ctime in seconds."""

    name: str
    format: str
    capacity_bytes: int
    allocation_bytes: int
    backing_path: str = ""
    changed_at: float = 0.0


class Folder(t.Protocol):
    """A folder of a host, as a storage pool shows it."""

    path: str

    def look(self) -> None:
        """Read the folder again; what follows speaks of this moment."""

    def available_bytes(self) -> int:
        """Room that is left."""

    def volume(self, name: str) -> t.Optional[Volume]:
        """The file of that name, where there is one."""

    def users(self, path: str) -> t.List[str]:
        """The files of the folder that have this one as their backing file."""

    def read(self, name: str, offset: int = 0, length: int = 4096) -> bytes:
        """A piece of a file; less where the file ends."""

    def create(self, name: str, image_format: str, capacity_bytes: int) -> None:
        """Make a new image. Raises L(Conflict) where the name is taken."""

    def remove(self, name: str) -> None:
        """Remove a file; nothing happens where it is gone."""


class StorageHost(h.Host, t.Protocol):
    """A host whose images can be looked at."""

    def images(self, uuid: str) -> t.List[Image]:
        """The images that the domain writes to. Raises L(NotFound)."""

    def users_of(self, path: str) -> t.List[str]:
        """The names of all domains, active or not, in whose definition that file stands, also as a backing file."""

    def folder(self, path: str) -> t.ContextManager[Folder]:
        """The folder of that path. Raises L(NotFound) where the host cannot open it."""
