# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""May this domain go to this host? One answer with all the reasons."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field

from .filters import DEFAULT, Filter, Finding, concerned
from .filters.base import PASS
from .fleet import Fleet
from .host_state import HostState
from .request import Request
from .weighers import weigh

BYPASSED = "bypassed by force: "


@dataclass(frozen=True)
class Verdict:
    """What the filters say of one host, as C(scheduler_check) returns it.

    :arg failures: C({filter, reason}) of every filter that refused.
    :arg weight: how much it is wanted among the hosts that passed with it; 0 where it was asked alone.
    :arg forced: at least one refusal was skipped, and stands among the warnings.
    """

    host: str
    passed: bool
    failures: list[dict[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    weight: float = 0.0
    forced: bool = False

    @property
    def reason(self) -> str:
        """Why the host was refused, in one text; empty where it passed."""
        return " ".join(failure["reason"] for failure in self.failures)

    def as_dict(self) -> dict[str, t.Any]:
        """Return the verdict as a module returns it."""
        return asdict(self)


def check(request: Request, host: HostState, fleet: Fleet, filters: Sequence[Filter] = DEFAULT, force: bool = False) -> Verdict:
    """Ask every filter, so that all reasons are named and not only the first one.

    :arg force: refusals that may be overridden become warnings.
    """
    return _judged(request, host, fleet, concerned(filters, request), force)


def rank(request: Request, fleet: Fleet, names: Iterable[str], filters: Sequence[Filter] = DEFAULT, force: bool = False) -> list[Verdict]:
    """Return a verdict for each of these hosts, in their order; those that passed are weighed against each other."""
    rules = concerned(filters, request)
    verdicts = [_judged(request, fleet.states[name], fleet, rules, force) for name in names]
    weights = weigh(request, [fleet.states[verdict.host] for verdict in verdicts if verdict.passed], fleet)
    return [Verdict(v.host, v.passed, v.failures, v.warnings, weights.get(v.host, 0.0), v.forced) for v in verdicts]


def best(verdicts: Iterable[Verdict]) -> t.Optional[Verdict]:
    """Return the wanted one of those that passed; equal ones by name, so that two runs choose alike."""
    passed = [verdict for verdict in verdicts if verdict.passed]
    return min(passed, key=lambda verdict: (-verdict.weight, verdict.host), default=None)


def _judged(request: Request, host: HostState, fleet: Fleet, rules: Iterable[Filter], force: bool) -> Verdict:
    failures: list[dict[str, str]] = []
    warnings: list[str] = []
    forced = False
    for rule in rules:
        if host.unanswered is not None and not rule.judges_silent:
            continue
        finding = rule.judge(request, host, fleet)
        if finding is PASS:
            continue
        warnings.extend(finding.warnings)
        if finding.reason is None:
            continue
        if force and _is_overridable(rule, finding):
            warnings.append(f"{BYPASSED}{finding.reason}")
            forced = True
        else:
            failures.append({"filter": rule.name, "reason": finding.reason})
    return Verdict(host.name, not failures, failures, warnings, 0.0, forced)


def _is_overridable(rule: Filter, finding: Finding) -> bool:
    return rule.overridable if finding.overridable is None else finding.overridable
