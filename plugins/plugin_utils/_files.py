# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Files that a task leaves for others on the control node: their permissions, and replacing them in one step."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument

_MODE = re.compile(r"0?[0-7]{3}")


def mode_of(value: t.Any) -> int:
    """Return the permissions of an octal text like C(0644), or of the number that YAML makes of one without quotes. Raises L(InvalidArgument)."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 0o777:
        return value
    if not isinstance(value, str) or not _MODE.fullmatch(value):
        raise InvalidArgument(f"The mode {value!r} is none.", "Give it as a text of three octal digits, e.g. '0644'.")
    return int(value, 8)


def replace_file(path: str, content: bytes, mode: int) -> None:
    """Write the file with these permissions: a reader, and a crash, finds the old one or the new one, whole. Raises C(OSError)."""
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
