# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host's images in real folders: what is one store here is one folder, or two mounts of it."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._libvirt.values import Image, Permissions, Volume
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, KvmfleetError, NotFound


class DirectoryFolder:
    """Implements C(Folder) over a folder of this machine; an image is a small JSON file."""

    def __init__(self, place: pathlib.Path, available: int = 10**12, refuses: t.Optional[KvmfleetError] = None) -> None:
        self.path = str(place)
        self.made: t.List[str] = []
        self._place = place
        self._available = available
        self._refuses = refuses
        self._seen: t.Set[str] = set()

    def refresh_listing(self) -> None:
        self._seen = set(os.listdir(self._place))

    def available_bytes(self) -> int:
        return self._available

    def find_volume(self, name: str) -> t.Optional[Volume]:
        # As a pool does, it knows what was there at its last look.
        if name not in self._seen:
            return None
        path = self._place / name
        text = path.read_text(encoding="latin-1")
        facts = json.loads(text) if text.startswith("{") else {}
        return Volume(name, facts.get("format", "raw"), facts.get("capacity", 0), facts.get("capacity", 0), facts.get("backing", ""), path.stat().st_ctime)

    def find_users(self, path: str) -> t.List[str]:
        volumes = [self.find_volume(name) for name in self._seen]
        return [volume.name for volume in volumes if volume and volume.backing_path == path]

    def read_piece(self, name: str, offset: int = 0, length: int = 4096) -> bytes:
        return (self._place / name).read_bytes()[offset : offset + length]

    def create_image(self, name: str, image_format: str, capacity_bytes: int) -> None:
        if self._refuses:
            raise self._refuses
        if (self._place / name).exists():
            raise Conflict(f"{name} exists already.")
        self.made.append(name)
        put_image(self._place / name, image_format, capacity_bytes)
        self._seen.add(name)

    def write_file(self, name: str, content: bytes, permissions: Permissions) -> None:
        if (self._place / name).exists():
            raise Conflict(f"{name} exists already.")
        (self._place / name).write_bytes(content)
        self._seen.add(name)

    def copy_file(self, name: str, new_name: str, permissions: Permissions) -> None:
        self.write_file(new_name, (self._place / name).read_bytes(), permissions)

    def remove_file(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            (self._place / name).unlink()
        self._seen.discard(name)


class FakeStorageHost:
    """The part of C(Host) that is about storage. C(folders) says which folder of this machine is behind a path of the host."""

    def __init__(self, folders: t.Mapping[str, DirectoryFolder], users: t.Optional[t.Mapping[str, t.List[str]]] = None) -> None:
        self.folders = dict(folders)
        self.users = dict(users or {})
        self.opened: t.List[str] = []

    def users_of(self, path: str) -> t.List[str]:
        return self.users.get(path, [])

    @contextlib.contextmanager
    def open_folder(self, path: str) -> t.Iterator[DirectoryFolder]:
        if path not in self.folders:
            raise NotFound(f"cannot open directory {path}")
        self.opened.append(path)
        self.folders[path].refresh_listing()
        yield self.folders[path]


def put_image(path: pathlib.Path, image_format: str = "qcow2", capacity: int = 100, backing: str = "") -> None:
    path.write_text(json.dumps({"format": image_format, "capacity": capacity, "backing": backing}))


def image(path: pathlib.Path, **facts: t.Any) -> Image:
    return Image(**{"target": "vda", "kind": "file", "path": str(path), "format": "qcow2", "capacity_bytes": 100, "allocation_bytes": 60, **facts})
