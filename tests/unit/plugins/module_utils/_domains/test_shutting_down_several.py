# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Several domains that are shut down at the same time: one that cannot be hinders no other."""

from __future__ import annotations

import pathlib
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._domains import shutting_down
from ansible_collections.kvmfleet.migration.plugins.module_utils._domains.shutting_down import (
    DomainShutdown,
    ShutdownResult,
    build_result,
    shut_down_requested,
    shut_down_together,
)
from ansible_collections.kvmfleet.migration.plugins.module_utils._model import domain_states
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, InvalidState, TimedOut
from ansible_collections.kvmfleet.migration.plugins.module_utils._run_folder import Ownership
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._domains.test_shutting_down import PoliteHost

A, B, C = (str(uuid.UUID(int=number)) for number in (1, 2, 3))


class PoliteHosts(PoliteHost):
    """A host whose guests do, when they are asked, what the test says of each."""

    def __init__(self, fleet: FakeFleet, presses: t.Dict[str, t.Callable[[], object]]) -> None:
        super().__init__(fleet)
        self.presses = presses

    def shut_down(self, uuid: str) -> None:
        super().shut_down(uuid)
        self.presses.get(uuid, lambda: None)()


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet()


def guests(fleet: FakeFleet, *uuids: str) -> t.Dict[str, t.Callable[[], object]]:
    """Put guests on the host; return what each does when it is asked: it goes off 10 s later."""
    domains = [fleet.guest(f"web{uuid[-1]}", uuid) for uuid in uuids]
    return {domain.uuid: lambda domain=domain: fleet.clock.after(10, lambda: domain.enter(domain_states.SHUTOFF, "shutdown")) for domain in domains}


def shutdowns(fleet: FakeFleet, host: PoliteHost, folder: pathlib.Path, *uuids: str) -> t.List[DomainShutdown]:
    return [DomainShutdown(host, host.find_domain(uuid=uuid), 30, str(folder), fleet.clock, fleet.clock.sleep) for uuid in uuids]


def stop_all(fleet: FakeFleet, host: PoliteHost, folder: pathlib.Path, *uuids: str, check_mode: bool = False) -> t.List[ShutdownResult]:
    return shut_down_together(shutdowns(fleet, host, folder, *uuids), check_mode, fleet.clock.sleep)


def list_asked_domains(fleet: FakeFleet) -> t.List[str]:
    return [call.split()[1] for call in fleet.source.calls if call.startswith("shut_down ")]


def test_all_domains_are_asked_before_one_is_awaited(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    host = PoliteHosts(fleet, guests(fleet, A, B))
    begun = fleet.clock()
    stops = stop_all(fleet, host, tmp_path, A, B)
    assert [(stop.uuid, stop.changed, stop.reason) for stop in stops] == [(A, True, "shutdown"), (B, True, "shutdown")]
    assert list_asked_domains(fleet) == [A, B]
    assert fleet.clock() - begun < 15
    Ownership(A, str(tmp_path)).release_lock()


def test_a_domain_that_cannot_be_shut_down_does_not_stop_the_others(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    host = PoliteHosts(fleet, guests(fleet, A, B, C))
    del host.presses[B]
    fleet.source.domains[C].state = domain_states.PAUSED
    stops = stop_all(fleet, host, tmp_path, A, B, C)
    assert [stop.changed for stop in stops] == [True, True, False]
    assert [type(stop.error) for stop in stops] == [type(None), TimedOut, InvalidState]
    with pytest.raises(TimedOut, match=r"still running .* so its guest cannot react") as caught:
        build_result(stops)
    result = caught.value.as_result()
    assert result["changed"] is True
    assert [domain["uuid"] for domain in result["domains"]] == [A]
    assert [(failure["uuid"], failure["error_code"]) for failure in result["failures"]] == [(B, "timeout"), (C, "invalid_state")]


def test_an_inactive_domain_is_no_change_and_check_mode_asks_no_guest(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    host = PoliteHosts(fleet, guests(fleet, A, B))
    fleet.source.domains[A].enter(domain_states.SHUTOFF, "destroyed")
    stops = stop_all(fleet, host, tmp_path, A, B, check_mode=True)
    assert [(stop.changed, stop.reason) for stop in stops] == [(False, "destroyed"), (True, None)]
    assert list_asked_domains(fleet) == []
    assert build_result(stops)["changed"] is True
    assert [stop.is_forced for stop in stops] == [False, False]


def test_a_destroyed_domain_is_marked_as_forced(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    guests(fleet, A)
    host = PoliteHosts(fleet, {A: lambda: fleet.source.domains[A].enter(domain_states.SHUTOFF, "destroyed")})
    assert [stop.is_forced for stop in stop_all(fleet, host, tmp_path, A)] == [True]


def test_an_unknown_domain_fails_alone_and_duplicates_are_merged(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    guests(fleet, A)
    monkeypatch.setattr(shutting_down, "require_root", lambda: None)
    monkeypatch.setattr(shutting_down, "prepare_run_folder", lambda: "")
    monkeypatch.setattr(shutting_down, "open_host", lambda uri: PoliteHosts(fleet, {}))
    params = {"uri": LOCAL_URI, "uuids": [B, A, A], "wait_seconds": 180, "start_again": False}
    stops = shut_down_requested(params, check_mode=True)
    assert [(stop.uuid, stop.changed) for stop in stops] == [(B, False), (A, True)]
    assert stops[0].error is not None
    assert stops[0].error.error_code == "not_found"
    for wrong in ({"uuids": []}, {"uuids": ["no-uuid"]}, {"wait_seconds": 0}):
        with pytest.raises(InvalidArgument):
            shut_down_requested({**params, **wrong}, check_mode=True)
