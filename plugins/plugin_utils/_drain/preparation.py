# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Determines which hosts have to be queried again before a drain is planned, and which moves to them have to end first."""

from __future__ import annotations

import contextlib
import typing as t
from collections.abc import Callable, Iterable
from dataclasses import field

from ansible.module_utils.common.validation import check_type_dict

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, Json, JsonObject, Maybe, ShapeError, decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, printable_line
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import MoveRecord

from .._ledger.ledger import Ledger
from .._settings.parallel import AUTO
from .answers import MAX_AGE_SECONDS, FactsOf, fresh_hosts, max_age_seconds
from .inputs import DrainOptions
from .records import ENDED_SECONDS, read_arrived, read_unsettled
from .strategy_options import GivenStrategies, StrategyOptions


@dataclass(frozen=True)
class _PreparationWork:
    """The request of the role, see L(PreparationRequest)."""

    play: Maybe[tuple[Json, ...]] = ABSENT
    candidates: Maybe[tuple[Json, ...]] = ABSENT
    just_asked: Maybe[bool] = ABSENT
    measure: Maybe[bool] = ABSENT
    strategies: Maybe[GivenStrategies] = ABSENT
    parallel: Maybe[Json] = ABSENT
    moves: Maybe[Json] = ABSENT


def _read_moves(moves: Maybe[Json]) -> Json:
    """Return the options of the moves. C(drain_plan) takes them as text too, as the command line has them."""
    with contextlib.suppress(TypeError, ValueError):
        return t.cast(Json, check_type_dict(moves))
    return moves or None


@dataclass(frozen=True)
class PreparationRequest:
    """The input of the role for its drain on one host.

    :arg play: the hosts that are drained together.
    :arg just_asked: whether the facts of these hosts were gathered for this drain. Others may be older than a change of a policy.
    :arg measure: whether dirty rates are to be measured, for which a host to be drained has to be queried unless its facts have them.
    :arg strategies: the options of the drain about strategies.
    """

    host: str
    play: tuple[str, ...]
    candidates: tuple[str, ...]
    just_asked: bool = False
    measure: bool = False
    strategies: StrategyOptions = field(default_factory=StrategyOptions)

    @classmethod
    def from_work(cls, host: str, given: JsonObject) -> PreparationRequest:
        """Return the request of the role. Raises L(InvalidArgument) for an invalid one, and for invalid options of the drain and its moves."""
        try:
            work = decode(_PreparationWork, given, "_work.drain")
        except ShapeError as error:
            raise InvalidArgument(
                f"'{error.path}' must be {error.expected}.", "Only the roles of this collection may set _work. Nothing was changed."
            ) from error
        # Refused here, because the host is put into maintenance before the plan.
        parallel = AUTO if work.parallel in (ABSENT, None) else work.parallel
        options = DrainOptions.from_values(parallel, options=_read_moves(work.moves), **vars(work.strategies or GivenStrategies()))
        play, candidates = (tuple(map(str, names or ())) for names in (work.play, work.candidates))
        return cls(host, play, candidates, bool(work.just_asked), bool(work.measure), options.cold)


@dataclass(frozen=True)
class Arrival:
    """A move to the host that is not settled. C(name) can be printed."""

    uuid: str
    name: str
    source: str


@dataclass(frozen=True)
class HostPreparation:
    """The hosts that the tasks of the drain have to query, and the moves to the host.

    :arg ask: the host itself, if its facts are out of date.
    :arg ask_for_all: candidates without usable facts. One host of the play queries them for all.
    """

    ask: tuple[str, ...]
    ask_for_all: tuple[str, ...]
    arriving: tuple[Arrival, ...]


def prepare_host(request: PreparationRequest, facts_of: FactsOf, ledger: Ledger | None, is_known: Callable[[str], bool]) -> HostPreparation:
    """Return what has to be queried and waited for, according to the ledger and the known facts.

    :arg is_known: whether a host is in the inventory, so that it can be queried.
    """
    # In this order: a record that ends meanwhile is in one of the two.
    unsettled, ended = read_unsettled(ledger), read_arrived(ledger, ENDED_SECONDS)
    is_fresh = request.just_asked and _is_measured(request, facts_of) and bool(fresh_hosts([request.host], facts_of, ended + unsettled))
    max_age = max_age_seconds(len(request.candidates)) if request.just_asked else MAX_AGE_SECONDS
    fresh = fresh_hosts(request.candidates, facts_of, ended, undisputed_by=request.play, max_age=max_age)
    stale = tuple(candidate for candidate in request.candidates if candidate not in fresh and candidate not in request.play)
    return HostPreparation(() if is_fresh else (request.host,), stale, _list_arrivals(request.host, unsettled, is_known))


def _is_measured(request: PreparationRequest, facts_of: FactsOf) -> bool:
    """Whether the known facts of the host have dirty rates, if these are to be measured."""
    return not request.measure or bool((facts_of(request.host) or {}).get("dirty_rate_seconds"))


def _list_arrivals(host: str, records: Iterable[MoveRecord], is_known: Callable[[str], bool]) -> tuple[Arrival, ...]:
    towards = [record for record in records if record.type == s.LIVE_MIGRATION and record.destination.host == host]
    return tuple(
        Arrival(record.domain.uuid, printable_line(str(record.domain.name)), record.source.host)
        for record in towards
        if record.source.host and is_known(record.source.host)
    )
