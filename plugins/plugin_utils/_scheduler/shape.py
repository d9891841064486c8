# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whether a request that somebody else wrote (a saved one, a record's) has the shape that the filters rely on. Foreign input: anything may be in it."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._policy.fields import DRAIN, check_field

Check = Callable[[str, t.Any], None]

_MAX_NUMBER = 2**62
_MAX_ITEMS = 10000
_MAX_TEXT = 65536
_SHOWN = 60


def check_needs(needs: t.Any) -> None:
    """Raise L(InvalidArgument) for the first thing in a request that cannot be what it stands for. Keys that are not known are left alone."""
    if not isinstance(needs, Mapping):
        raise _wrong("request", needs, "a dictionary with memory_mib and vcpus")
    for key in ("memory_mib", "vcpus"):
        if key not in needs:
            raise InvalidArgument(f"The request has no {key}.", "Give it as host_facts gives the request of a domain.")
    for key, check in _REQUEST.items():
        if key in needs:
            check(f"request.{key}", needs[key])


def _wrong(where: str, value: t.Any, allowed: str) -> InvalidArgument:
    text = repr(value)
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return InvalidArgument(f"{where} is {shown}.", f"Give {allowed}.")


def _text(where: str, value: t.Any) -> None:
    if not isinstance(value, str) or len(value) > _MAX_TEXT:
        raise _wrong(where, value, "a text")


def _flag(where: str, value: t.Any) -> None:
    if not isinstance(value, bool):
        raise _wrong(where, value, "true or false")


def _number(low: int) -> Check:
    def check(where: str, value: t.Any) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= _MAX_NUMBER:
            raise _wrong(where, value, f"a whole number, at least {low}")

    return check


def _one_of(*allowed: str) -> Check:
    def check(where: str, value: t.Any) -> None:
        if not isinstance(value, str) or value not in allowed:
            raise _wrong(where, value, f"one of: {', '.join(allowed)}")

    return check


def _optional(inner: Check) -> Check:
    def check(where: str, value: t.Any) -> None:
        if value is not None:
            inner(where, value)

    return check


def _list_of(inner: Check) -> Check:
    def check(where: str, value: t.Any) -> None:
        if not isinstance(value, Sequence) or isinstance(value, (str, bytes)) or len(value) > _MAX_ITEMS:
            raise _wrong(where, value, "a list")
        for number, item in enumerate(value):
            inner(f"{where}[{number}]", item)

    return check


def _mapping_of(inner: Check, key_check: t.Optional[Check] = None) -> Check:
    def check(where: str, value: t.Any) -> None:
        if not isinstance(value, Mapping) or len(value) > _MAX_ITEMS:
            raise _wrong(where, value, "a dictionary")
        for key, item in value.items():
            (key_check or _text)(f"A key of {where}", key)
            inner(f"{where}.{key}", item)

    return check


def _object(needed: Mapping[str, Check], further: t.Optional[Mapping[str, Check]] = None) -> Check:
    def check(where: str, value: t.Any) -> None:
        if not isinstance(value, Mapping):
            raise _wrong(where, value, f"a dictionary with {', '.join(needed)}")
        missing = [key for key in needed if key not in value]
        if missing:
            raise InvalidArgument(f"{where} has no {', '.join(missing)}.", "Give it as host_facts gives the request of a domain.")
        for key, inner in {**needed, **(further or {})}.items():
            if key in value:
                inner(f"{where}.{key}", value[key])

    return check


def _field(name: str) -> Check:
    """A field that a domain's policy has too, and that is judged there."""

    def check(_where: str, value: t.Any) -> None:
        try:
            check_field(name, value)
        except InvalidArgument as error:
            raise InvalidArgument(f"In the request: {error.message}", error.next_step) from error

    return check


def _group(where: str, value: t.Any) -> None:
    _object({"name": _text, "policy": _text}, {"max_per_host": _optional(_number(1))})(where, value)
    _field("group")(where, dict(value))


_WHOLE = _number(0)
_TEXT_OR_NULL = _optional(_text)
_IDS = _list_of(_WHOLE)

_CPU = _object(
    {},
    {
        "mode": _optional(_text),
        "model": _TEXT_OR_NULL,
        "features": _optional(_mapping_of(_TEXT_OR_NULL)),
        "xml": _TEXT_OR_NULL,
        "package_threads": _number(1),
        "shows_threads": _optional(_flag),
    },
)
_PINNING = _object({}, {"vcpus": _mapping_of(_IDS), "emulator": _optional(_IDS)})
_CELL = _object({"memory_mib": _WHOLE}, {"id": _WHOLE, "vcpus": _optional(_IDS), "nodeset": _optional(_IDS)})
_NUMA = _object({}, {"mode": _TEXT_OR_NULL, "nodeset": _optional(_IDS), "cells": _optional(_list_of(_CELL))})
_PAGES = _object({"mib": _WHOLE}, {"size_kib": _optional(_number(1)), "nodeset": _optional(_IDS)})
_DEVICE = _object({"kind": _text, "address": _TEXT_OR_NULL}, {"vendor": _TEXT_OR_NULL, "product": _TEXT_OR_NULL})
_FILE = _object({"role": _text, "kind": _text, "source": _text}, {"shared": _optional(_flag), "store": _TEXT_OR_NULL})
_DISK = _object(
    {"target": _text},
    {
        "device": _TEXT_OR_NULL,
        "kind": _TEXT_OR_NULL,
        "source": _TEXT_OR_NULL,
        "readonly": _flag,
        "shareable": _flag,
        "shared": _optional(_flag),
        "store": _TEXT_OR_NULL,
        "optional": _flag,
        "bytes": _optional(_WHOLE),
        "format": _TEXT_OR_NULL,
        "files": _optional(_list_of(_FILE)),
        "files_problem": _TEXT_OR_NULL,
    },
)
_BOOT_FILE = _object({"what": _text, "path": _text})
_NETWORK = _object({"type": _text}, {"source": _TEXT_OR_NULL})

_REQUEST: t.Final[Mapping[str, Check]] = {
    "uuid": _TEXT_OR_NULL,
    "name": _TEXT_OR_NULL,
    "memory_mib": _number(1),
    "vcpus": _number(1),
    "arch": _TEXT_OR_NULL,
    "virt_type": _TEXT_OR_NULL,
    "machine": _TEXT_OR_NULL,
    "hypervisor": _optional(_WHOLE),
    "cpu": _optional(_CPU),
    "pinning": _optional(_PINNING),
    "numa": _optional(_NUMA),
    "hugepages": _optional(_list_of(_PAGES)),
    "devices": _optional(_list_of(_DEVICE)),
    "blockers": _optional(_list_of(_text)),
    "disks": _optional(_list_of(_DISK)),
    "networks": _optional(_list_of(_NETWORK)),
    "nvram": _TEXT_OR_NULL,
    "loader": _TEXT_OR_NULL,
    "boot_files": _optional(_list_of(_BOOT_FILE)),
    "tpm": _optional(_flag),
    "traits": _optional(_list_of(_text)),
    "labels": _optional(_field("labels")),
    "group": _optional(_group),
    "priority": _optional(_field("priority")),
    "drain": _optional(_one_of(*DRAIN)),
}
