# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A clock of the day that can be set, for one Python: what asks C(time) or C(datetime) for now goes by it. Monotonic clocks stay as they are."""

from __future__ import annotations

import datetime
import time
import typing as t

_NANO = 10**9
_REAL_NS = time.time_ns


class SetDatetime(datetime.datetime):
    """What C(datetime.datetime) is from now on: only C(now) and what stands on it differ."""

    @classmethod
    def now(cls, tz: t.Optional[datetime.tzinfo] = None) -> SetDatetime:
        return cls.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls) -> SetDatetime:
        return cls.now(datetime.UTC).replace(tzinfo=None)

    @classmethod
    def today(cls) -> SetDatetime:
        return cls.now()

    def __repr__(self) -> str:
        # As C's own has it: Ansible writes it into the code of modules.
        return f"datetime.{super().__repr__()}"


# Other processes find it under the name that they know.
SetDatetime.__name__ = SetDatetime.__qualname__ = "datetime"
SetDatetime.__module__ = "datetime"


def install(file: str) -> None:
    """Go from now on by the real time and as many seconds more as the file says at that moment."""

    def time_ns() -> int:
        with open(file, encoding="utf-8") as stream:
            return _REAL_NS() + int(stream.read()) * _NANO

    time.time_ns = time_ns
    time.time = lambda: time_ns() / _NANO
    datetime.datetime = SetDatetime  # type: ignore[misc]
