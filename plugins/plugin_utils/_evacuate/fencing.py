# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Fences a host, and makes the evidence that a host is off. Evidence from elsewhere is checked, and all evidence is confirmed before each start."""

from __future__ import annotations

import datetime
import time
import typing as t
from dataclasses import dataclass

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json, JsonObject, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, KvmfleetError, Unreachable, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.evidence import AGENT, ORIGINS, PERSON, TASKS, Evidence

from .fence_agent import EVIDENCE_ACTIONS, AgentReply, FenceAction, PowerState, call_agent, plain_text, redact_secrets
from .fence_config import MAX_SECONDS, TTL_SECONDS, VARIABLE, FencingConfig

EVIDENCE_KEYS = ("kind", "host", "host_id", "agent", "action", "status", "output", "at", "by", "ttl_seconds", "reason")
# The confirmation of a person is valid for one run, however many domains it starts.
PERSON_TTL_SECONDS = MAX_SECONDS
_CLOCK_SKEW_SECONDS = 5


@dataclass(frozen=True)
class PowerReply:
    """What an agent has reported, and at what time this was asked for."""

    reply: AgentReply
    at: str

    def as_json(self) -> JsonObject:
        """Return it for a later task of the same play."""
        reply = self.reply
        return {"exit_code": reply.exit_code, "output": reply.output, "power": reply.power.value, "at": self.at}

    @classmethod
    def from_json(cls, given: JsonObject) -> PowerReply:
        """Return what L(as_json) has returned."""
        code = t.cast("int | None", given["exit_code"])
        return cls(AgentReply(FenceAction.STATUS, code, str(given["output"]), PowerState(given["power"])), str(given["at"]))


def agent_evidence(
    config: FencingConfig, host_id: str | None, reply: AgentReply, by: str, action: FenceAction = FenceAction.STATUS, at: str | None = None
) -> Evidence:
    """Return the evidence of an agent that has reported "off"; C(action) is C(status) if the host was already off.

    :arg at: the time of the report; None for now.
    """
    return Evidence(AGENT, config.host, host_id, config.agent, action.value, "off", reply.output, at or utc_now(), by, config.ttl_seconds, None)


def person_evidence(force_down: Json, host: str, host_id: str | None, by: str) -> Evidence:
    """Return the evidence given by a person.

    :arg force_down: C(reason), and C(by) for who gives it (default: who acts).
    :raises InvalidArgument: it is invalid, or has no reason.
    """
    where = f"force_down of {host}"
    if not isinstance(force_down, t.Mapping) or set(force_down) - {"by", "reason"}:
        raise InvalidArgument(f"{where} must be a dictionary of 'by' and 'reason'.", "Nothing was started.")
    reason, who = force_down.get("reason"), by if force_down.get("by") is None else force_down["by"]
    if not isinstance(reason, str) or not _short_line(reason):
        raise InvalidArgument(f"{where} has no reason.", f"Say how a person knows that {host} is off. Nothing was started.")
    if not isinstance(who, str) or not _short_line(who):
        raise InvalidArgument(f"{where}: 'by' must be a non-empty string.", "Nothing was started.")
    return Evidence(PERSON, host, host_id, None, "off", "off", "", utc_now(), _short_line(who), PERSON_TTL_SECONDS, _short_line(reason))


def is_fresh(evidence: Evidence, now: datetime.datetime) -> bool:
    """Whether the evidence is still valid; evidence dated in the future is as invalid as outdated evidence."""
    at = _parse_timestamp(evidence.at)
    return at is not None and -_CLOCK_SKEW_SECONDS <= (now - at).total_seconds() <= evidence.ttl_seconds


def check_evidence(given: Json, host: str, host_id: str | None, by: str, now: datetime.datetime, secrets: t.Iterable[str] = ()) -> Evidence:
    """Return evidence from another source, e.g. a tasks file, with all its keys and as plain text; a missing C(kind) is C(tasks).

    It must have C(host), C(action), C(status) and C(at). A boolean is not a status: YAML reads a bare C(off) as one, but a failed comparison is also one.

    :arg host: the host that is to be evacuated, and C(host_id) its own id in the ledger.
    :arg by: who acts, if the document does not state it.
    :arg now: the time of the control node, aware.
    :arg secrets: the texts that must not appear in its output.
    :raises Unsafe: it is not such a document, or does not show that this host is off now.
    """
    where = f"The fencing evidence for {host}"
    if not isinstance(given, t.Mapping) or any(key not in EVIDENCE_KEYS for key in given):
        raise _refused_evidence(f"{where} is not a dictionary of {', '.join(EVIDENCE_KEYS)}")
    made: dict[str, Json] = {"kind": TASKS, "host_id": host_id, "agent": None, "output": "", "by": by, "ttl_seconds": TTL_SECONDS, "reason": None}
    made.update({key: value for key, value in given.items() if value is not None})
    problem = _form_problem(made) or _host_problem(made, host, host_id) or _action_problem(made) or _time_problem(made, now)
    if problem:
        raise _refused_evidence(f"{where} {problem}")
    words = {
        key: redact_secrets(plain_text(text.encode("utf-8", "replace")), secrets)
        for key in ("output", "by", "agent", "reason")
        if isinstance(text := made[key], str)
    }
    at = t.cast("datetime.datetime", _parse_timestamp(made["at"])).astimezone(datetime.UTC)
    checked = {**made, **words, "host_id": host_id, "action": _lower_text(made["action"]), "status": "off", "at": _rfc_3339(at)}
    return decode(Evidence, {key: checked[key] for key in EVIDENCE_KEYS})


def _form_problem(made: JsonObject) -> str | None:
    if made["kind"] not in ORIGINS:
        return f"is not of an accepted kind ({', '.join(ORIGINS)})"
    for key in ("host", "output", "by"):
        if not isinstance(made.get(key), str):
            return f"has no text as its {key}"
    for key in ("host_id", "agent", "reason"):
        if made[key] is not None and not isinstance(made[key], str):
            return f"has no text as its {key}"
    if made["kind"] == PERSON and not str(made["reason"] or "").strip():
        return "is a person's word without a reason"
    return None


def _host_problem(made: JsonObject, host: str, host_id: str | None) -> str | None:
    if made["host"] != host:
        return f"is about another host, {_short_line(made['host'])}"
    if made["host_id"] != host_id:
        return f"is about a host with another id, {_short_line(made['host_id'])}; the ledger has {host_id or 'none'} for {host}"
    return None


def _action_problem(made: JsonObject) -> str | None:
    action, status = _lower_text(made.get("action")), _lower_text(made.get("status"))
    if action not in [one.value for one in EVIDENCE_ACTIONS]:
        return f"came from the action {_short_line(action)}: only off counts, or status if it was off already; a reboot is not off{_quoting_hint(action)}"
    if status != "off":
        return f"says that its status is {_short_line(status)}, not off{_quoting_hint(status)}"
    return None


def _quoting_hint(value: Json) -> str:
    return ' (write "off" with quotes: without them YAML makes a boolean of it)' if isinstance(value, bool) else ""


def _time_problem(made: JsonObject, now: datetime.datetime) -> str | None:
    at, ttl = _parse_timestamp(made.get("at")), made["ttl_seconds"]
    if at is None:
        return "does not say at what time (RFC 3339, with a time zone) the host was off"
    if isinstance(ttl, bool) or not isinstance(ttl, int) or not 1 <= ttl <= MAX_SECONDS:
        return f"has a ttl_seconds that is not a number from 1 to {MAX_SECONDS}"
    age = (now - at).total_seconds()
    if age < -_CLOCK_SKEW_SECONDS:
        return f"is dated {-age:.0f} seconds in the future by the control node's clock"
    return f"is {age:.0f} seconds old and was valid for {ttl}" if age > ttl else None


def _lower_text(value: Json) -> Json:
    return value.strip().lower() if isinstance(value, str) else value


def _parse_timestamp(value: Json | datetime.datetime) -> datetime.datetime | None:
    """Return a point in time that has a time zone; YAML makes a datetime of a bare one."""
    try:
        at = value if isinstance(value, datetime.datetime) else datetime.datetime.fromisoformat(t.cast(str, value))
        return None if at.utcoffset() is None else at.astimezone(datetime.UTC)
    except (TypeError, ValueError, OverflowError):
        return None


def _rfc_3339(at: datetime.datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _short_line(value: Json) -> str:
    """Return a foreign value as a short line."""
    return " ".join(plain_text(str(value).encode("utf-8", "replace")).split())[:500]


def _refused_evidence(what: str) -> Unsafe:
    return Unsafe(f"{what}.", "Nothing was started. Fence the host again, or give a person's word with force_down and a reason.")


_POLL_SECONDS = 1


def query_power(config: FencingConfig) -> AgentReply:
    """Query the agent for the power state of the host; this changes nothing."""
    return call_agent(config, FenceAction.STATUS, config.status_timeout_seconds)


def ask_power(config: FencingConfig) -> PowerReply:
    """Query the agent as L(query_power) does, and note the time before the query."""
    at = utc_now()
    return PowerReply(query_power(config), at)


def fence_host(config: FencingConfig, host_id: str | None, by: str, before: PowerReply | None = None) -> Evidence:
    """Switch the host off and return the evidence; if the host is already off, the agent is only queried. It takes C(timeout_seconds) at most.

    :arg host_id: the host's own id in the ledger, for the evidence.
    :arg by: who acts, e.g. C(root@control pid 4711).
    :arg before: what the agent has reported a moment ago; None if it was not queried.
    :raises Unsafe: the agent reports that the host is still on.
    :raises Unreachable: the agent cannot determine the power state.
    """
    deadline = time.monotonic() + config.timeout_seconds
    known = before or PowerReply(_query_power_before(config, deadline), utc_now())
    if known.reply.power is PowerState.OFF:
        return agent_evidence(config, host_id, known.reply, by, at=known.at)
    left = deadline - time.monotonic()
    sent = call_agent(config, FenceAction.OFF, max(left - config.status_timeout_seconds, left / 2))
    after = _wait_for_off(config, sent, deadline)
    if after.power is not PowerState.OFF:
        raise _not_off_error(config, sent, after)
    return agent_evidence(config, host_id, after, by, FenceAction.OFF)


def _query_power_before(config: FencingConfig, deadline: float) -> AgentReply:
    return call_agent(config, FenceAction.STATUS, min(config.status_timeout_seconds, max(deadline - time.monotonic(), 0)))


def _wait_for_off(config: FencingConfig, sent: AgentReply, deadline: float) -> AgentReply:
    """Query until the host is off or the time is over; only once if the agent itself reported a failure."""
    reply = _query_power_before(config, deadline)
    while sent.done and reply.power is not PowerState.OFF and deadline - time.monotonic() > _POLL_SECONDS:
        time.sleep(_POLL_SECONDS)
        reply = _query_power_before(config, deadline)
    return reply


def confirm_evidence(evidence: Evidence, config: FencingConfig | None, now: datetime.datetime) -> Evidence:
    """Return evidence that is valid now; to be called before each start.

    If the host has an agent, it is queried: evidence of an agent needs "off" again and gets a new date. Evidence of a person or of a tasks file stays valid
    while the agent cannot determine the power state, but not if the agent reports "on".

    :arg evidence: from L(fence_host) or L(check_evidence).
    :arg now: the time of the control node, aware.
    :raises Unsafe: it is too old, the host is on again, or it is evidence of an agent that the inventory no longer names.
    :raises Unreachable: it came from the agent, which cannot determine the power state any more.
    """
    if not evidence.is_of_agent:
        check_evidence(encode(evidence), evidence.host, evidence.host_id, evidence.by, now)
    if config is None:
        if evidence.is_of_agent:
            raise Unsafe(f"{evidence.host} was fenced by {evidence.agent}, but it has no {VARIABLE} to query it again.", "Nothing was started.")
        return evidence
    if config.host != evidence.host:
        raise Unsafe(f"The evidence is about {evidence.host}, the agent about {config.host}.", "Nothing was started.")
    reply = query_power(config)
    if reply.power is PowerState.ON or (evidence.is_of_agent and reply.power is not PowerState.OFF):
        raise _not_confirmed_error(config, evidence, reply)
    return agent_evidence(config, evidence.host_id, reply, evidence.by) if evidence.is_of_agent else evidence


def _not_off_error(config: FencingConfig, sent: AgentReply, after: AgentReply) -> KvmfleetError:
    if after.power is PowerState.ON:
        return Unsafe(f"{config.host} is still on after {config.agent} was told to switch it off: {sent}; {after}.", _next_steps(config.host))
    return Unreachable(f"{config.host} could not be fenced: {config.agent} does not say that it is off: {sent}; {after}.", _next_steps(config.host))


def _not_confirmed_error(config: FencingConfig, evidence: Evidence, reply: AgentReply) -> KvmfleetError:
    source = {AGENT: "it was fenced", PERSON: f"{evidence.by} confirmed it", TASKS: "the tasks file fenced it"}[evidence.origin]
    if reply.power is PowerState.ON:
        hint = f"Nothing more is started. If {config.agent} is wrong, set {VARIABLE} of {config.host} to null; if somebody switched it on, fence it again."
        return Unsafe(f"{config.host} is on, says {config.agent}, although {source} at {evidence.at}: {reply}.", hint)
    return Unreachable(f"{config.host} was off at {evidence.at}, but {config.agent} no longer reports its state: {reply}.", _next_steps(config.host))


def _next_steps(host: str) -> str:
    return (
        f"Nothing was started. Repair the connection to its BMC and run this again; or give another agent in {VARIABLE} of {host}, e.g. for its power strip; "
        f"or fence it by a tasks file of your own; or, when a person has seen that {host} is off, confirm it with force_down and a reason."
    )
