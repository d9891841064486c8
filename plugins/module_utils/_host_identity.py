# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The identity of a host: its own ID, created once and never changed, the machine ID, and the ledger under which the host was protected.

Two ledgers for one fleet would assign domains without knowledge of each other. A host therefore remembers the first one and refuses any other.
"""

from __future__ import annotations

import contextlib
import typing as t
import uuid as uuid_module

from ._files import create_file_once
from ._model.errors import Conflict, Forbidden, Internal, InvalidArgument

HOST_ID_FILE = "/var/lib/kvmfleet/host-id"
MACHINE_ID_FILE = "/etc/machine-id"


def read_host_id(path: str = HOST_ID_FILE) -> t.Optional[str]:
    """Return the host's own ID, or null if it has none yet. Raises L(Forbidden) or L(Internal) if the file is invalid."""
    content = _read_file(path)
    if content is None:
        return None
    try:
        return str(uuid_module.UUID(content.strip()))
    except ValueError as error:
        raise Internal(
            f"{path} holds {content[:60]!r}, which is not a UUID: the identity of this host is unknown.",
            "Restore the host_id that the ledger has for this host, or remove the file if the ledger has none.",
        ) from error


def create_host_id(path: str = HOST_ID_FILE) -> t.Tuple[str, bool]:
    """Return the host's ID and whether it was created now. Two simultaneous calls return the same ID. Raises L(Forbidden) without root."""
    present = read_host_id(path)
    if present:
        return present, False
    made = str(uuid_module.uuid4())
    try:
        is_created = create_file_once(path, f"{made}\n", 0o644)
    except OSError as error:
        raise Forbidden(f"The host's identity cannot be written to {path}: {error.strerror}.", "Set become: true, or connect as root.") from error
    return (made, True) if is_created else (str(read_host_id(path)), False)


def read_machine_id(path: str = MACHINE_ID_FILE) -> t.Optional[str]:
    """Return the machine ID of the operating system, or null."""
    with contextlib.suppress(Forbidden):
        content = _read_file(path)
        return (content or "").strip() or None
    return None


def _read_file(path: str) -> t.Optional[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read(4096)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Forbidden(f"{path} cannot be read: {error.strerror}.", "Set become: true, or connect as root.") from error


def adopt_host_id(host_id: str, path: str = HOST_ID_FILE) -> None:
    """Write the file, once and exclusively. Raises L(Conflict) if another identity exists, L(Forbidden) if the file cannot be written."""
    try:
        wanted = str(uuid_module.UUID(host_id))
    except ValueError as error:
        raise InvalidArgument(f"{host_id!r} is not a host ID.") from error
    try:
        is_created = create_file_once(path, f"{wanted}\n", 0o644)
    except OSError as error:
        raise Forbidden(f"The host's identity cannot be written to {path}: {error.strerror}.", "Set become: true, or connect as root.") from error
    if not is_created:
        _check_same(read_host_id(path), wanted, path)


def _check_same(present: t.Optional[str], wanted: str, path: str) -> None:
    if present != wanted:
        raise Conflict(f"{path} was created meanwhile, with {present}: it was not overwritten.", "Run the task again.")


LEDGER_ID_FILE = "/var/lib/kvmfleet/ledger-id"


def read_ledger_id(path: str = LEDGER_ID_FILE) -> t.Optional[str]:
    """Return the ID of the ledger that this host belongs to, or null if it was never protected. Raises L(Forbidden) or L(Internal)."""
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
            f"{path} holds {content[:60]!r}, which is not a UUID: the ledger of this host is unknown. Nothing was changed.",
            "Remove the file if the ledger of this task is the fleet's only one.",
        ) from error


def find_ledger_id(path: str = LEDGER_ID_FILE) -> t.Optional[str]:
    """Return the ID of the ledger that this host belongs to, or null if it was never protected, or that is not known."""
    with contextlib.suppress(Forbidden, Internal):
        return read_ledger_id(path)
    return None


def check_ledger_id(ledger_id: t.Optional[str], path: str = LEDGER_ID_FILE) -> t.Optional[str]:
    """Return the remembered ID. Raises L(Conflict) if it is another ledger's; null as C(ledger_id) is a ledger that does not exist yet."""
    known = read_ledger_id(path)
    if known is not None and known != ledger_id:
        ours = f"this task uses the ledger {ledger_id}" if ledger_id else "there is no ledger where this task looks for it"
        raise Conflict(
            f"This host was protected under the ledger {known}, and {ours}: a fleet must have only one ledger. Nothing was changed.",
            f"Use that ledger (option ledger, or kvmfleet_ledger). If it is permanently lost, remove {path} on the host and run the task again.",
        )
    return known


def remember_ledger_id(ledger_id: str, path: str = LEDGER_ID_FILE) -> bool:
    """Remember the ledger; return false if it was remembered already. Raises L(Conflict) if another is remembered, L(Forbidden) without root."""
    if check_ledger_id(ledger_id, path) is not None:
        return False
    try:
        create_file_once(path, f"{ledger_id}\n", 0o644)
    except OSError as error:
        raise Forbidden(f"The ledger's ID cannot be written to {path}: {error.strerror}.", "Set become: true, or connect as root.") from error
    # Of two simultaneous ledgers only one has created the file.
    check_ledger_id(ledger_id, path)
    return True
