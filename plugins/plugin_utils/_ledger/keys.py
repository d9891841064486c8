# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Names that become file names or keys of a store: only what was checked here may."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LOCK = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")


def is_uuid(value: t.Any) -> bool:
    """Whether the value is the text of a UUID, in lower case, with hyphens."""
    return isinstance(value, str) and _UUID.fullmatch(value) is not None


def check_uuid(value: t.Any, what: str) -> str:
    """Return the UUID in lower case. Raises L(InvalidArgument), naming C(what) it should have been, for anything else."""
    lowered = value.lower() if isinstance(value, str) else value
    if not is_uuid(lowered):
        raise InvalidArgument(f"The {what} {value!r} is not a UUID.", "Give it as 8-4-4-4-12 hexadecimal digits.")
    return str(lowered)


def check_lock_key(key: t.Any) -> str:
    """Return the name of a lock. Raises L(InvalidArgument) unless it is made of a-z, 0-9, dot, hyphen and underscore."""
    if not isinstance(key, str) or not _LOCK.fullmatch(key):
        raise InvalidArgument(f"{key!r} cannot name a lock.", "Use up to 100 of a-z, 0-9, '.', '-', '_'.")
    return key
