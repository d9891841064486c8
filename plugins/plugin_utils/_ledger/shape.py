# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What documents of hosts and domains have in them, whoever wrote the file: what lacks it is damaged. Further keys are let be."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping

from .store import Body

HOST_STATES = ("enabled", "maintenance", "fenced")

Check = Callable[[t.Any], bool]


def _text(value: t.Any) -> bool:
    return isinstance(value, str)


def _text_or_null(value: t.Any) -> bool:
    return value is None or isinstance(value, str)


def _object_or_null(value: t.Any) -> bool:
    return value is None or isinstance(value, dict)


def is_places(value: t.Any) -> bool:
    """Whether that is a list of ends of moves."""
    return isinstance(value, list) and all(isinstance(end, dict) and all(map(_text_or_null, map(end.get, _END))) for end in value)


_END = ("host", "host_id", "host_uuid")
_HOST: Mapping[str, Check] = {
    "name": _text,
    "host_id": _text_or_null,
    "host_uuid": _text_or_null,
    "state": lambda value: isinstance(value, str) and value in HOST_STATES,
    "reason": _text_or_null,
    "protected": _object_or_null,
    "addresses": _object_or_null,
}
_DOMAIN: Mapping[str, Check] = {
    "name": _text_or_null,
    "generation": lambda value: isinstance(value, int) and value >= 0,
    "possible_hosts": is_places,
    "last_record": _text_or_null,
    "protected": _object_or_null,
}
_OPTIONAL = ("reason", "protected", "addresses", "last_record")
_KINDS = {"hosts": _HOST, "domains": _DOMAIN}


def wrong_key(kind: str, body: Body) -> t.Optional[str]:
    """Return the first key whose value cannot be; None where all can. C(kind) is the folder's name."""
    return next((key for key, check in _KINDS[kind].items() if not check(body.get(key)) or not (key in body or key in _OPTIONAL)), None)
