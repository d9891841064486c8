# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The options of a balance, checked."""

from __future__ import annotations

import math
import typing as t
from collections.abc import Mapping
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import Json
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument

from .._drain.inputs import DrainOptions
from .._drain.saved_plan import short_text
from .pressure import RESOURCES, Vector

NOTHING_PLANNED: t.Final = "Nothing was planned."

# Relieve hosts under pressure; or even out the use of all hosts, whether they are under pressure or not.
PRESSURE, EVEN = "pressure", "even"
GOALS = (PRESSURE, EVEN)

MOST_MOVES, MOST_WEIGHT = 100_000, 10.0
_DEFAULT_WEIGHTS: t.Final[Mapping[str, float]] = dict.fromkeys(RESOURCES, 1.0)
# The range of each option that is a number.
_RANGES: t.Final[Mapping[str, tuple[float, float]]] = {
    "tolerated_pressure": (0.0, 1.0),
    "tolerated_unevenness": (0.0, 10.0),
    "min_gain": (0.0, 1.0),
    "horizon_seconds": (60.0, 30 * 86400.0),
    "cooldown_seconds": (0.0, 365 * 86400.0),
    "max_age_seconds": (1.0, 86400.0),
}


@dataclass(frozen=True)
class BalanceOptions:
    """The options of the operator.

    :arg max_moves: of the whole plan.
    :arg weights: of each resource, by its name; 0 leaves it out.
    :arg tolerated_pressure: a host is relieved if its pressure on a resource is higher; no move raises that of its destination above it.
    :arg tolerated_unevenness: with the goal C(even), the score divided by the number of hosts from which on no further domain moves.
    :arg min_gain: the least gain of a move.
    :arg horizon_seconds: for how long the gain of a move is expected to last.
    :arg cooldown_seconds: for how long a domain stays after a move.
    :arg max_age_seconds: of facts.
    :arg maintenance_allowed: whether a balance is planned although hosts are in maintenance. They are left out.
    :arg moves: the options of the moves themselves.
    """

    goal: str = PRESSURE
    max_moves: int = 20
    weights: Mapping[str, float] = field(default_factory=lambda: _DEFAULT_WEIGHTS, hash=False)
    tolerated_pressure: float = 0.1
    tolerated_unevenness: float = 0.0
    min_gain: float = 0.02
    horizon_seconds: float = 3600.0
    cooldown_seconds: float = 86400.0
    max_age_seconds: float = 600.0
    maintenance_allowed: bool = False
    moves: DrainOptions = field(default_factory=DrainOptions)

    def __post_init__(self) -> None:
        """Raise L(InvalidArgument) for the first value that is out of range."""
        if self.goal not in GOALS:
            raise _unusable("goal", self.goal, f"Give one of: {', '.join(GOALS)}.")
        if isinstance(self.max_moves, bool) or not isinstance(self.max_moves, int) or not 0 <= self.max_moves <= MOST_MOVES:
            raise _unusable("max_moves", self.max_moves, f"Give a whole number from 0 to {MOST_MOVES}.")
        for name, (least, most) in _RANGES.items():
            if not _is_number(getattr(self, name), least, most):
                raise _unusable(name, getattr(self, name), f"Give a number from {least:g} to {most:g}.")
        if not isinstance(self.maintenance_allowed, bool):
            raise _unusable("maintenance_allowed", self.maintenance_allowed, "Give true or false.")
        _check_weights(self.weights)

    @property
    def weight_vector(self) -> Vector:
        """The weights in the order of the resources. A resource that is not named has the weight 1."""
        cpu, memory, io, vcpus = (float(self.weights.get(name, 1.0)) for name in RESOURCES)
        return cpu, memory, io, vcpus


def _check_weights(weights: Json) -> None:
    if not isinstance(weights, Mapping):
        raise _unusable("weights", weights, f"Give a dictionary with any of: {', '.join(RESOURCES)}.")
    unknown = sorted(str(name) for name in weights if name not in RESOURCES)
    if unknown:
        raise InvalidArgument(f"weights has unknown keys: {', '.join(unknown)}.", f"Valid names are: {', '.join(RESOURCES)}. {NOTHING_PLANNED}")
    for name, value in weights.items():
        if not _is_number(value, 0.0, MOST_WEIGHT):
            raise _unusable(f"The weight of {name}", value, f"Give a number from 0 to {MOST_WEIGHT:g}.")
    if not any(weights.get(name, 1.0) for name in RESOURCES):
        raise InvalidArgument("All weights are 0: no resource would count.", f"Give at least one of them a weight. {NOTHING_PLANNED}")


def _is_number(value: Json, least: float, most: float) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and least <= value <= most


def _unusable(what: str, value: Json, advice: str) -> InvalidArgument:
    return InvalidArgument(f"{what} is {short_text(value)}.", f"{advice} {NOTHING_PLANNED}")
