# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts that renew leases in an etcd, with watchdogs, and a controller that reads the leases: simulated, with every fault of a network, by seeds.

Requests and answers are lost, late, or arrive twice; a renewal may be carried out minutes after its host has given up on it. Hosts lose etcd, each other, or
both; etcd loses its majority; services of hosts start anew or are stopped for a while, hosts reset themselves and come back; every clock has its own speed.
Guests are moved to a host whatever its lease is, also after a reset. Each move is recorded in the same etcd when it has ended.
The world knows whether a host still runs its guests, and nothing of what the controller concludes.
"""

from __future__ import annotations

import heapq
import itertools
import random
import typing as t
from collections.abc import Callable
from dataclasses import dataclass, field

from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.config import grace_seconds
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.view import OwnView, judge, needs_peers
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import HELD, NONE, HostLease, LeaseFleet, LeaseWatchdog, ProtectedWatchdog
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.lease_evidence import Proven, TimedReading, Verdict, Void, WatchdogCase, judge_reset
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.leases import LeaseReading, SeenLease

LEASE_SECONDS, RENEW_SECONDS = 6, 1
# Of one attempt to renew, and of one test of the watchdog daemon, which kills a test that takes longer.
ATTEMPT_SECONDS, TEST_SECONDS = 2.0, 2.0
TEST_PAUSE_SECONDS, DEVICE_SECONDS = 1.0, 3.0
GRACE_SECONDS = grace_seconds(RENEW_SECONDS)
# A test may have begun just before the end of the grace; the next one fails, or never ends.
RESET_SECONDS = GRACE_SECONDS + int(2 * TEST_SECONDS + TEST_PAUSE_SECONDS + DEVICE_SECONDS)
_ASK_EVERY_SECONDS = 1.0
# How long a controller waits at least.
WAIT_SECONDS = LEASE_SECONDS + RESET_SECONDS
# Each clock is wrong by so much at most.
CLOCK_ERROR = 0.01
LATEST_SECONDS = 60.0


@dataclass
class Store:
    """The etcd. C(is_up) is whether it has a majority."""

    is_up: bool = True
    revision: int = 1
    leases: dict[str, SeenLease] = field(default_factory=dict)
    pending: list[Callable[[], None]] = field(default_factory=list)

    def put(self, lease: HostLease) -> int:
        """Carry out a renewal, and return its revision."""
        self.revision += 1
        self.leases[lease.host_id] = SeenLease(self.revision, lease)
        return self.revision

    def read(self) -> LeaseReading:
        """Return the leases as they are now."""
        return LeaseReading(self.revision, dict(self.leases))


@dataclass(frozen=True)
class Arrival:
    """A guest that was moved to a host.

    :arg boot: of the host, in which the guest runs.
    :arg revision: of etcd, at which the ledger recorded the end of the move.
    """

    host: Host
    boot: int
    revision: int

    @property
    def is_running(self) -> bool:
        """Whether the guest still runs there."""
        return self.host.is_up and self.host.boot == self.boot


class Host:
    """One host. Its first guests run from the start until its first reset; the boot guard holds them after that."""

    def __init__(self, world: World, number: int, fleet: LeaseFleet) -> None:
        self.world = world
        self.host_id = f"11111111-0000-4000-8000-{number:012d}"
        self.name = f"kvm{number}"
        self.speed = 1 + world.random.uniform(-CLOCK_ERROR, CLOCK_ERROR)
        self.fleet = fleet
        self.boot = 1
        self.count = world.random.randint(0, 50)
        self.view = OwnView()
        self.acknowledged_revision = 0
        self.runs_until = 0.0
        self.service = 0
        self.runs_guests = True
        self.is_up = True
        self.stopped_until = 0.0
        self.last_ping = 0.0
        self.has_etcd = True
        self.has_peers = True
        self.etcd_returns = 0.0

    @property
    def clock(self) -> float:
        """The host's own clock."""
        return self.world.now * self.speed

    @property
    def boot_id(self) -> str:
        """The ID of the boot."""
        return f"{self.name} boot {self.boot}"

    def seconds(self, own: float) -> float:
        """Return how long the host takes for so many seconds of its own clock."""
        return own / self.speed

    # -- the lease ---------------------------------------------------------------------------------------------------

    def start_service(self) -> None:
        """Start the service, perhaps anew: in the same boot it goes on where the one before was."""
        self.view = self.view.shorten(self.clock, LEASE_SECONDS)
        self.service += 1
        self._attempt(self.service)
        self._extend_run(self.service)

    def _attempt(self, service: int) -> None:
        if service != self.service or not self.is_up:
            return
        if self.world.now < self.stopped_until:
            self.world.at(self.stopped_until, lambda: self._attempt(service))
            return
        self.count += 1
        count, sent, begun = self.count, self.clock, self.world.now
        answered: list[int] = []

        def acknowledge(revision: int) -> None:
            # An attempt ends with its answer or at its limit; a later answer is not heard.
            if service != self.service or answered or self.world.now - begun > self.seconds(ATTEMPT_SECONDS):
                return
            if self.world.now < self.stopped_until:
                return
            answered.append(revision)
            self.view = self.view.acknowledge(count, sent, self.clock, LEASE_SECONDS)
            self.acknowledged_revision = revision
            if self.view.was_held:
                self.runs_until = max(self.runs_until, self.view.held_until + GRACE_SECONDS)
            self.world.after(max(0.0, begun + self.seconds(RENEW_SECONDS) - self.world.now), lambda: self._attempt(service))

        def give_up() -> None:
            if not answered:
                self._attempt(service)

        self.world.after(self.seconds(ATTEMPT_SECONDS), give_up)
        self.world.send_renewal(self, self._make_lease(count), acknowledge)

    def _make_lease(self, count: int) -> HostLease:
        watchdog = LeaseWatchdog("/dev/watchdog0", "simulated", int(DEVICE_SECONDS), True, self.view.was_held, RESET_SECONDS)
        made = (self.host_id, self.name, self.boot_id, count, self.view.since(self.clock), LEASE_SECONDS, RENEW_SECONDS, self.fleet, "direct", "")
        return HostLease(*made, self.acknowledged_revision, watchdog)

    def _extend_run(self, service: int) -> None:
        """Let a host without a lease run on for the time of one, if most hosts have none either."""
        if service != self.service or not self.is_up:
            return
        asked, view = self.clock, self.view

        def end(answers: dict[str, str]) -> None:
            if service == self.service and self.world.now >= self.stopped_until and self._judge(view, asked, answers):
                self.runs_until = max(self.runs_until, asked + LEASE_SECONDS)

        if needs_peers(view, asked) and self.world.now >= self.stopped_until:
            self._ask_peers(end)
        self.world.after(self.seconds(_ASK_EVERY_SECONDS), lambda: self._extend_run(service))

    def _ask_peers(self, end: Callable[[dict[str, str]], None]) -> None:
        answers: dict[str, str] = {}
        for peer in self.world.hosts:
            if peer is not self:
                self.world.ask(self, peer, answers)
        self.world.after(self.seconds(TEST_SECONDS), lambda: end(dict(answers)))

    def _judge(self, view: OwnView, now: float, answers: dict[str, str]) -> bool:
        return judge(view, now, self.host_id, [[host.host_id for host in self.world.hosts]], answers).keeps_running

    def answer(self) -> str | None:
        """Return what the host answers to another one; None if it does not."""
        if not self.is_up or self.world.now < self.stopped_until:
            return None
        return HELD if self.view.is_held(self.clock) else NONE

    # -- the watchdog ------------------------------------------------------------------------------------------------

    def start_tests(self) -> None:
        """Begin to ping the watchdog as long as tests succeed."""
        self.last_ping = self.world.now
        self._test(self.boot)

    def _test(self, boot: int) -> None:
        if boot != self.boot or not self.is_up:
            return
        chance = self.world.random
        lasts = chance.uniform(0, 0.2) if chance.random() < 0.9 else chance.uniform(0, TEST_SECONDS)
        if not needs_peers(self.view, self.clock) or self.clock < self.runs_until:
            self.world.after(self.seconds(lasts), lambda: self._end_test(boot, True))
            return
        self._ask_peers(lambda answers: self._end_test(boot, self._judge(self.view, self.clock, answers)))

    def _end_test(self, boot: int, passed: bool) -> None:
        if boot != self.boot or not self.is_up:
            return
        if passed:
            self.last_ping = self.world.now
            self.world.after(self.seconds(TEST_PAUSE_SECONDS), lambda: self._test(boot))
        elif self.world.random.random() < 0.5:
            self.reset()
        else:
            # The daemon hangs instead of resetting the host, and the device does it.
            self.world.at(max(self.world.now, self.last_ping + self.seconds(DEVICE_SECONDS)), lambda: self._reset_boot(boot))

    def _reset_boot(self, boot: int) -> None:
        if boot == self.boot:
            self.reset()

    def reset(self) -> None:
        """Reset the host. It comes back some time later."""
        self.lose_power()
        boot = self.boot
        self.world.after(self.world.random.uniform(2, 40), lambda: self._come_back(boot))

    def lose_power(self) -> None:
        """Let the host die for good."""
        self.runs_guests = self.is_up = False
        self.boot += 1
        self.service += 1
        self.view, self.acknowledged_revision, self.runs_until = OwnView(), 0, 0.0

    def _come_back(self, boot: int) -> None:
        if boot == self.boot:
            self.is_up = True
            self.start_service()
            self.start_tests()


class World:
    """Hosts, etcd and the network between them, of one seed."""

    HOST: type[Host] = Host

    def __init__(self, seed: int, size: int | None = None) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.numbers = itertools.count()
        self.store = Store()
        self.watch_from = 0.0
        self.arrivals: list[Arrival] = []
        # How often a message is lost, is late, and arrives twice.
        self.loss = self.random.choice([0.0, 0.0, 0.02, 0.2])
        self.lateness = self.random.choice([0.0, 0.05, 0.3])
        # How much of what is sent into a broken connection is lost for ever.
        self.cut_loss = self.random.choice([0.1, 0.7])
        self.doubled = self.random.choice([0.0, 0.1])
        fleet = LeaseFleet("f" * 64, size or self.random.choice([2, 2, 3, 3, 3, 4, 5, 7]))
        self.hosts = [self.HOST(self, number, fleet) for number in range(1, fleet.size + 1)]
        for host in self.hosts:
            host.start_service()
            host.start_tests()

    # -- time ----------------------------------------------------------------------------------------------------------

    def at(self, when: float, act: Callable[[], None]) -> None:
        """Do something at that time."""
        heapq.heappush(self.events, (max(when, self.now), next(self.numbers), act))

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        """Do something so many seconds later."""
        self.at(self.now + seconds, act)

    def run_until(self, when: float) -> None:
        """Let the time pass."""
        while self.events and self.events[0][0] <= when:
            self.now, _number, act = heapq.heappop(self.events)
            act()
        self.now = max(self.now, when)

    # -- the network -----------------------------------------------------------------------------------------------------

    def _delay(self) -> float:
        if self.random.random() < self.lateness:
            return self.random.choice([self.random.uniform(0, 3), self.random.uniform(0, LATEST_SECONDS)])
        return self.random.uniform(0.001, 0.05)

    def send_renewal(self, host: Host, lease: HostLease, acknowledge: Callable[[int], None]) -> None:
        """Carry a renewal to etcd, and its answer back; as often and as late as it happens."""
        for _copy in range(2 if self.random.random() < self.doubled else 1):
            if self.random.random() < self.loss or (not host.has_etcd and self.random.random() < self.cut_loss):
                continue
            late = self._lateness(host) if not host.has_etcd else 0.0
            self.after(late + self._delay(), lambda: self._put(host, lease, acknowledge))

    def _lateness(self, host: Host) -> float:
        """Return when a request arrives that was sent into a broken connection: often soon after it is whole again."""
        if self.random.random() < 0.6:
            return max(0.0, host.etcd_returns - self.now) + self.random.uniform(0, 1.5)
        return self.random.uniform(1, LATEST_SECONDS)

    def _put(self, host: Host, lease: HostLease, acknowledge: Callable[[int], None]) -> None:
        if not self.store.is_up:
            if self.random.random() < 0.3:
                self.store.pending.append(lambda: self._put(host, lease, acknowledge))
            return
        revision = self.store.put(lease)
        if self.random.random() >= self.loss and host.has_etcd:
            self.after(self._delay(), lambda: acknowledge(revision))

    def ask(self, host: Host, peer: Host, answers: dict[str, str]) -> None:
        """Ask a host for its lease. Only an answer within the time of the test is heard."""
        begun, boot = self.now, host.boot

        def arrive() -> None:
            answer = peer.answer()
            if answer is not None and host.has_peers and peer.has_peers:
                self.after(self._delay(), lambda: back(answer))

        def back(answer: str) -> None:
            if host.boot == boot and self.now - begun <= host.seconds(TEST_SECONDS):
                answers[peer.host_id] = answer

        if host.has_peers and peer.has_peers and self.random.random() >= self.loss:
            self.after(self._delay(), arrive)

    def set_store(self, is_up: bool) -> None:
        """Let etcd lose its majority, or get it again; requests that wait there are carried out then."""
        self.store.is_up = is_up
        if is_up:
            pending, self.store.pending = self.store.pending, []
            for act in pending:
                self.after(self._delay(), act)

    # -- moves -------------------------------------------------------------------------------------------------------------

    def move_guests_to(self, host: Host, chance: random.Random) -> None:
        """Move a guest to the host every few seconds from now on, as long as the host is up. No move looks at its lease."""
        if host.is_up:
            boot = host.boot
            self.after(chance.uniform(0, 1), lambda: self._record_arrival(host, boot))
        self.after(chance.uniform(1, 5), lambda: self.move_guests_to(host, chance))

    def _record_arrival(self, host: Host, boot: int) -> None:
        # A move that cannot be recorded stays unsettled.
        if self.store.is_up:
            self.store.revision += 1
            self.arrivals.append(Arrival(host, boot, self.store.revision))

    # -- faults ------------------------------------------------------------------------------------------------------------

    def befall(self, begin: float, end: float) -> None:
        """Plan faults of all kinds in that time. The first host is cut off from etcd, or dies."""
        chance = self.random
        target = self.hosts[0]
        lost = chance.uniform(begin, begin + 5)
        self.watch_from = chance.choice([chance.uniform(begin, begin + 25), lost + chance.uniform(-1, 6)])
        if chance.random() < 0.1:
            self.at(lost, target.lose_power)
        else:
            self._cut(target, "has_etcd", lost, chance.choice([end + 1000, lost + chance.uniform(1, end - begin)]))
            if chance.random() < 0.2:
                self._cut(target, "has_peers", chance.uniform(begin, end), chance.uniform(begin, end + 60))
        if chance.random() < 0.3:
            self._befall_all(lost)
            return
        if chance.random() < 0.8:
            self._befall_many(lost)
        for host in self.hosts[1:]:
            for _fault in range(chance.choice([0, 0, 0, 1, 2])):
                self._befall_host(host, begin, end)
        for _outage in range(chance.choice([0, 0, 0, 1, 2])):
            start = chance.uniform(begin, end)
            self.at(start, lambda: self.set_store(False))
            self.at(start + chance.choice([chance.uniform(0, 3), chance.uniform(0, 40)]), lambda: self.set_store(True))

    def _befall_all(self, lost: float) -> None:
        """Plan that the first host keeps running as long as possible, because no other one has a lease; their old renewals arrive when it should be dead."""
        chance = self.random
        self.watch_from = lost + chance.uniform(0, 2)
        start = lost + chance.uniform(-2, 0)
        self.cut_loss = 0.1
        self._cut_others(start, self.watch_from + WAIT_SECONDS + chance.uniform(-3, 1.5) - start, share=1.0)

    def _befall_many(self, lost: float) -> None:
        """Plan that many hosts lose etcd at about the time at which the first one has to be reset, perhaps more than once."""
        chance = self.random
        share = chance.choice([0.5, 0.95, 0.95])
        for _storm in range(chance.choice([1, 1, 1, 2])):
            start = lost + chance.choice([chance.uniform(-LEASE_SECONDS, 2), chance.uniform(-LEASE_SECONDS, 2), chance.uniform(0, 25)])
            lasts = chance.choice([chance.uniform(1, 12), chance.uniform(12, 28), chance.uniform(12, 28)])
            self._cut_others(start, lasts, share)

    def _cut_others(self, start: float, lasts: float, share: float) -> None:
        """Plan that other hosts lose etcd."""
        for host in self.hosts[1:]:
            if self.random.random() < share:
                self._cut(host, "has_etcd", start + self.random.uniform(0, 1), start + lasts + self.random.uniform(0, 1))

    def _befall_host(self, host: Host, begin: float, end: float) -> None:
        chance = self.random
        start, lasts = chance.uniform(begin, end), chance.choice([chance.uniform(0, 4), chance.uniform(0, 60)])
        what = chance.choice(["etcd", "etcd", "etcd", "peers", "service", "stop", "reset"])
        if what == "etcd":
            self._cut(host, "has_etcd", start, start + lasts)
        elif what == "peers":
            self._cut(host, "has_peers", start, start + lasts)
        elif what == "service":
            self.at(start, lambda: host.start_service() if host.is_up else None)
        elif what == "stop":
            self.at(start, lambda: setattr(host, "stopped_until", self.now + lasts))
        else:
            self.at(start, lambda: host.reset() if host.is_up else None)

    def _cut(self, host: Host, what: str, start: float, end: float) -> None:
        def begin() -> None:
            setattr(host, what, False)
            if what == "has_etcd":
                host.etcd_returns = end

        self.at(start, begin)
        self.at(end, lambda: setattr(host, what, True))


class Controller:
    """Reads the leases about once a second, by a clock of its own."""

    def __init__(self, world: World, poll_seconds: float = 1.0) -> None:
        self.world = world
        self.poll_seconds = poll_seconds
        self.speed = 1 + world.random.uniform(-CLOCK_ERROR, CLOCK_ERROR)
        self.readings: list[TimedReading] = []

    def read_once(self) -> bool:
        """Let the time pass until the next answer of etcd; return whether there was one."""
        world, chance = self.world, self.world.random
        world.run_until(world.now + self.poll_seconds / self.speed)
        begun = world.now * self.speed
        world.run_until(world.now + self._lag())
        if not world.store.is_up or chance.random() < world.loss:
            return False
        reading = world.store.read()
        world.run_until(world.now + self._lag())
        self.readings.append(TimedReading(begun, world.now * self.speed, reading))
        return True

    def _lag(self) -> float:
        return self.world.random.choice([0.001, 0.01, t.cast("float", self.world.random.uniform(0, 2))])


def protected_watchdog(boot_id: str) -> ProtectedWatchdog:
    """Return what C(protect) saw in that boot."""
    return ProtectedWatchdog(boot_id, True, True, "/dev/watchdog0", "simulated", int(DEVICE_SECONDS), True, True, RESET_SECONDS)


def judge_world(seed: int, limit_seconds: float = 90.0) -> tuple[World, Verdict]:
    """Let a controller wait for the first host of a world to be proved reset, and return its last verdict. A host that shows itself is waited for anew."""
    world = World(seed)
    world.befall(10, 70)
    world.move_guests_to(world.hosts[0], random.Random(seed))
    world.run_until(world.watch_from)
    target, controller = world.hosts[0], Controller(world)
    case = WatchdogCase(target.name, target.host_id, RESET_SECONDS, protected_watchdog(f"{target.name} boot 1"), 3)
    end, verdict = world.now + limit_seconds, t.cast("Verdict", Void("etcd could not be read"))
    while world.now < end:
        if not controller.read_once():
            continue
        verdict = judge_reset(case, controller.readings)
        if isinstance(verdict, Void) and verdict.is_alive:
            controller.readings.clear()
        elif isinstance(verdict, (Proven, Void)):
            break
    return world, verdict
