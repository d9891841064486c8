# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Switches a host on again that its fence agent has switched off, for maintenance. An evacuation never does this."""

from __future__ import annotations

import time

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Unreachable

from .fence_agent import AgentReply, FenceAction, PowerState, call_agent
from .fence_config import FencingConfig
from .fencing import query_power

_POLL_SECONDS = 1


def switch_on(config: FencingConfig) -> AgentReply:
    """Switch the host on and return the status that its agent reports then. It takes C(timeout_seconds) at most, and one more status.

    Raises L(Unreachable) if the agent does not report the host as on.
    """
    deadline = time.monotonic() + config.timeout_seconds
    sent = call_agent(config, FenceAction.ON, config.timeout_seconds)
    reply = query_power(config)
    while sent.done and reply.power is not PowerState.ON and deadline - time.monotonic() > _POLL_SECONDS:
        time.sleep(_POLL_SECONDS)
        reply = query_power(config)
    if reply.power is PowerState.ON:
        return reply
    raise Unreachable(
        f"{config.host} was switched off, and {config.agent} does not report that it is on again: {sent}; {reply}.",
        "Switch it on at its console or BMC. It has no guests, and stays in maintenance.",
    )
