# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The saved memory of a guest in a folder that both hosts share: what is there, and how it is marked as spent before the guest runs."""

from __future__ import annotations

import contextlib
import os
import struct
import typing as t

from .._files import sync_folder
from .._libvirt.interface import Host
from .._libvirt.saved_memory import SAVED_FOLDER
from .._migration.shared_storage import compare_folders
from .._model.cold_moves import FolderProof, SavedImage
from .._model.definition_files import UNPROVED
from .._model.domain_states import PAUSED, RUNNING
from .._model.errors import KvmfleetError, MigrationFailed, NotFound, Unsafe
from .steps import INCOMPLETE, NO_IMAGE, READY, SPENT_HERE, SPENT_THERE, UNREADABLE

RAW, SPARSE = "raw", "sparse"
# Libvirt's format that holds each page at its own offset, which needs QEMU's mapped-ram.
_SPARSE_SINCE = {"libvirt": 11002000, "hypervisor": 9000000}

# The header of libvirt's images (qemu_saveimage.h): magic, version, length of the definition, and whether the guest ran.
_HEADER = struct.Struct("=16s8xI")
_MAGIC = b"LibvirtQemudSave"
# Libvirt replaces it when all memory is written.
_MAGIC_INCOMPLETE = b"LibvirtQemudPart"

# The token of a folder is looked for next to a file of this name, which need not exist.
_ANY_NAME = "kvmfleet.save"
_SUFFIXES = {SPENT_THERE: ".restored-at-destination", SPENT_HERE: ".restored-at-source"}


def choose_format(hosts: t.Sequence[Host], qemu_replaced: bool) -> str:
    """Return the format of saved memory that these hosts know best.

    :arg qemu_replaced: whether the guest still runs on a QEMU that was replaced since its start, which may be older than its host reports.
    """
    versions = [host.read_versions() for host in hosts]
    knows_sparse = not qemu_replaced and all(one.get(what, 0) >= least for one in versions for what, least in _SPARSE_SINCE.items())
    return SPARSE if knows_sparse else RAW


def prove_shared_folder(folder: str, other: Host) -> FolderProof:
    """Return whether this host and the other one see one folder, by tokens from both sides. Nothing is left in it."""
    try:
        with other.open_folder(folder) as opened:
            finding = compare_folders(os.path.join(folder, _ANY_NAME), opened)
    except KvmfleetError as error:
        return FolderProof(UNPROVED, error.message)
    return FolderProof(finding.verdict, finding.why)


def find_image(path: str, uuid: str, host: Host) -> str:
    """Return what the folder has of the saved memory of that domain, one of the words in C(steps).

    :arg host: whose libvirt reads the image.
    """
    try:
        for state, suffix in _SUFFIXES.items():
            if _exists(path + suffix):
                return state
        if not _exists(path):
            return NO_IMAGE
    except OSError:
        return UNREADABLE
    if host.read_saved_uuid(path) == uuid:
        return READY
    return INCOMPLETE if _was_never_complete(path) else UNREADABLE


def _exists(path: str) -> bool:
    """Whether there is a file of that name. Raises C(OSError) if its folder does not tell, as on a server that does not answer."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _was_never_complete(path: str) -> bool:
    """Whether libvirt has not written all memory to this image, so that it is no copy of it."""
    try:
        with open(path, "rb") as stream:
            header = stream.read(len(_MAGIC_INCOMPLETE))
    except OSError:
        return False
    return not header or header == _MAGIC_INCOMPLETE


def find_managed_save(name: str, uuid: str, host: Host) -> t.Optional[SavedImage]:
    """Return the managed-save image of that domain on this host; null if its file is not where libvirt usually has it, or cannot be read."""
    path = host.saved_memory(name)
    if path is None or host.read_saved_uuid(path) != uuid:
        return None
    resumes_as = _read_saved_state(path)
    return SavedImage(path, resumes_as) if resumes_as else None


def _read_saved_state(path: str) -> t.Optional[str]:
    """Return the state in which a guest resumes from this image, which no call of libvirt reports; null if the header is not one of libvirt's."""
    try:
        with open(path, "rb") as stream:
            magic, runs = _HEADER.unpack(stream.read(_HEADER.size))
    except (OSError, struct.error):
        return None
    return {0: PAUSED, 1: RUNNING}.get(runs) if magic == _MAGIC else None


def check_unsaved(name: str, destination: Host) -> None:
    """Raise L(Unsafe) if a first start of a domain of that name at the destination would resume memory that is left there.

    libvirt tells of a managed-save image only if it had the domain when it started, and restores the file in any case.
    """
    with contextlib.suppress(NotFound), destination.open_folder(SAVED_FOLDER) as folder:
        if folder.find_volume(f"{name}.save") is not None:
            raise Unsafe(f"The destination has a managed-save image of a domain named {name}: a start there would resume it.", "Remove that file.")


@contextlib.contextmanager
def _undone_by_error(undo: t.Callable[[], None]) -> t.Iterator[None]:
    """Undo something before a C(OSError) of the block is raised again."""
    try:
        yield
    except OSError:
        undo()
        raise


def hold_image(path: str, held: str) -> None:
    """Make the held image: give the file of an image a second name, so that it outlasts a start that uses it up. Raises L(MigrationFailed).

    A name that is not on disk could be lost with the power, after the start has used up the other one: then there is none.
    """
    try:
        os.link(path, held)
        with _undone_by_error(lambda: os.unlink(held)):
            sync_folder(os.path.dirname(held))
    except OSError as error:
        raise MigrationFailed(f"{path} cannot be held as {held}: {error.strerror}.", "The domain was not started.") from error


def sync_image(path: str) -> None:
    """Flush a complete image to disk. Raises L(MigrationFailed)."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        sync_folder(os.path.dirname(path))
    except OSError as error:
        raise MigrationFailed(f"{path} cannot be flushed to disk: {error.strerror}.") from error


def spend_image(path: str, state: str) -> None:
    """Rename the image, so that nothing restores it any more. Raises L(MigrationFailed).

    The new name has to be on disk, because the guest runs from then on; otherwise the image keeps its name.

    :arg state: the host at which the guest was restored, as C(SPENT_THERE) or C(SPENT_HERE).
    """
    spent = path + _SUFFIXES[state]
    try:
        os.rename(path, spent)
        with _undone_by_error(lambda: os.rename(spent, path)):
            sync_folder(os.path.dirname(path))
    except OSError as error:
        raise MigrationFailed(f"{path} cannot be renamed: {error.strerror}.", "The guest is paused, and is not resumed before that.") from error


def remove_image(path: str) -> None:
    """Remove the image, whether it is spent or not."""
    for suffix in ("", *_SUFFIXES.values()):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + suffix)
