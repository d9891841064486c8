# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Simulated nights of maintenance: the real decisions over a real ledger, carried out on simulated hosts, with faults and with processes that are killed.

L(Night.carry_out) does what the role C(rolling_maintenance) does with the answers of C(maintenance_run). The fleet is judged by L(Fleet) alone, which
knows nothing of the run.
"""

from __future__ import annotations

import datetime
import random
import typing as t
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import maintenance_runs as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import MaintenanceRun, RunHolder, RunOptions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance import transitions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.decisions import Admission, ResumePoint, admit_hosts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.holding import check_holder
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.interventions import leave_run
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.transitions import Now, PlannedHost

HOSTS = 30
FAULTY_SHARE = 0.2
START = datetime.datetime(2026, 11, 24, 1, 0, tzinfo=datetime.UTC)
# What a fault is: the step fails, takes very long, or its process is killed in it or soon after it.
FAULTS = (FAILS, IS_SLOW, IS_KILLED) = ("fails", "slow", "killed")
# How long a step takes at most.
STEP_SECONDS = 300
HOST_CAPACITY = 16
# How often a person repairs what failed and continues the run.
MAX_CONTINUATIONS = 4
# Waiting longer than this, the night has hung.
MAX_WAITS = 500

_T = t.TypeVar("_T")


class Killed(Exception):
    """The process ended here."""


class StepFailed(Exception):
    """A step of a host failed."""


@dataclass
class Fleet:
    """Hosts and their guests, and what was seen of them.

    :arg load: the guests of each host; a host that is out of service has none.
    :arg violations: what must never be.
    """

    load: dict[str, int]
    max_unavailable: int
    down: set[str] = field(default_factory=set)
    reboots: dict[str, int] = field(default_factory=dict)
    most_down: int = 0
    violations: list[str] = field(default_factory=list)

    def free(self, without: t.Collection[str]) -> int:
        """Return the room on all hosts in service but these."""
        return sum(HOST_CAPACITY - guests for host, guests in self.load.items() if host not in self.down and host not in without)

    def can_lose_one_more(self, host: str) -> bool:
        """Whether the guests of the host have room, and those of any one other host as well after that."""
        others = [one for one in self.load if one != host and one not in self.down]
        own = self.load[host]
        return own <= self.free({host}) and all(own + self.load[one] <= self.free({host, one}) for one in others)

    def drain(self, host: str) -> None:
        """Move the guests of the host to others, as evenly as it goes, and take it out of service."""
        if host in self.down:
            return
        if not self.can_lose_one_more(host):
            self.violations.append(f"{host} was drained, and the fleet could not lose one more")
        guests, self.load[host] = self.load[host], 0
        self.down.add(host)
        for _guest in range(guests):
            emptiest = min((one for one in self.load if one not in self.down), key=lambda one: self.load[one])
            self.load[emptiest] += 1
        self.most_down = max(self.most_down, len(self.down))
        if len(self.down) > self.max_unavailable:
            self.violations.append(f"{', '.join(sorted(self.down))} were out of service together")

    def recover(self, host: str) -> None:
        """Return the host to service."""
        self.down.discard(host)


class Night:
    """One night from one seed."""

    def __init__(self, seed: int, ledger: Ledger, kills: bool = True) -> None:
        self.random = random.Random(seed)
        self.ledger = ledger
        self.hosts = [f"kvm{number:02d}" for number in range(HOSTS)]
        unavailable = self.random.randint(1, 3)
        load = self.random.randint(8, 15)
        self.fleet = Fleet({host: max(0, min(HOST_CAPACITY, load + self.random.randint(-2, 1))) for host in self.hosts}, unavailable)
        self.seconds = 0.0
        self.window = self.random.choice([None, self.random.randint(1800, 30000)])
        until = None if self.window is None else self._text(self.window)
        canary = self.random.random() < 0.5
        minutes = self.random.choice([None, 5]) if canary else None
        self.options = RunOptions(unavailable, self.random.choice([0, 2, 30]), canary, minutes, until, len(m.STEPS) * STEP_SECONDS)
        self.pid = 1
        self.kill_in = self.random.randint(1, 60) if kills else None
        self.kills = 0
        self.faults = 0
        self.begun_late: list[str] = []
        self.waited_for: t.Optional[str] = None
        self.run_id = ""

    # -- clocks and the process ------------------------------------------------------------------------------------

    def _text(self, seconds: float) -> str:
        return (START + datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.000Z")

    @property
    def now(self) -> Now:
        return Now(self._text(self.seconds), BootMoment("boot", self.seconds), f"pid {self.pid}")

    @property
    def holder(self) -> RunHolder:
        return RunHolder(f"pid {self.pid}", "control", "boot", "pid:[1]", self.pid, self.pid, self.now.at)

    def may_die(self) -> None:
        """End the process if its time has come. Called before and after each write and act."""
        if self.kill_in is None:
            return
        self.kill_in -= 1
        if self.kill_in <= 0:
            self.kills += 1
            # One kill for sure, and sometimes more.
            self.kill_in = self.random.randint(1, 80) if self.random.random() < 0.7 else None
            raise Killed

    def change(self, act: Callable[[MaintenanceRun, Now], tuple[MaintenanceRun, _T]]) -> _T:
        """Change the run as its process does, which may be killed before or after the write."""
        self.may_die()
        before = self.ledger.read_maintenance_run(self.run_id)
        check_holder(before.maintenance_run, self.holder)
        after, answer = act(before.maintenance_run, self.now)
        if after != before.maintenance_run:
            self.ledger.put_maintenance_run(after, before)
        self.may_die()
        return answer

    @property
    def run(self) -> MaintenanceRun:
        return self.ledger.read_maintenance_run(self.run_id).maintenance_run

    # -- what the playbook does ------------------------------------------------------------------------------------

    def carry_out(self) -> MaintenanceRun:
        """Begin the night, continue it after each kill, and return its end."""
        planned = [PlannedHost(host, has_work=self.random.random() < 0.95) for host in self.hosts]
        first = transitions.new_run("77777777-0000-4000-8000-000000000007", planned, self.options, self.holder, self.now)
        self.run_id = self.ledger.put_maintenance_run(first, None).maintenance_run.id
        self._play_to_the_end()
        for _time in range(MAX_CONTINUATIONS):
            if self.run.state == m.FINISHED:
                break
            self._continue_run()
            self._play_to_the_end()
        return self.run

    def _play_to_the_end(self) -> None:
        while not self._is_played():
            pass

    def _continue_run(self) -> None:
        """A person has repaired what failed, and continues the run in another window."""
        self.pid += 1
        self.seconds += 3600
        until = None
        if self.window is not None:
            self.window = int(self.seconds) + self.random.randint(3600, 30000)
            until = self._text(self.window)
        before = self.ledger.read_maintenance_run(self.run_id)
        self.ledger.put_maintenance_run(transitions.take_over(before.maintenance_run, self.holder, self.now, until), before)

    def _is_played(self) -> bool:
        """Play until the end, or until the process is killed; another one takes the run over then."""
        try:
            self._play()
        except Killed:
            self.pid += 1
            self.seconds += self.random.randint(1, 600)
            before = self.ledger.read_maintenance_run(self.run_id)
            if before.maintenance_run.is_open:
                self.ledger.put_maintenance_run(transitions.take_over(before.maintenance_run, self.holder, self.now), before)
            return not before.maintenance_run.is_open
        return True

    def _play(self) -> None:
        size = self.options.max_unavailable
        rest = self.hosts[1:] if self.options.canary else self.hosts
        batches = [[self.hosts[0]]] if self.options.canary else []
        batches += [rest[start : start + size] for start in range(0, len(rest), size)]
        for batch in [*batches, *([host] for host in self.hosts)]:
            self._maintain_batch(batch)
        self.change(lambda run, now: (leave_run(run, now), None))

    def _maintain_batch(self, batch: Sequence[str]) -> None:
        admission = self._next(batch)
        points = admission.begun
        together = [host for host, point in points.items() if point.step == next(iter(points.values())).step]
        failed: set[str] = set()
        steps = m.STEPS[m.STEPS.index(points[together[0]].step) :] if together else ()
        for step in steps:
            for host in together:
                if host not in failed and not self._take_step(host, step, points[host]):
                    failed.add(host)
            self.seconds += self.random.randint(1, STEP_SECONDS)
        for host in together:
            if host not in failed:
                self._complete(host)

    def _complete(self, host: str) -> None:
        self.change(lambda run, now: (transitions.complete_host(run, host, now), None))

    def _next(self, batch: Sequence[str]) -> Admission:
        for _wait in range(MAX_WAITS):
            before = {one.host for one in self.run.hosts_with(m.WAITING)}
            admission = self.change(lambda run, now: admit_hosts(run, batch, now))
            self._judge_window(set(admission.begun) & before)
            if admission.waits_for is None:
                return admission
            self.waited_for = admission.waits_for
            self.seconds += 60
            if self.run.state == m.PAUSED and self.random.random() < 0.2:
                self._resume()
        raise AssertionError(f"the night hangs: {self.waited_for}")

    def _resume(self) -> None:
        """A person lets the run continue."""
        before = self.ledger.read_maintenance_run(self.run_id)
        self.ledger.put_maintenance_run(transitions.add_request(before.maintenance_run, m.RESUME, None, self.now), before)

    def _judge_window(self, begun: t.Collection[str]) -> None:
        if self.window is not None and self.seconds + len(m.STEPS) * STEP_SECONDS > self.window:
            self.begun_late += begun

    def _take_step(self, host: str, step: str, point: ResumePoint) -> bool:
        try:
            boot_before = self._begin_step(host, step)
            self.may_die()
            self._act(host, step, boot_before)
            self.may_die()
        except StepFailed as failure:
            error = str(failure)
            self.change(lambda run, now: (transitions.fail_host(run, host, error, now), None))
            return False
        return True

    def _begin_step(self, host: str, step: str, boot_id: t.Optional[str] = None) -> t.Optional[str]:
        def act(run: MaintenanceRun, now: Now) -> tuple[MaintenanceRun, None]:
            return transitions.begin_step(run, host, step, now, boot_id), None

        self.change(act)
        progress = self.run.find_host(host)
        assert progress
        assert progress.last_step
        return progress.last_step.boot_id or None

    # -- the hosts ---------------------------------------------------------------------------------------------------

    def _act(self, host: str, step: str, boot_before: t.Optional[str]) -> None:
        fault = self.random.choice(FAULTS) if self.random.random() < FAULTY_SHARE else None
        self.faults += fault is not None
        if fault == FAILS:
            raise StepFailed(f"a fault in {step}")
        if fault == IS_SLOW:
            self.seconds += 10 * STEP_SECONDS
        if fault == IS_KILLED and self.kill_in is not None:
            self.kill_in = self.random.randint(1, 3)
        if step == m.CHECK and not self.fleet.can_lose_one_more(host):
            raise StepFailed("the fleet could not lose one more")
        if step == m.DRAIN:
            # Other hosts of the batch may have been drained since the check: the role plans again.
            if host not in self.fleet.down and not self.fleet.can_lose_one_more(host):
                raise StepFailed("the fleet could not lose one more")
            self.fleet.drain(host)
        if step == m.REBOOT:
            boot = str(self.fleet.reboots.get(host, 0))
            if boot_before in (None, boot):
                self._begin_step(host, step, boot)
                self.fleet.reboots[host] = self.fleet.reboots.get(host, 0) + 1
        if step == m.RECOVER:
            self.fleet.recover(host)
