# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What was saved of a domain, with the names of the host that starts it. Pure functions.

A saved definition has the names of the host on which it was saved. A path that cannot be translated keeps its name: the definition that has it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.rewriting import rewrite_definition
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.definition_files import list_needed_files
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.libvirt_formats import NotXml, parse_xml
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import LIVE, PERSISTENT, DefinitionChange
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import IMAGES, NoName, Renaming, rename_folders
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.saved_domains import DomainProtection, HostTokens, NeededFile, SavedDisk, SavedFile

_FILE_KINDS = ("file", "dir")


@dataclass(frozen=True)
class RenamedDefinition:
    """A saved definition as another host needs it.

    :arg changes: what differs in it.
    :arg problem: why it cannot be rewritten, then it is as it was saved; empty if it can.
    :arg paths: of each file that the domain needs in addition to its disks, by what it is and by its path as it was saved, the path on the other host.
    """

    definition: str
    changes: tuple[DefinitionChange, ...] = ()
    problem: str = ""
    paths: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def rename_file(self, file: SavedFile, renaming: Renaming) -> SavedFile:
        """Return a file that the domain needs as the other host sees it. Files that the definition does not name have the same path everywhere."""
        path = self.paths.get((file.what, file.path), file.path)
        return file if path == file.path else replace(file, path=path, folders=rename_paths(file.folders, renaming))

    def rename_needed(self, file: NeededFile) -> NeededFile:
        """Return the description of a file that the start creates, as the other host sees it."""
        return replace(file, path=self.paths.get((file.what, file.path), file.path))


def rename_definition(saved: DomainProtection, renaming: Renaming) -> RenamedDefinition:
    """Return the saved definition as that host needs it. One that cannot be read is not changed: the host refuses it."""
    text = saved.definition or ""
    try:
        root = parse_xml(text)
    except NotXml:
        return RenamedDefinition(text)
    try:
        definition, changes = rewrite_definition(text, renaming, PERSISTENT if saved.persistent else LIVE)
    except KvmfleetError as error:
        return RenamedDefinition(text, problem=error.message)
    pairs = zip(list_needed_files(root), list_needed_files(parse_xml(definition)), strict=True)
    return RenamedDefinition(definition, changes, "", {(before.what, before.path): after.path for before, after in pairs})


def rename_disk(disk: SavedDisk, renaming: Renaming) -> SavedDisk:
    """Return a disk as that host sees it. Devices and images of the network have the same name everywhere."""
    path = _rename_path(disk.path, renaming) if disk.kind in _FILE_KINDS and disk.path else disk.path
    backing = rename_paths(disk.backing, renaming) if disk.backing else disk.backing
    return replace(disk, path=path, folders=rename_paths(disk.folders, renaming), backing=backing)


def rename_tokens(tokens: HostTokens, renaming: Renaming) -> HostTokens:
    """Return the tokens of a host by the folders as the other host calls them."""
    return replace(tokens, folders={there: tokens.folders[folder] for folder, there in rename_folders(tokens.folders, renaming).items()})


def rename_paths(paths: Iterable[str], renaming: Renaming) -> tuple[str, ...]:
    """Return these paths as that host calls them."""
    return tuple(_rename_path(path, renaming) for path in paths)


def _rename_path(path: str, renaming: Renaming) -> str:
    try:
        return renaming.rename(IMAGES, path)
    except NoName:
        return path
