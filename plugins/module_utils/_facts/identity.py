# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Who a host is: the UUID in C(/var/lib/kvmfleet/host-id), made once and never changed, and what is recorded beside it."""

from __future__ import annotations

import contextlib
import os
import typing as t
import uuid

from .._durable import create_file, sync_folder
from .._errors import Forbidden, Internal

HOST_ID_FILE = "/var/lib/kvmfleet/host-id"
MACHINE_ID_FILE = "/etc/machine-id"


def read_host_id(path: str = HOST_ID_FILE) -> t.Optional[str]:
    """Return the host's own ID, or null where it has none yet. Raises L(Forbidden) or L(Internal) where the file is of no use."""
    content = _read(path)
    if content is None:
        return None
    try:
        return str(uuid.UUID(content.strip()))
    except ValueError as error:
        raise Internal(
            f"{path} holds {content[:60]!r}, which is no UUID: it cannot be told which host this is.",
            "Put back the host_id that the ledger has for this host, or remove the file if it has none.",
        ) from error


def create_host_id(path: str = HOST_ID_FILE) -> t.Tuple[str, bool]:
    """Return the host's ID and whether it was made now; of two at once both return the same. Raises L(Forbidden) without root."""
    present = read_host_id(path)
    if present:
        return present, False
    made = str(uuid.uuid4())
    temporary = f"{path}.{made}.new"
    try:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        create_file(temporary, made + "\n", 0o644)
        try:
            os.link(temporary, path)
        except FileExistsError:
            made = ""
        finally:
            os.unlink(temporary)
        sync_folder(os.path.dirname(path))
    except OSError as error:
        raise Forbidden(f"The host's identity cannot be written to {path}: {error.strerror}.", "Set become: true, or connect as root.") from error
    return (made, True) if made else (str(read_host_id(path)), False)


def read_machine_id(path: str = MACHINE_ID_FILE) -> t.Optional[str]:
    """Return the operating system's machine ID, or null where there is none."""
    with contextlib.suppress(Forbidden):
        content = _read(path)
        return (content or "").strip() or None
    return None


def _read(path: str) -> t.Optional[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read(4096)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Forbidden(f"{path} cannot be read: {error.strerror}.", "Set become: true, or connect as root.") from error
