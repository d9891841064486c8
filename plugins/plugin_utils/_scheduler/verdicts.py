# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The verdict whether a domain can move to a host: the answers of all filters with all reasons, and the ranking of the hosts that pass."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject

from .filters.base import PASS, Filter, Finding, relevant_filters
from .filters.cpu import CpuModel, Cpus, CpuThreads, Hypervisor, MachineType
from .filters.devices import HostDevices, Networks
from .filters.memory import Hugepages, Memory, Numa
from .filters.policy import Affinity, AntiAffinity, Enabled, Labels, MaxDomains, MaxMoves, Migratable, NotSource, Traits, Up
from .filters.storage import BootFiles, Disk, Storage
from .fleet import Fleet, HostState
from .request import Request
from .weighers import weigh_hosts

DEFAULT_FILTERS: t.Final[tuple[Filter, ...]] = (
    NotSource(),
    Up(),
    Enabled(),
    Memory(),
    Cpus(),
    Disk(),
    Traits(),
    CpuModel(),
    CpuThreads(),
    MachineType(),
    Hypervisor(),
    Numa(),
    Hugepages(),
    HostDevices(),
    Storage(),
    BootFiles(),
    Networks(),
    Labels(),
    MaxDomains(),
    MaxMoves(),
    Affinity(),
    AntiAffinity(),
    Migratable(),
)


BYPASSED_PREFIX = "bypassed by force: "


@dataclass(frozen=True)
class Verdict:
    """The verdict of the filters on one host, as C(scheduler_check) returns it.

    :arg failures: C({filter, reason}) of every filter that refused.
    :arg weight: its rank among the hosts that passed with it; 0 if it was judged alone.
    :arg forced: at least one refusal was skipped, and is listed in the warnings.
    """

    host: str
    passed: bool
    failures: Sequence[Mapping[str, str]] = ()
    warnings: Sequence[str] = ()
    weight: float = 0.0
    forced: bool = False

    @property
    def reason(self) -> str:
        """Why the host was refused, in one text; empty if it passed."""
        return " ".join(failure["reason"] for failure in self.failures)

    def as_dict(self) -> JsonObject:
        """Return the verdict as a module returns it."""
        return {**asdict(self), "failures": [dict(failure) for failure in self.failures], "warnings": list(self.warnings)}


def check_host(request: Request, host: HostState, fleet: Fleet, filters: Sequence[Filter] = DEFAULT_FILTERS, force: bool = False) -> Verdict:
    """Apply every filter, so that all reasons are named and not only the first one.

    :arg force: refusals that may be overridden become warnings.
    """
    answer = _HostCheck(request, fleet, filters, force).judge_host(host)
    return Verdict(host.name, not answer.failures, answer.failures, answer.warnings, 0.0, answer.forced)


def rank_hosts(request: Request, fleet: Fleet, names: Iterable[str], filters: Sequence[Filter] = DEFAULT_FILTERS, force: bool = False) -> list[Verdict]:
    """Return a verdict for each of these hosts, in their order; those that passed are weighed against each other."""
    question = _HostCheck(request, fleet, filters, force)
    answers = [(name, question.judge_host(fleet.states[name])) for name in names]
    weights = weigh_hosts(request, [fleet.states[name] for name, answer in answers if not answer.failures], fleet)
    return [Verdict(name, not said.failures, said.failures, said.warnings, weights.get(name, 0.0), said.forced) for name, said in answers]


def best_verdict(verdicts: Iterable[Verdict]) -> t.Optional[Verdict]:
    """Return the highest-ranked host that passed; equal ones by name, so that two runs choose the same."""
    passed = [verdict for verdict in verdicts if verdict.passed]
    return min(passed, key=lambda verdict: (-verdict.weight, verdict.host), default=None)


class _Answer(t.NamedTuple):
    failures: Sequence[Mapping[str, str]] = ()
    warnings: Sequence[str] = ()
    forced: bool = False


# Most of thousands of hosts pass without a finding: they share this one.
_PASSED: t.Final = _Answer()


class _HostCheck:
    """Judges many hosts for one domain."""

    def __init__(self, request: Request, fleet: Fleet, filters: Sequence[Filter], force: bool) -> None:
        self._request = request
        self._fleet = fleet
        self._force = force
        self._rules = relevant_filters(filters, request)
        self._silent_rules = [rule for rule in self._rules if rule.judges_silent]

    def judge_host(self, host: HostState) -> _Answer:
        """Return the verdict of the filters on the host."""
        request, fleet = self._request, self._fleet
        rules = self._rules if host.unanswered is None else self._silent_rules
        told = [(rule, finding) for rule in rules if (finding := rule.judge_host(request, host, fleet)) is not PASS]
        return self._sum_up(told) if told else _PASSED

    def _sum_up(self, told: Sequence[tuple[Filter, Finding]]) -> _Answer:
        failures: list[dict[str, str]] = []
        warnings: list[str] = []
        forced = False
        for rule, finding in told:
            warnings.extend(finding.warnings)
            if finding.reason is None:
                continue
            if self._force and _is_overridable(rule, finding):
                warnings.append(f"{BYPASSED_PREFIX}{finding.reason}")
                forced = True
            else:
                failures.append({"filter": rule.name, "reason": finding.reason})
        return _Answer(failures, warnings, forced)


def _is_overridable(rule: Filter, finding: Finding) -> bool:
    return rule.overridable if finding.overridable is None else finding.overridable
