# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The record of one move: one shape in the ledger, in what modules return and in the state file on the source host."""

from __future__ import annotations

import copy
import typing as t
import uuid

from .._errors import Internal
from . import statuses as s
from .clock import utc_now
from .transitions import check_transition

SCHEMA = 1
MAX_SAMPLES = 60

Record = t.Dict[str, t.Any]


def place(host: t.Optional[str], host_id: t.Optional[str] = None, host_uuid: t.Optional[str] = None) -> Record:
    """Return one end of a move: inventory name, the collection's own host id, libvirt's host UUID."""
    return {"host": host, "host_id": host_id, "host_uuid": host_uuid}


def empty_progress() -> Record:
    """Return the figures of a job of which nothing is known yet (bytes, bytes a second, percent)."""
    return {
        "memory_total_bytes": 0,
        "memory_processed_bytes": 0,
        "memory_remaining_bytes": 0,
        "disk_total_bytes": 0,
        "disk_processed_bytes": 0,
        "disk_remaining_bytes": 0,
        "percent": 0,
        "iteration": 0,
        "dirty_rate_bytes": 0,
        "bandwidth_bytes": 0,
        "throttle_percent": 0,
    }


def empty_result() -> Record:
    """Return the outcome of a move that has not ended (milliseconds, bytes; null where not known)."""
    return {
        "elapsed_ms": None,
        "downtime_ms": None,
        "predicted_downtime_ms": None,
        "setup_ms": None,
        "bytes": None,
        "iterations": None,
        "mode": None,
        "rung": None,
    }


def new_record(
    record_type: str,
    domain: Record,
    source: Record,
    destination: Record,
    policy: Record,
    by: str,
    request: t.Optional[Record] = None,
    forced: t.Optional[str] = None,
    detail: str = "",
) -> Record:
    """Return an C(accepted) record of generation 0; the ledger gives it its generation when it is opened.

    :arg domain: C(uuid) and C(name).
    :arg policy: field to C({value, source}).
    :arg request: what the domain needs at its destination, e.g. C(memory_mib); the booking counts it.
    :arg by: who acts, e.g. C(root@control pid 4711).
    """
    now = utc_now()
    return {
        "schema": SCHEMA,
        "id": str(uuid.uuid4()),
        "generation": 0,
        "type": record_type,
        "status": s.ACCEPTED,
        "reason": None,
        "forced": forced,
        "superseded_by": None,
        "domain": dict(domain),
        "source": dict(source),
        "destination": dict(destination),
        "request": dict(request or {}),
        "policy": dict(policy),
        "before": {},
        "acts": [],
        "progress": empty_progress(),
        "samples": [],
        "result": empty_result(),
        "history": [{"at": now, "status": s.ACCEPTED, "by": by, "detail": detail}],
        "evidence": [],
        "created_at": now,
        "updated_at": now,
    }


def copied(record: Record) -> Record:
    """Return a copy that can be changed without touching the original."""
    return copy.deepcopy(record)


def advance(record: Record, status: str, by: str, detail: str = "", reason: t.Optional[str] = None) -> None:
    """Give the record its next status, with a line of history. Raises L(Internal) for a transition that is not allowed."""
    check_transition(record["type"], record["status"], status)
    now = utc_now()
    record["status"] = status
    record["reason"] = reason
    record["updated_at"] = now
    record["history"].append({"at": now, "status": status, "by": by, "detail": detail})


def note(record: Record, event: str, by: str, detail: str = "") -> None:
    """Add a line to the history that is no change of status, e.g. C(abort_start)."""
    now = utc_now()
    record["updated_at"] = now
    record["history"].append({"at": now, "status": event, "by": by, "detail": detail})


def is_aborting(history: t.Sequence[t.Mapping[str, t.Any]]) -> bool:
    """Whether an abort was begun in these lines whose outcome none of them says; what was said before an error that was settled is over."""
    last = max((number for number, line in enumerate(history) if line["status"] in s.FINAL), default=-1)
    return any(line["status"] == s.ABORT_START for line in history[last + 1 :])


def intend(record: Record, act: str) -> None:
    """Write down an act on the guest (suspend, abort, resume …) before it is done."""
    record["acts"].append({"at": utc_now(), "act": act})


def did(record: Record, act: str) -> bool:
    """Whether that act was begun in this move, by this process or by one before it."""
    return any(entry["act"] == act for entry in record["acts"])


def is_unsettled(record: Record) -> bool:
    """Whether the record still holds its domain."""
    return record["status"] in s.UNSETTLED


_PLACE_KEYS = ("host", "host_id", "host_uuid")
_PROGRESS_KEYS = tuple(empty_progress())
_RESULT_NUMBERS = ("elapsed_ms", "downtime_ms", "predicted_downtime_ms", "setup_ms", "bytes", "iterations")
_LINES = {"history": ("at", "status"), "acts": ("at", "act"), "samples": (), "evidence": ()}
_MOST = 2**64


def check_record(document: t.Any) -> Record:
    """Return the document if it is a record of this schema, else raise L(Internal) with the first thing that is wrong.

    What is read here may have been torn, or edited by hand; unknown further keys are kept.
    """
    problem = _first_problem(document)
    if problem:
        raise Internal(f"Not a record: {problem}.")
    return t.cast(Record, document)


def _first_problem(document: t.Any) -> t.Optional[str]:
    if not isinstance(document, dict):
        return "it is not a JSON object"
    if document.get("schema") != SCHEMA:
        return f"its schema is {document.get('schema')!r}, this version reads {SCHEMA}"
    for key in ("id", "type", "status", "created_at", "updated_at"):
        if not isinstance(document.get(key), str):
            return f"its {key} is not a text"
    if document["type"] not in s.TYPES:
        return f"its type is {document['type']!r}"
    if document["status"] not in s.UNSETTLED | s.CLOSED | s.TOMBSTONE:
        return f"its status is {document['status']!r}"
    if not isinstance(document.get("generation"), int):
        return "its generation is not a number"
    for key in ("domain", "source", "destination", "request", "policy", "before", "progress", "result"):
        if not isinstance(document.get(key), dict):
            return f"its {key} is not an object"
    for key in ("acts", "samples", "history", "evidence"):
        if not isinstance(document.get(key), list):
            return f"its {key} is not a list"
    if not isinstance(document["domain"].get("uuid"), str):
        return "its domain has no UUID"
    return _problem_inside(document)


def _problem_inside(document: Record) -> t.Optional[str]:
    if not _are_texts_or_null(document, ("reason", "forced", "superseded_by")) or not _are_texts_or_null(document["domain"], ("name",)):
        return "its reason, forced or superseded_by, or the name of its domain, is missing or no text"
    for key in ("source", "destination"):
        if not _are_texts_or_null(document[key], _PLACE_KEYS):
            return f"its {key} lacks host, host_id or host_uuid"
    if not all(_is_number(document["progress"].get(key)) for key in _PROGRESS_KEYS):
        return "its progress lacks a number"
    if not all(key in document["result"] and (document["result"][key] is None or _is_number(document["result"][key])) for key in _RESULT_NUMBERS):
        return "its result lacks a number"
    for key, texts in _LINES.items():
        if not all(isinstance(line, dict) and all(isinstance(line.get(name), str) for name in texts) for line in document[key]):
            return f"an entry of its {key} is none"
    return None if all(_is_number(sample.get("allowed_downtime_ms")) for sample in document["samples"]) else "an entry of its samples is none"


def _are_texts_or_null(document: Record, keys: t.Iterable[str]) -> bool:
    return all(key in document and (document[key] is None or isinstance(document[key], str)) for key in keys)


def _is_number(value: t.Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST
