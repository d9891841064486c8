# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Files that are written in one step: a reader sees the old content or the complete new content.

The functions differ in what survives a power failure. All of them give a file the requested mode whatever the umask is, follow no symbolic link
in place of the file, leave no other file behind when they fail, and raise C(OSError).
"""

from __future__ import annotations

import contextlib
import os
import typing as t
import uuid as uuid_module

Content = t.Union[str, bytes]
ContentByInode = t.Union[Content, t.Callable[[int], str]]
"""A function returns the text for a file with this inode number."""


def replace_file(path: str, content: ContentByInode, mode: int) -> None:
    """Replace a file durably: content and name are on disk when this returns."""
    publish_file(path, content, mode)
    sync_folder(os.path.dirname(path))


def publish_file(path: str, content: ContentByInode, mode: int) -> None:
    """Replace a file for other programs: after a power failure, the file has the old content or the complete new content."""
    _swap_file(path, content, mode, is_synced=True)


def replace_volatile_file(path: str, content: Content, mode: int) -> None:
    """Replace a file below C(/run), which a power cut empties anyway. This does not wait for a disk."""
    _swap_file(path, content, mode, is_synced=False)


def create_file_once(path: str, content: Content, mode: int) -> bool:
    """Create a file durably unless it exists, also when several processes do so at once. Return whether this call created it.

    Folders that are missing are created (0755).
    """
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    temporary = _temporary_name(path)
    try:
        _write_new_file(temporary, content, mode, is_synced=True)
        is_created = _link_once(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
    sync_folder(folder)
    return is_created


def sync_folder(folder: str) -> None:
    """Flush the names in a folder to disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _swap_file(path: str, content: ContentByInode, mode: int, is_synced: bool) -> None:
    temporary = _temporary_name(path)
    try:
        _write_new_file(temporary, content, mode, is_synced)
        os.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _temporary_name(path: str) -> str:
    return f"{path}.{uuid_module.uuid4()}.new"


def _write_new_file(path: str, content: ContentByInode, mode: int, is_synced: bool) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(handle, "wb") as stream:
        os.fchmod(stream.fileno(), mode)
        text = content(os.fstat(stream.fileno()).st_ino) if callable(content) else content
        stream.write(text.encode("utf-8") if isinstance(text, str) else text)
        if is_synced:
            stream.flush()
            os.fsync(stream.fileno())


def _link_once(temporary: str, path: str) -> bool:
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    return True
