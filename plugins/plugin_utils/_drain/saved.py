# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A plan as it is saved: its digest, and reading one back that anybody may have touched."""

from __future__ import annotations

import base64
import collections
import gzip
import hashlib
import json
import typing as t
import zlib
from collections.abc import Mapping

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument

from . import shapes as s

SCHEMA = 2
_MAX_CHARACTERS = 128 * 1024**2
_AGAIN = "Make a new plan. Nothing was moved."
# How every packed plan begins: the mark of gzip in Base64, which no JSON begins with.
_PACKED = "H4sI"

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


def packed(plan: Body) -> str:
    """Return the plan as one line that travels as a variable: Base64 of compressed JSON, in which nothing can be a template."""
    return base64.b64encode(gzip.compress(json.dumps(plan, sort_keys=True).encode(), mtime=0)).decode()


def read(saved: t.Any) -> Document:
    """Return the plan that was saved, as the text of its file, as L(packed) returned it, or as an object.

    Raises L(InvalidArgument) for what is no plan of this schema, or is not as it was when it was made.
    """
    document = _parsed(saved) if isinstance(saved, (str, bytes)) else s.plain(saved)
    if not isinstance(document, dict) or not {"schema", "digest", "moves"} <= set(document):
        raise InvalidArgument(
            "This is not a saved plan of a drain.",
            "Give the content of the file that drain_host_plan_file named, or what drain_host_plan_only published as drain_host_plan.",
        )
    if document["schema"] != SCHEMA or isinstance(document["schema"], bool):
        raise InvalidArgument(f"The saved plan has schema {s.short(document['schema'])}, this version reads {SCHEMA}.", _AGAIN)
    if document["digest"] != digest(document):
        raise InvalidArgument("The saved plan is not as it was when it was made: its digest does not belong to its content.", _AGAIN)
    _check(document)
    return document


def _parsed(text: t.Union[str, bytes]) -> t.Any:
    _check_length(len(text))
    if text[:4] in (_PACKED, _PACKED.encode()):
        text = _unpacked(text)
    try:
        return s.plain(json.loads(text, parse_constant=_no_number))
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"The saved plan is not JSON ({error}).", _AGAIN) from error


def _unpacked(text: t.Union[str, bytes]) -> bytes:
    inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        plan = inflate.decompress(base64.b64decode(text.strip(), validate=True), _MAX_CHARACTERS + 1)
    except (ValueError, zlib.error) as error:
        raise InvalidArgument(f"The saved plan cannot be unpacked ({error}).", _AGAIN) from error
    _check_length(len(plan))
    if not inflate.eof or inflate.unused_data:
        raise InvalidArgument("The saved plan cannot be unpacked: it does not end where it should.", _AGAIN)
    return plan


def _check_length(characters: int) -> None:
    if characters > _MAX_CHARACTERS:
        raise InvalidArgument(f"The saved plan has more than {_MAX_CHARACTERS} characters, which is more than is read.", _AGAIN)


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
