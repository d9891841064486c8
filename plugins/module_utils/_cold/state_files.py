# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Firmware variables and TPM state: files beside the disks that hold state of a guest. Libvirt's definition names them, and does not carry them.

They are copied over the connection to libvirt at the destination, as volumes of a temporary pool: this needs no login of its own and no other program. What
libvirt receives is not flushed to disk, what it copies is: each file is received under a temporary name, copied to its own, and read back.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import typing as t

from .._libvirt.interface import Folder, Host
from .._libvirt.values import Permissions
from .._migration.shared_storage import compare_folders
from .._model.codec import ABSENT
from .._model.definition_files import FILE_LABELS, SEPARATE, SHARED, describe_file
from .._model.errors import Conflict, Internal, NotFound, NotSupported, Unsafe
from .._model.libvirt_formats import parse_libvirt_xml
from .._model.record_parts import CopiedFile
from .._model.resource_maps import IMAGES, Renaming
from .._model.saved_domains import NVRAM, TPM, NeededFile

# Firmware variables have up to 64 MiB, on ARM; the state of a TPM has less than one.
MAX_BYTES = 128 * 1024**2
# The locks of swtpm are of its host.
_LOCK = ".lock"
_PRIVATE = Permissions(0o600, 0, 0)


def list_paths(file: NeededFile) -> t.List[str]:
    """Return the regular files of a needed file, which for a TPM is a folder; none if it does not exist yet, because the guest never ran."""
    if file.what == TPM and os.path.isdir(file.path):
        return sorted(path for path in _walk(file.path) if _is_regular(path))
    return [file.path] if file.kind == "file" and _is_regular(file.path) else []


def find_irregular(file: NeededFile) -> str:
    """Return why L(list_paths) does not have all of a needed file, for a sentence about its domain; empty if it has, or if the file does not exist yet.

    A link is not followed: at the destination, the same name may be a link to the same file, or to another one.
    """
    if file.kind != "file":
        return ""
    try:
        paths = _walk(file.path, _raise_error) if file.what == TPM and os.path.isdir(file.path) else [file.path]
        return next(filter(None, (_explain_irregular(file.what, path) for path in paths)), "")
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"its file {error.filename} ({FILE_LABELS[file.what]}) cannot be examined: {error.strerror}."


def _explain_irregular(what: str, path: str) -> str:
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ""
    if stat.S_ISREG(mode):
        return ""
    named = f"its file {path} ({FILE_LABELS[what]})"
    if stat.S_ISLNK(mode):
        return f"{named} is a symbolic link to {os.readlink(path)}. Name that file in its definition, or put it in place of the link."
    return f"{named} is not a regular file."


def _walk(folder: str, on_error: t.Optional[t.Callable[[OSError], None]] = None) -> t.Iterator[str]:
    """Yield all files of a folder, and links to folders, into which this does not go."""
    for parent, folders, names in os.walk(folder, onerror=on_error):
        yield from (os.path.join(parent, name) for name in names if name != _LOCK)
        yield from filter(os.path.islink, (os.path.join(parent, name) for name in folders))


def _raise_error(error: OSError) -> None:
    raise error


def size_of(path: str) -> int:
    """Return the size of a file in bytes; 0 if it is gone."""
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def _is_regular(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def copy_files(
    files: t.Sequence[NeededFile],
    destination: Host,
    uuid: str,
    record_id: str,
    renaming: t.Optional[Renaming] = None,
    known: t.Sequence[CopiedFile] = (),
    note: t.Callable[[CopiedFile], None] = lambda copied: None,
) -> t.List[CopiedFile]:
    """Copy these files of a domain that is off to the destination, and return those that this move has written there.

    A file that both hosts share is not touched, and neither is an equal one that was there before. Another file at the path is set aside next to it. Raises
    L(Conflict) if another domain there needs the file, L(Unsafe) if it is not proved that the hosts do not share it, L(NotSupported) for a file that is not a
    regular one, L(Internal) if what arrived is not what was sent.

    :arg renaming: the names that differ at the destination. libvirt chooses the path of a TPM's state itself, so that is the same on both.
    :arg known: what an earlier process of the move has noted.
    :arg note: called with each file before it is written.
    """
    problem = next(filter(None, map(find_irregular, files)), "")
    if problem:
        raise NotSupported(f"The files of domain {uuid} cannot be copied: {problem}", "Nothing was copied.")
    copier = _Copier(destination, uuid, record_id, known, note)
    names = renaming or None
    copies = (copier.copy_file(file, path, names.rename(IMAGES, path) if names and file.what == NVRAM else path) for file in files for path in list_paths(file))
    return [copied for copied in copies if copied is not None]


class _Copier(t.NamedTuple):
    """Copies single files of a domain; see L(copy_files) for its fields."""

    destination: Host
    uuid: str
    record_id: str
    known: t.Sequence[CopiedFile]
    note: t.Callable[[CopiedFile], None]

    def copy_file(self, file: NeededFile, path: str, there: str) -> t.Optional[CopiedFile]:
        """Return the file if this move has written it; null for one that is shared, or that the destination had before.

        :arg there: the path at the destination.
        """
        folder_path, name = os.path.split(there)
        _make_missing(folder_path, _permissions_of(os.path.dirname(path)), self.destination)
        with self.destination.open_folder(folder_path) as folder:
            finding = compare_folders(path, folder)
            if finding.verdict == SHARED:
                return None
            if finding.verdict != SEPARATE:
                raise Unsafe(f"{describe_file(file.what, path)} may be the file of the destination: {finding.why}.", "Nothing was copied.")
            content, permissions = _read_file(path)
            folder.refresh_listing()
            copied = CopiedFile(file.what, path, len(content), _checksum(content), there if there != path else ABSENT)
            existing = _read_existing(folder, name)
            if existing == content and copied in self.known:
                return copied
            self._check_unused(there)
            if existing == content:
                return None
            self.note(copied)
            if existing is not None:
                aside = _name_aside(name, self.record_id)
                # A process of this move may have been killed before it removed the file.
                if _read_existing(folder, aside) != existing:
                    folder.copy_file(name, aside, _PRIVATE)
                folder.remove_file(name)
            _write_copy(folder, name, content, permissions, self.record_id)
            return _verify_copy(copied, folder, name)

    def _check_unused(self, there: str) -> None:
        users = find_users(self.destination, self.uuid, there)
        if users:
            raise Conflict(f"Domain {users[0]} at the destination needs the file {there}, too.", "Give one of the two another path. Nothing was copied.")


# In bytes, of a file system.
_LONGEST_NAME = 255


def _name_aside(name: str, record_id: str) -> str:
    """Return the name of a file that is set aside; of a name that would be too long, only its beginning is kept."""
    end = f".before-{record_id}"
    return name.encode()[: _LONGEST_NAME - len(end)].decode(errors="ignore") + end


def find_users(host: Host, uuid: str, path: str) -> t.List[str]:
    """Return the names of the domains of a host, other than the one with that UUID, whose definitions have the path of that file."""
    return [name for known, name, xml in host.iterate_definitions() if known != uuid and _has_path(xml, path)]


def _has_path(xml: str, path: str) -> bool:
    return any(path in ((element.text or "").strip(), *element.attrib.values()) for element in parse_libvirt_xml(xml, "a domain definition").iter())


def _make_missing(folder_path: str, permissions: Permissions, destination: Host) -> None:
    """Make the folder at the destination unless it exists; it may have a pool of its own."""
    try:
        with destination.open_folder(folder_path):
            return
    except NotFound:
        destination.make_folder(folder_path, permissions)


def remove_copies(copies: t.Sequence[CopiedFile], destination: Host) -> None:
    """Remove files that a move has copied and that are still what it copied. Another file, or one that is gone, is left alone."""
    for copied in copies:
        folder_path, name = os.path.split(copied.path_there)
        with destination.open_folder(folder_path) as folder:
            folder.refresh_listing()
            content = _read_existing(folder, name)
            if content is not None and _checksum(content) == copied.sha256:
                folder.remove_file(name)


def _permissions_of(path: str) -> Permissions:
    return _read_permissions(os.stat(path))


def _read_permissions(found: os.stat_result) -> Permissions:
    return Permissions(stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid)


def _read_file(path: str) -> t.Tuple[bytes, Permissions]:
    """Return the content of a file, and its permissions. The user of QEMU or swtpm may have put a link or a pipe in its place since it was examined."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise _irregular_error(path) from error
    with os.fdopen(handle, "rb") as stream:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise _irregular_error(path)
        content = stream.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise NotSupported(f"{path} is larger than {MAX_BYTES // 1024**2} MiB.", "It was not copied.")
    return content, _read_permissions(found)


def _irregular_error(path: str) -> NotSupported:
    return NotSupported(f"{path} is not a regular file any more.", "It was not copied. Find out who has replaced it.")


def _read_existing(folder: Folder, name: str) -> t.Optional[bytes]:
    """Return what the destination has under that name; null for nothing."""
    return folder.read_piece(name, 0, MAX_BYTES + 1) if folder.find_volume(name) is not None else None


def _write_copy(folder: Folder, name: str, content: bytes, permissions: Permissions, record_id: str) -> None:
    received = f".{record_id}.new"
    folder.remove_file(received)
    folder.write_file(received, content, _PRIVATE)
    try:
        folder.copy_file(received, name, permissions)
    finally:
        folder.remove_file(received)


def _verify_copy(copied: CopiedFile, folder: Folder, name: str) -> CopiedFile:
    """Return the copy. Raises L(Internal) if the destination does not have what was sent."""
    folder.refresh_listing()
    found = _read_existing(folder, name)
    if found is None or _checksum(found) != copied.sha256:
        raise Internal(
            f"{copied.path_there} at the destination is not what was sent there.", "The source has kept its file. Look for a fault of the destination's disk."
        )
    return copied


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
