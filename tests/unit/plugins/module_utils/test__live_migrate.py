# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module's two phases on the source host: which of them does what, over fake hosts."""

from __future__ import annotations

import os
import pathlib
import time
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils import _live_migrate as module
from ansible_collections.kvmfleet.migration.plugins.module_utils import _surveying
from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import Forbidden, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._records import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher import files, run
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.process import identity
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._watcher.moves import RUN, record_of, state_in

TO_2 = "qemu+tcp://kvm2/system"
WANTED = {"name": "web1", "uuid": None, "known_uuids": [], "destination_uris": [TO_2]}


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> FakeFleet:
    """Fake hosts in libvirt's place, and a folder of the test's own."""
    fleet = FakeFleet()
    folder = str(tmp_path)
    tmp_path.chmod(0o700)
    monkeypatch.setattr(module, "open_host", fleet.open)
    monkeypatch.setattr(_surveying, "open_host", fleet.open)
    monkeypatch.setattr(module, "state_path", lambda uuid: files.state_path(uuid, folder))
    monkeypatch.setattr(module, "start_watcher", lambda *given: run.start_watcher(*given, folder))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return fleet


def watch_of(fleet: FakeFleet, folder: pathlib.Path, **wanted: t.Any) -> t.Any:
    (domain,) = module.prepare(LOCAL_URI, {"wanted": [{**WANTED, **wanted}]})["survey"]["domains"]
    return domain["watch"]


def test_preparing_changes_nothing_and_closes_what_it_opened(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    result = module.prepare(LOCAL_URI, {"wanted": [WANTED]})
    assert (result["changed"], result["survey"]["domains"][0]["found"]) == (False, True)
    assert all(host.is_closed for host in fleet.connections)
    assert [machine.calls for machine in fleet.machines.values()] == [[], []]
    assert list(tmp_path.iterdir()) == []


def test_a_watcher_of_the_domain_is_seen_with_its_state_and_whether_it_lives(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest()
    assert watch_of(fleet, tmp_path) is None
    record = record_of(status=s.RUNNING)
    for watcher, alive in ((identity(RUN), True), ({**identity(RUN), "start_ticks": 1}, False)):
        files.write_json(files.state_path(UUID, str(tmp_path)), {**record, "watcher": watcher})
        watch = watch_of(fleet, tmp_path)
        assert (watch["record"]["id"], watch["alive"]) == (record["id"], alive)


def test_a_domain_that_has_left_is_looked_for_under_the_uuids_that_are_known(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    files.write_json(files.state_path(UUID, str(tmp_path)), {**record_of(status=s.COMPLETED), "watcher": None})
    assert watch_of(fleet, tmp_path) is None
    assert watch_of(fleet, tmp_path, known_uuids=[UUID])["record"]["status"] == s.COMPLETED
    assert watch_of(fleet, tmp_path, name=None, uuid=UUID)["alive"] is False


def test_starting_hands_over_to_a_watcher(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest(on="kvm2")
    order = {"record": record_of(status=s.RUNNING), "source_uri": LOCAL_URI, "destination_uri": TO_2, "adopt": True}
    result = module.start(LOCAL_URI, {"orders": [order], "run_id": RUN, "parallel": 4})
    assert (result["changed"], list(result["taken"]), result["refused"]) == (True, [UUID], {})
    limit = time.monotonic() + 20
    while state_in(tmp_path)["status"] != s.COMPLETED:
        assert time.monotonic() < limit
        time.sleep(0.05)


@pytest.mark.parametrize("phase", [module.prepare, module.start])
def test_neither_phase_works_without_root_or_on_another_host(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch, phase: t.Callable[..., t.Any]) -> None:
    work = {"wanted": [WANTED], "orders": [], "run_id": RUN, "parallel": 1}
    with pytest.raises(NotSupported):
        phase(TO_2, work)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Forbidden):
        phase(LOCAL_URI, work)
    assert fleet.connections == []
