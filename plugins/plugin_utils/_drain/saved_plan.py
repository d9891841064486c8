# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The plan of a drain, its digest, and reading a plan, which may have been edited."""

from __future__ import annotations

import base64
import collections
import gzip
import hashlib
import json
import re
import typing as t
import zlib
from collections.abc import Mapping
from dataclasses import field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import (
    ABSENT,
    Absent,
    Json,
    JsonObject,
    ShapeError,
    decode,
    encode,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import ResourceMaps

from .balance_entries import PlannedBalance
from .plan_entries import (
    NPlusOne,
    PlannedColdMove,
    PlannedMove,
    PlannedReserve,
    PlannedShutdown,
    PlanOptions,
    SkippedDomain,
    UnplacedDomain,
    find_active_uuids,
)

_MAX_DEPTH = 60


@dataclass(frozen=True)
class DrainPlan:
    """The plan of a drain.

    :arg settings: C(kvmfleet_scheduler) of the hosts that have one.
    :arg n_plus_one: null if it was not requested.
    :arg predicted_seconds: of each source.
    :arg predicted_ranges: between how many seconds. Plans of earlier versions have none.
    :arg cold_moves: the moves of C(cold_migrate). Plans of earlier versions have none.
    :arg resource_maps: of the hosts that have some. Plans of earlier versions have none.
    :arg balance: what only the plan of a balance has.
    :arg reserve: absent if the fleet has no reserve for failover.
    """

    schema: int
    digest: str
    created_at: str
    sources: tuple[str, ...]
    candidates: tuple[str, ...]
    options: PlanOptions
    settings: Mapping[str, JsonObject]
    moves: tuple[PlannedMove, ...]
    shutdowns: tuple[PlannedShutdown, ...]
    unplaced: tuple[UnplacedDomain, ...]
    skipped: tuple[SkippedDomain, ...]
    n_plus_one: t.Optional[NPlusOne]
    predicted_seconds: Mapping[str, float]
    predicted_ranges: t.Union[Mapping[str, tuple[float, ...]], Absent] = ABSENT
    cold_moves: t.Union[tuple[PlannedColdMove, ...], Absent] = ABSENT
    resource_maps: t.Union[Mapping[str, ResourceMaps], Absent] = ABSENT
    balance: t.Union[PlannedBalance, Absent] = ABSENT
    reserve: t.Union[PlannedReserve, Absent] = ABSENT
    extra: JsonObject = field(default_factory=dict)

    def check(self) -> None:
        """Raise L(ShapeError) if the verdict that its options require is missing."""
        if self.options.n_plus_one and self.n_plus_one is None:
            raise ShapeError("n_plus_one", "an object", None)

    def seal(self) -> DrainPlan:
        """Return the plan with its digest."""
        return replace(self, digest=plan_digest(encode(self)))

    @property
    def all_moves(self) -> tuple[PlannedMove | PlannedColdMove, ...]:
        """The live moves, and those that are not live."""
        return (*self.moves, *(self.cold_moves or ()))

    @property
    def all_uuids(self) -> list[str]:
        """The UUIDs of the domains in all its parts."""
        return [entry.uuid for part in (self.moves, self.cold_moves or (), self.shutdowns, self.unplaced, self.skipped) for entry in part]

    @property
    def active_uuids(self) -> set[str]:
        """The UUIDs of the domains that were active when it was made."""
        return find_active_uuids((self.moves, self.shutdowns, self.unplaced), self.cold_moves or (), self.skipped)


def to_plain_json(value: Json, depth: int = 0) -> Json:
    """Return the value in Python's own types, as decoded from JSON. Raises L(InvalidArgument) for values that JSON cannot represent."""
    if depth > _MAX_DEPTH:
        raise InvalidArgument(f"A value is nested more than {_MAX_DEPTH} times.", "Nothing was moved.")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (int, float)):
        return int(value) if isinstance(value, int) else float(value)
    if isinstance(value, Mapping):
        return to_plain_object(value, depth)
    if isinstance(value, (list, tuple)):
        return [to_plain_json(part, depth + 1) for part in value]
    raise InvalidArgument(f"{short_text(value)} is a {type(value).__name__}, which JSON cannot represent.", "Nothing was moved.")


def to_plain_object(value: JsonObject, depth: int = 0) -> dict[str, Json]:
    """Return a JSON object in Python's own types, see L(to_plain_json)."""
    return {str(key): to_plain_json(part, depth + 1) for key, part in value.items()}


def short_text(value: Json | Absent) -> str:
    """Return the value as text for a sentence."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


PLAN_SCHEMA = 2
_MAX_CHARACTERS = 128 * 1024**2
_MAKE_NEW_PLAN = "Make a new plan. Nothing was moved."
# How every packed plan begins: the mark of gzip in Base64, which no JSON begins with.
_PACKED_START = "H4sI"


def plan_digest(plan: JsonObject) -> str:
    """Return SHA-256 over the plan's canonical JSON, without its schema and digest: it differs if a file was edited by hand."""
    body = {key: value for key, value in plan.items() if key not in ("schema", "digest")}
    return "sha256:" + hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def pack_plan(plan: DrainPlan) -> str:
    """Return the plan as one line for a variable: Base64 of compressed JSON, which cannot contain a template."""
    return base64.b64encode(gzip.compress(json.dumps(encode(plan), sort_keys=True).encode(), mtime=0)).decode()


def read_plan(saved: Json | bytes) -> DrainPlan:
    """Return the plan that was saved, as the text of its file, as L(pack_plan) returned it, or as an object.

    Raises L(InvalidArgument) for anything but an unchanged plan of this schema.
    """
    document = _parse_plan(saved) if isinstance(saved, (str, bytes)) else to_plain_json(saved)
    if not isinstance(document, dict) or not {"schema", "digest", "moves"} <= set(document):
        raise InvalidArgument(
            "This is not a saved plan of a drain or of a balance.",
            "Give the content of the file to which it was written (drain_host_plan_file, balance_plan_file), or what was published as drain_host_plan or "
            "balance_plan.",
        )
    if document["schema"] != PLAN_SCHEMA or isinstance(document["schema"], bool):
        raise InvalidArgument(f"The saved plan has schema {short_text(document['schema'])}, this version reads {PLAN_SCHEMA}.", _MAKE_NEW_PLAN)
    if document["digest"] != plan_digest(document):
        raise InvalidArgument("The saved plan was changed after it was made: its digest does not match its content.", _MAKE_NEW_PLAN)
    plan = _decode_plan(document)
    _check_domains(plan)
    return plan


def _parse_plan(text: str | bytes) -> Json:
    _check_length(len(text))
    if text[:4] in (_PACKED_START, _PACKED_START.encode()):
        text = _unpack_plan(text)
    try:
        return to_plain_json(json.loads(text, parse_constant=_refuse_constant))
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"The saved plan is not JSON ({error}).", _MAKE_NEW_PLAN) from error


def _unpack_plan(text: str | bytes) -> bytes:
    inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        plan = inflate.decompress(base64.b64decode(text.strip(), validate=True), _MAX_CHARACTERS + 1)
    except (ValueError, zlib.error) as error:
        raise InvalidArgument(f"The saved plan cannot be unpacked ({error}).", _MAKE_NEW_PLAN) from error
    _check_length(len(plan))
    if not inflate.eof or inflate.unused_data:
        raise InvalidArgument("The saved plan cannot be unpacked: it is cut off, or followed by other data.", _MAKE_NEW_PLAN)
    return plan


def _check_length(characters: int) -> None:
    if characters > _MAX_CHARACTERS:
        raise InvalidArgument(f"The saved plan has more than {_MAX_CHARACTERS} characters, the most that is read.", _MAKE_NEW_PLAN)


def _refuse_constant(word: str) -> t.NoReturn:
    raise ValueError(f"{word} is no number")


def _decode_plan(document: JsonObject) -> DrainPlan:
    try:
        return decode(DrainPlan, document)
    except ShapeError as error:
        if error.found is ABSENT:
            where, _dot, key = error.path.rpartition(".")
            raise InvalidArgument(f"{_part_text(where)} has no {key}.", _MAKE_NEW_PLAN) from error
        raise InvalidArgument(f"{_part_text(error.path)} is {short_text(error.found)}, not {error.expected}.", _MAKE_NEW_PLAN) from error


def _part_text(path: str) -> str:
    """Return the name of a part of the plan for a sentence; entries of lists are counted from 1."""
    part = re.sub(r"\[([0-9]+)\]", lambda found: f", entry {int(found[1]) + 1}", path).replace(".", ": ")
    return f"The saved plan: {part}" if part else "The saved plan"


def _check_domains(plan: DrainPlan) -> None:
    twice = sorted(uuid for uuid, times in collections.Counter(plan.all_uuids).items() if times > 1)
    strange = sorted({move.source for move in plan.all_moves} - {*plan.sources})
    if twice:
        raise InvalidArgument(f"The saved plan names the domain {twice[0]} more than once.", _MAKE_NEW_PLAN)
    if strange:
        raise InvalidArgument(f"The saved plan moves domains away from {', '.join(strange)}, for which it was not made.", _MAKE_NEW_PLAN)
