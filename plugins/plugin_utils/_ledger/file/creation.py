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

from ..identity import NAME, Found, id_in, new
from .folder import Folder
from .locks import flocked
from .session import LOCK_NAME, LOCK_SECONDS

_MAY_PRECEDE = {NAME, LOCK_NAME, f".{NAME}.tmp"}


def ensure(path: str, create: bool) -> str:
    """Return the UUID of the ledger at the path, making both where C(create).

    Raises L(NotFound) where there is none and it is not to be made, L(InvalidArgument) for a folder that holds other things,
    L(InvalidState) for a damaged ledger, L(NotSupported) for one of a later version, L(Forbidden) for somebody else's folder, and C(OSError).
    """
    if create:
        with contextlib.suppress(FileExistsError):
            _make_parents(os.path.dirname(path))
            os.mkdir(path, 0o700)
            os.chmod(path, 0o700)
    try:
        root = Folder.at(path)
    except FileNotFoundError as error:
        raise NotFound(f"There is no ledger at {path}.", "The first task that moves or cordons something makes one.") from error
    with root:
        _check_owner(root)
        return _identity(root) or _founded(root, create)


def _make_parents(path: str) -> None:
    """Make the folders on the way, the user's alone: who can write to one of them can put another ledger in the place of this one."""
    if path and not os.path.isdir(path):
        _make_parents(os.path.dirname(path))
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
            os.chmod(path, 0o700)


def _check_owner(root: Folder) -> None:
    owner = os.fstat(root.fd).st_uid
    if owner != os.geteuid():
        raise Forbidden(
            f"The folder {root.path} belongs to the user ID {owner}, and this runs as {os.geteuid()}: its owner could change what the ledger says. "
            "Nothing was written there.",
            "Run this as its owner, or give the folder and all that is in it to who runs this (chown -R).",
        )


def _founded(root: Folder, create: bool) -> str:
    foreign = sorted(set(root.names()) - _MAY_PRECEDE)
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


def _found(root: Folder) -> str:
    ledger_id, document = new()
    root.write(NAME, document)
    return ledger_id


def _identity(root: Folder) -> t.Optional[str]:
    try:
        document = root.read(NAME)
    except FileNotFoundError:
        return None
    where = Found(root.path, os.path.join(root.path, NAME), "Restore that file from a backup.")
    ledger_id = id_in(document, where)
    # Definitions hold passwords: what a copy or a restore opened to others is closed again.
    if stat.S_IMODE(os.fstat(root.fd).st_mode) & 0o077:
        os.fchmod(root.fd, 0o700)
    return ledger_id
