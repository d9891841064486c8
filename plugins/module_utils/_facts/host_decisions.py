# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The host's half of what a person decides with the module C(host)."""

from __future__ import annotations

import os
import typing as t
import uuid as uuid_module

from .._errors import Conflict, Forbidden, InvalidArgument
from .._guard.install import revoke as revoke_grant
from .._guard.tombstones import leave_tombstones
from .._module import require_local, require_root
from .identity import HOST_ID_FILE, read_host_id
from .remembered import recalled

Json = t.Dict[str, t.Any]
Work = t.Mapping[str, t.Any]


def adopt(uri: str, work: Work) -> Json:
    """Give this host, which has lost its identity file, the C(host_id) that the ledger has for it. One that has an identity keeps it: L(Conflict)."""
    require_root()
    require_local(uri)
    put_host_id(work["host_id"])
    return {"changed": True, "host_id": work["host_id"]}


def revoke(uri: str, work: Work) -> Json:
    """Take back this host's right to leave clean-shutdown tokens, and delete a token; C(changed).

    :arg work: C(grant), the ID of the grant that the ledger has, which the host must never accept again; null for none.
    """
    require_root()
    require_local(uri)
    return {"changed": revoke_grant(check_mode=work["check"], grant=work["grant"])}


def revoke_elsewhere(uri: str, work: Work) -> Json:
    """Revoke the grant C(grant) (C(grant), C(host_id), C(folders)) of another host on the storage that both see.

    Returns C(folders), where it is revoked now, and C(problems), by folder why it is not revoked there.
    """
    require_root()
    require_local(uri)
    folders, problems = leave_tombstones(work["grant"], work["check"])
    return {"changed": bool(folders), "folders": folders, "problems": problems}


def put_host_id(host_id: str, path: str = HOST_ID_FILE) -> None:
    """Write the file, once and exclusively. Raises L(Conflict) where there is another identity, L(Forbidden) where it cannot be written."""
    try:
        wanted = str(uuid_module.UUID(host_id))
    except ValueError as error:
        raise InvalidArgument(f"{host_id!r} is no host ID.") from error
    temporary = f"{path}.{wanted}.new"
    try:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        _write(temporary, wanted + "\n")
        try:
            os.link(temporary, path)
        except FileExistsError:
            _check_same(read_host_id(path), wanted, path)
        finally:
            os.unlink(temporary)
    except OSError as error:
        raise Forbidden(f"The host's identity cannot be written to {path}: {error.strerror}.", "Set become: true, or connect as root.") from error


def _check_same(present: t.Optional[str], wanted: str, path: str) -> None:
    if present != wanted:
        raise Conflict(f"{path} has appeared meanwhile, with {present}: it was not overwritten.", "Run the task again.")


def _write(path: str, content: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        os.fchmod(stream.fileno(), 0o644)
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def recall(uri: str, work: Work) -> Json:
    """Return C(told): the record of C(work["id"]) as this host remembers it and whether it is C(watched), or null."""
    require_root()
    require_local(uri)
    return {"changed": False, "told": recalled(work["id"])}


PHASES: t.Dict[str, t.Callable[[str, Work], Json]] = {"adopt": adopt, "revoke": revoke, "revoke_elsewhere": revoke_elsewhere, "recall": recall}
