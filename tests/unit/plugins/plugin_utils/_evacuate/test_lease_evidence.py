# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When silence proves that a watchdog has reset its host, and when it does not: by readings written by hand, and in simulated fleets with every fault."""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Callable

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import HostLease, LeaseFleet, LeaseWatchdog, ProtectedWatchdog
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate import lease_evidence
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.lease_evidence import (
    Proven,
    TimedReading,
    Verdict,
    Void,
    Waiting,
    WatchdogCase,
    judge_reset,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.etcd.leases import LeaseReading, SeenLease
from ansible_collections.kvmfleet.migration.tests.simulator.lease_world import judge_world

DEAD, ONE, TWO = "id-kvm1", "id-kvm2", "id-kvm3"
FLEET = LeaseFleet("f" * 64, 3)
WATCHDOG = LeaseWatchdog("/dev/watchdog0", "i6300ESB timer", 10, nowayout=True, bound=True, reset_seconds=15)
PROTECTED = ProtectedWatchdog("boot 1", True, True, "/dev/watchdog0", "i6300ESB timer", 10, True, True, 15)
CASE = WatchdogCase("kvm1", DEAD, 15, PROTECTED, 3)
# (15 s of lease and 15 s to the reset) and 2 %, and a second.
WAIT = 31.6


def lease(host_id: str, count: int, since: int, acknowledged: int = 0, **changes: t.Any) -> HostLease:
    name = host_id.removeprefix("id-")
    made = HostLease(host_id, name, "boot 1", count, since, 15, 3, FLEET, "direct", "", acknowledged, WATCHDOG)
    return dataclasses.replace(made, **changes)


class Etcd:
    """What was read of an etcd that two hosts renew their leases in, and a third one has until now."""

    def __init__(self, **changes: t.Any) -> None:
        self.revision = 100
        self.leases = {host_id: SeenLease(number, lease(host_id, 7, 1, **changes)) for number, host_id in enumerate((DEAD, ONE, TWO), 90)}
        self.readings: list[TimedReading] = []
        self.read(0.0)

    def read(self, at: float) -> None:
        self.readings.append(TimedReading(at, at + 0.1, LeaseReading(self.revision, dict(self.leases))))

    def renew(self, host_id: str, since: int = 1, acknowledged: int | None = None, count: int | None = None, **changes: t.Any) -> None:
        """Renew a lease; by default after the last renewal was acknowledged."""
        before = self.leases[host_id]
        self.revision += 1
        number = before.lease.count + 1 if count is None else count
        made = lease(host_id, number, since, before.revision if acknowledged is None else acknowledged, **changes)
        self.leases[host_id] = SeenLease(self.revision, made)

    def pass_time(self, until: float, *hosts: str, since: int = 1) -> None:
        """Let these hosts renew their leases every 3 s, and read every second."""
        second = int(self.readings[-1].begun)
        while second < until:
            second += 1
            for host_id in hosts if second % 3 == 0 else ():
                self.renew(host_id, since)
            self.read(float(second))

    def judge(self, **changes: t.Any) -> Verdict:
        return judge_reset(dataclasses.replace(CASE, **changes), self.readings)


def test_silence_while_the_others_hold_their_leases_is_proof() -> None:
    etcd = Etcd()
    etcd.pass_time(32, ONE, TWO)
    assert etcd.judge() == Waiting(0.0, "2 of 2 other hosts have not confirmed yet that they held their leases until now")
    etcd.pass_time(38, ONE, TWO)
    proof = etcd.judge()
    assert isinstance(proof, Proven)
    assert (proof.revision, proof.boot_id) == (90, "boot 1")
    assert proof.output == (
        "kvm1 did not renew its lease for 32 s, while kvm2, kvm3 held theirs (2 of the 2 needed in a fleet of 3): its watchdog (i6300ESB timer) resets it"
        " within 15 s after its lease of 15 s."
    )


def test_the_wait_is_lease_reset_and_margin_from_the_first_reading_on() -> None:
    etcd = Etcd()
    verdict = etcd.judge()
    assert isinstance(verdict, Waiting)
    assert verdict.seconds == pytest.approx(WAIT + 0.1)
    etcd.pass_time(20, ONE, TWO)
    verdict = etcd.judge(seconds=60)
    assert isinstance(verdict, Waiting)
    assert verdict.seconds == pytest.approx(0.1 + 75 * 1.02 + 1 - 20)


def test_a_host_that_had_no_lease_at_the_first_reading_counts_from_a_later_one_on() -> None:
    """Its renewal is in etcd, and the answer may be on its way: until it arrives, the host says that it has none."""
    etcd = Etcd()
    etcd.renew(ONE, since=0)
    etcd.renew(TWO, since=0)
    etcd.readings.clear()
    etcd.read(0.0)
    etcd.pass_time(38, ONE, TWO, since=8)
    verdict = etcd.judge()
    assert isinstance(verdict, Waiting)
    assert verdict.seconds == pytest.approx(3 + 0.1 + WAIT - 38, abs=0.1) or verdict.why
    etcd.pass_time(44, ONE, TWO, since=8)
    assert isinstance(etcd.judge(), Proven)


@pytest.mark.parametrize(
    ("case", "changes", "why"),
    [
        ({"members": 1}, {}, "etcd has 1 voting members, and a watchdog is evidence with at least 3"),
        ({"seconds": 14}, {}, "watchdog_seconds is 14, and the watchdog of kvm1 needs 15 s"),
        ({"protected": None}, {}, "kvm1 was not protected with a watchdog"),
        ({"protected": dataclasses.replace(PROTECTED, boot_id="boot 0")}, {}, "kvm1 was protected in another boot"),
        ({"protected": dataclasses.replace(PROTECTED, armed=False)}, {}, "had no armed watchdog"),
        ({"protected": dataclasses.replace(PROTECTED, bound=False)}, {}, "had no armed watchdog"),
        ({"protected": dataclasses.replace(PROTECTED, nowayout=False)}, {}, "had no armed watchdog"),
        ({"protected": dataclasses.replace(PROTECTED, held_at_boot=False)}, {}, "had no active boot guard"),
        ({}, {"watchdog": ABSENT}, "the lease of kvm1 names no watchdog"),
        ({}, {"watchdog": dataclasses.replace(WATCHDOG, nowayout=False)}, "can be disarmed"),
        ({}, {"watchdog": dataclasses.replace(WATCHDOG, bound=False)}, "not bound to its lease"),
        ({}, {"fleet": LeaseFleet("f" * 64, 1)}, "the fleet of kvm1 is kvm1 alone"),
        ({"host_id": "id-kvm9"}, {}, "has no lease in etcd"),
    ],
)
def test_what_makes_a_watchdog_no_evidence_is_named(case: dict[str, t.Any], changes: dict[str, t.Any], why: str) -> None:
    etcd = Etcd(**changes)
    etcd.pass_time(60, ONE, TWO)
    verdict = etcd.judge(**case)
    assert isinstance(verdict, Void)
    assert why in verdict.why
    assert not verdict.is_alive


@pytest.mark.parametrize(("changes", "why"), [({}, "kvm1 has renewed its lease since"), ({"boot_id": "boot 2"}, "kvm1 has started again, and has a lease")])
def test_a_host_that_renews_is_alive(changes: dict[str, t.Any], why: str) -> None:
    etcd = Etcd()
    etcd.pass_time(28, ONE, TWO)
    etcd.renew(DEAD, **changes)
    etcd.pass_time(40, ONE, TWO)
    # Another boot than protect saw is the first thing that is wrong with the lease.
    verdict = etcd.judge(protected=dataclasses.replace(PROTECTED, **changes))
    assert isinstance(verdict, Void)
    assert verdict.is_alive
    assert why in verdict.why


def test_the_wait_begins_when_the_first_lease_of_the_host_is_read() -> None:
    """Readings before that do not show that it was silent: it has renewed its lease since."""
    etcd = Etcd()
    own = etcd.leases.pop(DEAD)
    etcd.readings.clear()
    etcd.read(0.0)
    etcd.pass_time(30, ONE, TWO)
    etcd.leases[DEAD] = own
    etcd.pass_time(38, ONE, TWO)
    verdict = etcd.judge()
    assert isinstance(verdict, Waiting)
    assert verdict.seconds == pytest.approx(31 + 0.1 + WAIT - 38)
    etcd.pass_time(70, ONE, TWO)
    assert isinstance(etcd.judge(), Proven)


def test_without_a_majority_that_holds_leases_there_is_no_proof() -> None:
    """The host asks the others, and goes on if they have no leases either."""
    etcd = Etcd()
    etcd.pass_time(15, ONE)
    assert isinstance(etcd.judge(), Waiting)
    etcd.pass_time(60, ONE)
    verdict = etcd.judge()
    assert isinstance(verdict, Void)
    assert "only 1 of the 2 other hosts that are needed in a fleet of 3 hold leases" in verdict.why
    assert "know another fleet" not in verdict.why


def test_hosts_that_know_another_fleet_are_counted() -> None:
    """As those that were configured by an earlier version."""
    etcd = Etcd()
    etcd.renew(TWO, fleet=LeaseFleet("e" * 64, 3))
    etcd.read(1.0)
    verdict = judge_reset(CASE, etcd.readings)
    assert isinstance(verdict, Void | Waiting)
    assert "1 more know another fleet or another etcd (run host_lease for all hosts)" in verdict.why


def test_a_host_of_another_list_of_hosts_does_not_count() -> None:
    etcd = Etcd()
    etcd.renew(TWO, fleet=LeaseFleet("e" * 64, 3))
    etcd.read(1.0)
    etcd.pass_time(60, ONE)
    assert isinstance(etcd.judge(), Void)


@pytest.mark.parametrize("since", [0, 9])
def test_a_gap_in_a_lease_starts_the_wait_anew(since: int) -> None:
    etcd = Etcd()
    etcd.pass_time(29, ONE, TWO)
    etcd.renew(TWO, since)
    etcd.pass_time(44, ONE, TWO, since=18)
    verdict = etcd.judge()
    assert isinstance(verdict, Waiting)
    assert verdict.seconds > 10
    etcd.pass_time(80, ONE, TWO, since=18)
    # The other one must not have a gap either, and says so.
    assert isinstance(etcd.judge(), Proven)


def test_a_host_that_was_started_again_in_the_meantime_starts_the_wait_anew() -> None:
    etcd = Etcd()
    etcd.pass_time(20, ONE, TWO)
    etcd.renew(TWO, boot_id="boot 2")
    etcd.pass_time(40, ONE)
    assert not isinstance(etcd.judge(), Proven)


def test_renewals_that_arrive_late_prove_nothing() -> None:
    """They were sent while the lease was held, and say so; after the wait, etcd carries them out, one after the other. By their count alone they look new."""
    etcd = Etcd()
    etcd.pass_time(2, ONE, TWO)
    acknowledged = etcd.leases[ONE].revision
    etcd.pass_time(32, TWO)
    for dummy in range(4):
        etcd.renew(ONE, acknowledged=acknowledged)
        etcd.renew(TWO)
        etcd.read(etcd.readings[-1].begun + 1)
    assert etcd.leases[ONE].lease.count >= 11
    assert isinstance(etcd.judge(), Waiting)
    # The next one was sent after the wait.
    etcd.renew(ONE)
    etcd.read(etcd.readings[-1].begun + 1)
    assert isinstance(etcd.judge(), Proven)


def test_a_pause_of_etcd_does_not_matter_while_the_leases_last() -> None:
    etcd = Etcd()
    etcd.pass_time(10, ONE, TWO)
    etcd.read(20.0)
    etcd.pass_time(38, ONE, TWO)
    assert isinstance(etcd.judge(), Proven)


def test_an_outage_of_etcd_is_waited_for() -> None:
    """Right after it nobody has renewed a lease yet: that is no reason to give up."""
    etcd = Etcd()
    etcd.read(400.0)
    assert isinstance(etcd.judge(), Waiting)
    etcd.pass_time(445, ONE, TWO, since=9)
    assert isinstance(etcd.judge(), Proven)


def test_nothing_counts_from_before_a_restore_of_etcd() -> None:
    etcd = Etcd()
    etcd.pass_time(38, ONE, TWO)
    etcd.revision -= 10
    etcd.read(39.0)
    assert not isinstance(etcd.judge(), Proven)


@pytest.mark.parametrize(("size", "needed"), [(2, 1), (3, 2), (4, 2), (5, 3), (6, 3), (7, 4)])
def test_the_hosts_that_are_left_are_no_majority(size: int, needed: int) -> None:
    assert lease_evidence.count_needed(size) == needed
    majority = size // 2 + 1
    assert size - needed < majority <= size - needed + 1


def count_double_runs(seeds: t.Iterable[int]) -> tuple[int, int]:
    """Return in how many worlds a host was proved reset, and in how many of them it still ran its guests."""
    worlds = [world for world, verdict in map(judge_world, seeds) if isinstance(verdict, Proven)]
    return len(worlds), sum(world.hosts[0].runs_guests for world in worlds)


def test_no_host_that_still_runs_is_proved_reset() -> None:
    proven, double = count_double_runs(range(120))
    assert proven >= 8
    assert double == 0


def list_covered(seeds: t.Iterable[int]) -> list[tuple[bool, bool]]:
    """Return, for each guest that was moved to a host which was proved reset, whether the proof is about it, and whether it still runs."""
    found = []
    for world, verdict in map(judge_world, seeds):
        last = world.store.leases[world.hosts[0].host_id]
        if isinstance(verdict, Proven) and last.revision == verdict.revision:
            found += [(arrival.revision <= lease_evidence.known_until(last), arrival.is_running) for arrival in world.arrivals]
    return found


def test_no_guest_that_still_runs_came_before_the_last_renewal() -> None:
    """A host that was reset starts again, gets no lease, and guests are moved to it."""
    found = list_covered(range(120))
    assert (True, True) not in found
    assert found.count((True, False)) >= 20
    # Without this rule they would have been started twice.
    assert found.count((False, True)) >= 20


def test_the_arrival_of_the_last_renewal_shows_nothing_about_guests(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have been sent long before: before the reset, and before a guest came to the host that had started again."""
    monkeypatch.setattr(lease_evidence, "known_until", lambda last: last.revision)
    assert (True, True) in list_covered(range(42, 43))


@pytest.mark.parametrize(("acknowledged", "known"), [(0, 0), (80, 80), (90, 0), (300, 0)])
def test_a_renewal_that_claims_to_know_the_future_of_etcd_shows_nothing(acknowledged: int, known: int) -> None:
    """etcd was restored from a backup: its revisions begin anew below those that the host knows."""
    assert lease_evidence.known_until(SeenLease(90, lease(DEAD, 7, 1, acknowledged))) == known


def without_majority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_evidence, "count_needed", lambda size: 0)


def with_one_host_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_evidence, "count_needed", lambda size: max(0, size - size // 2 - 1))


def without_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any lease counts that is held in the end, whatever was in between."""
    monkeypatch.setattr(lease_evidence._Fleet, "_may_hold", lambda self, host_id, start: True)
    monkeypatch.setattr(lease_evidence._Fleet, "has_held", lambda self, host_id, start, after: after.find(host_id).lease.held_since > 0)


@pytest.mark.parametrize("mutate", [without_majority, with_one_host_less, without_gaps])
def test_a_weaker_condition_is_seen_to_run_guests_twice(monkeypatch: pytest.MonkeyPatch, mutate: Callable[[pytest.MonkeyPatch], None]) -> None:
    mutate(monkeypatch)
    _proven, double = count_double_runs(range(394, 420))
    assert double >= 1
