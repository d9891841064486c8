# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Fencing a host, and asking again whether it is still off."""

from __future__ import annotations

import datetime
import time

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import KvmfleetError, Unreachable, Unsafe

from .agent import Action, Power, Reply, call
from .config import VARIABLE, Fencing
from .evidence import FENCE_AGENT, Evidence, agent_evidence, check_evidence

_POLL_SECONDS = 1


def ask_power(config: Fencing) -> Reply:
    """Ask the agent whether the host is on; this changes nothing."""
    return call(config, Action.STATUS, config.status_timeout_seconds)


def fence(config: Fencing, host_id: str | None, by: str) -> Evidence:
    """Switch the host off and return the evidence; one that is off already is left alone. It takes C(timeout_seconds) at most.

    :arg host_id: the host's own id in the ledger, for the evidence.
    :arg by: who acts, e.g. C(root@control pid 4711).
    :raises Unsafe: the agent says that the host is still on.
    :raises Unreachable: the agent cannot tell.
    """
    deadline = time.monotonic() + config.timeout_seconds
    before = _ask(config, deadline)
    if before.power is Power.OFF:
        return agent_evidence(config, host_id, before, by)
    left = deadline - time.monotonic()
    sent = call(config, Action.OFF, max(left - config.status_timeout_seconds, left / 2))
    after = _wait_for_off(config, sent, deadline)
    if after.power is not Power.OFF:
        raise _not_off(config, sent, after)
    return agent_evidence(config, host_id, after, by, Action.OFF)


def _ask(config: Fencing, deadline: float) -> Reply:
    return call(config, Action.STATUS, min(config.status_timeout_seconds, max(deadline - time.monotonic(), 0)))


def _wait_for_off(config: Fencing, sent: Reply, deadline: float) -> Reply:
    """Ask until the host is off or the time is over; only once where the agent says itself that it failed."""
    reply = _ask(config, deadline)
    while sent.done and reply.power is not Power.OFF and deadline - time.monotonic() > _POLL_SECONDS:
        time.sleep(_POLL_SECONDS)
        reply = _ask(config, deadline)
    return reply


def confirm(evidence: Evidence, config: Fencing | None, now: datetime.datetime) -> Evidence:
    """Return evidence that holds now, to be asked for before each start.

    Where the host has an agent it is asked: what an agent once said needs "off" again and is dated anew. A person's word and that of a tasks file
    stand while the agent cannot tell, but not against an agent that says "on".

    :arg evidence: from L(fence) or L(check_evidence).
    :arg now: the time of the control node, aware.
    :raises Unsafe: it is too old, the host is on again, or it is evidence of an agent that the inventory no longer names.
    :raises Unreachable: it came from the agent, and the agent cannot tell any more.
    """
    if evidence["kind"] != FENCE_AGENT:
        check_evidence(evidence, evidence["host"], evidence["host_id"], evidence["by"], now)
    if config is None:
        if evidence["kind"] == FENCE_AGENT:
            raise Unsafe(f"{evidence['host']} was fenced by {evidence['agent']}, but it has no {VARIABLE} to be asked again.", "Nothing was started.")
        return evidence
    if config.host != evidence["host"]:
        raise Unsafe(f"The evidence is about {evidence['host']}, the agent about {config.host}.", "Nothing was started.")
    reply = ask_power(config)
    if reply.power is Power.ON or (evidence["kind"] == FENCE_AGENT and reply.power is not Power.OFF):
        raise _not_confirmed(config, evidence, reply)
    return agent_evidence(config, evidence["host_id"], reply, evidence["by"]) if evidence["kind"] == FENCE_AGENT else evidence


def _not_off(config: Fencing, sent: Reply, after: Reply) -> KvmfleetError:
    if after.power is Power.ON:
        return Unsafe(f"{config.host} is still on after {config.agent} was told to switch it off: {sent}; {after}.", _choices(config.host))
    return Unreachable(f"{config.host} could not be fenced: {config.agent} does not say that it is off: {sent}; {after}.", _choices(config.host))


def _not_confirmed(config: Fencing, evidence: Evidence, reply: Reply) -> KvmfleetError:
    source = {FENCE_AGENT: "it was fenced", "person": f"{evidence['by']} gave their word", "tasks": "the tasks file fenced it"}[evidence["kind"]]
    if reply.power is Power.ON:
        hint = f"Nothing more is started. If {config.agent} is wrong, set {VARIABLE} of {config.host} to null; if somebody switched it on, fence it again."
        return Unsafe(f"{config.host} is on, says {config.agent}, although {source} at {evidence['at']}: {reply}.", hint)
    return Unreachable(f"{config.host} was off at {evidence['at']}, but {config.agent} cannot tell any more: {reply}.", _choices(config.host))


def _choices(host: str) -> str:
    return (
        f"Nothing was started. Either mend the way to its BMC and run this again; or give another agent in {VARIABLE} of {host}, e.g. for its power strip; "
        f"or fence it by a tasks file of your own; or, when a person has seen that {host} is off, give their word with force_down and a reason."
    )
