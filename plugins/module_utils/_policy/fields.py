# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The fields of a domain's own policy: their names and what each may hold."""

from __future__ import annotations

import typing as t

from .._errors import InvalidArgument
from .._migration.policy import ABORT, FORCE_COMPLETE, check_value

# What a domain may say of its moves; the names are those of C(_migration/policy.py).
MOVE_FIELDS = ("auto_converge", "post_copy", "timeout_seconds", "on_timeout", "downtime_ms")

# What it may say of its place, with what holds where nobody said anything.
PLACE_DEFAULTS: t.Dict[str, t.Any] = {"priority": 0, "drain": "migrate", "group": None, "labels": []}

PROFILE = "profile"
FIELDS = (*MOVE_FIELDS, *PLACE_DEFAULTS, PROFILE)
# A profile has the same fields, and names no further profile.
PROFILE_FIELDS = (*MOVE_FIELDS, *PLACE_DEFAULTS)

BOOLEANS = ("auto_converge", "post_copy")
NUMBERS = ("timeout_seconds", "downtime_ms", "priority")

ON_TIMEOUT = (ABORT, FORCE_COMPLETE)
DRAIN = ("migrate", "shutdown", "leave")
ANTI_AFFINITY = ("anti-affinity", "soft-anti-affinity")
GROUP_POLICIES = ("affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity")

MAX_PRIORITY = 1000
_MAX_GROUP_SIZE = 10000
_MAX_NAME = 64
_MAX_LABELS = 64


def check_field(name: str, value: t.Any) -> None:
    """Raise L(InvalidArgument) where that cannot be the field's value."""
    if name in MOVE_FIELDS:
        check_value(name, value, "the domain's policy")
    elif name == "priority":
        _check_number(name, value, -MAX_PRIORITY, MAX_PRIORITY)
    elif name == "drain":
        _check_choice(name, value, DRAIN)
    elif name == "group":
        _check_group(value)
    elif name == "labels":
        _check_labels(value)
    else:
        _check_name(name, value)


def check_fields(values: t.Mapping[str, t.Any], known: t.Sequence[str], where: str) -> None:
    """Raise L(InvalidArgument), naming C(where), for a field that is not known there or holds what it cannot; null says nothing."""
    for name, value in values.items():
        if name not in known:
            raise InvalidArgument(f"{where} has {name!r}, which is no field of a policy.", f"Known are: {', '.join(known)}.")
        if value is None:
            continue
        try:
            check_field(name, value)
        except InvalidArgument as error:
            raise InvalidArgument(f"{where}: {error.message}", error.next_step) from error


def _check_number(name: str, value: t.Any, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidArgument(f"{name} is {value!r}.", f"Give a whole number from {low} to {high}.")


def _check_choice(name: str, value: t.Any, choices: t.Sequence[str]) -> None:
    if value not in choices:
        raise InvalidArgument(f"{name} is {value!r}.", f"Give one of: {', '.join(choices)}.")


def _check_name(what: str, value: t.Any) -> None:
    if not isinstance(value, str) or not value or value != value.strip() or not value.isprintable() or len(value) > _MAX_NAME:
        raise InvalidArgument(f"{what} is {value!r}, which cannot be a name.", f"Give at most {_MAX_NAME} printable characters.")


def _check_group(value: t.Any) -> None:
    if not isinstance(value, dict) or not {"name", "policy"} <= set(value) <= {"name", "policy", "max_per_host"}:
        raise InvalidArgument(f"group is {value!r}.", "Give it a name and a policy, and max_per_host where wanted.")
    _check_name("The group's name", value["name"])
    _check_choice("The group's policy", value["policy"], GROUP_POLICIES)
    if value.get("max_per_host") is None:
        return
    _check_number("The group's max_per_host", value["max_per_host"], 1, _MAX_GROUP_SIZE)
    if value["policy"] not in ANTI_AFFINITY:
        raise InvalidArgument(f"max_per_host stands with the group policy {value['policy']}.", f"Only {' and '.join(ANTI_AFFINITY)} have it.")


def _check_labels(value: t.Any) -> None:
    if not isinstance(value, (list, tuple)) or len(value) > _MAX_LABELS:
        raise InvalidArgument(f"labels is {value!r}.", f"Give a list of at most {_MAX_LABELS} labels.")
    for label in value:
        _check_name("A label", label)
