# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The entries of a plan for domains that the planner has placed, or for which it found no host, with the reasons."""

from __future__ import annotations

import typing as t

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, SignedInt
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.record_parts import SAVE, SHUTDOWN
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.resource_maps import NameChange

from .._scheduler.planner import Placement
from .._scheduler.verdicts import Verdict, best_verdict
from .plan_entries import PassedStrategy, PlannedColdMove, PlannedMove, Rejection, UnplacedDomain
from .saved_plan import to_plain_object
from .sorting import LeavingDomain
from .strategies import describe_passed
from .tables import summarize_rejections

ON_ITS_WAY = "The domain is already moving there."


_METHOD_TEXTS = {SAVE: "Its memory is saved, and restored there (drain: save).", SHUTDOWN: "It is shut down (drain: shutdown)."}


def describe_move(order: int, placement: Placement, leaver: LeavingDomain, rewritten: tuple[NameChange, ...]) -> PlannedMove:
    """Return the live move of a domain that has a destination, without a prediction.

    :arg order: its position among the moves of the plan, from 1.
    :arg rewritten: what its names are at the destination.
    """
    request, chosen = placement.request, _find_chosen(placement)
    return PlannedMove(
        order=order,
        name=request.name,
        uuid=request.uuid,
        source=request.source,
        destination=placement.destination or "",
        memory_mib=request.memory_mib,
        priority=SignedInt(request.priority),
        predicted_seconds=0.0,
        predicted_downtime_ms=None,
        reason=_join_reasons(describe_passed(leaver.passed), _reason_chosen(placement, chosen)),
        warnings=tuple(chosen.warnings) if chosen else (),
        rejected=_list_rejected(placement, chosen),
        request=to_plain_object(request.as_json()),
        not_possible=leaver.passed or ABSENT,
        rewritten=rewritten or ABSENT,
    )


def describe_cold_move(placement: Placement, leaver: LeavingDomain, rewritten: tuple[NameChange, ...]) -> PlannedColdMove:
    """Return the move of a domain that has a destination, and does not move live. Arguments as of L(describe_move)."""
    request, chosen = placement.request, _find_chosen(placement)
    return PlannedColdMove(
        name=request.name,
        uuid=request.uuid,
        source=request.source,
        destination=placement.destination or "",
        method=leaver.method,
        start=leaver.start,
        memory_mib=request.memory_mib,
        reason=_join_reasons(describe_passed(leaver.passed), _METHOD_TEXTS.get(leaver.method, ""), _reason_chosen(placement, chosen)),
        warnings=tuple(chosen.warnings) if chosen else (),
        rejected=_list_rejected(placement, chosen),
        request=to_plain_object(request.as_json()),
        not_possible=leaver.passed or ABSENT,
        rewritten=rewritten or ABSENT,
    )


def _find_chosen(placement: Placement) -> Verdict | None:
    return next((verdict for verdict in placement.verdicts if verdict.host == placement.destination), None)


def _join_reasons(*sentences: str) -> str:
    return " ".join(sentence for sentence in sentences if sentence)


def describe_unplaced(placement: Placement, leaver: LeavingDomain) -> UnplacedDomain:
    """Return the entry of a domain that no host can accept."""
    request, reason = placement.request, describe_refusals(placement)
    if leaver.passed:
        reason = describe_passed((*leaver.passed, PassedStrategy(leaver.strategy, reason)))
    return UnplacedDomain(request.name, request.uuid, request.source, request.memory_mib, reason, _list_rejected(placement, None))


def describe_refusals(placement: Placement) -> str:
    rejected = _list_rejected(placement, None)
    whys = "; ".join(f"{hosts}: {reason.rstrip('.')}" for hosts, reason in summarize_rejections(rejected))
    return f"No host can accept it{_group_text(placement)}. {whys}." if rejected else "There is no other host."


def _reason_chosen(placement: Placement, chosen: t.Optional[Verdict]) -> str:
    if chosen is None:
        return ON_ITS_WAY
    passed = [verdict for verdict in placement.verdicts if verdict.passed]
    first = best_verdict(passed)
    group = f" It moves together with its affinity group: {', '.join(placement.together)}." if placement.together else ""
    if len(passed) == 1:
        return f"It is the only host that passes all filters.{group}"
    if first is None or first.host == chosen.host:
        return f"It has the highest weight, {chosen.weight:.2f}, of the {len(passed)} hosts that pass all filters.{group}"
    higher = f"{first.host} has a higher weight ({first.weight:.2f}, not {chosen.weight:.2f})"
    return f"It passes all filters; {higher}, but this makes the plan as a whole better.{group}"


def _list_rejected(placement: Placement, chosen: t.Optional[Verdict]) -> tuple[Rejection, ...]:
    others = [verdict for verdict in placement.verdicts if verdict.host not in (placement.destination, placement.request.source)]
    return tuple(Rejection(verdict.host, _reason_rejected(verdict, placement, chosen)) for verdict in others)


def _reason_rejected(verdict: Verdict, placement: Placement, chosen: t.Optional[Verdict]) -> str:
    if not verdict.passed:
        return verdict.reason
    if chosen is None:
        return f"It could accept the domain alone, but not{_group_text(placement)}."
    words = "has a lower weight" if verdict.weight < chosen.weight else "has the same weight" if verdict.weight == chosen.weight else "has a higher weight"
    return f"It could accept the domain too, and {words}, {verdict.weight:.2f}."


def _group_text(placement: Placement) -> str:
    return f" together with its affinity group ({', '.join(placement.together)})" if placement.together else ""
