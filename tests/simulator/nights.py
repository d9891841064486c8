# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Simulated nights of maintenance: the real decisions over a real ledger, carried out on simulated hosts, with faults and with processes that are killed.

L(Night.carry_out) does what the role C(rolling_maintenance) does with the answers of C(maintenance_run). The fleet is judged by
L(night_fleet.Fleet) alone, which knows nothing of the run.
"""

from __future__ import annotations

import datetime
import random
import typing as t
from collections.abc import Callable, Sequence

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import maintenance_runs as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidState, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import MaintenanceRun, RunHolder, RunOptions
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.records import new_record
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.references import DomainRef, HostRef
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.statuses import ENABLED, FAILED, LIVE_MIGRATION, MAINTENANCE
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_agent import PowerState
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import HostEntry, Stored
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.ledger import Ledger
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance import transitions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.decisions import Admission, ResumePoint, admit_hosts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.fence_decision import (
    FENCE,
    WAIT,
    KnownGuests,
    check_fence,
    decide_fence,
    read_moves,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.holding import check_holder
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.interventions import leave_run
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.transitions import Now, PlannedHost

from .night_fleet import AGENT_LIMIT_SECONDS, AGENTS, HANGS, HOST_CAPACITY, IS_HONEST, Fleet

HOSTS = 30
FAULTY_SHARE = 0.2
START = datetime.datetime(2026, 11, 24, 1, 0, tzinfo=datetime.UTC)
# What a fault is: the step fails, takes very long, or its process is killed in it or soon after it.
FAULTS = (FAILS, IS_SLOW, IS_KILLED) = ("fails", "slow", "killed")
# What else befalls a reboot: the host does not come back; and before it is fenced, a guest is started there, or the host is enabled.
GONE_SHARE, STRANGER_SHARE = 0.25, 0.4
KILLED_FENCE_SHARE = 0.4
STRANGERS = (IS_REPORTED, IS_RECORDED, IS_ENABLED) = ("reported by the host", "in a record", "the host is enabled")
NEVER, IF_GONE, ALWAYS = "never", "if_gone", "always"
REBOOT_LIMIT_SECONDS = 900
# How long a step takes at most.
STEP_SECONDS = 300
# How often a person repairs what failed and continues the run.
MAX_CONTINUATIONS = 4
# Waiting longer than this, the night has hung.
MAX_WAITS = 500

_T = t.TypeVar("_T")


class Killed(Exception):
    """The process ended here."""


class StepFailed(Exception):
    """A step of a host failed."""


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
        # A window of its own for what was added later: the other faults of a seed stay as they were.
        self.power_random = random.Random(f"power {seed}")
        self.fence = self.power_random.choice([NEVER, IF_GONE, IF_GONE, ALWAYS])
        self.agents = {host: self.power_random.choice([IS_HONEST, IS_HONEST, *AGENTS]) for host in self.hosts}
        self.enabled: set[str] = set()
        self.reported: set[str] = set()
        self.open_records: dict[str, Stored] = {}
        self.fences = 0
        self.refused_fences = 0
        self.left_off: set[str] = set()
        self.pid = 1
        self.kill_in = self.random.randint(1, 60) if kills else None
        self.has_kills = kills
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
        self.left_off |= {host for host in self.fleet.off if self.agents[host] == IS_HONEST}

    def _continue_run(self) -> None:
        """A person has repaired what failed, and continues the run in another window."""
        self.pid += 1
        self.seconds += 3600
        self._repair_hosts()
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
            self._reboot(host, boot_before or "")
        if step == m.RECOVER:
            self.fleet.recover(host)

    # -- reboots and fences ------------------------------------------------------------------------------------------

    def _reboot(self, host: str, ended_boot: str) -> None:
        """Do what the files reboot.yml of the role do: C(steps/reboot.yml) is the rescue."""
        try:
            self._reboot_once(host, ended_boot)
        except StepFailed:
            ended_boot = self._recorded_boot(host)
            if self.fence == NEVER or not ended_boot or self.fleet.answers(host):
                raise
            self._fence(host, None)
            self._wait_until_back(host, ended_boot)

    def _reboot_once(self, host: str, ended_boot: str) -> None:
        if not self.fleet.answers(host):
            self._give_up(host)
        if ended_boot not in ("", self.fleet.boot(host)):
            return
        self.fleet.drain(host)
        self._forget_strangers(host)
        ended_boot = self._begin_step(host, m.REBOOT, self.fleet.boot(host)) or ""
        self.may_die()
        is_gone = self.power_random.random() < GONE_SHARE
        if is_gone or self.fence == ALWAYS:
            self._befall(host)
        if self.fence == ALWAYS:
            self._fence(host, self.fleet.boot(host))
        elif is_gone:
            self.fleet.vanish(host, hangs_in_shutdown=self.power_random.random() < 0.5)
        else:
            self.fleet.reboot(host)
        self._wait_until_back(host, ended_boot)

    def _recorded_boot(self, host: str) -> str:
        progress = self.run.find_host(host)
        return str(progress.last_step.boot_id or "") if progress and progress.last_step else ""

    def _wait_until_back(self, host: str, ended_boot: str) -> None:
        self.may_die()
        if not self.fleet.answers(host):
            self._give_up(host)
        if self.fleet.boot(host) == ended_boot:
            raise StepFailed(f"{host} was not rebooted")

    def _give_up(self, host: str) -> None:
        self.seconds += REBOOT_LIMIT_SECONDS
        self.may_die()
        raise StepFailed(f"{host} does not answer")

    def _fence(self, host: str, boot_id: t.Optional[str]) -> None:
        """Do what the action plugin C(maintenance_run) does to fence a host, with a simulated agent."""
        if self.has_kills and self.power_random.random() < KILLED_FENCE_SHARE:
            self.kill_in = self.power_random.randint(1, 7)
        fleet, agent = self.fleet, self.agents[host]
        entry = HostEntry(host, None, None, ENABLED if host in self.enabled else MAINTENANCE)
        # The clocks of the simulated control nodes agree, so the moves alone show who has come.
        guests = KnownGuests(["stranger"] if host in self.reported else [], read_moves(self.ledger, self.run, host), {})
        before = self._asked(agent, fleet.power(host, agent))
        try:
            what = self.change(lambda run, now: _decide(run, host, entry, guests, before is PowerState.OFF, boot_id, now))
        except (InvalidState, Unsafe) as refusal:
            self.refused_fences += 1
            raise StepFailed(str(refusal)) from refusal
        if what == FENCE and before is not PowerState.OFF:
            self.fences += 1
            if self._asked(agent, fleet.switch_off(host, agent)) is not PowerState.OFF:
                raise StepFailed(f"{agent}: {host} is not known to be off")
        if what != WAIT and self._asked(agent, fleet.switch_on(host, agent)) is not PowerState.ON:
            raise StepFailed(f"{agent}: {host} is not known to be on")

    def _asked(self, agent: str, power: PowerState) -> PowerState:
        self.seconds += AGENT_LIMIT_SECONDS if agent == HANGS else 1
        self.may_die()
        return power

    def _befall(self, host: str) -> None:
        """Somebody may start a guest on the host that was found safe to reboot, or enable it."""
        if self.power_random.random() >= STRANGER_SHARE:
            return
        how = self.power_random.choice(STRANGERS)
        self.fleet.strangers.add(host)
        if how == IS_ENABLED:
            self.enabled.add(host)
        elif how == IS_REPORTED:
            self.reported.add(host)
        else:
            ends = (HostRef("elsewhere", None, None), HostRef(host, None, None))
            domain = DomainRef(f"55555555-0000-4000-8000-0000000000{host[-2:]}", "stranger")
            self.open_records[host] = self.ledger.open_record(new_record(LIVE_MIGRATION, domain, *ends, {}, "somebody"))

    def _repair_hosts(self) -> None:
        """A person starts hosts that do not answer, removes what was started there, and puts it into maintenance again."""
        for host in sorted(self.fleet.gone | self.fleet.off):
            self.fleet.repair(host)
        for host in self.hosts:
            self._forget_strangers(host)
        self.fleet.cuts.clear()

    def _forget_strangers(self, host: str) -> None:
        """What was started on the host is gone, and it is in maintenance again."""
        if host in self.open_records:
            stored = self.open_records.pop(host)
            self.ledger.update_record(stored, stored.record.advance(FAILED, "a person"))
        for marked in (self.fleet.strangers, self.reported, self.enabled):
            marked.discard(host)


def _decide(
    run: MaintenanceRun, host: str, entry: HostEntry, guests: KnownGuests, is_off: bool, boot_id: t.Optional[str], now: Now
) -> tuple[MaintenanceRun, str]:
    what = decide_fence(check_fence(run, entry, guests), is_off, boot_id)
    return (transitions.begin_fence(run, host, now) if what == FENCE else run), what
