# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Evidence that a host is off: the document that goes into records, and what is refused in one that somebody else wrote."""

from __future__ import annotations

import datetime
import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._records.clock import utc_now

from .agent import Action, Reply
from .config import MAX_SECONDS, TTL_SECONDS, Fencing
from .redact import plain_text, redact

Evidence = dict[str, t.Any]

FENCE_AGENT, TASKS, PERSON = "fence_agent", "tasks", "person"
KINDS = (FENCE_AGENT, TASKS, PERSON)
KEYS = ("kind", "host", "host_id", "agent", "action", "status", "output", "at", "by", "ttl_seconds", "reason")
# A person's word covers one run, however many domains it starts.
PERSON_TTL_SECONDS = MAX_SECONDS
_SKEW_SECONDS = 5


def agent_evidence(config: Fencing, host_id: str | None, reply: Reply, by: str, action: Action = Action.STATUS) -> Evidence:
    """Return the evidence of an agent whose status said "off" just now; C(action) is C(status) where it was off already."""
    made = {"kind": FENCE_AGENT, "host": config.host, "host_id": host_id, "agent": config.agent, "action": action.value}
    return {**made, "status": "off", "output": reply.output, "at": utc_now(), "by": by, "ttl_seconds": config.ttl_seconds, "reason": None}


def person_evidence(force_down: t.Any, host: str, host_id: str | None, by: str) -> Evidence:
    """Return the evidence of a person's word.

    :arg force_down: C(reason), and C(by) for who gives it (default: who acts).
    :raises InvalidArgument: it is not that, or has no reason.
    """
    where = f"force_down of {host}"
    if not isinstance(force_down, t.Mapping) or set(force_down) - {"by", "reason"}:
        raise InvalidArgument(f"{where} is no dictionary of by and reason.", "Nothing was started.")
    reason, who = force_down.get("reason"), by if force_down.get("by") is None else force_down["by"]
    if not isinstance(reason, str) or not _shown(reason):
        raise InvalidArgument(f"{where} has no reason.", f"Say how a person knows that {host} is off. Nothing was started.")
    if not isinstance(who, str) or not _shown(who):
        raise InvalidArgument(f"{where}: its by is no name.", "Nothing was started.")
    made = {"kind": PERSON, "host": host, "host_id": host_id, "agent": None, "action": "off", "status": "off", "output": ""}
    return {**made, "at": utc_now(), "by": _shown(who), "ttl_seconds": PERSON_TTL_SECONDS, "reason": _shown(reason)}


def is_fresh(evidence: Evidence, now: datetime.datetime) -> bool:
    """Whether the evidence still counts; a date in the future counts as little as one that is too old."""
    at = _time_of(evidence["at"])
    return at is not None and -_SKEW_SECONDS <= (now - at).total_seconds() <= evidence["ttl_seconds"]


def check_evidence(given: t.Any, host: str, host_id: str | None, by: str, now: datetime.datetime, secrets: t.Iterable[str] = ()) -> Evidence:
    """Return evidence that somebody else wrote, e.g. a tasks file, with all its keys and as plain text; a missing C(kind) is C(tasks).

    It must have C(host), C(action), C(status) and C(at). A boolean is no status: YAML makes one of a bare C(off), but a failed comparison is one, too.

    :arg host: the host that is to be evacuated, and C(host_id) its own id in the ledger.
    :arg by: who acts, where the document does not say it.
    :arg now: the time of the control node, aware.
    :arg secrets: what may not stand in its output.
    :raises Unsafe: it is no such document, or does not say that this host is off now.
    """
    where = f"The fencing evidence for {host}"
    if not isinstance(given, t.Mapping) or any(key not in KEYS for key in given):
        raise _refused(f"{where} is no dictionary of {', '.join(KEYS)}")
    made: Evidence = {"kind": TASKS, "host_id": host_id, "agent": None, "output": "", "by": by, "ttl_seconds": TTL_SECONDS, "reason": None}
    made.update({key: value for key, value in given.items() if value is not None})
    problem = _wrong_form(made) or _wrong_host(made, host, host_id) or _wrong_act(made) or _wrong_time(made, now)
    if problem:
        raise _refused(f"{where} {problem}")
    words = {key: redact(plain_text(made[key].encode("utf-8", "replace")), secrets) for key in ("output", "by", "agent", "reason") if made[key] is not None}
    at = t.cast("datetime.datetime", _time_of(made["at"])).astimezone(datetime.UTC)
    checked = {**made, **words, "host_id": host_id, "action": _word(made["action"]), "status": "off", "at": _rfc_3339(at)}
    return {key: checked[key] for key in KEYS}


def _wrong_form(made: Evidence) -> str | None:
    if made["kind"] not in KINDS:
        return f"is of no kind that counts ({', '.join(KINDS)})"
    for key in ("host", "output", "by"):
        if not isinstance(made.get(key), str):
            return f"has no text as its {key}"
    for key in ("host_id", "agent", "reason"):
        if made[key] is not None and not isinstance(made[key], str):
            return f"has no text as its {key}"
    if made["kind"] == PERSON and not (made["reason"] or "").strip():
        return "is a person's word without a reason"
    return None


def _wrong_host(made: Evidence, host: str, host_id: str | None) -> str | None:
    if made["host"] != host:
        return f"is about another host, {_shown(made['host'])}"
    if made["host_id"] != host_id:
        return f"is about a host with another id, {_shown(made['host_id'])}; the ledger has {host_id or 'none'} for {host}"
    return None


def _wrong_act(made: Evidence) -> str | None:
    action, status = _word(made.get("action")), _word(made.get("status"))
    if action not in [one.value for one in Action]:
        return f"came of the action {_shown(action)}: only off counts, or status where it was off already; a reboot is not off{_hint(action)}"
    if status != "off":
        return f"says that its status is {_shown(status)}, not off{_hint(status)}"
    return None


def _hint(value: t.Any) -> str:
    return ' (write "off" with quotes: without them YAML makes a boolean of it)' if isinstance(value, bool) else ""


def _wrong_time(made: Evidence, now: datetime.datetime) -> str | None:
    at, ttl = _time_of(made.get("at")), made["ttl_seconds"]
    if at is None:
        return "does not say at what time (RFC 3339, with a time zone) the host was off"
    if isinstance(ttl, bool) or not isinstance(ttl, int) or not 1 <= ttl <= MAX_SECONDS:
        return f"has a ttl_seconds that is no number from 1 to {MAX_SECONDS}"
    age = (now - at).total_seconds()
    if age < -_SKEW_SECONDS:
        return f"is dated {-age:.0f} seconds in the future by the control node's clock"
    return f"is {age:.0f} seconds old and counted for {ttl}" if age > ttl else None


def _word(value: t.Any) -> t.Any:
    return value.strip().lower() if isinstance(value, str) else value


def _time_of(value: t.Any) -> datetime.datetime | None:
    """Return a point in time that has a time zone; YAML makes a datetime of a bare one."""
    try:
        at = value if isinstance(value, datetime.datetime) else datetime.datetime.fromisoformat(value)
        return None if at.utcoffset() is None else at.astimezone(datetime.UTC)
    except (TypeError, ValueError, OverflowError):
        return None


def _rfc_3339(at: datetime.datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _shown(value: t.Any) -> str:
    """Return a foreign value as a short line."""
    return " ".join(plain_text(str(value).encode("utf-8", "replace")).split())[:500]


def _refused(what: str) -> Unsafe:
    return Unsafe(f"{what}.", "Nothing was started. Fence the host again, or give a person's word with force_down and a reason.")
