# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Writes that are tried again if another process has changed a document first."""

from __future__ import annotations

import typing as t
from collections.abc import Callable

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict

WRITE_TRIES = 5

T = t.TypeVar("T")


def retry_write(write: Callable[[], T]) -> T:
    """Return what the function returns. It reads what it changes, and is called again after a L(Conflict), which is raised if it keeps coming."""
    for rest in reversed(range(WRITE_TRIES)):
        try:
            return write()
        except Conflict:
            if not rest:
                raise
    raise AssertionError("unreachable")
