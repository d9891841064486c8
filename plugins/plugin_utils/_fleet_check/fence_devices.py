# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whether the fence devices of a host that answers report it as on. Without this question, the next evacuation is the first to use them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument

from .._evacuate.fence_agent import AgentReply, PowerState
from .._evacuate.fence_config import FenceDevice, parse_fencing
from .._evacuate.fence_levels import query_host
from .differences import FENCING, Finding


def ask_fence_devices(given: Json, host: str) -> list[str]:
    """Return what is wrong with the fence devices of a host that has just answered, as sentences. This changes nothing.

    :arg given: its C(kvmfleet_fencing).
    """
    try:
        config = parse_fencing(given, host)
        replies = query_host(config).replies if config else []
    except InvalidArgument as error:
        return [error.message]
    on = next((device.label for device, reply in replies if reply.power is PowerState.ON), None)
    return [problem for device, reply in replies if (problem := _find_problem(host, device, reply, on))]


def _find_problem(host: str, device: FenceDevice, reply: AgentReply, on: str | None) -> str:
    """:arg on: a device that reports the host as on, if there is one."""
    if reply.power is PowerState.UNKNOWN:
        return f"{device.label} of {host} does not report a power state: {reply}. As long as that is so, it cannot fence {host}."
    if reply.power is PowerState.OFF and device.is_status_evidence and on:
        return (
            f"{device.label} of {host} reports it as off, while {on} reports it as on, and {host} answers: one of several power supplies was left off, or it is"
            f" the device of another machine. Switch it on, or correct kvmfleet_fencing of {host}."
        )
    if reply.power is PowerState.OFF and device.is_status_evidence:
        return (
            f"{device.label} of {host} reports it as off, and {host} answers: it is probably the device of another machine."
            f" An evacuation would take {host} for off. Correct kvmfleet_fencing of {host}."
        )
    return ""


def find_fence_problems(problems: Mapping[str, Sequence[str]]) -> list[Finding]:
    """Return a finding for each of the problems, which L(ask_fence_devices) has returned by host."""
    return [Finding(FENCING, (host,), problem) for host, listed in sorted(problems.items()) for problem in listed]
