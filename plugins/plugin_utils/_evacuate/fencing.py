# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Fences a host, and makes the evidence that a host is off. Evidence from elsewhere is checked, and all evidence is confirmed before each start."""

from __future__ import annotations

import dataclasses
import datetime
import typing as t
from collections.abc import Callable, Iterable, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import format_time, utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent, Json, JsonObject, ShapeError, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, KvmfleetError, Unreachable, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.evidence import (
    AGENT,
    FENCING_IMPOSSIBLE,
    ORIGINS,
    PERSON,
    RESET,
    TASKS,
    WATCHDOG,
    Evidence,
    FenceAttempt,
)

from .fence_agent import EVIDENCE_ACTIONS, AgentReply, FenceAction, PowerState, plain_text, redact_secrets
from .fence_config import MAX_SECONDS, TTL_SECONDS, VARIABLE, FenceDevice, FenceLevel, FencingConfig, name_agents
from .fence_levels import HostPower, LevelAttempt, PowerReply, query_device, query_host, query_level, switch_levels_off
from .lease_evidence import Proven, Void
from .reset_watch import confirm_reset

if t.TYPE_CHECKING:
    from .._ledger.etcd.leases import LeaseReader  # pragma: no cover

EVIDENCE_KEYS = ("kind", "host", "host_id", "agent", "action", "status", "output", "at", "by", "ttl_seconds", "reason")
_LEVEL_KEYS = ("level", "attempts", "lease_revision")
# The confirmation of a person is valid for one run, however many domains it starts.
PERSON_TTL_SECONDS = MAX_SECONDS
# The option of the modules, and the variables of the role.
HOW_TO_CONFIRM = "force_down and a reason (evacuate_host_force_down and evacuate_host_reason)"
CLOCK_SKEW_SECONDS = 5


def agent_evidence(config: FencingConfig, host_id: str | None, attempts: Sequence[LevelAttempt], by: str) -> Evidence:
    """Return the evidence of the last of these levels, whose devices all show that the host is off.

    Its action is C(status) if the host was already off.
    """
    last = attempts[-1]
    agents = name_agents(config.levels[last.number - 1])
    made = Evidence(AGENT, config.host, host_id, agents, last.action.value, "off", last.output, last.at, by, config.ttl_seconds, None)
    return dataclasses.replace(made, level=last.number, attempts=list_attempts(attempts)) if config.has_levels else made


def watchdog_evidence(config: FencingConfig, host_id: str | None, proven: Proven, by: str, attempts: Sequence[LevelAttempt] = ()) -> Evidence:
    """Return the evidence that the host was reset by its watchdog.

    :arg attempts: of the levels that were tried before.
    """
    made = Evidence(WATCHDOG, config.host, host_id, None, RESET, "off", proven.output, utc_now(), by, config.ttl_seconds, None)
    return dataclasses.replace(made, attempts=list_attempts(attempts) or ABSENT, lease_revision=proven.revision)


def list_attempts(attempts: Iterable[LevelAttempt]) -> tuple[FenceAttempt, ...]:
    """Return the attempts of all devices, in order."""
    return tuple(one for level in attempts for one in level.list_attempts())


def find_power_evidence(config: FencingConfig, host_id: str | None, power: HostPower, by: str) -> Evidence | None:
    """Return the evidence of devices that were only asked; None unless a whole level shows that the host is off, and no device reports it as on."""
    number = power.find_off()
    if number is None:
        return None
    return agent_evidence(config, host_id, [LevelAttempt.from_replies(number, power.levels[number - 1], power.at)], by)


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


def is_by_person(source: str, documents: t.Optional[t.Sequence[Json]], force_down: t.Optional[JsonObject]) -> bool:
    """Whether a person confirms that the source is off, now or in the evidence of an earlier step. Other hosts may have evidence of their own."""
    own = [one for one in documents or () if isinstance(one, t.Mapping) and one.get("host") == source]
    return bool(force_down) or any(one.get("kind") == PERSON for one in own)


def is_fresh(evidence: Evidence, now: datetime.datetime) -> bool:
    """Whether the evidence is still valid; evidence dated in the future is as invalid as outdated evidence."""
    at = _parse_timestamp(evidence.at)
    return at is not None and -CLOCK_SKEW_SECONDS <= (now - at).total_seconds() <= evidence.ttl_seconds


def check_evidence(given: Json, host: str, host_id: str | None, by: str, now: datetime.datetime, config: FencingConfig | None = None) -> Evidence:
    """Return evidence from another source, e.g. a tasks file, with all its keys and as plain text; a missing C(kind) is C(tasks).

    It must have C(host), C(action), C(status) and C(at). A boolean is not a status: YAML reads a bare C(off) as one, but a failed comparison is also one.

    :arg host: the host that is to be evacuated, and C(host_id) its own id in the ledger.
    :arg by: who acts, if the document does not state it.
    :arg now: the time of the control node, aware.
    :arg config: how the host is fenced; None if it has no devices. Its secrets do not appear in the output. Evidence of an agent that it still names is valid
      at any age, because L(confirm_evidence), which comes before each start, needs the agent to report "off" again.
    :raises Unsafe: it is not such a document, or does not show that this host is off now.
    """
    secrets = config.secrets() if config else ()
    where = f"The fencing evidence for {host}"
    if not isinstance(given, t.Mapping) or any(key not in (*EVIDENCE_KEYS, *_LEVEL_KEYS) for key in given):
        raise _refused_evidence(f"{where} is not a dictionary of {', '.join(EVIDENCE_KEYS)}")
    made: dict[str, Json] = {"kind": TASKS, "host_id": host_id, "agent": None, "output": "", "by": by, "ttl_seconds": TTL_SECONDS, "reason": None}
    made.update({key: value for key, value in given.items() if value is not None})
    problem = _form_problem(made) or _host_problem(made, host, host_id) or _action_problem(made) or _time_problem(made, now, _is_renewable(made, config))
    if problem:
        raise _refused_evidence(f"{where} {problem}")
    words = {
        key: redact_secrets(plain_text(text.encode("utf-8", "replace")), secrets)
        for key in ("output", "by", "agent", "reason")
        if isinstance(text := made[key], str)
    }
    at = t.cast("datetime.datetime", _parse_timestamp(made["at"])).astimezone(datetime.UTC)
    checked = {**made, **words, "host_id": host_id, "action": _lower_text(made["action"]), "status": "off", "at": format_time(at)}
    evidence = decode(Evidence, {key: checked[key] for key in (*EVIDENCE_KEYS, *_LEVEL_KEYS) if key in checked})
    attempts = evidence.attempts and tuple(
        dataclasses.replace(one, output=redact_secrets(plain_text(one.output.encode("utf-8", "replace")), secrets)) for one in evidence.attempts
    )
    return dataclasses.replace(evidence, attempts=attempts)


def _form_problem(made: JsonObject) -> str | None:
    if made["kind"] not in ORIGINS:
        return f"is not of an accepted kind ({', '.join(ORIGINS)})"
    for key in ("host", "output", "by"):
        if not isinstance(made.get(key), str):
            return f"has no text as its {key}"
    for key in ("host_id", "agent", "reason"):
        if made[key] is not None and not isinstance(made[key], str):
            return f"has no text as its {key}"
    try:
        decode(_LevelPart, {key: made[key] for key in _LEVEL_KEYS if key in made})
    except ShapeError as error:
        return f"is not valid: {error}"
    if made["kind"] == PERSON and not str(made["reason"] or "").strip():
        return "is the confirmation of a person, and has no reason"
    if (made["kind"] == WATCHDOG) != ("lease_revision" in made):
        return "is of a watchdog without a lease_revision" if made["kind"] == WATCHDOG else "has a lease_revision, and is not of a watchdog"
    return None


@dataclass(frozen=True)
class _LevelPart:
    """The part of evidence that only hosts with several levels of devices have, or with a watchdog."""

    level: t.Union[int, Absent] = ABSENT
    attempts: t.Union[tuple[FenceAttempt, ...], Absent] = ABSENT
    lease_revision: t.Union[int, Absent] = ABSENT


def _host_problem(made: JsonObject, host: str, host_id: str | None) -> str | None:
    if made["host"] != host:
        return f"is about another host, {_short_line(made['host'])}"
    if made["host_id"] != host_id:
        return f"is about a host with another id, {_short_line(made['host_id'])}; the ledger has {host_id or 'none'} for {host}"
    return None


def _action_problem(made: JsonObject) -> str | None:
    action, status = _lower_text(made.get("action")), _lower_text(made.get("status"))
    if made["kind"] == WATCHDOG:
        return None if (action, status) == (RESET, "off") else f"is of a watchdog, and its action is not {RESET} or its status not off"
    if action not in [one.value for one in EVIDENCE_ACTIONS]:
        return f"came from the action {_short_line(action)}: only off counts, or status if it was off already; a reboot is not off{_quoting_hint(action)}"
    if status != "off":
        return f"says that its status is {_short_line(status)}, not off{_quoting_hint(status)}"
    return None


def _quoting_hint(value: Json) -> str:
    return ' (write "off" with quotes: without them YAML makes a boolean of it)' if isinstance(value, bool) else ""


def _is_renewable(made: JsonObject, config: FencingConfig | None) -> bool:
    """Whether L(confirm_evidence) renews it: the inventory still names its devices, and their status alone shows whether the host is off."""
    level = _find_level(config, t.cast(int, made.get("level", 1))) if config and config.host == made["host"] else ()
    return bool(level) and made["kind"] == AGENT and made["agent"] == name_agents(level) and all(device.is_status_evidence for device in level)


def _find_level(config: FencingConfig, number: int) -> FenceLevel:
    """Return the devices of a level; empty if the host has no such level."""
    return config.levels[number - 1] if 1 <= number <= len(config.levels) else ()


def _time_problem(made: JsonObject, now: datetime.datetime, is_renewable: bool) -> str | None:
    at, ttl = _parse_timestamp(made.get("at")), made["ttl_seconds"]
    if at is None:
        return "does not say at what time (RFC 3339, with a time zone) the host was off"
    if isinstance(ttl, bool) or not isinstance(ttl, int) or not 1 <= ttl <= MAX_SECONDS:
        return f"has a ttl_seconds that is not a number from 1 to {MAX_SECONDS}"
    age = (now - at).total_seconds()
    # The clock may have been set back since an agent was asked. Its evidence gets a new date before a start.
    if age < -(ttl if is_renewable else CLOCK_SKEW_SECONDS):
        return f"is dated {-age:.0f} seconds in the future by the control node's clock"
    return f"is {age:.0f} seconds old and was valid for {ttl}" if age > ttl and not is_renewable else None


def _lower_text(value: Json) -> Json:
    return value.strip().lower() if isinstance(value, str) else value


def _parse_timestamp(value: Json | datetime.datetime) -> datetime.datetime | None:
    """Return a point in time that has a time zone; YAML makes a datetime of a bare one."""
    try:
        at = value if isinstance(value, datetime.datetime) else datetime.datetime.fromisoformat(t.cast(str, value))
        return None if at.utcoffset() is None else at.astimezone(datetime.UTC)
    except (TypeError, ValueError, OverflowError):
        return None


def _short_line(value: Json) -> str:
    """Return a foreign value as a short line."""
    return " ".join(plain_text(str(value).encode("utf-8", "replace")).split())[:500]


def _refused_evidence(what: str) -> Unsafe:
    return Unsafe(f"{what}.", f"Nothing was started. Fence the host again, or confirm that it is off with {HOW_TO_CONFIRM}.")


def ask_power(config: FencingConfig) -> PowerReply:
    """Query the first device of the host for its power state, and note the time before the query. This changes nothing."""
    at = utc_now()
    return PowerReply(query_device(config.levels[0][0]), at)


def fence_host(
    config: FencingConfig, host_id: str | None, by: str, before: PowerReply | None = None, await_reset: Callable[[], Proven | Void] | None = None
) -> Evidence:
    """Switch the host off and return the evidence. Each device takes its C(timeout_seconds) at most; one that reports the host as off is only queried.

    :arg host_id: the host's own id in the ledger, for the evidence.
    :arg by: who acts, e.g. C(root@control pid 4711).
    :arg before: what the first device has reported a moment ago; None if it was not queried.
    :arg await_reset: returns whether the watchdog has reset the host, which may take a while; called if no level succeeds. None if that is no evidence.
    :raises Unsafe: a device reports that the host is still on, or the host has no devices, and its watchdog does not show that it is off.
    :raises Unreachable: no level of devices can determine the power state.

    Both errors have the C(reason) C(fencing_impossible), the C(attempts), and the C(choices) of a person.
    """
    attempts = switch_levels_off(config, before)
    if attempts and attempts[-1].is_off:
        return agent_evidence(config, host_id, attempts, by)
    verdict = await_reset() if await_reset else None
    if isinstance(verdict, Proven):
        return watchdog_evidence(config, host_id, verdict, by, attempts)
    raise _impossible_error(config, attempts, verdict.why if verdict else "")


def confirm_evidence(
    evidence: Evidence, config: FencingConfig | None, now: datetime.datetime, open_leases: Callable[[], LeaseReader | None] = lambda: None
) -> Evidence:
    """Return evidence that is valid now; to be called before each start.

    If the host has agents, they are queried: evidence of a level of agents needs "off" of all of them again and gets a new date. Evidence of a person or of
    a tasks file stays valid while the agents cannot determine the power state, but not if one of them reports "on".

    :arg evidence: from L(fence_host) or L(check_evidence).
    :arg now: the time of the control node, aware.
    :arg open_leases: returns a reader of the leases, for evidence of a watchdog, see L(confirm_reset).
    :raises Unsafe: it is too old, the host is on again, or it is evidence of an agent that the inventory no longer names.
    :raises Unreachable: it came from the agent, which cannot determine the power state any more.
    """
    if evidence.is_of_watchdog:
        return confirm_reset(evidence, config, open_leases())
    if not evidence.is_of_agent:
        check_evidence(encode(evidence), evidence.host, evidence.host_id, evidence.by, now)
    if config is None:
        if evidence.is_of_agent:
            raise Unsafe(
                f"{evidence.host} was fenced by {evidence.agent}, but it has no {VARIABLE} to query it again.",
                f"Nothing was started. Set {VARIABLE} of {evidence.host} again.",
            )
        return evidence
    if config.host != evidence.host:
        raise Unsafe(f"The evidence is about {evidence.host}, the agent about {config.host}.", "Nothing was started.")
    return _confirm_by_level(evidence, config) if evidence.is_of_agent else _confirm_by_all(evidence, config)


def _confirm_by_level(evidence: Evidence, config: FencingConfig) -> Evidence:
    """Return evidence of agents with a new date: all devices of its level must report "off" again."""
    number, at = evidence.level or 1, utc_now()
    level = _find_level(config, number)
    if not level or (evidence.level and evidence.agent != name_agents(level)):
        raise Unsafe(
            f"{evidence.host} was fenced by level {number} ({evidence.agent}), which {VARIABLE} no longer names.",
            "Nothing was started. Run the task without this evidence, which fences the host again.",
        )
    if evidence.action != FenceAction.OFF and not all(device.is_status_evidence for device in level):
        raise Unsafe(f"A status of {evidence.agent} does not show that {evidence.host} is off.", _next_steps(config.host))
    replies = tuple(zip(level, query_level(level), strict=True))
    bad = next((one for one in replies if one[1].power is PowerState.ON), None) or next((one for one in replies if one[1].power is not PowerState.OFF), None)
    if bad:
        raise _not_confirmed_error(bad[0], evidence, bad[1])
    renewed = agent_evidence(config, evidence.host_id, [LevelAttempt.from_replies(number, replies, at)], evidence.by)
    # Without its "off", the status of some devices is no evidence.
    action = renewed.action if all(device.is_status_evidence for device in level) else evidence.action
    return dataclasses.replace(renewed, action=action, level=evidence.level, attempts=evidence.attempts)


def _confirm_by_all(evidence: Evidence, config: FencingConfig) -> Evidence:
    """Return the evidence of a person or of a tasks file, unless a device reports the host as on."""
    for device, reply in query_host(config).replies:
        if reply.power is PowerState.ON:
            raise _not_confirmed_error(device, evidence, reply)
    return evidence


def _impossible_error(config: FencingConfig, attempts: Sequence[LevelAttempt], watchdog: str = "") -> KvmfleetError:
    """Return the error for a host that no level of devices has switched off.

    :arg watchdog: why its watchdog does not show that it is off; empty if that was not asked.
    """
    made: JsonObject = {"reason": FENCING_IMPOSSIBLE, "attempts": encode(list_attempts(attempts)), "choices": list_choices(config.host)}
    if not attempts:
        return Unsafe(f"{config.host} could not be fenced: its watchdog does not show that it is off: {watchdog}.", _next_steps(config.host), **made)
    reset = f" Its watchdog does not show that it is off either: {watchdog}." if watchdog else ""
    refuting = [one for level in attempts for one in level.refuted_by]
    on = refuting or [one for level in attempts for one in level.devices if one.after.power is PowerState.ON]
    if config.has_levels:
        return (Unsafe if on else Unreachable)(_describe_levels(config, attempts) + reset, _next_steps(config.host), **made)
    (device,) = attempts[-1].devices
    if on:
        return Unsafe(f"{config.host} is still on after {device.device.agent} was told to switch it off: {device}.{reset}", _next_steps(config.host), **made)
    what = f"{config.host} could not be fenced: {device.device.agent} does not say that it is off: {device}.{reset}"
    return Unreachable(what, _next_steps(config.host), **made)


def _describe_levels(config: FencingConfig, attempts: Sequence[LevelAttempt]) -> str:
    """Return what each level did, in the order in which they were tried."""
    parts = [f"{one.device.label} {'is off' if one.is_off else f'does not say that it is off: {one}'}" for level in attempts for one in level.devices]
    refuting = sorted({one.device.label for level in attempts for one in level.refuted_by})
    refuted = f" {', '.join(refuting)} still reports it as on after that: the devices of a later level may switch another machine." if refuting else ""
    return f"{config.host} could not be fenced by any of its {len(config.levels)} levels: {'; '.join(parts)}.{refuted}"


def _not_confirmed_error(device: FenceDevice, evidence: Evidence, reply: AgentReply) -> KvmfleetError:
    source = {AGENT: "it was fenced", PERSON: f"{evidence.by} confirmed it", TASKS: "the tasks file fenced it"}[evidence.origin]
    host = device.host
    if reply.power is PowerState.ON:
        hint = f"Nothing more is started. If {device.label} is wrong, set {VARIABLE} of {host} to null; if somebody switched it on, fence it again."
        return Unsafe(f"{host} is on, says {device.label}, although {source} at {evidence.at}: {reply}.", hint)
    return Unreachable(f"{host} was off at {evidence.at}, but {device.label} no longer reports its state: {reply}.", _next_steps(host))


def list_choices(host: str) -> list[str]:
    """Return what a person can do about a host that cannot be fenced. A later run goes on by itself as soon as a device answers."""
    return [
        "Repair the connection to its BMC, or the leases that its watchdog needs, and run this again",
        f"give another agent in {VARIABLE} of {host}, e.g. for its power strip, or watchdog_seconds if its watchdog was bound to its lease",
        "fence it by a tasks file of your own",
        f"when a person has seen that {host} is off, confirm it with {HOW_TO_CONFIRM}",
    ]


def _next_steps(host: str) -> str:
    repair, another, tasks, person = list_choices(host)
    return f"Nothing was started. {repair}; or {another}; or {tasks}; or, {person}."
