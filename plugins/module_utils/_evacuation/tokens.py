# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Tokens that a host leaves in the folders of its images while all is well, so that another host can show, also after its death, that it sees the same store.

A folder of the same path that is not the same store has no such file, or one with another nonce.
"""

from __future__ import annotations

import json
import os
import re
import typing as t
import uuid as uuid_module

from .._durable import replace_file
from .._errors import KvmfleetError, NotFound, NotSupported
from .._guard.storage import HOST_TOKEN_PREFIX

_MAX_BYTES = 4096
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

Nonces = t.Dict[str, str]


def token_path(folder: str, host_id: str) -> str:
    """Return where that host's token in that folder is."""
    return os.path.join(folder, f"{HOST_TOKEN_PREFIX}{host_id}")


def leave(folders: t.Sequence[str], host_id: str) -> t.Tuple[Nonces, t.Dict[str, str]]:
    """Leave a token in each folder that has none of this host; return the nonce of each, and why there is none where it could not be written.

    A token that is there stays as it is: others have read it.
    """
    tried = {folder: _left(folder, host_id) for folder in sorted(set(folders))}
    nonces = {folder: nonce for folder, (nonce, _problem) in tried.items() if nonce}
    return nonces, {folder: problem for folder, (_nonce, problem) in tried.items() if problem}


def seen(tokens: t.Mapping[str, Nonces]) -> t.Dict[str, Nonces]:
    """Return, of these tokens of other hosts (host ID to folder to nonce), those that this host sees now, with that very nonce."""
    found = {host_id: {folder: nonce for folder, nonce in nonces.items() if is_seen(folder, host_id, nonce)} for host_id, nonces in tokens.items()}
    return {host_id: nonces for host_id, nonces in found.items() if nonces}


def is_seen(folder: str, host_id: str, nonce: str) -> bool:
    """Whether this host sees that token now. What cannot be read is not seen."""
    try:
        return _nonce(folder, host_id) == nonce
    except (OSError, KvmfleetError):
        return False


def _left(folder: str, host_id: str) -> t.Tuple[str, str]:
    """Return the nonce of the host's token there, or else why there is none."""
    try:
        return _nonce(folder, host_id) or _new_nonce(folder, host_id), ""
    except OSError as error:
        return "", error.strerror or str(error)
    except KvmfleetError as error:
        return "", str(error)


def _nonce(folder: str, host_id: str) -> t.Optional[str]:
    """Return the nonce of the token that is there, or None for none or a damaged one. Raises L(NotSupported) or C(OSError)."""
    path = token_path(_checked(folder), _checked_id(host_id))
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    with os.fdopen(handle, "rb") as stream:
        content = stream.read(_MAX_BYTES)
    try:
        token = json.loads(content)
    except (ValueError, RecursionError):
        return None
    nonce = token.get("nonce") if isinstance(token, dict) and token.get("host_id") == host_id else None
    return nonce if isinstance(nonce, str) and _UUID.fullmatch(nonce) else None


def _new_nonce(folder: str, host_id: str) -> str:
    nonce = str(uuid_module.uuid4())
    replace_file(token_path(folder, host_id), json.dumps({"host_id": host_id, "nonce": nonce}), 0o644)
    return nonce


def _checked(folder: str) -> str:
    if not os.path.isabs(folder) or "\0" in folder:
        raise NotSupported(f"{folder!r} is no absolute path of a folder.")
    if not os.path.isdir(folder):
        raise NotFound(f"There is no folder {folder}.")
    return folder


def _checked_id(host_id: str) -> str:
    if not _UUID.fullmatch(host_id):
        raise NotSupported(f"{host_id!r} is no host ID.")
    return host_id
