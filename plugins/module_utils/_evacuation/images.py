# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The images of a domain on this host, and the storage tokens in their folders, by which other hosts prove that they see the same storage."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import re
import tempfile
import typing as t
import uuid as uuid_module
from xml.etree.ElementTree import Element

from .._boot_guard.storage_program import HOST_TOKEN_PREFIX, open_regular_file
from .._facts.block_devices import BlockDevices
from .._facts.disks import explain_other_image, find_running_disks, list_image_files
from .._facts.image_header import Files
from .._facts.mounts import Mount, identify_store, innermost_mount, read_mounts
from .._facts.storage_queries import StorageQueries
from .._files import replace_file
from .._model.codec import ABSENT, decode, encode
from .._model.definition_files import POOLS_OF_UNITS, Pools, locate_volume, source_of
from .._model.device_names import is_identity
from .._model.errors import KvmfleetError, NotFound, NotSupported
from .._model.facts import UNTOLD_KINDS
from .._model.requests import DiskNeed
from .._model.saved_domains import NeededFile, SavedDisk, SavedFile, SavedMount, StorageToken
from .qemu_locks import classify_locks


class StorageLocation(t.NamedTuple):
    """The folders that a host must see for a path, its mount, and what becomes of locks there (L(classify_locks))."""

    folders: t.List[str]
    mount: t.Optional[SavedMount]
    locks: t.Optional[str] = None


_FILES = ("file", "dir")
VOLUME = "volume"


class ImageLocator:
    """Locates the images of domains.

    C(unread) are the paths of those whose location is not known, because their storage did not answer.

    :arg mounts: the table of mounts; this host's own by default.
    """

    def __init__(self, mounts: t.Optional[t.Sequence[Mount]] = None) -> None:
        table = read_mounts() if mounts is None else mounts
        self.storage = StorageQueries(table)
        self._mounts = {mount.path: mount for mount in table}
        self._known: t.Dict[str, StorageLocation] = {}
        self.unread: t.Set[str] = set()
        self._devices = BlockDevices()

    def locate_disks(self, requested: t.Sequence[DiskNeed], pools: Pools, live: t.Optional[Element], files: t.Optional[Files] = None) -> t.List[SavedDisk]:
        """Return the disks as the ledger keeps them, without the hosts that see them.

        :arg requested: the disks of the domain's request.
        :arg live: the definition of an active domain, which knows the backing files too.
        :arg files: where the images are.
        """
        running = find_running_disks(live)
        return [self._locate_disk(disk, pools, _BackingChain.read_chain(disk, running.get(disk.target), pools, files, self.storage)) for disk in requested]

    def locate_files(self, needed: t.Sequence[NeededFile]) -> t.List[SavedFile]:
        """Return files that a domain needs in addition to its disks, as the ledger keeps them, without the hosts that see them.

        :arg needed: as L(list_needed_files) returns them.
        """
        return [self._locate_file(file) for file in needed]

    def find_device_identity(self, path: str) -> t.Optional[str]:
        """Return the name that a block device has on every host, or null if it has none."""
        store = self._devices.identify_device(path)[1]
        return store if is_identity(store) else None

    def _locate_file(self, file: NeededFile) -> SavedFile:
        path, kind = file.path, file.kind
        location = self._find_location(path, kind) if kind in _FILES and path.startswith("/") else StorageLocation([], None)
        is_there = self.storage.path_exists(path) if path.startswith("/") else None
        wwn = self.find_device_identity(path) if kind == "block" else None
        folders = tuple(sorted(location.folders))
        return SavedFile(file.what, kind, path, folders, location.mount, shared=None, wwn=wwn, present=is_there is not False)

    def _locate_disk(self, disk: DiskNeed, pools: Pools, chain: _BackingChain) -> SavedDisk:
        kind, path = disk.kind or "", disk.source or ""
        if kind == VOLUME:
            kind, path = locate_saved_volume(path, pools)
        locations = [self._find_location(path, kind)] if path.startswith("/") and kind in _FILES else []
        folders = {folder for location in [*locations, *(self._find_location(file, "file") for file in chain.files)] for folder in location.folders}
        if self.unread.intersection(chain.files) or (chain.is_unknown and self.storage.was_late(path)):
            self.unread.add(path)
        return SavedDisk(
            target=disk.target,
            kind=kind,
            path=path,
            readonly=bool(disk.readonly),
            shareable=bool(disk.shareable),
            optional=bool(disk.optional),
            format=disk.format or None,
            backing=tuple(chain.files),
            backing_devices={device: self.find_device_identity(device) for device in chain.devices},
            backing_problem=chain.problem,
            folders=tuple(sorted(folders)),
            mount=locations[0].mount if locations else None,
            locks=locations[0].locks if locations else None,
            shared=disk.shared,
            wwn=self.find_device_identity(path) if kind == "block" and path else None,
        )

    def _find_location(self, path: str, kind: str) -> StorageLocation:
        parent = path if kind == "dir" else os.path.dirname(path)
        if path not in self._known:
            found = self.storage.ask(path, lambda: self._read_location(path, parent))
            if found is None:
                self.unread.add(path)
            self._known[path] = found or StorageLocation([parent], None)
        return self._known[path]

    def _read_location(self, path: str, parent: str) -> StorageLocation:
        real = os.path.realpath(path)
        real_parent = real if parent == path else os.path.dirname(real)
        # A file that is itself a link needs both folders: the one with the link, and the one with the image.
        folders = [parent] if os.path.realpath(parent) == real_parent else [parent, real_parent]
        mount = self._mounts.get(innermost_mount(real, self._mounts))
        if mount is None:
            return StorageLocation(folders, None)
        return StorageLocation(folders, SavedMount(mount.path, mount.kind, identify_store(mount)), classify_locks(mount))


def locate_saved_volume(volume: str, pools: Pools) -> t.Tuple[str, str]:
    """Return kind and path of C(pool/volume) as the ledger keeps them: those of its file or device in the pool, without a path if that is not known."""
    name, _slash, file = volume.partition("/")
    pool = next((pool for pool in pools if pool.name == name), None)
    if pool is None:
        return VOLUME, ""
    if pool.type in POOLS_OF_UNITS:
        device = locate_volume(volume, pools)[1]
        return ("block", device) if device else (VOLUME, "")
    folder = pool.path or ""
    if not folder.startswith("/"):
        return "network", volume
    return "block" if folder.startswith("/dev") else "file", f"{folder}/{file}"


class _BackingChain(t.NamedTuple):
    """The backing chain of a disk's image: C(files) and C(devices) by their paths, and why it may be incomplete.

    C(is_unknown): whether that is because an image could not be read.
    """

    files: t.List[str]
    devices: t.List[str]
    problem: t.Optional[str]
    is_unknown: bool

    @classmethod
    def read_chain(cls, disk: DiskNeed, running: t.Optional[Element], pools: Pools, files: t.Optional[Files], storage: StorageQueries) -> _BackingChain:
        """Return the chain of the saved definition, and what the running domain has open in addition."""
        known = [(file.kind, file.source) for file in disk.files or ()]
        problem, other = disk.files_problem or None, None
        if running is not None:
            needed, unknown = list_image_files(running, files, pools)
            known += [(file.kind, file.path) for file in needed]
            # A running domain shows its whole chain, even if its images cannot be read.
            if source_of(running.find("source")) == disk.source:
                problem = unknown
            else:
                problem, other = problem or unknown, explain_other_image(disk, running, pools, storage)
        is_device = {path: kind == "block" for kind, path in known if path.startswith("/")}
        plain, devices = (sorted(path for path in is_device if is_device[path] is wanted) for wanted in (False, True))
        return cls(plain, devices, other or problem, is_unknown=bool(problem and not other))


_MAX_BYTES = 4096
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# How the names of file systems begin whose files may have another number on each host.
_NUMBERED_BY_HOST = (*UNTOLD_KINDS, "cifs", "smb")
# File systems give new files the lowest free numbers: a copy on an empty one has those of the original, unless that has left some of them free.
_FREE_NUMBERS = (32, 64)

Nonces = t.Dict[str, str]


def token_path(folder: str, host_id: str) -> str:
    """Return the path of that host's token in that folder."""
    return os.path.join(folder, f"{HOST_TOKEN_PREFIX}{host_id}")


def leave_tokens(folders: t.Sequence[str], host_id: str) -> t.Tuple[Nonces, t.Dict[str, str]]:
    """Write a token into each folder without one of this host; return the nonce of each, and the reason if one could not be written.

    Existing tokens stay: other hosts have read them. One of an earlier version, whose copies cannot be told from it, is written again with its nonce. One that
    is a copy itself is replaced: the host may use other storage now than the hosts that have read it.
    """
    tried = {folder: _leave_token(folder, host_id) for folder in sorted(set(folders))}
    nonces = {folder: nonce for folder, (nonce, _problem) in tried.items() if nonce}
    return nonces, {folder: problem for folder, (_nonce, problem) in tried.items() if problem}


def is_token_seen(folder: str, host_id: str, nonce: str) -> bool:
    """Whether this host sees that token now. An unreadable token is not seen."""
    try:
        return has_token(folder, host_id, nonce)
    except OSError:
        return False


def has_token(folder: str, host_id: str, nonce: str) -> bool:
    """Whether the folder has that token. Raises C(OSError) if that cannot be read."""
    try:
        token = _read_token(folder, host_id)
    except KvmfleetError:
        return False
    return token is not None and token.nonce == nonce


def _leave_token(folder: str, host_id: str) -> t.Tuple[str, str]:
    """Return the nonce of the host's token in the folder, or else why it has none."""
    try:
        token = _read_token(folder, host_id)
        if token is None:
            return _write_token(folder, StorageToken(host_id, str(uuid_module.uuid4())), _has_common_inodes(folder)), ""
        if token.inode is ABSENT and _has_common_inodes(folder):
            with contextlib.suppress(OSError):
                _write_token(folder, token, is_numbered=True)
        return token.nonce, ""
    except OSError as error:
        return "", error.strerror or str(error)
    except KvmfleetError as error:
        return "", str(error)


def _read_token(folder: str, host_id: str) -> t.Optional[StorageToken]:
    """Return the existing token; null if it is missing, damaged, or a copy. Raises L(NotSupported) or C(OSError)."""
    path = token_path(_check_folder(folder), _check_host_id(host_id))
    try:
        handle = open_regular_file(path)
    except FileNotFoundError:
        return None
    with os.fdopen(handle, "rb") as stream:
        content, inode = stream.read(_MAX_BYTES), os.fstat(handle).st_ino
    try:
        token = decode(StorageToken, json.loads(content))
    except (ValueError, RecursionError):
        return None
    is_valid = token.host_id == host_id and _UUID.fullmatch(token.nonce) and token.inode in (ABSENT, inode)
    return token if is_valid else None


def _write_token(folder: str, token: StorageToken, is_numbered: bool) -> str:
    """Write the token, with the number of its file if all hosts read the same one, and return its nonce."""

    def as_text(inode: int) -> str:
        return json.dumps(encode(dataclasses.replace(token, inode=inode if is_numbered else ABSENT)))

    path = token_path(folder, token.host_id)
    _remove_remains(folder, f"{os.path.basename(path)}.")
    with contextlib.ExitStack() as lower:
        for _number in range(random.randint(*_FREE_NUMBERS) if is_numbered else 0):  # noqa: S311 - this is no secret
            lower.enter_context(tempfile.TemporaryFile(prefix=f"{os.path.basename(path)}.", suffix=".new", dir=folder))
        replace_file(path, as_text, 0o644)
    return token.nonce


def _remove_remains(folder: str, prefix: str) -> None:
    """Remove the temporary files of a run that was killed before the token had its name. On NFS, each of them has a name for a moment."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(prefix) and name.endswith(".new"):
                os.unlink(os.path.join(folder, name))


def _has_common_inodes(folder: str) -> bool:
    """Whether all hosts that have the file system of this folder read the same numbers of its files."""
    mounts = {mount.path: mount for mount in read_mounts()}
    mount = mounts.get(innermost_mount(os.path.realpath(folder), mounts))
    return mount is not None and not mount.kind.startswith(_NUMBERED_BY_HOST)


def _check_folder(folder: str) -> str:
    if not os.path.isabs(folder) or "\0" in folder:
        raise NotSupported(f"{folder!r} is not the absolute path of a folder.")
    if not os.path.isdir(folder):
        raise NotFound(f"There is no folder {folder}.")
    return folder


def _check_host_id(host_id: str) -> str:
    if not _UUID.fullmatch(host_id):
        raise NotSupported(f"{host_id!r} is not a host ID.")
    return host_id
