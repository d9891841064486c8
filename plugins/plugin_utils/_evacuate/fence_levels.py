# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Switches a host off by its devices, level by level, and asks them for its power state.

All devices of a level must report the host as off. The next level is tried only when a device fails. A device of an earlier level that still reports the host
as on after that refutes the later level: its plugs may be those of another machine.
"""

from __future__ import annotations

import concurrent.futures
import time
import typing as t
from collections.abc import Callable, Sequence
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import utc_now
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.evidence import FenceAttempt

from .fence_agent import AgentReply, FenceAction, PowerState, call_agent
from .fence_config import FenceDevice, FenceLevel, FencingConfig
from .sbd_message import send_off_message

_POLL_SECONDS = 1
# How long a controller may go on after the power of its host was cut, before its report counts against the cut.
_FADE_SECONDS = 10
# What a shell reports for a program that it cannot run.
_EXIT_NOT_STARTED = 126

_Given = t.TypeVar("_Given")
_Got = t.TypeVar("_Got")


def do_at_once(act: Callable[[_Given], _Got], given: Sequence[_Given]) -> list[_Got]:
    """Return the results of all calls in order, once all have ended; raises the first error."""
    if len(given) < 2:
        return [act(one) for one in given]
    with concurrent.futures.ThreadPoolExecutor(len(given)) as pool:
        return [one.result() for one in [pool.submit(act, one) for one in given]]


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


@dataclass(frozen=True)
class DeviceAttempt:
    """What one device did.

    :arg sent: the reply to C(off); None if the device was only asked for the status.
    :arg after: its last status.
    :arg at: the time that its evidence has.
    """

    device: FenceDevice
    sent: AgentReply | None
    after: AgentReply
    at: str

    @property
    def is_off(self) -> bool:
        """Whether the device shows that the host is off."""
        is_sent = self.sent is not None and self.sent.done
        return self.after.power is PowerState.OFF and (self.device.is_status_evidence or is_sent)

    @property
    def action(self) -> FenceAction:
        """The action that led to its last status."""
        return FenceAction.OFF if self.sent else FenceAction.STATUS

    def __str__(self) -> str:
        return f"{self.sent}; {self.after}" if self.sent else str(self.after)


@dataclass(frozen=True)
class LevelAttempt:
    """What the devices of one level did.

    :arg number: of the level, from 1.
    :arg is_whole: whether all its devices were called.
    :arg refuted_by: devices of earlier levels that report the host as on nevertheless.
    """

    number: int
    devices: tuple[DeviceAttempt, ...]
    is_whole: bool
    refuted_by: tuple[DeviceAttempt, ...] = ()

    @classmethod
    def from_replies(cls, number: int, replies: Sequence[tuple[FenceDevice, AgentReply]], at: str) -> LevelAttempt:
        """Return a level whose devices were only asked for their status, at that time."""
        return cls(number, tuple(DeviceAttempt(device, None, reply, at) for device, reply in replies), True)

    @property
    def is_off(self) -> bool:
        """Whether the level shows that the host is off."""
        return self.is_whole and not self.refuted_by and all(one.is_off for one in self.devices)

    @property
    def action(self) -> FenceAction:
        """C(off) if one of its devices was told so."""
        return FenceAction.OFF if any(one.sent for one in self.devices) else FenceAction.STATUS

    @property
    def at(self) -> str:
        """The earliest time of its devices."""
        return min(one.at for one in self.devices)

    @property
    def output(self) -> str:
        """What its agents printed."""
        return "\n".join(one.after.output for one in self.devices)

    def list_attempts(self) -> list[FenceAttempt]:
        """Return the attempts as evidence keeps them."""
        return [
            FenceAttempt(self.number, place, one.device.agent, one.action.value, one.after.power.value, _shown_output(one), one.at)
            for place, one in enumerate(self.devices, 1)
        ]


def _shown_output(attempt: DeviceAttempt) -> str:
    return attempt.after.output if attempt.is_off or not attempt.sent else str(attempt)


def query_device(device: FenceDevice) -> AgentReply:
    """Query a device for the power state of the host; this changes nothing."""
    return call_agent(device, FenceAction.STATUS, device.status_timeout_seconds)


def query_level(level: FenceLevel) -> list[AgentReply]:
    """Query all devices of a level at once. One that reports no state is queried again, for C(status_timeout_seconds) in all.

    Each survivor of an evacuation queries the device of the dead host, and BMCs and power strips accept few logins at a time, some only one.
    """
    return do_at_once(_query_patiently, level)


def _query_patiently(device: FenceDevice) -> AgentReply:
    deadline = time.monotonic() + device.status_timeout_seconds
    reply = _query_before(device, deadline)
    while reply.power is PowerState.UNKNOWN and deadline - time.monotonic() > _POLL_SECONDS:
        time.sleep(_POLL_SECONDS)
        reply = _query_before(device, deadline)
    return reply


def switch_levels_off(config: FencingConfig, before: PowerReply | None = None) -> list[LevelAttempt]:
    """Switch the host off and return what was tried; only the last level may have succeeded.

    :arg before: what the first device has reported a moment ago; None if it was not queried.
    """
    attempts: list[LevelAttempt] = []
    for number, level in enumerate(config.levels, 1):
        attempt = _switch_level_off(number, level, before if number == 1 else None, config.has_levels)
        if attempt.is_off:
            attempt = replace(attempt, refuted_by=_find_refuting(attempts))
        attempts.append(attempt)
        if attempt.is_off:
            break
    return attempts


def _switch_level_off(number: int, level: FenceLevel, before: PowerReply | None, may_fail: bool) -> LevelAttempt:
    """Switch off one device after the other, up to the first that fails, and then ask all of them again."""
    done: list[DeviceAttempt] = []
    for place, device in enumerate(level):
        try:
            done.append(switch_device_off(device, before if place == 0 else None))
        except InvalidArgument as error:
            # The agent cannot be started. Another level may do without it.
            if not may_fail:
                raise
            done.append(DeviceAttempt(device, None, AgentReply(FenceAction.STATUS, _EXIT_NOT_STARTED, error.message), utc_now()))
        if not done[-1].is_off:
            break
    if len(done) > 1 and done[-1].is_off:
        # The first device may have been switched on again meanwhile.
        last = query_level(level[: len(done) - 1])
        done = [*(replace(one, after=reply) for one, reply in zip(done, last, strict=False)), done[-1]]
    return LevelAttempt(number, tuple(done), len(done) == len(level))


def switch_device_off(device: FenceDevice, before: PowerReply | None = None) -> DeviceAttempt:
    """Switch the host off by one device; if it reports the host as off, it is only queried. This takes C(timeout_seconds) at most."""
    deadline = time.monotonic() + device.timeout_seconds
    known = before or PowerReply(_query_before(device, deadline), utc_now())
    if known.reply.power is PowerState.OFF and device.is_status_evidence:
        return DeviceAttempt(device, None, known.reply, known.at)
    left = deadline - time.monotonic()
    limit = max(left - device.status_timeout_seconds, left / 2)
    sent = send_off_message(device, device.disks, limit) if device.disks else call_agent(device, FenceAction.OFF, limit)
    return DeviceAttempt(device, sent, _wait_for_off(device, sent, deadline), utc_now())


def _query_before(device: FenceDevice, deadline: float) -> AgentReply:
    return call_agent(device, FenceAction.STATUS, min(device.status_timeout_seconds, max(deadline - time.monotonic(), 0)))


def _wait_for_off(device: FenceDevice, sent: AgentReply, deadline: float) -> AgentReply:
    """Query until the host is off or the time is over; only once if the agent itself reported a failure."""
    reply = _query_before(device, deadline)
    while sent.done and reply.power is not PowerState.OFF and deadline - time.monotonic() > _POLL_SECONDS:
        time.sleep(_POLL_SECONDS)
        reply = _query_before(device, deadline)
    return reply


def _find_refuting(earlier: Sequence[LevelAttempt]) -> tuple[DeviceAttempt, ...]:
    """Return the devices of failed levels that reported the host as on, and still do."""
    doubtful = [one for level in earlier for one in level.devices if one.after.power is PowerState.ON]
    deadline = time.monotonic() + _FADE_SECONDS
    while doubtful:
        replies = do_at_once(query_device, [one.device for one in doubtful])
        doubtful = [replace(one, after=reply) for one, reply in zip(doubtful, replies, strict=True) if reply.power is PowerState.ON]
        if time.monotonic() >= deadline:
            break
        if doubtful:
            time.sleep(_POLL_SECONDS)
    return tuple(doubtful)


@dataclass(frozen=True)
class HostPower:
    """What all devices of a host report, by level.

    :arg at: the time before they were asked.
    """

    levels: tuple[tuple[tuple[FenceDevice, AgentReply], ...], ...]
    at: str

    @property
    def replies(self) -> list[tuple[FenceDevice, AgentReply]]:
        """The devices of all levels, with their replies."""
        return [one for level in self.levels for one in level]

    def devices_in(self, power: PowerState) -> list[FenceDevice]:
        """Return the devices that report this state."""
        return [device for device, reply in self.replies if reply.power is power]

    @property
    def is_on(self) -> bool:
        """Whether devices report the host as on, and none as off."""
        return bool(self.devices_in(PowerState.ON)) and not self.devices_in(PowerState.OFF)

    @property
    def is_off(self) -> bool:
        """Whether devices report the host as off, and none as on. This alone is no evidence, see L(find_off)."""
        return bool(self.devices_in(PowerState.OFF)) and not self.devices_in(PowerState.ON)

    def find_off(self) -> int | None:
        """Return the number of the first level all of whose devices show that the host is off, if no device reports it as on."""
        if self.devices_in(PowerState.ON):
            return None
        shown = [all(device.is_status_evidence and reply.power is PowerState.OFF for device, reply in level) for level in self.levels]
        return shown.index(True) + 1 if any(shown) else None

    def __str__(self) -> str:
        several = len(self.replies) > 1
        return "; ".join(f"{device.label}: {reply}" if several else str(reply) for device, reply in self.replies)


def query_host(config: FencingConfig) -> HostPower:
    """Query all devices of a host at once; this changes nothing."""
    return _query_host_by(query_device, config)


def query_host_patiently(config: FencingConfig) -> HostPower:
    """Query all devices of a host at once, as L(query_level) does: many hosts may have one power strip."""
    return _query_host_by(_query_patiently, config)


def _query_host_by(query: Callable[[FenceDevice], AgentReply], config: FencingConfig) -> HostPower:
    at = utc_now()
    replies = iter(do_at_once(query, config.devices))
    return HostPower(tuple(tuple((device, next(replies)) for device in level) for level in config.levels), at)
