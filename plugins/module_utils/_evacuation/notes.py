# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""For which evacuation a definition was put on this host: written before it is put, so that a later run knows its own.

A note holds the whole record, as a control node wrote it into its ledger: should the ledger lose that, it can be put back.
"""

from __future__ import annotations

import contextlib
import json
import os
import typing as t
import uuid as uuid_module

from .._durable import sync_folder
from .._errors import Forbidden, InvalidArgument
from .._records.schema import Record

# Beside the definitions, which outlive a boot as well.
FOLDER = "/var/lib/kvmfleet/evacuations"


def write(domain_uuid: str, record: Record, folder: str = FOLDER) -> None:
    """Note, for good, that this record's definition of the domain is put here. Raises L(Forbidden).

    :arg record: with C(ledger_id) beside what a record has.
    """
    path = _path(domain_uuid, folder)
    temporary = f"{path}.{os.getpid()}.new"
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(record, stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
        sync_folder(folder)
    except OSError as error:
        raise Forbidden(f"{path} cannot be written: {error.strerror}. Nothing was started.", "Make room there, or connect as root.") from error


def record_of(domain_uuid: str, folder: str = FOLDER) -> t.Optional[str]:
    """Return the ID of the record that put the domain's definition here last; null where none did."""
    try:
        with open(_path(domain_uuid, folder), encoding="utf-8") as stream:
            document = json.load(stream)
    except (OSError, ValueError, RecursionError):
        return None
    record = document.get("id") if isinstance(document, dict) else None
    return record if isinstance(record, str) else None


def remove(domain_uuid: str, folder: str = FOLDER) -> None:
    """Forget it."""
    with contextlib.suppress(OSError):
        os.unlink(_path(domain_uuid, folder))


def _path(domain_uuid: str, folder: str) -> str:
    try:
        return os.path.join(folder, f"{uuid_module.UUID(domain_uuid)}.json")
    except ValueError as error:
        raise InvalidArgument(f"{domain_uuid!r} is no UUID.") from error
