# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The option C(parallel) of moves: a number, or C(auto)."""

from __future__ import annotations

import re

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import AUTO_PARALLEL

AUTO = "auto"
MAX_PARALLEL = 64
_MAX_TEXT = 40
_WHOLE = re.compile(r"-?[0-9]{1,18}")


def read_parallel(value: Json) -> int:
    """Return the number of simultaneous moves of one source, or C(AUTO_PARALLEL) for C(auto). A number may be text. Raises L(InvalidArgument)."""
    text = value.strip() if isinstance(value, str) else str(value)
    if text == AUTO:
        return AUTO_PARALLEL
    if isinstance(value, bool) or not _WHOLE.fullmatch(text):
        raise _unusable(repr(value))
    number = int(text)
    if not 1 <= number <= MAX_PARALLEL:
        raise _unusable(str(number))
    return number


def _unusable(shown: str) -> InvalidArgument:
    short = shown if len(shown) <= _MAX_TEXT else f"{shown[: _MAX_TEXT - 3]}..."
    return InvalidArgument(f"parallel is {short}.", f"Give {AUTO}, or a whole number from 1 to {MAX_PARALLEL}. Nothing was moved.")


def parallel_value(parallel: int) -> int | str:
    """Return the value of the option that L(read_parallel) reads as this number."""
    return AUTO if parallel == AUTO_PARALLEL else parallel
