# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a plan says of one domain: its move with what is expected of it, or why it stays; and of every host that was not chosen, why."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.downtime import downtime_steps, effective_timeout_seconds, size_gib
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.policy import FEATURES, STEPPED, STRATEGY, Policy, value

from .._scheduler.check import Verdict, best
from .._scheduler.planner import Placement
from .._scheduler.prediction import Prediction, predict
from .shapes import plain
from .sort import Leaver

MIB = 1024**2
# From so many hosts on, those that were not chosen are counted by their reason where a person reads it.
MANY_HOSTS = 12
_FIGURE = re.compile(r"\b[0-9]+(?:\.[0-9]+)?\b")
PINNED = "The domain is on its way there already."

Document = dict[str, t.Any]


def move(order: int, placement: Placement, leaver: Leaver, rate: float) -> Document:
    """Return the move of a domain that has a place.

    :arg order: its place among the moves of the plan, from 1.
    :arg rate: of its stream, in MiB/s.
    """
    request = placement.request
    chosen = next((verdict for verdict in placement.verdicts if verdict.host == placement.destination), None)
    expected = _expected(leaver, rate)
    return {
        "order": order,
        "name": request.name,
        "uuid": request.uuid,
        "source": request.source,
        "destination": placement.destination,
        "memory_mib": request.memory_mib,
        "priority": request.priority,
        "predicted_seconds": expected.seconds,
        "predicted_downtime_ms": expected.downtime_ms,
        "reason": _why(placement, chosen) if chosen else PINNED,
        "warnings": [*(chosen.warnings if chosen else ()), *_slow(expected, leaver.policy)],
        "rejected": _rejected(placement, chosen),
        "request": plain(request.as_json()),
    }


def unplaced(placement: Placement) -> Document:
    """Return what the plan says of a domain that no host can take."""
    request = placement.request
    rejected = _rejected(placement, None)
    whys = "; ".join(f"{hosts}: {reason.rstrip('.')}" for hosts, reason in summed_up(rejected))
    return {
        "name": request.name,
        "uuid": request.uuid,
        "source": request.source,
        "memory_mib": request.memory_mib,
        "reason": f"No host can take it{_company(placement)}. {whys}." if rejected else "There is no other host.",
        "rejected": rejected,
    }


def summed_up(rejected: Sequence[Mapping[str, str]]) -> list[tuple[str, str]]:
    """Return C((hosts, reason)) pairs: one a host, and of many hosts one for all whose reasons differ in figures only. The plan itself names each host."""
    if len(rejected) < MANY_HOSTS:
        return [(entry["host"], entry["reason"]) for entry in rejected]
    groups: dict[str, list[Mapping[str, str]]] = {}
    for entry in rejected:
        groups.setdefault(_FIGURE.sub("…", entry["reason"]), []).append(entry)
    return [(_first(group), group[0]["reason"] if len(group) == 1 else reason) for reason, group in groups.items()]


def _first(group: Sequence[Mapping[str, str]]) -> str:
    return group[0]["host"] if len(group) == 1 else f"{group[0]['host']} and {len(group) - 1} more"


def _expected(leaver: Leaver, rate: float) -> Prediction:
    memory_mib, policy = leaver.request.memory_mib, leaver.policy
    gib = size_gib(memory_mib * MIB, [size for size in leaver.request.copied.values() if size])
    timeout = effective_timeout_seconds(value(policy, "timeout_seconds"), gib)
    ramp = downtime_steps(value(policy, "downtime_ms"), value(policy, "downtime_steps"), value(policy, "downtime_delay_seconds_per_gib"), gib, timeout)
    copied_mib = sum(leaver.request.copied.values()) // MIB
    if value(policy, STRATEGY) != STEPPED:
        # Whether its iterations shrink is known once all of its memory has been sent.
        ramp = [ramp[0], (memory_mib / rate, value(policy, "downtime_ms"))]
    return predict(memory_mib, rate, leaver.dirty_rate_mib, ramp, timeout, copied_mib)


def _slow(expected: Prediction, policy: Policy) -> list[str]:
    if expected.converges is not False:
        return []
    allowed = [feature for feature in FEATURES if value(policy, feature)]
    what = "By what was measured, it writes memory too fast to end within its limits on this link"
    return [f"{what}: it depends on {allowed[0]}." if allowed else f"{what}: allow post_copy or auto_converge, or a longer pause."]


def _why(placement: Placement, chosen: Verdict) -> str:
    passed = [verdict for verdict in placement.verdicts if verdict.passed]
    first = best(passed)
    group = f" It goes with its affinity group: {', '.join(placement.together)}." if placement.together else ""
    if len(passed) == 1:
        return f"It is the only host that passes all filters.{group}"
    if first is None or first.host == chosen.host:
        return f"It has the highest weight, {chosen.weight:.2f}, of the {len(passed)} hosts that pass all filters.{group}"
    higher = f"{first.host} has a higher weight ({first.weight:.2f}, not {chosen.weight:.2f})"
    return f"It passes all filters; {higher}, but the plan as a whole is better so.{group}"


def _rejected(placement: Placement, chosen: t.Optional[Verdict]) -> list[Document]:
    others = [verdict for verdict in placement.verdicts if verdict.host not in (placement.destination, placement.request.source)]
    return [{"host": verdict.host, "reason": _reason(verdict, placement, chosen)} for verdict in others]


def _reason(verdict: Verdict, placement: Placement, chosen: t.Optional[Verdict]) -> str:
    if not verdict.passed:
        return verdict.reason
    if chosen is None:
        return f"It could take the domain alone, but not{_company(placement)}."
    words = "has a lower weight" if verdict.weight < chosen.weight else "has the same weight" if verdict.weight == chosen.weight else "has a higher weight"
    return f"It could take the domain too, and {words}, {verdict.weight:.2f}."


def _company(placement: Placement) -> str:
    return f" together with its affinity group ({', '.join(placement.together)})" if placement.together else ""
