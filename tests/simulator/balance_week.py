# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A simulated week of a fleet with daily rhythm, noise and bursts, balanced every hour, by the collection, by a greedy rule, or not at all.

The pressure that the fleet suffers is computed from its demand, by a rule of its own that no balancer knows: the part of the time in which a demand that
varies around its mean exceeds the host.
"""

from __future__ import annotations

import datetime
import math
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.balance_runs import FINISHED, BalanceRun
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import RunHolder
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import COMPLETED
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.decision import decide_balance
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.inputs import BalanceInputs
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.measuring import measure_run
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.options import BalanceOptions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.plan import make_balance_plan
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._balance.runs import RunPlan, plan_run
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._drain.inputs import DrainInputs
from ansible_collections.kvmfleet.migration.tests.simulator import loads

DAYS, STEPS_A_DAY = 7, 96
STEP_SECONDS = 86400 // STEPS_A_DAY
# How often a balancer looks.
LOOK_STEPS = 4
TOLERATED = 0.1
_START = datetime.datetime(2026, 11, 21, 3, 0, tzinfo=datetime.UTC)
_MEMORY_MIB = 256 * 1024
OPTIONS = BalanceOptions(tolerated_pressure=TOLERATED)
# The name space of the IDs of runs and records.
_RUNS = uuid.UUID("3b0a9c52-6f1d-4c1e-8d55-2f4f6f0b7a10")
# By how much the demand of a host varies within a step.
_VARIATION = 0.1


@dataclass(frozen=True)
class Rhythm:
    """The demand of a guest in CPUs: a mean, a daily swing with its hour, and bursts of an hour or two."""

    name: str
    memory_mib: int
    mean: float
    swing: float
    peak_hour: float
    bursts: frozenset[int]
    noise: tuple[float, ...]

    def cores(self, step: int) -> float:
        """Return the demand in that step of the week."""
        hour = step % STEPS_A_DAY * 24 / STEPS_A_DAY
        daily = 1 + self.swing * math.cos((hour - self.peak_hour) * math.tau / 24)
        return self.mean * daily * self.noise[step % len(self.noise)] * (2.0 if step in self.bursts else 1.0)


@dataclass
class Week:
    """The fleet, and what was seen of it.

    :arg excess: the sum of the pressures above the tolerated one, over all hosts and steps.
    :arg moves: step, guest and destination.
    """

    guests: dict[str, Rhythm]
    where: dict[str, str]
    hosts: list[str]
    excess: float = 0.0
    moves: list[tuple[int, str, str]] = field(default_factory=list)

    def demand(self, step: int) -> dict[str, float]:
        """Return the demand of each host, as a share of it."""
        found = dict.fromkeys(self.hosts, 0.0)
        for name, host in self.where.items():
            found[host] += self.guests[name].cores(step) / loads.CPUS
        return found

    def move(self, step: int, name: str, host: str) -> None:
        """Move a guest."""
        self.where[name] = host
        self.moves.append((step, name, host))

    def most_moves_in_a_day(self) -> int:
        """Return how often at most one guest moved within 24 h."""
        steps: dict[str, list[int]] = {}
        for step, name, _host in self.moves:
            steps.setdefault(name, []).append(step)
        return max((sum(one <= other < one + STEPS_A_DAY for other in listed) for listed in steps.values() for one in listed), default=0)


def pressure_of(demand: float) -> float:
    """Return the part of the time in which a demand that varies around this mean exceeds the host."""
    return 0.5 * math.erfc((1.0 - demand) / (_VARIATION * math.sqrt(2.0)))


Balancer = Callable[[Week, int], None]


def draw_week(seed: int, hosts: int = 20, per_host: int = 15) -> Week:
    """Return a fleet whose guests were placed without regard to their load: those that are busy at the same hour are on the same hosts."""
    chance = random.Random(seed)
    names = [f"kvm{number + 1:02d}" for number in range(hosts)]
    guests, where = {}, {}
    for number in range(hosts * per_host):
        host = names[number // per_host]
        heat = 0.55 + 0.9 * (number // per_host % 4) / 3
        peak = 6.0 * (number // per_host % 3) + 9
        bursts = frozenset(step + extra for step in chance.sample(range(DAYS * STEPS_A_DAY), 3) for extra in range(chance.randint(1, 8)))
        mean = heat * loads.CPUS / per_host * 0.55 * chance.uniform(0.3, 1.7)
        noise = tuple(max(0.2, chance.gauss(1.0, 0.2)) for _step in range(97))
        name = f"g{number}"
        guests[name] = Rhythm(name, chance.choice([2048, 4096, 8192]), mean, chance.uniform(0.1, 0.6), peak, bursts, noise)
        where[name] = host
    return Week(guests, where, names)


def live_through(week: Week, balance: Balancer | None = None) -> Week:
    """Let the week pass, and return it."""
    for step in range(DAYS * STEPS_A_DAY):
        if balance and step % LOOK_STEPS == LOOK_STEPS - 1:
            balance(week, step)
        week.excess += sum(max(0.0, pressure_of(demand) - TOLERATED) for demand in week.demand(step).values())
    return week


def mean_cores(week: Week, name: str, step: int) -> float:
    """Return what a balancer sees of a guest: the mean since it last looked."""
    steps = range(max(0, step - LOOK_STEPS + 1), step + 1)
    return sum(week.guests[name].cores(one) for one in steps) / len(steps)


def look_at(week: Week, step: int) -> BalanceInputs:
    """Return what is known of the fleet in a step."""
    now = _START + datetime.timedelta(seconds=step * STEP_SECONDS)
    shares: dict[str, list[str]] = {host: [] for host in week.hosts}
    for name, host in week.where.items():
        shares[host].append(name)
    facts = {}
    for host, names in shares.items():
        domains = [loads.busy_domain(name, week.guests[name].memory_mib, 4, mean_cores(week, name, step)) for name in names]
        steps = range(max(0, step - LOOK_STEPS + 1), step + 1)
        pressure = sum(pressure_of(week.demand(one)[host]) for one in steps) / len(steps)
        facts[host] = {**loads.busy_host(host, _MEMORY_MIB, domains, pressure), "gathered_at": now.isoformat()}
    last = {name: _START + datetime.timedelta(seconds=one * STEP_SECONDS) for one, name, _host in week.moves}
    drain = DrainInputs(facts)
    uuids = {domain["name"]: domain["uuid"] for one in facts.values() for domain in one["domains"]}
    return BalanceInputs(drain, now, dict.fromkeys(facts, 0.0), {uuids[name]: at for name, at in last.items()})


def balance_by_plan(week: Week, step: int) -> None:
    """Carry out the plan of the collection."""
    inputs = look_at(week, step)
    balance = decide_balance({host: inputs.drain.host_state(host) for host in week.hosts}, inputs, OPTIONS)
    for move in balance.moves:
        week.move(step, move.leaver.request.name, move.destination)


class RunKeeper:
    """Carries out the plans of the collection, and keeps the run of each in C(runs) as the ledger does: with what its moves have brought an hour later."""

    def __init__(self) -> None:
        self.runs: list[BalanceRun] = []

    def __call__(self, week: Week, step: int) -> None:
        """Measure earlier runs, and carry out a plan."""
        inputs = look_at(week, step)
        states = {host: inputs.drain.host_state(host) for host in week.hosts}
        self.runs = [measure_run(run, states) or run for run in self.runs]
        plan = make_balance_plan(inputs, week.hosts, OPTIONS)
        if plan.balance and plan.moves:
            self.runs.append(_end_run(plan_run(plan, plan.balance), inputs.now))
        for move in plan.moves:
            week.move(step, move.name, move.destination)


def _end_run(plan: RunPlan, now: datetime.datetime) -> BalanceRun:
    """Return a run whose moves took no time."""
    at = now.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    holder = RunHolder("balance@control pid 1", "control", "boot", "pid:[1]", 1, 1, at)
    moves = tuple(replace(move, record=str(uuid.uuid5(_RUNS, f"{at} {move.domain.uuid}")), status=COMPLETED) for move in plan.moves)
    ends = (moves, holder, at, holder.by, at, at)
    return BalanceRun(str(uuid.uuid5(_RUNS, at)), FINISHED, plan.goal, plan.hosts, plan.score_before, plan.score_predicted, *ends)


# The rule of a greedy balancer by thresholds, after the documentation of ProxLB (its method "used" with a "balanciness" of 10) and of the load balancer of
# Proxmox VE: as long as the most and the least used node differ by more than the threshold, the guest that brings them closest together moves from the
# first to the second. What a move costs, and whether the difference lasts, does not count.
BALANCINESS = 0.10
_MOST_STEPS = 200


def balance_greedily(week: Week, step: int) -> None:
    """Move guests from the most to the least used host until they differ by the threshold at most."""
    cores = {name: mean_cores(week, name, step) / loads.CPUS for name in week.where}
    used = dict.fromkeys(week.hosts, 0.0)
    for name, host in week.where.items():
        used[host] += cores[name]
    for _step in range(_MOST_STEPS):
        most, least = max(used, key=lambda host: used[host]), min(used, key=lambda host: used[host])
        difference = used[most] - used[least]
        smaller = [name for name, host in week.where.items() if host == most and 0 < cores[name] < difference]
        if difference <= BALANCINESS or not smaller:
            return
        name = min(smaller, key=lambda one: (abs(difference - 2 * cores[one]), one))
        used[most] -= cores[name]
        used[least] += cores[name]
        week.move(step, name, least)
