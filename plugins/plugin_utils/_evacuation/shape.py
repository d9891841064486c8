# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whether what the ledger has of a domain has the shape that C(protect) gives it. Somebody may have edited it."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidState
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration import hypervisor as h

from .._ledger.store import Body

Check = Callable[[t.Any], bool]

_STATES = (h.RUNNING, h.PAUSED, h.SHUTOFF)


def _text(value: t.Any) -> bool:
    return isinstance(value, str)


def _optional_text(value: t.Any) -> bool:
    return value is None or isinstance(value, str)


def _flag(value: t.Any) -> bool:
    return isinstance(value, bool)


def _texts(value: t.Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _optional_texts(value: t.Any) -> bool:
    return value is None or _texts(value)


def _devices(value: t.Any) -> bool:
    return value is None or (isinstance(value, dict) and all(isinstance(path, str) and _optional_text(wwn) for path, wwn in value.items()))


_DISK: Mapping[str, Check] = {
    "target": _text,
    "kind": _text,
    "path": _text,
    "readonly": _flag,
    "shareable": lambda value: value is None or _flag(value),
    "optional": _flag,
    "folders": _texts,
    "wwn": _optional_text,
    "locks": _optional_text,
    "seen_by": _texts,
    "backing": _optional_texts,
    "backing_devices": _devices,
    "backing_problem": _optional_text,
    "format": _optional_text,
}


def _disks(value: t.Any) -> bool:
    return isinstance(value, list) and all(isinstance(disk, dict) and all(check(disk.get(key)) for key, check in _DISK.items()) for disk in value)


_FILE: Mapping[str, Check] = {
    "what": _text,
    "kind": _text,
    "path": _text,
    "folders": _texts,
    "wwn": _optional_text,
    "seen_by": _texts,
}


def _files(value: t.Any) -> bool:
    """A document that an older release has saved has no files."""
    return value is None or (
        isinstance(value, list) and all(isinstance(file, dict) and all(check(file.get(key)) for key, check in _FILE.items()) for file in value)
    )


_PROTECTED: Mapping[str, Check] = {
    "definition": lambda value: isinstance(value, str) and bool(value),
    "persistent": _flag,
    "autostart": _flag,
    "state": lambda value: value in _STATES,
    "request": lambda value: isinstance(value, dict) and isinstance(value.get("disks", []), list),
    "disks": _disks,
    "host": lambda value: isinstance(value, dict) and _text(value.get("host_id")),
    "tpm": _optional_text,
    "files": _files,
}


def has_places(document: Body) -> bool:
    """Whether the document says where its domain may be."""
    places = document.get("possible_hosts")
    return isinstance(places, list) and all(isinstance(place, dict) for place in places)


def has_disks(document: Body) -> bool:
    """Whether a protected domain's document says what it needs and which disks it has."""
    saved = document.get("protected")
    return isinstance(saved, dict) and all(_PROTECTED[key](saved.get(key)) for key in ("request", "disks"))


def check_document(document: Body) -> None:
    """Raise L(InvalidState) for the first thing in a protected domain's document that cannot be what it stands for."""
    saved = document.get("protected")
    name = f"The ledger's document of domain {document.get('name')} ({document.get('uuid')})"
    if not has_places(document):
        raise InvalidState(f"{name} does not say where the domain may be: its possible_hosts is no list of hosts.", "It was not started. Mend the document.")
    if not isinstance(saved, dict):
        raise InvalidState(f"{name} has no saved definition that could be read.", "It was not started. Protect its host again when it is back.")
    wrong = [key for key, check in _PROTECTED.items() if not check(saved.get(key))]
    if wrong:
        raise InvalidState(f"{name} is damaged: what it has saved as {', '.join(wrong)} cannot be.", "It was not started. Protect its host again.")
