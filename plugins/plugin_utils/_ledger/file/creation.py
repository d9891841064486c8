# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Making a file ledger's folder, once, and reading what identifies it."""

from __future__ import annotations

import contextlib
import os
import stat
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Forbidden, InvalidArgument, NotFound

from ..identity import COPYING, NAME, Found, Identity, identity_in, new, replaced, unfinished
from .folder import Folder
from .locks import GATE_NAME, LOCK_NAME, LOCK_SECONDS, flocked

MAY_PRECEDE = {NAME, LOCK_NAME, GATE_NAME, f".{NAME}.tmp"}


def ensure(path: str, create: bool) -> Identity:
    """Return the identity of the ledger at the path, making both where C(create).

    Raises L(NotFound) where there is none and it is not to be made, L(InvalidArgument) for a folder that holds other things,
    L(InvalidState) for a damaged ledger and an unfinished copy of one, L(NotSupported) for one of a later version, L(Forbidden) for somebody else's folder,
    and C(OSError).
    """
    if create:
        make(path)
    try:
        root = Folder.at(path)
    except FileNotFoundError as error:
        raise NotFound(f"There is no ledger at {path}.", "The first task that moves or cordons something makes one.") from error
    with root:
        check_owner(root)
        return _identity(root) or _founded(root, create)


def make(path: str) -> None:
    """Make the folder, where it is missing, and those on the way, the user's alone."""
    with contextlib.suppress(FileExistsError):
        _make_parents(os.path.dirname(path))
        os.mkdir(path, 0o700)
        os.chmod(path, 0o700)


def _make_parents(path: str) -> None:
    """Make the folders on the way, the user's alone: who can write to one of them can put another ledger in the place of this one."""
    if path and not os.path.isdir(path):
        _make_parents(os.path.dirname(path))
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
            os.chmod(path, 0o700)


def check_owner(root: Folder) -> None:
    """Raise L(Forbidden) for somebody else's folder."""
    owner = os.fstat(root.fd).st_uid
    if owner != os.geteuid():
        raise Forbidden(
            f"The folder {root.path} belongs to the user ID {owner}, and this runs as {os.geteuid()}: its owner could change what the ledger says. "
            "Nothing was written there.",
            "Run this as its owner, or give the folder and all that is in it to who runs this (chown -R).",
        )


def _founded(root: Folder, create: bool) -> Identity:
    names = set(root.names())
    if COPYING in names:
        raise unfinished(root.read(COPYING), root.path)
    foreign = sorted(names - MAY_PRECEDE)
    if foreign:
        raise InvalidArgument(
            f"The folder {root.path} is not a ledger and holds other things (e.g. {foreign[0]!r}); nothing was written there.",
            "Name an empty or a new folder with 'ledger'.",
        )
    if not create:
        raise NotFound(f"There is no ledger at {root.path}.", "The first task that moves or cordons something makes one.")
    os.fchmod(root.fd, 0o700)
    with flocked(root, LOCK_NAME, True, LOCK_SECONDS):
        found = _identity(root)
        return found or _found(root)


def _found(root: Folder) -> Identity:
    made = new()
    root.write(NAME, made.data)
    return made


def found_at(path: str) -> Found:
    """Return where the identity of a ledger in that folder lies."""
    return Found(path, os.path.join(path, NAME), "Restore that file from a backup.")


def read(root: Folder, name: str = NAME) -> t.Optional[bytes]:
    """Return the bytes of the ledger's identity, or of another file beside it; None where there is none."""
    try:
        return root.read(name)
    except FileNotFoundError:
        return None


def check_unchanged(root: Folder, identity: Identity) -> None:
    """Raise L(InvalidState) where the ledger is another one than when it was opened, or was moved elsewhere since."""
    now = read(root)
    if now != identity.data:
        raise replaced(now, found_at(root.path))


def _identity(root: Folder) -> t.Optional[Identity]:
    document = read(root)
    if document is None:
        return None
    identity = identity_in(document, found_at(root.path))
    # Definitions hold passwords: what a copy or a restore opened to others is closed again.
    if stat.S_IMODE(os.fstat(root.fd).st_mode) & 0o077:
        os.fchmod(root.fd, 0o700)
    return identity
