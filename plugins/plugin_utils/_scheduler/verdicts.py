# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The verdict whether a domain can move to a host: the answers of all filters with all reasons. Also the ranking of the hosts that pass.

Weights are normalized as in Nova: (w - least) / (most - least), times a multiplier.
"""

from __future__ import annotations

import heapq
import typing as t
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import JsonObject

from .filters.base import PASS, Filter, Finding, filters_for_host, relevant_filters
from .filters.cpu import CpuModel, Cpus, CpuThreads, Hypervisor, MachineType
from .filters.devices import HostDevices, NamedResources, Networks
from .filters.firmware import Firmware, Tpm
from .filters.memory import Hugepages, Memory, Numa, free_mib_for
from .filters.policy import Affinity, AntiAffinity, Enabled, Labels, MaxDomains, MaxMoves, Migratable, NotSource, Traits, Up
from .filters.return_path import OneWay
from .filters.storage import BootFiles, Disk, Secrets, Storage
from .fleet import Fleet, HostState
from .request import Request

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
    OneWay(),
    Numa(),
    Hugepages(),
    HostDevices(),
    Storage(),
    BootFiles(),
    Firmware(),
    Tpm(),
    Secrets(),
    NamedResources(),
    Networks(),
    Labels(),
    MaxDomains(),
    MaxMoves(),
    Affinity(),
    AntiAffinity(),
    Migratable(),
)


_SOFT_POLICIES = {"soft-affinity": 1.0, "soft-anti-affinity": -1.0}


class Weigher(t.Protocol):
    """One criterion. The multiplier of that name in the settings of a host is its weight."""

    name: str

    def raw_weights(self, request: Request, hosts: Sequence[HostState], fleet: Fleet) -> list[float]:
        """Return the raw value of each host for this criterion, in the criterion's own unit."""


class FreeMemory:
    """The host with the most free memory (MiB) of the kind that the domain needs comes first, so that a fleet fills evenly."""

    name = "free_memory"

    def raw_weights(self, request: Request, hosts: Sequence[HostState], fleet: Fleet) -> list[float]:
        """Return the MiB that are free without the domain."""
        return [free_mib_for(request, host) for host in hosts]


class FreeCpu:
    """The host with the most free vCPUs comes first."""

    name = "free_cpu"

    def raw_weights(self, request: Request, hosts: Sequence[HostState], fleet: Fleet) -> list[float]:
        """Return the vCPUs that are free without the domain."""
        return [host.free_vcpus(request.uuid) for host in hosts]


class SoftGroups:
    """Members of a soft group are placed together or apart."""

    name = "soft_groups"

    def raw_weights(self, request: Request, hosts: Sequence[HostState], fleet: Fleet) -> list[float]:
        """Return the number of other members on the host, negative for an anti-affinity group."""
        group = request.group
        if group is None or group.policy not in _SOFT_POLICIES:
            return [0.0] * len(hosts)
        members = fleet.group_members(group.name)
        there = [members.get(host.name, {}) for host in hosts]
        return [_SOFT_POLICIES[group.policy] * (len(guests) - (request.uuid in guests)) for guests in there]


class Moves:
    """A host that takes part in many moves comes later; its multiplier is negative."""

    name = "moves"

    def raw_weights(self, request: Request, hosts: Sequence[HostState], fleet: Fleet) -> list[float]:
        """Return the moves of the host that have begun, without that of this domain."""
        own = {request.uuid}
        return [len(host.moves_in - own) + len(host.moves_out - own) if host.moves_in or host.moves_out else 0 for host in hosts]


DEFAULT_WEIGHERS: t.Final[tuple[Weigher, ...]] = (FreeMemory(), FreeCpu(), SoftGroups(), Moves())


def weigh_hosts(request: Request, hosts: Sequence[HostState], fleet: Fleet) -> Mapping[str, float]:
    """Return the weight of each of these hosts, by name."""
    weights = [0.0] * len(hosts)
    for weigher in DEFAULT_WEIGHERS:
        raw = weigher.raw_weights(request, hosts, fleet)
        add_weights(weights, weigher, hosts, raw, min(raw, default=0.0), max(raw, default=0.0))
    return {host.name: weight for host, weight in zip(hosts, weights, strict=True)}


def add_weights(weights: list[float], weigher: Weigher, hosts: Sequence[HostState], raw: Sequence[float], least: float, most: float) -> None:
    """Add one criterion to the weight of each host.

    :arg least: of the hosts that pass; C(most) likewise.
    """
    span = most - least
    if span > 0:
        name = weigher.name
        multipliers = [host.settings.weights.get(name, 0.0) for host in hosts]
        weights[:] = [weight + multiplier * (value - least) / span for weight, multiplier, value in zip(weights, multipliers, raw, strict=True)]


BYPASSED_PREFIX = "bypassed by force: "


@dataclass(frozen=True)
class Verdict:
    """The verdict of the filters on one host, as C(scheduler_check) returns it.

    :arg failures: C({filter, reason}) of every filter that refused.
    :arg weight: its rank among the hosts that passed with it; 0 if it was judged alone.
    :arg forced: whether at least one refusal was bypassed; it is listed in the warnings.
    :arg filters_off: names of the filters that the settings of the host switch off.
    """

    host: str
    passed: bool
    failures: Sequence[Mapping[str, str]] = ()
    warnings: Sequence[str] = ()
    weight: float = 0.0
    forced: bool = False
    filters_off: Sequence[str] = ()

    @property
    def reason(self) -> str:
        """Why the host was refused, in one text; empty if it passed."""
        return " ".join(failure["reason"] for failure in self.failures)

    def as_dict(self) -> JsonObject:
        """Return the verdict as a module returns it."""
        return {**asdict(self), "failures": [dict(failure) for failure in self.failures], "warnings": list(self.warnings), "filters_off": [*self.filters_off]}


def describe_filters_off(verdict: Verdict) -> str:
    """Return the sentence of a record's history about the filters that did not judge the host, after a space; empty if all did."""
    return f" Switched off there: {', '.join(verdict.filters_off)}." if verdict.filters_off else ""


def check_host(request: Request, host: HostState, fleet: Fleet, filters: Sequence[Filter] = DEFAULT_FILTERS, force: bool = False) -> Verdict:
    """Apply every filter, so that all reasons are named and not only the first one.

    :arg force: refusals that may be overridden become warnings.
    """
    return _make_verdict(host, _HostCheck(request, fleet, filters, force).judge_host(host))


def rank_hosts(request: Request, fleet: Fleet, names: Iterable[str], filters: Sequence[Filter] = DEFAULT_FILTERS, force: bool = False) -> list[Verdict]:
    """Return a verdict for each of these hosts, in their order; those that passed are weighed against each other."""
    question = _HostCheck(request, fleet, filters, force)
    answers = [(name, question.judge_host(fleet.states[name])) for name in names]
    weights = weigh_hosts(request, [fleet.states[name] for name, answer in answers if not answer.failures], fleet)
    return [_make_verdict(fleet.states[name], answer, weights.get(name, 0.0)) for name, answer in answers]


def best_verdict(verdicts: Iterable[Verdict]) -> t.Optional[Verdict]:
    """Return the highest-ranked host that passed; equal ones by name, so that two runs choose the same."""
    passed = [verdict for verdict in verdicts if verdict.passed]
    return min(passed, key=lambda verdict: (-verdict.weight, verdict.host), default=None)


class _Answer(t.NamedTuple):
    failures: Sequence[Mapping[str, str]] = ()
    warnings: Sequence[str] = ()
    forced: bool = False


def _make_verdict(host: HostState, answer: _Answer, weight: float = 0.0) -> Verdict:
    switched_off = host.settings.filters_off
    return Verdict(host.name, not answer.failures, answer.failures, answer.warnings, weight, answer.forced, tuple(sorted(switched_off)) if switched_off else ())


# The answer of hosts that pass without a finding; they share it, because a fleet may have thousands of them.
_PASSED: t.Final = _Answer()


class _HostCheck:
    """Judges many hosts for one domain."""

    def __init__(self, request: Request, fleet: Fleet, filters: Sequence[Filter], force: bool) -> None:
        self._request = request
        self._fleet = fleet
        self._force = force
        self._rules = relevant_filters(filters, request)

    def judge_host(self, host: HostState) -> _Answer:
        """Return the verdict of the filters on the host."""
        request, fleet = self._fleet.request_at(self._request, host), self._fleet
        findings = [(rule, finding) for rule in filters_for_host(self._rules, host) if (finding := rule.judge_host(request, host, fleet)) is not PASS]
        return self._sum_up(findings) if findings else _PASSED

    def _sum_up(self, findings: Sequence[tuple[Filter, Finding]]) -> _Answer:
        failures: list[dict[str, str]] = []
        warnings: list[str] = []
        forced = False
        for rule, finding in findings:
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


def hosts_by_weight(request: Request, fleet: Fleet, names: Sequence[str], filters: Sequence[Filter]) -> Iterator[str]:
    """Yield the hosts that pass all filters, the highest weight first, equal ones by name: those that C(rank_hosts) passes, in that order.

    A weight depends on the least and the most among the hosts that pass. They are searched from both ends, so that in a large fleet only the hosts at the ends
    and those with the highest weights are judged.
    """
    hosts = [fleet.states[name] for name in names]
    passing = _PassingHosts(request, hosts, fleet, relevant_filters(filters, request))
    weights = [0.0] * len(hosts)
    for weigher in DEFAULT_WEIGHERS:
        raw = weigher.raw_weights(request, hosts, fleet)
        extremes = passing.find_extremes(raw)
        if extremes is None:
            return
        add_weights(weights, weigher, hosts, raw, *extremes)
    candidates = [(-weight, name, number) for number, (weight, name) in enumerate(zip(weights, names, strict=True))]
    heapq.heapify(candidates)
    while candidates:
        _weight, name, number = heapq.heappop(candidates)
        if passing(number):
            yield name


class _PassingHosts:
    """Whether a host passes, by its number; each is judged once."""

    def __init__(self, request: Request, hosts: Sequence[HostState], fleet: Fleet, rules: Sequence[Filter]) -> None:
        self._request = request
        self._hosts = hosts
        self._fleet = fleet
        self._rules = rules
        self._known: dict[int, bool] = {}

    def __call__(self, number: int) -> bool:
        if number not in self._known:
            host = self._hosts[number]
            request = self._fleet.request_at(self._request, host)
            self._known[number] = all(rule.host_passes(request, host, self._fleet) for rule in filters_for_host(self._rules, host))
        return self._known[number]

    def find_extremes(self, raw: Sequence[float]) -> t.Optional[tuple[float, float]]:
        """Return the least and the most of these values, one for each host, among the hosts that pass; None if no host does."""
        least = self._find_least(raw)
        if least is None:
            return None
        most = self._find_least([-value for value in raw])
        return (least, -most) if most is not None else None

    def _find_least(self, values: Sequence[float]) -> t.Optional[float]:
        if not values:
            return None
        least = min(values)
        if self(values.index(least)):
            return least
        candidates = [(value, number) for number, value in enumerate(values)]
        heapq.heapify(candidates)
        while candidates:
            value, number = heapq.heappop(candidates)
            if self(number):
                return value
        return None
