# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hosts of a fleet are given another etcd one after the other, after all of them have lost their leases in the former one."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kvmfleet.migration.plugins.module_utils._lease import service as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease import state as states
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease import testing
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.config import LeasePeer
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.etcd import NotAcknowledged
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.renewal import Acknowledgement
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.view import OwnView, judge_promises
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import HELD, NONE, HostLease, LeaseWatchdog

from .conftest import make_config

SIZE = 6
PEERS = tuple(LeasePeer(f"{number:08d}-0000-4000-8000-000000000000", f"kvm{number}", ("127.0.0.1",), 1, False) for number in range(SIZE))
WATCHDOG = LeaseWatchdog("/dev/watchdog0", "i6300ESB timer", 10, True, True, 30)
OLD = {"cluster_id": "1", "endpoints": ("10.0.0.1:2379",)}
NEW_CLUSTER = {"cluster_id": "2", "endpoints": ("10.0.0.1:2379",)}
NEW_MEMBERS = {"cluster_id": "1", "endpoints": ("10.0.0.9:2379",)}


class Host:
    """A host with its files; its service goes on after each change of its configuration."""

    def __init__(self, fleet: Fleet, peer: LeasePeer, folder: pathlib.Path) -> None:
        self.fleet, self.peer = fleet, peer
        self.file = str(folder / f"{peer.name}.json")
        self.is_cut_off = False
        self.renewals: t.List[HostLease] = []
        self.configure(OLD)

    def configure(self, etcd: t.Dict[str, t.Any]) -> None:
        """Install this configuration: the service starts anew."""
        self.config = make_config(host_id=self.peer.host_id, name=self.peer.name, fleet=PEERS, **etcd)
        self.fleet.current = self
        self.service = m.LeaseService(self.config, t.cast(t.Any, self))

    def renew(self, describe: t.Callable[[str], bytes]) -> Acknowledgement:
        self.renewals.append(decode(HostLease, json.loads(describe("direct"))))
        etcd = {"cluster_id": self.config.cluster_id, "endpoints": self.config.endpoints}
        if self.is_cut_off or etcd not in self.fleet.etcds:
            raise NotAcknowledged("no answer")
        self.fleet.revision += 1
        return Acknowledgement(self.fleet.revision, "direct")

    def act(self) -> None:
        """Let a second pass: renew the lease, and ask the peers if there is none."""
        self.fleet.current = self
        self.service.renew()
        self.service.extend_run()

    @property
    def keeps_running(self) -> bool:
        """What the watchdog's test says."""
        self.fleet.current = self
        return testing.decide().keeps_running

    @property
    def has_lease(self) -> bool:
        return self.service.answer_peer(self.config.store).lease == HELD


class Fleet:
    """Hosts that hold leases in an etcd.

    :arg etcds: those that answer.
    """

    def __init__(self, folder: pathlib.Path, patch: pytest.MonkeyPatch) -> None:
        self.now, self.revision = 1000.0, 100
        self.etcds: t.List[t.Dict[str, t.Any]] = [OLD]
        self.current: t.Any = None
        for module in (m, states, testing):
            patch.setattr(module, "boot_moment", lambda: BootMoment("boot", self.now))
        for module in (m, testing):
            patch.setattr(module, "ask_peers", self.ask)
            patch.setattr(module, "read_lease_state", lambda: read_state(self.current.file))
            patch.setattr(module, "has_been_tested", lambda: True)
        patch.setattr(m, "write_lease_state", lambda state: states.write_lease_state(state, self.current.file))
        patch.setattr(m, "reserve_counts", lambda least: least + 1000)
        patch.setattr(m, "read_reserved_count", lambda: 0)
        patch.setattr(m, "read_watchdog", lambda grace: WATCHDOG)
        patch.setattr(testing, "read_config", lambda: self.current.config)
        self.hosts = [Host(self, peer, folder) for peer in PEERS]
        self.pass_time(10)
        assert all(host.has_lease for host in self.hosts)

    def ask(self, peers: t.Sequence[LeasePeer], stores: t.Sequence[str]) -> t.Dict[str, t.Dict[str, str]]:
        reached = [host for host in self.hosts if host.peer in peers and (host is self.current or not (host.is_cut_off or self.current.is_cut_off))]
        return {store: {host.peer.host_id: host.service.answer_peer(store).lease for host in reached} for store in stores}

    def pass_time(self, seconds: int) -> None:
        """Let the hosts act; none of them may be reset but one that is cut off."""
        for _second in range(seconds):
            self.now += 1
            for host in self.hosts:
                host.act()
            assert all(host.keeps_running for host in self.hosts if not host.is_cut_off)

    def lose_etcd(self) -> None:
        self.etcds = []
        self.pass_time(60)
        assert not any(host.has_lease for host in self.hosts)


read_state = states.read_lease_state


@pytest.fixture
def fleet(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    return Fleet(tmp_path, monkeypatch)


@pytest.mark.parametrize("etcd", [NEW_CLUSTER, NEW_MEMBERS], ids=["another cluster", "other members"])
def test_no_host_is_reset_while_the_fleet_is_given_another_etcd(fleet: Fleet, etcd: t.Dict[str, t.Any]) -> None:
    fleet.lose_etcd()
    fleet.etcds = [etcd]
    *configured, last = fleet.hosts
    for host in configured:
        host.configure(etcd)
        fleet.pass_time(60)
        assert host.has_lease
    # The task of the last one fails for an hour.
    fleet.pass_time(600)
    assert not last.has_lease
    last.configure(etcd)
    fleet.pass_time(30)
    assert last.has_lease


def test_a_host_that_is_cut_off_after_the_change_is_reset(fleet: Fleet) -> None:
    fleet.lose_etcd()
    fleet.etcds = [NEW_CLUSTER]
    for host in fleet.hosts:
        host.configure(NEW_CLUSTER)
    fleet.pass_time(30)
    lost = fleet.hosts[0]
    lost.is_cut_off = True
    fleet.pass_time(40)
    assert not lost.keeps_running


def test_a_host_that_cannot_use_the_new_etcd_has_promised_nothing_there(fleet: Fleet) -> None:
    """Its password is wrong, for example: nobody counts on its reset."""
    fleet.lose_etcd()
    fleet.etcds = [NEW_CLUSTER]
    for host in fleet.hosts[1:]:
        host.configure(NEW_CLUSTER)
    wrong = fleet.hosts[0]
    wrong.configure({**NEW_CLUSTER, "endpoints": ("10.0.0.7:2379",)})
    fleet.pass_time(120)
    last = wrong.renewals[-1]
    assert last.watchdog
    assert (wrong.has_lease, last.held_since, last.watchdog.bound, last.acknowledged_revision) == (False, 0, False, 0)


def test_what_was_promised_in_the_former_etcd_holds_while_others_have_leases_there(fleet: Fleet) -> None:
    """The first host is given members that it cannot reach: the others hold their leases, and may prove that it was reset."""
    first = fleet.hosts[0]
    first.configure(NEW_MEMBERS)
    first.is_cut_off = True
    fleet.pass_time(40)
    assert not first.keeps_running


def test_a_late_renewal_of_the_former_etcd_is_kept_for_as_long_as_it_may_arrive(fleet: Fleet) -> None:
    fleet.etcds = [OLD, NEW_MEMBERS]
    first = fleet.hosts[0]
    former = first.config.store
    first.configure(NEW_MEMBERS)
    fleet.pass_time(10)
    assert first.has_lease
    assert [one.store for one in first.service.state.promises] == [former, first.config.store]
    fleet.now += states.LATEST_SECONDS
    first.act()
    assert [one.store for one in first.service.state.promises] == [first.config.store]


def test_the_first_lease_in_another_etcd_begins_anew(fleet: Fleet) -> None:
    fleet.etcds = [OLD, NEW_MEMBERS]
    first = fleet.hosts[0]
    before = first.renewals[-1]
    first.configure(NEW_MEMBERS)
    assert not first.has_lease
    fleet.pass_time(3)
    sent = first.renewals[-3:]
    assert [one.held_since for one in sent] == [0, before.count + 1, before.count + 1]
    assert sent[0].fleet.digest != before.fleet.digest
    assert [one.acknowledged_revision > before.acknowledged_revision for one in sent] == [False, True, True]
    # And so does one after a change back.
    first.configure(OLD)
    fleet.pass_time(2)
    assert first.renewals[-1].held_since > sent[-1].held_since


def test_a_state_of_an_earlier_version_goes_on(fleet: Fleet) -> None:
    first = fleet.hosts[0]
    state = first.service.state
    fleet.current = first
    states.write_lease_state(dataclasses.replace(state, store=states.ABSENT), first.file)
    first.configure(OLD)
    assert first.has_lease
    assert first.service.state == dataclasses.replace(state, runs_until=first.service.state.runs_until)


Answer = t.Tuple[str, str]
# The etcd of each other host, and its answer; None for a host that does not answer.
OTHERS = st.lists(st.one_of(st.none(), st.tuples(st.sampled_from("ab"), st.sampled_from([HELD, NONE]))), max_size=7)


@given(OTHERS)
def test_a_majority_that_could_prove_a_reset_in_any_etcd_lets_no_host_run_on(others: t.List[t.Optional[Answer]]) -> None:
    ids = ["own", *map(str, range(len(others)))]

    def answers(store: str) -> t.Dict[str, str]:
        return {str(place): HELD if one == (store, HELD) else NONE for place, one in enumerate(others) if one}

    verdict = judge_promises(OwnView(100.0, 7), 101.0, "own", [((ids,), answers(store)) for store in "ab"])
    for store in "ab":
        holding = sum(one == (store, HELD) for one in others)
        assert not (verdict.keeps_running and holding >= len(ids) - len(ids) // 2)
