# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Checks on shared storage whether a person has revoked the clean-shutdown token of this host while the host was off.

This file is a standalone program that uses only the standard library: it is installed on the host as it is, and the boot guard runs it. It is a separate
program, so that storage that hangs cannot hang the guard.

The grant of a token names folders that other hosts see too, each with the nonce of the file that this host has left there. A revocation is a
file next to that one, the tombstone of the grant. A folder without this host's own file is on other storage, or is not mounted yet, and proves nothing.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
import threading
import typing as t
import uuid as uuid_module

HOST_TOKEN_PREFIX = ".kvmfleet-host-"  # noqa: S105 - it names a file
TOMBSTONE_PREFIX = ".kvmfleet-revoked-"

# The exit codes of the program. Python's own failures end with 1 or 2.
CONFIRMED = 0
REVOKED = 10
UNREADABLE = 11

_LONGEST_BYTES = 4096

if t.TYPE_CHECKING:
    Json = t.Union[bool, int, float, str, t.Sequence["Json"], t.Mapping[str, "Json"], None]


class Grant(t.TypedDict):
    """The right to leave clean-shutdown tokens: its ID, its host, and the folders that confirm it, each with the nonce of that host's token there."""

    grant: str
    host_id: str
    folders: t.Mapping[str, str]


def is_grant(grant: Json) -> bool:
    """Whether this is a grant that can be confirmed: C(grant) and C(host_id), both UUIDs, and C(folders) (absolute path: nonce), at least one."""
    if not isinstance(grant, dict) or not (_is_uuid(grant.get("grant")) and _is_uuid(grant.get("host_id"))):
        return False
    folders = grant.get("folders")
    return isinstance(folders, dict) and bool(folders) and all(os.path.isabs(folder) and isinstance(nonce, str) for folder, nonce in folders.items())


def judge_grant(grant: Grant) -> t.Tuple[int, str]:
    """Return L(CONFIRMED), L(REVOKED) or L(UNREADABLE), and why. One tombstone revokes; every folder has to be read before a grant is confirmed."""
    findings = _read_tombstones(grant)
    for folder, (is_revoked, _problem) in findings.items():
        if is_revoked:
            return REVOKED, f"the clean-shutdown token was revoked while this host was off (tombstone in {folder})"
    problems = "; ".join(f"{folder}: {problem}" for folder, (_is_revoked, problem) in findings.items() if problem)
    return (UNREADABLE, f"shared storage does not confirm that nobody has revoked the clean-shutdown token ({problems})") if problems else (CONFIRMED, "")


def has_tombstone(folder: str, grant: str, host_id: str, nonce: str) -> bool:
    """Whether the grant was revoked by a file in this folder. Raises C(OSError) or C(ValueError) when the folder cannot be read or is another store."""
    # Both files are read through one descriptor, so they are from the same storage even if another one is mounted over the path in the meantime.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if _read_nonce(descriptor, host_id) != nonce:
            raise ValueError("this host's file there is a copy, or has another nonce")
        return _file_exists(f"{TOMBSTONE_PREFIX}{grant}", descriptor)
    finally:
        os.close(descriptor)


def open_regular_file(path: str, folder: t.Optional[int] = None) -> int:
    """Open a file to read it. Raises C(OSError) for anything else, which is not even opened; a link is not followed.

    A guest that has its folder as a shared one can make a device there, and to open one may act already: C(/dev/watchdog) resets the host.

    :arg folder: the descriptor of the folder that the path is relative to.
    """
    try:
        return _open_examined(path, folder)
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
        # The file server has another file of that name by now.
        return _open_examined(path, folder)


def _open_examined(path: str, folder: t.Optional[int]) -> int:
    examined = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(examined).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", path)
        return os.open(f"/proc/self/fd/{examined}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(examined)


def main(arguments: t.Sequence[str]) -> int:
    """Judge the grant in the only argument, which is JSON; print why it is not confirmed."""
    grant = json.loads(arguments[0])
    code, why = judge_grant(grant) if is_grant(grant) else (UNREADABLE, "the grant names no shared storage")
    sys.stdout.write(f"{why}\n")
    return code


def _read_tombstones(grant: Grant) -> t.Dict[str, t.Tuple[bool, str]]:
    """Return by folder what L(_read_tombstone) returns. The folders are read side by side: after a boot, each file system may take long to answer."""
    findings = dict.fromkeys(sorted(grant["folders"]), (False, "it was not read"))

    def read(folder: str) -> None:
        findings[folder] = _read_tombstone(grant, folder)

    readers = [threading.Thread(target=read, args=(folder,), daemon=True) for folder in findings]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    return findings


def _read_tombstone(grant: Grant, folder: str) -> t.Tuple[bool, str]:
    """Return whether this folder has the tombstone of the grant, and the problem if that is not known."""
    try:
        return has_tombstone(folder, grant["grant"], grant["host_id"], grant["folders"][folder]), ""
    except (OSError, ValueError) as error:
        return False, getattr(error, "strerror", None) or str(error)


def _read_nonce(descriptor: int, host_id: str) -> Json:
    handle = open_regular_file(f"{HOST_TOKEN_PREFIX}{host_id}", descriptor)
    with os.fdopen(handle, "rb") as stream:
        token, inode = json.loads(stream.read(_LONGEST_BYTES)), os.fstat(handle).st_ino
    # A copy of the folder has the file, too, but not its number.
    is_own = isinstance(token, dict) and token.get("host_id") == host_id and token.get("inode", inode) == inode
    return token.get("nonce") if is_own else None


def _file_exists(name: str, descriptor: int) -> bool:
    try:
        os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _is_uuid(value: Json) -> bool:
    try:
        return isinstance(value, str) and str(uuid_module.UUID(value)) == value
    except ValueError:
        return False


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
