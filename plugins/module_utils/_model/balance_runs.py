# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""A balance run: the moves of one balance with what each was predicted to bring and what it brought, as one document of the ledger."""

from __future__ import annotations

import dataclasses
import typing as t

from .._dataclass import dataclass
from .codec import ABSENT, Absent, JsonObject, Maybe, ShapeError
from .maintenance_runs import RunHolder
from .references import DomainRef
from .statuses import COMPLETED

RUNNING = "running"
FINISHED = "finished"
RUN_STATES = (RUNNING, FINISHED)


@dataclass(frozen=True)
class BalanceGoal:
    """How the score of a run is computed, so that it can be computed again later.

    :arg kind: C(pressure) or C(even).
    :arg weights: of each resource, by its name.
    """

    kind: str
    weights: t.Mapping[str, float]
    tolerated_pressure: float
    extra: JsonObject = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class BalancedMove:
    """One move of a run.

    :arg source: the inventory name of its host before; C(destination) likewise after.
    :arg unit: the UUID of the first of the domains that move together. The gains are those of the whole unit.
    :arg why: what the move repairs; empty for one that pays for itself.
    :arg predicted_gain: by how much the score was predicted to fall.
    :arg cost_seconds: what the unit was predicted to cost.
    :arg record: the ID of its record; null while the run is open, and if it was not begun.
    :arg status: of its record when the run was closed; null likewise.
    :arg measured_gain: by how much higher the score was without it, when the run was measured; absent before, null if its domain was elsewhere then.
    """

    IS_LENIENT: t.ClassVar[bool] = True

    domain: DomainRef
    source: str
    destination: str
    unit: str
    why: str
    predicted_gain: float
    cost_seconds: float
    record: t.Optional[str]
    status: t.Optional[str]
    measured_gain: Maybe[float] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)

    @property
    def is_completed(self) -> bool:
        """Whether the domain was on its destination when the run was closed."""
        return self.status == COMPLETED


@dataclass(frozen=True)
class BalanceMeasurement:
    """What a run brought, from facts that were gathered an hour after its end or later.

    :arg at: when the newest of the facts were gathered.
    :arg score: the score of its hosts; C(score_without_moves) what it would be if each domain that is on its destination were still on its source.
    """

    at: str
    score: float
    score_without_moves: float
    extra: JsonObject = dataclasses.field(default_factory=dict)

    @property
    def gain(self) -> float:
        """By how much the moves lower the score."""
        return self.score_without_moves - self.score


@dataclass(frozen=True)
class BalanceRun:
    """The document of a run.

    :arg id: a UUID, the key of the document.
    :arg state: C(running) or C(finished).
    :arg hosts: the inventory names of the hosts that take part.
    :arg score_before: of the facts from which the plan was made; C(score_predicted) is the one after all of its moves.
    :arg holder: the process that carries it out, or has done so.
    :arg ended_at: when it was closed; null while it is open.
    :arg is_interrupted: whether another process has closed it, because its holder was gone.
    :arg measured: absent until it was measured.
    """

    IS_LENIENT: t.ClassVar[bool] = True

    id: str
    state: str
    goal: BalanceGoal
    hosts: t.Tuple[str, ...]
    score_before: float
    score_predicted: float
    moves: t.Tuple[BalancedMove, ...]
    holder: RunHolder
    created_at: str
    created_by: str
    updated_at: str
    ended_at: t.Optional[str]
    schema: t.Union[int, Absent] = ABSENT
    is_interrupted: t.Union[bool, Absent] = ABSENT
    measured: t.Union[BalanceMeasurement, Absent] = ABSENT
    extra: JsonObject = dataclasses.field(default_factory=dict)

    def check(self) -> None:
        """Raise L(ShapeError) for an unknown state, and for a domain that moves twice."""
        if self.state not in RUN_STATES:
            raise ShapeError("state", f"one of {', '.join(RUN_STATES)}", self.state)
        if len({move.domain.uuid for move in self.moves}) < len(self.moves):
            raise ShapeError("moves", "moves of different domains")

    @property
    def is_open(self) -> bool:
        """Whether its moves may still be under way."""
        return self.state == RUNNING

    @property
    def host_names(self) -> t.Tuple[str, ...]:
        """The inventory names of the hosts, as those of any run."""
        return self.hosts

    @property
    def is_unmeasured(self) -> bool:
        """Whether it has ended, and what it brought is not known yet."""
        return self.state == FINISHED and self.measured is ABSENT

    @property
    def what_was_planned(self) -> t.Tuple[t.Any, ...]:
        """What never changes."""
        moves = tuple(dataclasses.replace(move, record=None, status=None, measured_gain=ABSENT) for move in self.moves)
        return self.id, self.goal, self.hosts, self.score_before, self.score_predicted, moves, self.created_at, self.created_by
