# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Writing the files of a report: each whole or not at all, and readable by its owner alone unless asked otherwise."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Internal, InvalidArgument


def check_name(name: str) -> str:
    """Return the name of a file without its ending. Raises L(InvalidArgument) for what is none."""
    if not name.strip(".") or "/" in name or not name.isprintable():
        raise InvalidArgument(f"name is {name!r}, which cannot be the name of a file.", "No report was written.")
    return name


def write_all(folder: str, files: Mapping[str, bytes], mode: int) -> None:
    """Write these files into the folder, which is made where it is missing (0700). A reader sees the old file or the new one.

    Raises L(Internal), naming the folder, where that cannot be done; files before the one that failed are new, the others as they were.
    """
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        for name, content in files.items():
            _replace(os.path.join(folder, name), content, mode)
    except OSError as error:
        raise Internal(f"The report cannot be written to {folder}: {error.strerror}.", "Files that were there are whole, old or new.") from error


def _replace(path: str, content: bytes, mode: int) -> None:
    temporary = os.path.join(os.path.dirname(path), f".{secrets.token_hex(8)}.new")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as stream:
            os.fchmod(stream.fileno(), mode)
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
