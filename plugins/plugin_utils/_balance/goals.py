# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a balance improves: the score of a fleet, which is 0 where nothing can be better, and how much a move would lower it.

Two goals exist. L(PressureGoal) relieves hosts under pressure, and L(EvenGoal) makes the hosts equally busy.
"""

from __future__ import annotations

import math
import typing as t
from collections.abc import Sequence

from .options import EVEN, BalanceOptions
from .pressure import KNEES, RESOURCES, SIGNALS, Vector, pressure_at

_CPU_KNEE, _MEMORY_KNEE, _IO_KNEE, _DUMMY = KNEES
_CPU_SPAN, _MEMORY_SPAN, _IO_SPAN = (1.0 - knee for knee in KNEES[:3])


class Goal(t.Protocol):
    """A goal, with the shares of all hosts at one moment of the search. Hosts are given by their number.

    C(tolerated_score) is the score from which on nothing has to be improved.
    """

    sentence: str
    shares: list[Vector]
    tolerated_score: float

    def score(self) -> float:
        """Return the score of the fleet."""

    def is_reached(self) -> bool:
        """Whether the score is as low as it has to be."""

    def source_order(self) -> list[int]:
        """Return the hosts that domains should leave, those first that gain most from it."""

    def is_source(self, host: int) -> bool:
        """Whether domains should leave the host."""

    def gain(self, source: int, destination: int, leaves: Vector, arrives: Vector) -> float:
        """Return by how much a move would lower the score; negative if it would raise it.

        :arg leaves: the shares of the source that the domain uses; C(arrives) those of the destination.
        """

    def permits(self, source: int, destination: int, leaves: Vector, arrives: Vector) -> bool:
        """Whether the move harms no host, whatever it gains in all."""

    def move(self, source: int, destination: int, leaves: Vector, arrives: Vector) -> None:
        """Carry out a move."""

    def load_of(self, host: int) -> float:
        """Return how busy a host is in all: the lower, the better as a destination."""


def make_goal(shares: Sequence[Vector], options: BalanceOptions) -> Goal:
    """Return the goal that the options name."""
    if options.goal == EVEN:
        return EvenGoal(shares, options.weight_vector, options.tolerated_pressure, options.tolerated_unevenness)
    return PressureGoal(shares, options.weight_vector, options.tolerated_pressure)


def add_shares(shares: Vector, change: Vector) -> Vector:
    """Return the sum of two vectors."""
    return shares[0] + change[0], shares[1] + change[1], shares[2] + change[2], shares[3] + change[3]


def subtract_shares(shares: Vector, change: Vector) -> Vector:
    """Return the difference of two vectors, which is never negative: a guest may use more than was measured for its host."""
    return (
        max(0.0, shares[0] - change[0]),
        max(0.0, shares[1] - change[1]),
        max(0.0, shares[2] - change[2]),
        max(0.0, shares[3] - change[3]),
    )


class PressureGoal:
    """The score is the sum of the weighted pressures of all hosts."""

    sentence = (
        "The score is the sum of the pressures on all hosts, that is of the shares of time in which work waits for CPU, memory or I/O, each times its weight: "
        "at 0, nothing waits."
    )

    def __init__(self, shares: Sequence[Vector], weights: Vector, tolerated: float) -> None:
        self.shares = list(shares)
        self._weights = weights
        self._tolerated = tolerated
        self._pressures = [self._pressure(one) for one in self.shares]
        self.tolerated_score = 0.0

    def score(self) -> float:
        """Return the sum."""
        return sum(self._pressures)

    def is_reached(self) -> bool:
        """Whether nothing waits."""
        return self.score() <= self.tolerated_score

    def source_order(self) -> list[int]:
        """Return the hosts with more pressure on a resource than is tolerated."""
        return sorted(filter(self.is_source, range(len(self.shares))), key=lambda host: (-self._pressures[host], host))

    def is_source(self, host: int) -> bool:
        """Whether the pressure on a resource is higher than tolerated."""
        return self._is_suffering(self.shares[host])

    def gain(self, source: int, destination: int, leaves: Vector, arrives: Vector) -> float:
        """Return the pressure that the two hosts lose."""
        before = self._pressures[source] + self._pressures[destination]
        return before - self._pressure(subtract_shares(self.shares[source], leaves)) - self._pressure(add_shares(self.shares[destination], arrives))

    def permits(self, source: int, destination: int, leaves: Vector, arrives: Vector) -> bool:
        """Whether the pressure on the destination would be tolerated."""
        return not self._is_suffering(add_shares(self.shares[destination], arrives))

    def move(self, source: int, destination: int, leaves: Vector, arrives: Vector) -> None:
        """Carry out a move."""
        self._set(source, subtract_shares(self.shares[source], leaves))
        self._set(destination, add_shares(self.shares[destination], arrives))

    def load_of(self, host: int) -> float:
        """Return the weighted sum of the shares, each relative to its knee: of hosts without pressure, the emptiest is the best."""
        return sum(weight * share / knee for weight, share, knee in zip(self._weights[:3], self.shares[host][:3], KNEES[:3], strict=True))

    def _set(self, host: int, shares: Vector) -> None:
        self.shares[host] = shares
        self._pressures[host] = self._pressure(shares)

    def _is_suffering(self, shares: Vector) -> bool:
        limits = enumerate(zip(shares[:3], self._weights[:3], strict=True))
        return any(weight and share > KNEES[resource] and pressure_at(share, resource) > self._tolerated for resource, (share, weight) in limits)

    def _pressure(self, shares: Vector) -> float:
        """Return the weighted sum of L(pressure_at). Written out, because it is computed for each possible move."""
        cpu, memory, io, _vcpus = shares
        found = 0.0
        if cpu > _CPU_KNEE:
            found += self._weights[0] * ((cpu - _CPU_KNEE) / _CPU_SPAN) ** 2
        if memory > _MEMORY_KNEE:
            found += self._weights[1] * ((memory - _MEMORY_KNEE) / _MEMORY_SPAN) ** 2
        if io > _IO_KNEE:
            found += self._weights[2] * ((io - _IO_KNEE) / _IO_SPAN) ** 2
        return found


class EvenGoal:
    """The score is the weighted sum of the standard deviations of the shares, times the number of hosts."""

    sentence = (
        "The score is the standard deviation of the shares of CPU, memory, I/O and vCPUs that hosts use, each times its weight, summed and times the number "
        "of hosts: at 0, all hosts are equally busy."
    )

    def __init__(self, shares: Sequence[Vector], weights: Vector, tolerated: float, tolerated_unevenness: float = 0.0) -> None:
        self.shares = list(shares)
        self._weights = weights
        self._tolerated = tolerated
        self._count = max(1, len(self.shares))
        self.tolerated_score = tolerated_unevenness * self._count
        self._sums = [sum(one[resource] for one in self.shares) for resource in range(len(RESOURCES))]
        self._squares = [sum(one[resource] ** 2 for one in self.shares) for resource in range(len(RESOURCES))]
        self._score = self._score_of(self._sums, self._squares)

    def score(self) -> float:
        """Return the weighted sum."""
        return self._score

    def is_reached(self) -> bool:
        """Whether the hosts are as equally busy as they have to be."""
        return self._score <= self.tolerated_score

    def source_order(self) -> list[int]:
        """Return the hosts that use more than the mean of any resource, those first that use most in all."""
        return sorted(filter(self.is_source, range(len(self.shares))), key=lambda host: (-self.load_of(host), host))

    def is_source(self, host: int) -> bool:
        """Whether the host uses more than the mean of any resource that counts."""
        pairs = zip(self._weights, self.shares[host], self._sums, strict=True)
        return any(weight and share * self._count > total for weight, share, total in pairs)

    def gain(self, source: int, destination: int, leaves: Vector, arrives: Vector) -> float:
        """Return by how much the score falls. One loop, because it is computed for each possible move."""
        after, of_source, of_destination = 0.0, self.shares[source], self.shares[destination]
        count = self._count
        for weight, total, squares, there, here, less, more in zip(
            self._weights, self._sums, self._squares, of_source, of_destination, leaves, arrives, strict=True
        ):
            rest = there - less if there > less else 0.0
            whole = here + more
            mean = (total - there - here + rest + whole) / count
            variance = (squares - there * there - here * here + rest * rest + whole * whole) / count - mean * mean
            if variance > 0.0:
                after += weight * math.sqrt(variance)
        return self._score - count * after

    def permits(self, source: int, destination: int, leaves: Vector, arrives: Vector) -> bool:
        """Whether the pressure on the destination would be tolerated, or no higher than on one of the two hosts before."""
        here, there = self.shares[destination], self.shares[source]
        for resource in range(len(SIGNALS)):
            after = here[resource] + arrives[resource]
            if after > KNEES[resource] and after > max(here[resource], there[resource]) and pressure_at(after, resource) > self._tolerated:
                return False
        return True

    def move(self, source: int, destination: int, leaves: Vector, arrives: Vector) -> None:
        """Carry out a move."""
        self._set(source, subtract_shares(self.shares[source], leaves))
        self._set(destination, add_shares(self.shares[destination], arrives))
        self._score = self._score_of(self._sums, self._squares)

    def load_of(self, host: int) -> float:
        """Return the weighted sum of the shares."""
        return sum(weight * share for weight, share in zip(self._weights, self.shares[host], strict=True))

    def _set(self, host: int, shares: Vector) -> None:
        for number, (old, new) in enumerate(zip(self.shares[host], shares, strict=True)):
            self._sums[number] += new - old
            self._squares[number] += new * new - old * old
        self.shares[host] = shares

    def _score_of(self, sums: Sequence[float], squares: Sequence[float]) -> float:
        pairs = zip(self._weights, sums, squares, strict=True)
        return self._count * sum(weight * math.sqrt(max(0.0, square / self._count - (total / self._count) ** 2)) for weight, total, square in pairs)
