# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What the inventory says of a host to the scheduler: C(kvmfleet_scheduler)."""

from __future__ import annotations

import math
import typing as t
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument

VARIABLE = "kvmfleet_scheduler"
WEIGHTS: t.Final[Mapping[str, float]] = {"free_memory": 1.0, "free_cpu": 1.0, "soft_groups": 1.0, "moves": -1.0}

_HIGHEST = 1e9


@dataclass(frozen=True)
class Limits:
    """How many domains a host may have active, how many moves it may take part in at once, and how many the whole fleet may; None is no limit."""

    domains: t.Optional[int] = None
    moves_in: t.Optional[int] = None
    moves_out: t.Optional[int] = None
    moves_total: t.Optional[int] = None


@dataclass(frozen=True)
class SchedulerSettings:
    """How much of a host may be given away, what it is marked with, and how much it is wanted. Ratios as in Nova."""

    cpu_allocation_ratio: float = 4.0
    ram_allocation_ratio: float = 1.0
    disk_allocation_ratio: float = 1.0
    reserved_memory_mib: int = 512
    reserved_cpus: int = 0
    labels: frozenset[str] = frozenset()
    limits: Limits = Limits()
    weights: Mapping[str, float] = field(default_factory=lambda: WEIGHTS, hash=False)

    @classmethod
    def of(cls, value: t.Any, host: str) -> SchedulerSettings:
        """Return the settings of a host. Raises L(InvalidArgument) naming variable, host, value and what is allowed."""
        return _over(cls(), value, VARIABLE, f" of {host}")

    def with_task(self, value: t.Any) -> SchedulerSettings:
        """Return these settings with those of a task's C(scheduler) over them, limits and weights one by one. Raises L(InvalidArgument)."""
        return _over(self, value, "scheduler", "")

    def as_json(self) -> dict[str, t.Any]:
        """Return them as a plan document keeps them."""
        return {**asdict(self), "labels": sorted(self.labels), "weights": dict(self.weights)}


def _over(base: SchedulerSettings, value: t.Any, variable: str, whose: str) -> SchedulerSettings:
    if value is None:
        return base
    changes: dict[str, t.Any] = {}
    for key, given in _checked_keys(value, _READERS, variable, whose).items():
        name = f"{variable}.{key}"
        if key == "limits":
            changes[key] = replace(base.limits, **_each(given, dict.fromkeys(asdict(Limits()), _limit), name, whose))
        elif key == "weights":
            changes[key] = {**base.weights, **_each(given, dict.fromkeys(WEIGHTS, _weight), name, whose)}
        else:
            changes[key] = _READERS[key](given, name, whose)
    return replace(base, **changes)


def _each(value: t.Any, readers: Mapping[str, Reader], variable: str, whose: str) -> dict[str, t.Any]:
    given = {} if value is None else _checked_keys(value, readers, variable, whose)
    return {key: readers[key](item, f"{variable}.{key}", whose) for key, item in given.items()}


def _checked_keys(value: t.Any, known: Mapping[str, t.Any], variable: str, whose: str) -> Mapping[str, t.Any]:
    if not isinstance(value, Mapping):
        raise _wrong(variable, whose, value, "a dictionary")
    unknown = [str(key) for key in value if key not in known]
    if unknown:
        raise InvalidArgument(f"{variable}{whose} has the unknown {', '.join(unknown)}.", f"Known are: {', '.join(known)}.")
    return value


def _wrong(variable: str, whose: str, value: t.Any, allowed: str) -> InvalidArgument:
    return InvalidArgument(f"{variable}{whose} is {value!r}.", f"Give {allowed}.")


def _plain(value: t.Any) -> float:
    """Return the number, or not-a-number; what was templated may come as text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return math.nan
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return math.nan
    return number if abs(number) <= _HIGHEST else math.nan


def _ratio(value: t.Any, variable: str, whose: str) -> float:
    number = _plain(value)
    if not number > 0:
        raise _wrong(variable, whose, value, "a number above 0, such as 1.0")
    return number


def _weight(value: t.Any, variable: str, whose: str) -> float:
    number = _plain(value)
    if math.isnan(number):
        raise _wrong(variable, whose, value, "a number; 0 takes no notice, a negative one turns the wish round")
    return number


def _whole(value: t.Any, variable: str, whose: str) -> int:
    number = _plain(value)
    if not number >= 0 or number != int(number):
        raise _wrong(variable, whose, value, "a whole number that is not negative")
    return int(number)


def _limit(value: t.Any, variable: str, whose: str) -> t.Optional[int]:
    return None if value is None else _whole(value, variable, whose)


def _labels(value: t.Any, variable: str, whose: str) -> frozenset[str]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(label, str) and label for label in value):
        raise _wrong(variable, whose, value, "a list of labels")
    return frozenset(value)


Reader = Callable[[t.Any, str, str], t.Any]

_READERS: t.Final[Mapping[str, Reader]] = {
    "cpu_allocation_ratio": _ratio,
    "ram_allocation_ratio": _ratio,
    "disk_allocation_ratio": _ratio,
    "reserved_memory_mib": _whole,
    "reserved_cpus": _whole,
    "labels": _labels,
    "limits": _limit,
    "weights": _weight,
}
