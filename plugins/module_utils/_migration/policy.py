# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The migration policy of one move: each value with the source it came from."""

from __future__ import annotations

import typing as t

from .._errors import InvalidArgument

# What holds where nobody said anything. timeout_seconds: null means 800 s a GiB, 0 means no limit.
DEFAULTS: t.Dict[str, t.Any] = {
    "timeout_seconds": None,
    "on_timeout": "abort",
    "stall_seconds": 60,
    "downtime_ms": 500,
    "downtime_steps": 10,
    "downtime_delay_seconds_per_gib": 75,
    "auto_converge": False,
}

# Lowest and highest value. Libvirt refuses a downtime of more than 2,000,000 ms.
_WEEK = 7 * 24 * 3600
_LIMITS: t.Dict[str, t.Tuple[int, int]] = {
    "timeout_seconds": (0, _WEEK),
    "stall_seconds": (0, _WEEK),
    "downtime_ms": (1, 2_000_000),
    "downtime_steps": (1, 1000),
    "downtime_delay_seconds_per_gib": (0, _WEEK),
}
_CHOICES = {"on_timeout": ("abort",)}

Layer = t.Tuple[str, t.Mapping[str, t.Any]]
Policy = t.Dict[str, t.Dict[str, t.Any]]


def resolve(layers: t.Sequence[Layer]) -> Policy:
    """Return C({field: {value, source}}): for each field the first layer that has a value, else the built-in default.

    :arg layers: C((source, values)) pairs, most important first; a value of null says nothing.
    Raises L(InvalidArgument) for a value that is out of bounds, naming field and source.
    """
    policy: Policy = {}
    for field, default in DEFAULTS.items():
        source, value = next(((name, values[field]) for name, values in layers if values.get(field) is not None), ("default", default))
        _check(field, value, source)
        policy[field] = {"value": value, "source": source}
    return policy


def value(policy: t.Mapping[str, t.Any], field: str) -> t.Any:
    """Return the effective value of a field; the built-in default where an older record does not have it."""
    return policy.get(field, {}).get("value", DEFAULTS[field])


def _check(field: str, given: t.Any, source: str) -> None:
    if field in _CHOICES and given not in _CHOICES[field]:
        raise InvalidArgument(f"{field} is {given!r} ({source}).", f"Give one of: {', '.join(_CHOICES[field])}.")
    if isinstance(DEFAULTS[field], bool) and not isinstance(given, bool):
        raise InvalidArgument(f"{field} is {given!r} ({source}), which is neither true nor false.")
    if field not in _LIMITS or given is None:
        return
    low, high = _LIMITS[field]
    if isinstance(given, bool) or not isinstance(given, int) or not low <= given <= high:
        raise InvalidArgument(f"{field} is {given!r} ({source}).", f"Give a whole number from {low} to {high}.")
