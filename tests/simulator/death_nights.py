# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Simulated nights in which hosts die, or seem to: the real decisions on a simulated fleet, whose guests and fence devices know nothing of them.

The decisions are those of the detection, the brake, the fence levels, the evidence of a watchdog and its confirmation. Two controllers take turns: the one
that acts may be killed before each of its steps. A night may break two things only: a guest may not run on two hosts, and a host whose guests run and which
its storage network reaches may not be fenced.
"""

from __future__ import annotations

import contextlib
import datetime
import random
import typing as t
from collections.abc import Iterator
from types import SimpleNamespace
from unittest import mock

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Conflict, KvmfleetError, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.evidence import Evidence
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate import fence_levels
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_agent import AgentReply, FenceAction, PowerState
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_config import FenceDevice, FencingConfig
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fencing import confirm_evidence, fence_host
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.lease_evidence import Proven, Void, WatchdogCase, judge_reset
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.brake_document import new_brake
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe import detection as d
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._observe.brake import SlotRequest, request_slot

from .lease_world import LEASE_SECONDS, RENEW_SECONDS, RESET_SECONDS, Controller, Host, World, protected_watchdog

NIGHT_SECONDS = 240.0
GONE_AFTER_SECONDS = 10.0
GUESTS = 3
# How a fence device behaves. It has power of its own, or dies with its host; it answers late; it says "off" and does nothing; it says "on" whatever it does.
DEVICES = (HONEST, DIES, SLOW, DEAD, LIES, STUCK) = ("honest", "dies with its host", "slow", "dead", "lies", "stuck")
TIMEOUT_SECONDS, STATUS_SECONDS, SLOW_SECONDS = 20, 5, 9
# How long a storage keeps the locks of a host that it does not hear from.
LOCK_SECONDS = 30.0
# How often a person looks for hosts that are gone.
MORNINGS = 4
# How long another controller waits before it takes over.
ELECTION_SECONDS = 15.0
# What a dead or silent host may come to.
STATES = (EVACUATED, ANSWERS, BRAKE, IMPOSSIBLE, LOCKED, NO_LEDGER, WAITS, NO_ROOM) = (
    "evacuated",
    "it answers",
    "the brake holds",
    "fencing_impossible",
    "an image is locked",
    "the ledger cannot be reached",
    "another host has to be proved off first",
    "no host is left that could start its guests",
)
START = datetime.datetime(2026, 11, 24, 1, 0, tzinfo=datetime.UTC)


class Killed(Exception):
    """The controller ended here."""


class NightHost(Host):
    """A host with guests. C(has_control) is its management network, C(has_storage) that of its storage."""

    def prepare(self, device: str) -> None:
        """Give it its guests and its device."""
        self.device = device
        self.guests = {f"{self.name}-guest{number}" for number in range(GUESTS)}
        self.has_control = self.has_storage = True
        self.storage_since = self.storage_until = 0.0

    def lose_power(self) -> None:
        """Its guests end with it, and the boot guard starts none."""
        super().lose_power()
        self.guests = set()

    @property
    def answers(self) -> bool:
        """Whether libvirt or SSH answers."""
        return self.is_up and self.has_control

    @property
    def answers_storage(self) -> bool:
        """Whether the second address answers."""
        return self.is_up and self.has_storage


class DeathNight(World):
    """One night from one seed."""

    HOST = NightHost

    def __init__(self, seed: int, kills: bool = True) -> None:
        super().__init__(seed, random.Random(f"size {seed}").choice([3, 4, 5, 6]))
        self.fleet = t.cast("list[NightHost]", self.hosts)
        chance = self.random
        for host in self.fleet:
            host.prepare(chance.choice([HONEST, *DEVICES]))
        # All hosts have watchdogs; whether these are evidence is a setting of the controllers.
        self.uses_watchdogs = chance.random() < 0.8
        self.gone_after = chance.choice([LEASE_SECONDS + RENEW_SECONDS, GONE_AFTER_SECONDS])
        self.kill_in = chance.randint(1, 25) if kills else None
        self.kills = self.fences = self.starts = 0
        self.double_starts: list[str] = []
        self.needless_fences: list[str] = []
        self.brake = new_brake("ledger")
        # The ledger: where each guest is being started or was; and what became of each host.
        self.begun: dict[str, str] = {}
        self.done: set[str] = set()
        self.states: dict[str, str] = {}

    # -- faults --------------------------------------------------------------------------------------------------------

    def plan_faults(self) -> None:
        """Plan what happens in the night."""
        chance = self.random
        for _fault in range(chance.choice([1, 1, 2, 3])):
            host, at = chance.choice(self.fleet), chance.uniform(15, 120)
            lasts = chance.choice([chance.uniform(1, 20), chance.uniform(10, 90), NIGHT_SECONDS])
            what = chance.choice(["power", "power", "management", "all networks", "etcd", "storage", "flapping", "switch", "hang"])
            if what == "power":
                self.at(at, host.lose_power)
            elif what == "flapping":
                for number in range(8):
                    self._isolate(host, at + 9 * number, at + 9 * number + chance.uniform(1, 9), storage=chance.random() < 0.5)
            elif what == "switch":
                for other in chance.sample(self.fleet, chance.randint(2, len(self.fleet))):
                    self._isolate(other, at, at + lasts, storage=chance.random() < 0.5)
            elif what == "etcd":
                self.at(at, lambda: self.set_store(False))
                self.at(at + min(lasts, 60), lambda: self.set_store(True))
            elif what == "hang":
                self.at(at, lambda host=host, lasts=lasts: setattr(host, "stopped_until", self.now + lasts))  # type: ignore[misc]
            elif what == "storage":
                self._lose_storage(host, at, at + lasts)
            else:
                self._isolate(host, at, at + lasts, storage=what == "all networks")

    def _isolate(self, host: NightHost, start: float, end: float, storage: bool) -> None:
        """Cut the management network. Etcd is still reached through a peer, over the storage network, if that is whole."""
        self._cut(host, "has_control", start, end)
        if storage:
            self._lose_storage(host, start, end)
            self._cut(host, "has_peers", start, end)
            self._cut(host, "has_etcd", start, end)

    def _lose_storage(self, host: NightHost, start: float, end: float) -> None:
        def lose() -> None:
            host.has_storage, host.storage_until = False, self.now

        def find() -> None:
            host.has_storage, host.storage_since = True, self.now

        self.at(start, lose)
        self.at(end, find)

    # -- devices and images --------------------------------------------------------------------------------------------

    def call_device(self, device: FenceDevice, action: FenceAction, limit_seconds: float) -> AgentReply:
        """Stand for the agent of a host's device."""
        host = next(one for one in self.fleet if one.name == device.host)
        is_dead = host.device == DEAD or (host.device == DIES and not host.is_up)
        self.run_until(self.now + (limit_seconds if is_dead else min(limit_seconds, SLOW_SECONDS if host.device == SLOW else 0.5)))
        if is_dead or (host.device == SLOW and limit_seconds < SLOW_SECONDS):
            return AgentReply(action, None, "")
        if action is FenceAction.OFF:
            self._switch_off(host)
            return AgentReply(action, 0, "")
        is_on = host.device == STUCK or (host.device != LIES and host.is_up) or (host.device == LIES and host not in self._lied)
        return AgentReply(action, 0 if is_on else 2, "", PowerState.ON if is_on else PowerState.OFF)

    def _switch_off(self, host: NightHost) -> None:
        self.fences += 1
        # A network that has come back a moment ago could not be seen yet.
        if host.is_up and host.guests and host.has_storage and self.now - host.storage_since > SLOW_SECONDS + GONE_AFTER_SECONDS:
            self.needless_fences.append(f"{host.name} was fenced at {self.now:.0f} s, and ran {len(host.guests)} guests")
        if host.device in (LIES, STUCK):
            self._lied.add(host)
        else:
            host.lose_power()

    @property
    def _lied(self) -> set[NightHost]:
        return self.__dict__.setdefault("lied", set())

    def is_locked(self, guest: str) -> bool:
        """Whether the image of a guest is locked."""
        return any(guest in host.guests and (host.has_storage or self.now - host.storage_until < LOCK_SECONDS) for host in self.fleet)

    def start_guest(self, guest: str, on: NightHost) -> None:
        """Start it there."""
        self.starts += 1
        also = [host.name for host in self.fleet if guest in host.guests and host is not on]
        if also:
            self.double_starts.append(f"{guest} was started on {on.name} at {self.now:.0f} s, and ran on {', '.join(also)}")
        on.guests.add(guest)

    # -- controllers -----------------------------------------------------------------------------------------------------

    def carry_out(self) -> dict[str, str]:
        """Let the night pass, and return what became of each host that died or seemed to."""
        self.plan_faults()
        with self._simulated_devices():
            while self.now < NIGHT_SECONDS:
                self._lead_until_killed()
            self.kill_in = None
            self._end_night()
        return self.states

    def _lead_until_killed(self) -> None:
        try:
            self._lead()
        except Killed:
            self.kills += 1
            self.kill_in = self.random.randint(1, 40)
            self.run_until(self.now + ELECTION_SECONDS)

    def _end_night(self) -> None:
        """In the morning, a person runs the evacuation of each host that is gone, without the brake, until there is no other one."""
        self.set_store(True)
        for _time in range(MORNINGS):
            self._evacuate_gone()
            if not self.list_unnamed():
                break

    def _evacuate_gone(self) -> None:
        watched = {host: d.HostDetection(self.gone_after, self.now) for host in self.fleet}
        for _second in range(int(LEASE_SECONDS + 2 * GONE_AFTER_SECONDS)):
            self.run_until(self.now + 1)
            for host, detection in watched.items():
                self._observe(host, detection)
        for host, detection in watched.items():
            if detection.state == d.GONE and self.states.get(host.name) != EVACUATED:
                self._evacuate(host)

    def _lead(self) -> None:
        """Watch as the leader, and react to hosts that are gone."""
        watched = {host: d.HostDetection(self.gone_after, self.now) for host in self.fleet}
        retry_at: dict[NightHost, float] = {}
        while self.now < NIGHT_SECONDS:
            self.run_until(self.now + 1)
            if not self.store.is_up:
                # Without its lock nobody leads.
                for detection in watched.values():
                    detection.forget_lease()
                continue
            for host, detection in watched.items():
                self._observe(host, detection)
            for host, detection in watched.items():
                if detection.state == d.GONE and self.now >= retry_at.get(host, 0) and self.states.get(host.name) != EVACUATED:
                    retry_at[host] = self.now + 60
                    self._react(host, [one.name for one, other in watched.items() if other.is_silent(self.now)])

    def _observe(self, host: NightHost, detection: d.HostDetection) -> None:
        if host.answers:
            detection.note_connection(self.now)
        elif not detection.wants_probes:
            detection.note_loss(self.now, "it is silent")
        detection.note_probe(d.SECOND_ADDRESS, self.now if host.answers_storage else None, "")
        seen = self.store.leases.get(host.host_id)
        if seen:
            detection.note_lease(seen.revision, LEASE_SECONDS, RENEW_SECONDS, self.now)
        change = detection.judge(self.now)
        if change and change.state == d.ISOLATED:
            self.states.setdefault(host.name, ANSWERS)

    def may_die(self) -> None:
        """End the controller if its time has come."""
        if self.kill_in is not None:
            self.kill_in -= 1
            if self.kill_in <= 0:
                raise Killed

    def _react(self, host: NightHost, silent: list[str]) -> None:
        self.may_die()
        request = SlotRequest("evacuate", host.name, 1, 60, tuple(silent))
        try:
            decision = request_slot(self.brake, request, START + datetime.timedelta(seconds=self.now), "a controller")
            if decision.refusal:
                raise decision.refusal
        except Conflict:
            self.states[host.name] = BRAKE
            return
        self.brake = decision.after
        self.may_die()
        self._evacuate(host)

    # -- one evacuation ----------------------------------------------------------------------------------------------------

    def _evacuate(self, host: NightHost) -> None:
        self.may_die()
        if host.answers:
            self.states[host.name] = ANSWERS
            return
        guests = [f"{host.name}-guest{number}" for number in range(GUESTS)]
        open_guests = [guest for guest in guests if guest not in self.done]
        config = self._config(host)
        try:
            evidence = fence_host(config, host.host_id, "a controller", None, (lambda: self._await_reset(host)) if config.watchdog_seconds else None)
        except KvmfleetError as error:
            self.states[host.name] = str(error.result.get("reason", IMPOSSIBLE))
            return
        self.may_die()
        started = [self._start(host, guest, evidence, config) for guest in open_guests]
        self.states[host.name] = EVACUATED if all(started) else self.states[host.name]

    def _start(self, host: NightHost, guest: str, evidence: Evidence, config: FencingConfig) -> bool:
        """Start one guest; whether it runs elsewhere then."""
        self.may_die()
        if not self.store.is_up:
            self.states[host.name] = NO_LEDGER
            return False
        survivors = [one for one in self.fleet if one is not host and one.answers and one.boot == 1 and one.has_storage]
        name = self.begun.get(guest)
        if name and not any(one.name == name for one in survivors):
            self.states[host.name] = WAITS
            return False
        if not survivors:
            self.states[host.name] = NO_ROOM
            return False
        destination = next((one for one in survivors if one.name == name), None) or min(survivors, key=lambda one: len(one.guests))
        self.begun[guest] = destination.name
        self.may_die()
        if guest not in destination.guests:
            if not self._may_start(host, guest, evidence, config):
                return False
            self.start_guest(guest, destination)
            self.may_die()
        self.done.add(guest)
        return True

    def _may_start(self, host: NightHost, guest: str, evidence: Evidence, config: FencingConfig) -> bool:
        """Whether the host is silent and off, and nobody writes the image; asked again before each start."""
        try:
            if host.answers:
                raise Unsafe(ANSWERS)
            confirm_evidence(evidence, config, datetime.datetime.now(datetime.UTC), lambda: t.cast("t.Any", SimpleNamespace(read_leases=self.store.read)))
        except KvmfleetError as error:
            self.states[host.name] = ANSWERS if isinstance(error, Unsafe) else IMPOSSIBLE
            return False
        if self.is_locked(guest):
            self.run_until(self.now + LOCK_SECONDS)
            if self.is_locked(guest) or host.answers:
                self.states[host.name] = LOCKED
                return False
            return self._may_start(host, guest, evidence, config)
        return True

    def _config(self, host: NightHost) -> FencingConfig:
        device = FenceDevice(host.name, "fence_simulated", "fence_simulated", "", TIMEOUT_SECONDS, STATUS_SECONDS, ())
        return FencingConfig(host.name, ((device,),), 300, False, RESET_SECONDS if self.uses_watchdogs else None)

    def _await_reset(self, host: NightHost) -> Proven | Void:
        self.may_die()
        reader = Controller(self)
        case = WatchdogCase(host.name, host.host_id, RESET_SECONDS, protected_watchdog(f"{host.name} boot 1"), 3)
        limit = self.now + 2 * (LEASE_SECONDS + RESET_SECONDS)
        while self.now < limit:
            if reader.read_once():
                verdict = judge_reset(case, reader.readings)
                if isinstance(verdict, (Proven, Void)):
                    return verdict
        return Void("the wait has taken too long")

    @contextlib.contextmanager
    def _simulated_devices(self) -> Iterator[None]:
        """Let the real fence levels call the simulated devices, by the clock of the night."""
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=lambda seconds: self.run_until(self.now + seconds))
        changes = {"call_agent": self.call_device, "time": clock, "do_at_once": lambda act, given: [act(one) for one in given]}
        with mock.patch.multiple(fence_levels, **changes):
            yield

    # -- the judgement -----------------------------------------------------------------------------------------------------

    def list_unnamed(self) -> list[str]:
        """Return the hosts whose guests run nowhere, and about which nothing is said; and states that have no name."""
        running = {guest for host in self.fleet for guest in host.guests}
        lost = [host.name for host in self.fleet if any(f"{host.name}-guest{number}" not in running for number in range(GUESTS))]
        unnamed = [f"{name}: {state}" for name, state in self.states.items() if state not in STATES]
        return unnamed + [name for name in lost if name not in self.states and not self._has_come_back(name)]

    def _has_come_back(self, name: str) -> bool:
        """Whether a host was reset and has come back, which ends an evacuation in the state that it answers: its guests are restarted by a person."""
        return any(host.name == name and host.answers and host.boot > 1 for host in self.fleet)
