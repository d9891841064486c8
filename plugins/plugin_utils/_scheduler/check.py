# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""May this domain go to this host? One answer with all the reasons."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

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
    failures: Sequence[Mapping[str, str]] = ()
    warnings: Sequence[str] = ()
    weight: float = 0.0
    forced: bool = False

    @property
    def reason(self) -> str:
        """Why the host was refused, in one text; empty where it passed."""
        return " ".join(failure["reason"] for failure in self.failures)

    def as_dict(self) -> dict[str, t.Any]:
        """Return the verdict as a module returns it."""
        return {**asdict(self), "failures": [dict(failure) for failure in self.failures], "warnings": list(self.warnings)}


def check(request: Request, host: HostState, fleet: Fleet, filters: Sequence[Filter] = DEFAULT, force: bool = False) -> Verdict:
    """Ask every filter, so that all reasons are named and not only the first one.

    :arg force: refusals that may be overridden become warnings.
    """
    answer = _Question(request, fleet, filters, force).put_to(host)
    return Verdict(host.name, not answer.failures, answer.failures, answer.warnings, 0.0, answer.forced)


def rank(request: Request, fleet: Fleet, names: Iterable[str], filters: Sequence[Filter] = DEFAULT, force: bool = False) -> list[Verdict]:
    """Return a verdict for each of these hosts, in their order; those that passed are weighed against each other."""
    question = _Question(request, fleet, filters, force)
    answers = [(name, question.put_to(fleet.states[name])) for name in names]
    weights = weigh(request, [fleet.states[name] for name, answer in answers if not answer.failures], fleet)
    return [Verdict(name, not said.failures, said.failures, said.warnings, weights.get(name, 0.0), said.forced) for name, said in answers]


def best(verdicts: Iterable[Verdict]) -> t.Optional[Verdict]:
    """Return the wanted one of those that passed; equal ones by name, so that two runs choose alike."""
    passed = [verdict for verdict in verdicts if verdict.passed]
    return min(passed, key=lambda verdict: (-verdict.weight, verdict.host), default=None)


class _Answer(t.NamedTuple):
    failures: Sequence[Mapping[str, str]] = ()
    warnings: Sequence[str] = ()
    forced: bool = False


# Of thousands of hosts most pass without a word: they share this one.
_NOTHING: t.Final = _Answer()


class _Question:
    """One domain, about which many hosts are asked."""

    def __init__(self, request: Request, fleet: Fleet, filters: Sequence[Filter], force: bool) -> None:
        self._request = request
        self._fleet = fleet
        self._force = force
        self._rules = concerned(filters, request)
        self._silent_rules = [rule for rule in self._rules if rule.judges_silent]

    def put_to(self, host: HostState) -> _Answer:
        """Return what the filters say of the host."""
        request, fleet = self._request, self._fleet
        rules = self._rules if host.unanswered is None else self._silent_rules
        told = [(rule, finding) for rule in rules if (finding := rule.judge(request, host, fleet)) is not PASS]
        return self._summed_up(told) if told else _NOTHING

    def _summed_up(self, told: Sequence[tuple[Filter, Finding]]) -> _Answer:
        failures: list[dict[str, str]] = []
        warnings: list[str] = []
        forced = False
        for rule, finding in told:
            warnings.extend(finding.warnings)
            if finding.reason is None:
                continue
            if self._force and _is_overridable(rule, finding):
                warnings.append(f"{BYPASSED}{finding.reason}")
                forced = True
            else:
                failures.append({"filter": rule.name, "reason": finding.reason})
        return _Answer(failures, warnings, forced)


def _is_overridable(rule: Filter, finding: Finding) -> bool:
    return rule.overridable if finding.overridable is None else finding.overridable
