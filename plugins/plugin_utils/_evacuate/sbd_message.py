# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Tells a host to end by a message on shared disks, as C(fence_sbd) does, and waits until the message counts.

C(fence_sbd) itself is not called for this: if one disk has a message already, it ends at once with success ("Already OFF"), and writes and waits for nothing.
"""

from __future__ import annotations

import time

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument

from .fence_agent import AgentReply, FenceAction, ProgramResult, plain_text, redact_secrets, run_program
from .fence_config import VARIABLE, FenceDevice
from .sbd_disks import SbdDisks, compute_wait, parse_times

_DUMP_SECONDS = 10.0
_FAILED = 1


def send_off_message(device: FenceDevice, disks: SbdDisks, limit_seconds: float) -> AgentReply:
    """Write the message, and return when it counts, or has failed. The reply is C(done) only if it counts on more than half of the disks.

    :raises InvalidArgument: the disks are not fit for that, or the time limit is shorter than what a message needs; nothing was written.
    """
    deadline = time.monotonic() + limit_seconds
    wait = _read_wait(device, disks, deadline)
    begun = time.monotonic()
    if deadline - begun <= wait:
        raise InvalidArgument(
            f"{VARIABLE} of {device.host}: a message on the disks of {device.label} counts after {wait} s, and only {max(deadline - begun, 0):.0f} s are left"
            f" of its timeout_seconds ({device.timeout_seconds}) for that.",
            f"Give timeout_seconds of {wait + 2 * device.status_timeout_seconds + 30} or more. Nothing was written to the disks.",
        )
    finished = _run(device, disks, disks.off_arguments(), deadline - begun)
    took, text = time.monotonic() - begun, plain_text(finished.output)
    code = finished.exit_code
    if code == 0 and took < wait:
        code, text = _FAILED, f"{text}\nsbd ended after {took:.1f} s, and a message counts after {wait} s"
    return AgentReply(FenceAction.OFF, code, redact_secrets(text, device.secrets(), finished.torn, finished.exit_code is None))


def _read_wait(device: FenceDevice, disks: SbdDisks, deadline: float) -> int:
    """Return after how many seconds a message counts, by the headers of the disks."""
    times = {}
    for path in disks.paths:
        left = min(_DUMP_SECONDS, max(deadline - time.monotonic(), 0.1))
        finished = _run(device, disks, disks.dump_arguments(path), left)
        times[path] = parse_times(plain_text(finished.output)) if finished.exit_code == 0 else None
    return compute_wait(times, f"{VARIABLE} of {device.host}: {device.label}")


def _run(device: FenceDevice, disks: SbdDisks, arguments: list[str], limit_seconds: float) -> ProgramResult:
    try:
        return run_program(disks.program, b"", limit_seconds, arguments)
    except OSError as error:
        raise InvalidArgument(
            f"{VARIABLE} of {device.host}: {disks.program} cannot be run on the control node: {error.strerror}.",
            f"Install the package sbd there. {device.host} was not fenced and nothing was started.",
        ) from error
