# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Until when a host may keep running, as its service writes it for the watchdog's test: with a lease, and while etcd is down for all."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._lease import service as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.config import LeaseConfig, LeasePeer
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.etcd import NotAcknowledged
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.renewal import Acknowledgement
from ansible_collections.kvmfleet.migration.plugins.module_utils._lease.state import LeaseState, read_lease_state, write_lease_state
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.leases import HELD, NONE

PEERS = tuple(LeasePeer(name, name, (f"10.0.0.{number}",), 16516, False) for number, name in enumerate(("one", "two", "three")))
CONFIG = LeaseConfig("one", "one", "1", ("10.0.0.9:2379",), "/fleet/", False, "lease", "secret", 15, 3, 16516, False, PEERS)
GRACE = 8


class Host:
    """One host: its clock, whether etcd answers, and what its peers say."""

    def __init__(self, path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.is_etcd_up = True
        self.answers: dict[str, str] = {}
        self.asked = 0
        self.file = str(path / "lease.json")
        monkeypatch.setattr(m, "boot_moment", lambda: BootMoment("boot", self.now))
        monkeypatch.setattr(m, "ask_peers", self._ask)
        monkeypatch.setattr(m, "read_lease_state", self.read_state)
        monkeypatch.setattr(m, "write_lease_state", lambda state: write_lease_state(state, self.file))
        monkeypatch.setattr(m, "reserve_counts", lambda least: least + 1000)
        monkeypatch.setattr(m, "read_reserved_count", lambda: 0)
        monkeypatch.setattr("ansible_collections.kvmfleet.migration.plugins.module_utils._lease.state.boot_moment", m.boot_moment)
        self.service = self.start()

    def start(self, lease_seconds: int = 15) -> m.LeaseService:
        config = m.dataclasses.replace(CONFIG, lease_seconds=lease_seconds)
        self.service = m.LeaseService(config, t.cast("t.Any", self))
        return self.service

    def renew(self, _describe: t.Callable[[str], bytes]) -> Acknowledgement:
        if not self.is_etcd_up:
            raise NotAcknowledged("etcd is down")
        return Acknowledgement(7, "direct")

    def read_state(self) -> t.Optional[LeaseState]:
        return read_lease_state(self.file)

    @property
    def runs_for(self) -> float:
        state = self.read_state()
        assert state
        return state.runs_until - self.now

    def _ask(self, _peers: object, stores: t.Sequence[str]) -> dict[str, dict[str, str]]:
        self.asked += 1
        return dict.fromkeys(stores, self.answers)


@pytest.fixture
def host(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


def test_a_host_that_renews_runs_for_its_lease_and_a_grace(host: Host) -> None:
    host.is_etcd_up = False
    host.service.renew()
    state = host.read_state()
    assert state
    assert state.runs_until == 0
    host.is_etcd_up = True
    host.service.renew()
    assert host.runs_for == 15 + GRACE
    host.service.extend_run()
    assert host.asked == 0


def test_the_first_host_whose_lease_ends_in_an_outage_is_not_ended_by_peers_that_have_theirs_for_a_moment(host: Host) -> None:
    host.service.renew()
    host.is_etcd_up = False
    host.now += 16
    host.answers = {"two": HELD, "three": HELD}
    host.service.renew()
    host.service.extend_run()
    assert host.runs_for == GRACE - 1
    host.now += 4
    host.answers = {"two": NONE, "three": HELD}
    host.service.extend_run()
    assert host.runs_for == 15


def test_a_host_whose_peers_renew_first_after_an_outage_has_time_to_follow(host: Host) -> None:
    host.service.renew()
    host.is_etcd_up = False
    host.now += 600
    host.answers = {"two": NONE, "three": NONE}
    host.service.extend_run()
    host.now += 2
    host.answers = {"two": HELD, "three": HELD}
    host.service.extend_run()
    assert host.runs_for == 13
    host.is_etcd_up = True
    host.service.renew()
    assert host.runs_for == 15 + GRACE


def test_a_host_that_is_cut_off_runs_no_longer_than_its_lease_and_its_grace(host: Host) -> None:
    host.service.renew()
    host.is_etcd_up = False
    for _second in range(40):
        host.now += 1
        host.service.renew()
        host.service.extend_run()
    assert host.asked > 0
    assert host.runs_for == 15 + GRACE - 40


def test_a_service_that_starts_anew_promises_no_more_than_its_own_configuration(host: Host) -> None:
    host.service.renew()
    host.start()
    assert host.service.state.runs_until == 1000 + 15 + GRACE
    host.start(lease_seconds=9)
    assert host.service.state.runs_until == 1000 + 9 + GRACE
    host.service.renew()
    assert host.runs_for == 9 + GRACE
