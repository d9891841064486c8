# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Switches a host on again that its fence agent has switched off, for maintenance or after a drill. An evacuation never does this."""

from __future__ import annotations

import time

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Unreachable

from .fence_agent import AgentReply, FenceAction, PowerState, call_agent
from .fence_config import FenceDevice, FencingConfig
from .fence_levels import HostPower, do_at_once, query_device, query_host

_POLL_SECONDS = 1


_LEFT_OFF = "It has no guests, and stays in maintenance."


def switch_on(config: FencingConfig, power: HostPower | None = None, left_off: str = _LEFT_OFF) -> None:
    """Switch the host on by all devices that report it as off, those of the last level first. Each takes its C(timeout_seconds) at most, and one more status.

    :arg power: what the devices have reported since the host was switched off; None if they are to be asked.
    :arg left_off: what is true of a host that stays off, as a sentence.
    :raises Unreachable: a device does not report the host as on.
    """
    devices = list_switched_off(config, power)
    sent = [call_agent(device, FenceAction.ON, device.timeout_seconds) for device in devices]
    replies = do_at_once(lambda one: _wait_for_on(*one), list(zip(devices, sent, strict=True)))
    for device, own, reply in zip(devices, sent, replies, strict=True):
        if reply.power is not PowerState.ON:
            raise Unreachable(
                f"{config.host} was switched off, and {device.label} does not report that it is on again: {own}; {reply}.",
                f"Switch it on at its console or BMC. {left_off}",
            )


def list_switched_off(config: FencingConfig, power: HostPower | None) -> list[FenceDevice]:
    """Return the devices that have to switch the host on: the first level if none reports it as off. A power strip comes before a BMC that it supplies."""
    if len(config.devices) == 1:
        return list(config.devices)
    off = (power or query_host(config)).devices_in(PowerState.OFF)
    return [device for level in reversed(config.levels) for device in level if device in off] or list(config.levels[0])


def _wait_for_on(device: FenceDevice, sent: AgentReply) -> AgentReply:
    deadline = time.monotonic() + device.timeout_seconds
    reply = query_device(device)
    while sent.done and reply.power is not PowerState.ON and deadline - time.monotonic() > _POLL_SECONDS:
        time.sleep(_POLL_SECONDS)
        reply = query_device(device)
    return reply
