# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Two kinds of points in time: timestamps in records, and moments on a clock that nobody can set.

Durations are never computed from timestamps, because the wall clock may be stepped. A moment is valid on one machine until its next boot.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import subprocess
import time
import typing as t

from .._dataclass import dataclass
from .codec import Json, JsonObject, ShapeError, decode

# Linux names each start of its kernel, containers included; so does macOS, where a control node may run.
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_BOOT_ID_COMMAND = ("sysctl", "-n", "kern.bootsessionuuid")
# This clock continues while the machine is suspended.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def utc_now() -> str:
    """Return the time now as RFC 3339 in UTC with milliseconds, e.g. C(2026-11-21T03:00:00.000Z)."""
    return utc_before(0)


def utc_before(elapsed_ms: int) -> str:
    """Return the time that many milliseconds ago, in the form of L(utc_now)."""
    return format_time(datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(milliseconds=elapsed_ms))


def format_time(at: datetime.datetime) -> str:
    """Return a time in UTC in the form of L(utc_now)."""
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_timestamp(stamp: Json) -> t.Optional[datetime.datetime]:
    """Return the point in time; null for anything but an RFC 3339 timestamp with a time zone."""
    if not isinstance(stamp, str):
        return None
    try:
        # Python 3.9 does not know the Z.
        at = datetime.datetime.fromisoformat(f"{stamp[:-1]}+00:00" if stamp.endswith("Z") else stamp)
    except ValueError:
        return None
    return at if at.tzinfo is not None else None


@dataclass(frozen=True)
class BootMoment:
    """A point in time on one machine.

    :arg boot_id: which start of the machine; empty if it has no name, so that the moment compares with no other.
    :arg seconds: since that start.
    """

    boot_id: str
    seconds: float
    extra: JsonObject = dataclasses.field(default_factory=dict)

    def check(self) -> None:
        """Raise L(ShapeError) for a moment without a boot ID, which is meaningless once it was stored."""
        if not self.boot_id:
            raise ShapeError("boot_id", "the identifier of a boot")

    def seconds_since(self, earlier: BootMoment) -> t.Optional[float]:
        """Return the seconds since another moment, negative for a later one; null if the two cannot be compared."""
        return self.seconds - earlier.seconds if self.boot_id and self.boot_id == earlier.boot_id else None

    def has_passed(self, now: BootMoment) -> bool:
        """Whether it is over. So is a moment that cannot be compared with the present, which is of an earlier boot."""
        left = self.seconds_since(now)
        return left is None or left <= 0


@dataclass(frozen=True)
class HostClock:
    """The clock of a host, from one of its answers.

    :arg at: the moment of that answer on the host.
    :arg received: when it was received, by the monotonic clock of the control node.
    """

    at: BootMoment
    received: float

    def moment_of(self, here: float) -> BootMoment:
        """Return the moment of the host that corresponds to a time of the control node: not later than the true one, but earlier by the way of the answer."""
        return dataclasses.replace(self.at, seconds=self.at.seconds + here - self.received)


def read_moment(value: Json) -> t.Optional[BootMoment]:
    """Return the moment that a JSON value represents; null if it cannot be compared."""
    try:
        return decode(BootMoment, value)
    except ShapeError:
        return None


def boot_moment() -> BootMoment:
    """Return now, on this machine."""
    return BootMoment(_boot_id(), time.clock_gettime(_CLOCK))


@functools.cache
def _boot_id() -> str:
    try:
        with open(_BOOT_ID, encoding="ascii") as stream:
            return stream.read().strip()
    except OSError:
        pass
    try:
        return subprocess.run(_BOOT_ID_COMMAND, capture_output=True, text=True, timeout=5, check=True, stdin=subprocess.DEVNULL).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
