# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which ledger a host was protected under: two of them for one fleet would each give its domains away without the other."""

from __future__ import annotations

import contextlib
import os
import typing as t
import uuid as uuid_module

from .._durable import create_file, sync_folder
from .._errors import Conflict, Forbidden, Internal

LEDGER_ID_FILE = "/var/lib/kvmfleet/ledger-id"


def remembered(path: str = LEDGER_ID_FILE) -> t.Optional[str]:
    """Return the ID of the ledger that this host belongs to, or null where it was never protected. Raises L(Forbidden) or L(Internal)."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            content = stream.read(4096)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Forbidden(f"{path} cannot be read: {error.strerror}.", "Set become: true, or connect as root.") from error
    try:
        return str(uuid_module.UUID(content.strip()))
    except ValueError as error:
        raise Internal(
            f"{path} holds {content[:60]!r}, which is no UUID: it cannot be told which ledger this host belongs to. Nothing was changed.",
            "Remove the file if the ledger of this task is the fleet's only one.",
        ) from error


def check_belongs(ledger_id: t.Optional[str], path: str = LEDGER_ID_FILE) -> t.Optional[str]:
    """Return the ID that is remembered. Raises L(Conflict) where it is another ledger's; null as C(ledger_id) is a ledger that is yet to be made."""
    known = remembered(path)
    if known is not None and known != ledger_id:
        ours = f"this task uses the ledger {ledger_id}" if ledger_id else "this task would make a new one"
        raise Conflict(
            f"This host was protected under the ledger {known}, and {ours}: two ledgers for one fleet cannot both say where a domain is. Nothing was changed.",
            f"Use that ledger (option ledger, or kvmfleet_ledger). If it is lost for good, remove {path} on the host and run the task again.",
        )
    return known


def belong(ledger_id: str, path: str = LEDGER_ID_FILE) -> bool:
    """Remember the ledger, once; return whether that was done now. Raises L(Conflict) where another is remembered, L(Forbidden) without root."""
    if check_belongs(ledger_id, path) is not None:
        return False
    temporary = f"{path}.{uuid_module.uuid4()}.new"
    try:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        create_file(temporary, ledger_id + "\n", 0o644)
        try:
            with contextlib.suppress(FileExistsError):
                os.link(temporary, path)
        finally:
            os.unlink(temporary)
        sync_folder(os.path.dirname(path))
    except OSError as error:
        raise Forbidden(f"The ledger's ID cannot be written to {path}: {error.strerror}.", "Set become: true, or connect as root.") from error
    # Of two ledgers at once only one has made the file.
    check_belongs(ledger_id, path)
    return True
