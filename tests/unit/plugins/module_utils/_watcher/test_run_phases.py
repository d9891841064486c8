# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The phase that starts moves on their source host launches a watcher, over fake hosts."""

from __future__ import annotations

import os
import pathlib
import time

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import statuses as s
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Forbidden, NotSupported
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher import run
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._watcher.moves import RUN, record_of, state_in

TO_2 = "qemu+tcp://kvm2/system"


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> FakeFleet:
    """Fake hosts in libvirt's place, and a folder of the test's own."""
    fleet = FakeFleet()
    folder = str(tmp_path)
    tmp_path.chmod(0o700)
    monkeypatch.setattr(run, "open_host", fleet.open)
    start_watcher = run.start_watcher
    monkeypatch.setattr(run, "start_watcher", lambda *given: start_watcher(*given, folder))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return fleet


def test_starting_launches_a_watcher(fleet: FakeFleet, tmp_path: pathlib.Path) -> None:
    fleet.guest(on="kvm2")
    order = {"record": encode(record_of(status=s.RUNNING)), "source_uri": LOCAL_URI, "destination_uri": TO_2, "adopt": True}
    result = run.start_moves(LOCAL_URI, {"orders": [order], "run_id": RUN, "parallel": 4})
    assert (result["changed"], list(result["taken"]), result["refused"]) == (True, [UUID], {})
    limit = time.monotonic() + 20
    while state_in(tmp_path)["status"] != s.COMPLETED:
        assert time.monotonic() < limit
        time.sleep(0.05)


def test_starting_needs_root_and_a_local_uri(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotSupported):
        run.start_moves(TO_2, {"orders": [], "run_id": RUN, "parallel": 1})
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Forbidden):
        run.start_moves(LOCAL_URI, {"orders": [], "run_id": RUN, "parallel": 1})
    assert fleet.connections == []
