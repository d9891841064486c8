# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A plan as it is saved: its digest, and reading one back that anybody may have touched."""

from __future__ import annotations

import collections
import hashlib
import json
import typing as t
from collections.abc import Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument

from . import shapes as s

SCHEMA = 2
_MAX_CHARACTERS = 128 * 1024**2
_AGAIN = "Make a new plan. Nothing was moved."

_REJECTED = [{"host": s.TEXT, "reason": s.TEXT}]
_DOMAIN = {"name": s.TEXT, "uuid": s.UUID, "source": s.TEXT, "reason": s.TEXT}
_MOVE = {
    **_DOMAIN,
    "order": s.COUNT,
    "destination": s.TEXT,
    "memory_mib": s.COUNT,
    "priority": s.WHOLE,
    "predicted_seconds": s.SECONDS,
    "predicted_downtime_ms": s.COUNT_OR_NULL,
    "rejected": _REJECTED,
    "warnings": [s.TEXT],
    "request": s.OBJECT,
}
_PLAN = {
    "created_at": s.TEXT,
    "sources": [s.TEXT],
    "candidates": [s.TEXT],
    "options": {"parallel": s.COUNT, "n_plus_one": s.FLAG, "moves": s.OBJECT},
    "settings": s.OBJECT,
    "moves": [_MOVE],
    "shutdowns": [_DOMAIN],
    "unplaced": [{**_DOMAIN, "memory_mib": s.COUNT, "rejected": _REJECTED}],
    "skipped": [{**_DOMAIN, "state": s.TEXT, "drain": s.TEXT}],
    "n_plus_one": s.OBJECT_OR_NULL,
    "predicted_seconds": s.OBJECT,
}

Body = Mapping[str, t.Any]
Document = dict[str, t.Any]


def sealed(plan: Body) -> Document:
    """Return the plan with its digest."""
    return {"schema": SCHEMA, "digest": digest(plan), **{key: value for key, value in plan.items() if key not in ("schema", "digest")}}


def digest(plan: Body) -> str:
    """Return SHA-256 over the plan's canonical JSON, its own schema and digest left out: where a file was edited by hand it differs."""
    body = {key: value for key, value in plan.items() if key not in ("schema", "digest")}
    return "sha256:" + hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read(saved: t.Any) -> Document:
    """Return the plan that was saved, as text or as an object.

    Raises L(InvalidArgument) for what is no plan of this schema, or is not as it was when it was made.
    """
    document = _parsed(saved) if isinstance(saved, (str, bytes)) else s.plain(saved)
    if not isinstance(document, dict) or not {"schema", "digest", "moves"} <= set(document):
        raise InvalidArgument("This is not a saved plan of a drain.", "Give the content of the file that drain_host_plan_file named.")
    if document["schema"] != SCHEMA or isinstance(document["schema"], bool):
        raise InvalidArgument(f"The saved plan has schema {s.short(document['schema'])}, this version reads {SCHEMA}.", _AGAIN)
    if document["digest"] != digest(document):
        raise InvalidArgument("The saved plan is not as it was when it was made: its digest does not belong to its content.", _AGAIN)
    _check(document)
    return document


def _parsed(text: t.Union[str, bytes]) -> t.Any:
    if len(text) > _MAX_CHARACTERS:
        raise InvalidArgument(f"The saved plan has {len(text)} characters; at most {_MAX_CHARACTERS} are read.", _AGAIN)
    try:
        return s.plain(json.loads(text, parse_constant=_no_number))
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"The saved plan is not JSON ({error}).", _AGAIN) from error


def _no_number(word: str) -> t.NoReturn:
    raise ValueError(f"{word} is no number")


def _check(document: Document) -> None:
    s.check(document, _PLAN, "The saved plan")
    uuids = [entry["uuid"] for key in ("moves", "shutdowns", "unplaced", "skipped") for entry in document[key]]
    twice = sorted(uuid for uuid, times in collections.Counter(uuids).items() if times > 1)
    strange = sorted({move["source"] for move in document["moves"]} - {*document["sources"]})
    if twice:
        raise InvalidArgument(f"The saved plan names the domain {twice[0]} more than once.", _AGAIN)
    if strange:
        raise InvalidArgument(f"The saved plan moves domains away from {', '.join(strange)}, for which it was not made.", _AGAIN)
