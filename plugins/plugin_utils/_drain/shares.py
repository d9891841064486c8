# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The part of a plan that each host carries out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, JsonObject
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import PredictedMove
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import COLD_MIGRATION

from .plan_entries import PlannedMove
from .saved_plan import DrainPlan

# The options that the plan itself sets for each move.
_PLANNED_OPTIONS = ("name", "uuid", "destination", "moves", "parallel")


@dataclass(frozen=True)
class Share:
    """The part of a plan that one host carries out.

    :arg moves: for C(live_migrate).
    :arg predicted: what the plan predicts for the moves, by UUID of the domain.
    :arg shutdowns: UUIDs of domains to shut down.
    :arg cold_moves: for C(cold_migrate).
    :arg ends: the hosts to query afterwards for their domains. The first source queries the destinations.
    """

    moves: tuple[JsonObject, ...]
    shutdowns: tuple[str, ...]
    ends: tuple[str, ...]
    predicted: Mapping[str, PredictedMove]
    cold_moves: tuple[JsonObject, ...]


def build_shares(plan: DrainPlan, records: Sequence[MoveRecord], is_known: Callable[[str], bool], check_mode: bool) -> dict[str, Share]:
    """Return the share of each source of the plan.

    :arg records: unsettled records. Moves of an earlier run whose domains have left already are settled with the share of their source.
    :arg is_known: whether a host is in the inventory.
    :arg check_mode: nothing will move, so no destination has to be queried again.
    """
    begun = [record for record in records if record.destination.host and is_known(record.destination.host)]
    live, cold = ([record for record in begun if (record.type == COLD_MIGRATION) == is_cold] for is_cold in (False, True))
    destinations = [] if check_mode else sorted({move.destination for move in plan.all_moves})
    return {
        source: Share(
            (*list_moves(plan, source, plan.options.moves), *list_unfinished_moves(plan, source, live)),
            _list_shutdowns(plan, source),
            (source, *(host for host in destinations if host != source and source == plan.sources[0])),
            {move.uuid: predicted for move in plan.moves if move.source == source and (predicted := read_prediction(move))},
            (*list_cold_moves(plan, source), *list_unfinished_cold_moves(plan, source, cold)),
        )
        for source in plan.sources
    }


def read_prediction(move: PlannedMove) -> PredictedMove | None:
    """Return what the plan predicts for a move, as its record keeps it; None for the plan of an earlier version."""
    if not move.predicted_range or move.sends_mib is ABSENT:
        return None
    low, high = move.predicted_range
    return PredictedMove(move.predicted_seconds, low, high, move.predicted_downtime_ms, move.sends_mib * 1024**2)


def list_moves(plan: DrainPlan, source: str, options: JsonObject | None = None) -> list[JsonObject]:
    """Return the moves of one source, see L(build_moves)."""
    return build_moves({move.uuid: move.destination for move in plan.moves if move.source == source}, options)


def build_moves(destinations: Mapping[str, str], options: JsonObject | None = None) -> list[JsonObject]:
    """Return the moves for C(live_migrate), each with these options. Raises L(InvalidArgument) for an option that the plan decides.

    :arg destinations: by the UUID of the domain.
    """
    taken = [option for option in _PLANNED_OPTIONS if option in (options or {})]
    if taken:
        raise InvalidArgument(f"The plan already has {', '.join(taken)}.", "Remove it from the options.")
    return [{"uuid": uuid, "destination": destination, **(options or {})} for uuid, destination in destinations.items()]


def list_cold_moves(plan: DrainPlan, source: str) -> list[JsonObject]:
    """Return the moves of one source for C(cold_migrate). If the host cannot be emptied, no guest is stopped, because this would be pointless."""
    is_pointless = any(entry.source == source for entry in plan.unplaced)
    own = [move for move in plan.cold_moves or () if move.source == source and not (is_pointless and move.stops_guest)]
    return [{"uuid": move.uuid, "destination": move.destination, "method": move.method, "start": move.start} for move in own]


def list_unfinished_cold_moves(plan: DrainPlan, source: str, records: Iterable[MoveRecord]) -> list[JsonObject]:
    """Return the cold moves that an earlier run has begun, and of which nothing is left on the source: C(cold_migrate) settles their records."""
    begun = [record for record in records if record.source.host == source and record.domain.uuid not in plan.all_uuids]
    return [
        {
            "uuid": record.domain.uuid,
            "destination": record.destination.host,
            "method": str(record.method),
            "start": bool(record.cold and record.cold.start),
        }
        for record in begun
    ]


def list_unfinished_moves(plan: DrainPlan, source: str, records: Iterable[MoveRecord]) -> list[JsonObject]:
    """Return the moves that an earlier run has begun, and of which nothing is left on the source: C(live_migrate) settles their records."""
    away = {record.domain.uuid: record.destination.host for record in records if record.source.host == source}
    if not away:
        return []
    return [{"uuid": uuid, "destination": destination} for uuid, destination in away.items() if uuid not in plan.active_uuids]


def _list_shutdowns(plan: DrainPlan, source: str) -> tuple[str, ...]:
    """Return the domains that are shut down on the host. If the host cannot be emptied, none is shut down, because this would be pointless."""
    if any(entry.source == source for entry in plan.unplaced):
        return ()
    return tuple(entry.uuid for entry in plan.shutdowns if entry.source == source)
