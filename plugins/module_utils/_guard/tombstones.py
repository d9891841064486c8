# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Tombstones on shared storage: a host that is off learns from them at its next boot that its clean-shutdown token was revoked."""

from __future__ import annotations

import functools
import json
import os
import typing as t

from .._durable import replace_file, sync_folder
from .._errors import InvalidArgument
from .._patience import within
from . import storage

PATIENCE_SECONDS = 20.0
_NO_ANSWER = f"its file system did not answer within {PATIENCE_SECONDS:.0f} s"


def revoked_in(grant: storage.Grant) -> t.List[str]:
    """Return the folders in which this grant has a tombstone, as far as they can be read."""
    require_grant(grant)
    found = {folder: within(PATIENCE_SECONDS, functools.partial(_is_revoked, grant, folder)) for folder in sorted(grant["folders"])}
    return [folder for folder, is_there in found.items() if is_there]


def leave_tombstones(grant: storage.Grant, check_mode: bool = False) -> t.Tuple[t.List[str], t.Dict[str, str]]:
    """Revoke another host's grant in each of its folders that this host sees; return these folders, and why there is no tombstone in the others.

    One tombstone is enough: the host's guard honours a token only when no folder has one. The tombstones are on the storage when this returns, and this
    collection never removes them. In check mode, return what would be done.
    """
    require_grant(grant)
    tried = {folder: within(PATIENCE_SECONDS, functools.partial(_revoke_in, grant, folder, check_mode)) for folder in sorted(grant["folders"])}
    problems = {folder: _NO_ANSWER if problem is None else problem for folder, problem in tried.items() if problem != ""}
    return [folder for folder, problem in tried.items() if problem == ""], problems


def require_grant(grant: storage.Grant) -> None:
    """Raise L(InvalidArgument) for what is no grant."""
    if not storage.is_grant(grant):
        raise InvalidArgument(f"A grant for clean-shutdown tokens must have the UUIDs grant and host_id, and folders: {grant!r}.", "Nothing was changed.")


def _is_revoked(grant: storage.Grant, folder: str) -> bool:
    return storage.has_tombstone(folder, grant["grant"], grant["host_id"], grant["folders"][folder])


def _revoke_in(grant: storage.Grant, folder: str, check_mode: bool) -> str:
    """Make sure that the folder has the tombstone. Return why it does not; empty when it does and this host provably sees the other host's store."""
    try:
        if _is_revoked(grant, folder):
            if not check_mode:
                # A task that died right after the rename may have left it, with a name that is not on disk yet.
                sync_folder(folder)
        elif not check_mode:
            _leave(grant, folder)
            return "" if _is_revoked(grant, folder) else "the file that was written there is missing"
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""


def _leave(grant: storage.Grant, folder: str) -> None:
    path = os.path.join(folder, f"{storage.TOMBSTONE_PREFIX}{grant['grant']}")
    replace_file(path, json.dumps({"host_id": grant["host_id"], "grant": grant["grant"]}), 0o644)
