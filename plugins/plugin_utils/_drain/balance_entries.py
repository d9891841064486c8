# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What only the plan of a balance has: the score and its meaning, the use of the hosts before and after, its options, and which hosts could be emptied."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import field

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Absent, JsonObject


@dataclass(frozen=True)
class PlannedBalanceOptions:
    """The options of a balance, besides those that every plan has."""

    goal: str
    max_moves: int
    weights: Mapping[str, float]
    tolerated_pressure: float
    tolerated_unevenness: float
    min_gain: float
    horizon_seconds: float
    cooldown_seconds: float
    max_age_seconds: float
    maintenance_allowed: bool
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class PlannedHostUse:
    """The shares of its resources that a host uses, by the name of the resource; more than 1 for demand that exceeds the host.

    :arg measured: whether the host has pressure stall information; otherwise it is judged by its CPU time.
    """

    name: str
    before: Mapping[str, float]
    after: Mapping[str, float]
    measured: bool
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class PlannedDeparture:
    """Where a domain of a host that could be emptied would go."""

    name: str
    destination: str
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class PlannedEmptyHost:
    """A host that could be emptied after those before it, while the others can still lose any one of them."""

    host: str
    moves: tuple[PlannedDeparture, ...]
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class PlannedEmptying:
    """The hosts that could be emptied together, and why others could not, by host."""

    hosts: tuple[PlannedEmptyHost, ...]
    refused: Mapping[str, str]
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class PlannedBalance:
    """What only the plan of a balance has.

    :arg sentence: what the score is.
    :arg hosts: those that take part, in the order of their names.
    :arg broken: what the moves cannot repair.
    :arg stopped: why the plan has no more moves.
    :arg silent: why hosts take no part, by name.
    :arg emptying: absent if it was not requested.
    """

    sentence: str
    score_before: float
    score_after: float
    hosts: tuple[PlannedHostUse, ...]
    broken: tuple[str, ...]
    stopped: str
    silent: Mapping[str, str]
    options: PlannedBalanceOptions
    emptying: t.Union[PlannedEmptying, Absent] = ABSENT
    extra: JsonObject = field(default_factory=dict)
