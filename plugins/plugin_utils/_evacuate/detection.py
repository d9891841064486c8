# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""How the death of a host was detected, as a task states it. It is only recorded: it is no evidence, and nothing is decided by it."""

from __future__ import annotations

import datetime
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import format_time
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import Detection

from .fencing import CLOCK_SKEW_SECONDS

_NEXT_STEP = "Write it as 2026-11-21T03:00:00Z, or leave the detection out. Nothing was started."


def read_detection(given: t.Optional[JsonObject], now: t.Optional[datetime.datetime] = None, warnings: t.Optional[list[str]] = None) -> t.Optional[Detection]:
    """Return the detection with its times in UTC; None if the task states none, or one whose times cannot be true.

    The clock of the control node may have been set back since, which must not stop an evacuation.

    Raises L(InvalidArgument) for what is no time or has no time zone, and an empty C(by).

    :arg now: aware; the default is the clock of the control node.
    :arg warnings: receives why a detection is not recorded.
    """
    if not given:
        return None
    now = now or datetime.datetime.now(datetime.UTC)
    silent, detected = (_read_time(name, given.get(name)) for name in ("silent_since", "detected_at"))
    by = " ".join(str(given.get("by") or "").split())
    if not by or not by.isprintable():
        raise InvalidArgument("The detection is invalid: 'by' must be a non-empty line of text.", "Name what has detected it. Nothing was started.")
    impossible = _find_contradiction(silent, detected, now)
    if impossible is None:
        return Detection(format_time(silent), format_time(detected), by[:200])
    if warnings is not None:
        warnings.append(f"How the death of the host was detected is not recorded: {impossible}. The clock of the control node may have been set.")
    return None


def _find_contradiction(silent: datetime.datetime, detected: datetime.datetime, now: datetime.datetime) -> t.Optional[str]:
    for name, at in (("silent_since", silent), ("detected_at", detected)):
        if (at - now).total_seconds() > CLOCK_SKEW_SECONDS:
            return f"{name} ({format_time(at)}) is in the future"
    return f"silent_since ({format_time(silent)}) is after detected_at ({format_time(detected)})" if silent > detected else None


def _read_time(name: str, value: object) -> datetime.datetime:
    try:
        at = datetime.datetime.fromisoformat(str(value))
        if at.tzinfo is None:
            raise ValueError("no time zone")
        return at.astimezone(datetime.UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidArgument(f"The detection is invalid: {name} is {str(value)[:60]!r}, which is not a time with a time zone.", _NEXT_STEP) from error
