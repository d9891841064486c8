# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.force import ForceAction, SetBandwidth, StartPostCopy, Suspend
from ansible_collections.kvmfleet.migration.plugins.module_utils._migration.monitor import Abort, SetDowntime
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Internal, InvalidState, KvmfleetError, NotSupported, TimedOut, Unreachable
from ansible_collections.kvmfleet.migration.plugins.module_utils._watcher.journal import JobController
from ansible_collections.kvmfleet.migration.tests.unit.fakes.domain import MIB
from ansible_collections.kvmfleet.migration.tests.unit.fakes.fleet import LOCAL_URI, UUID, FakeFleet
from ansible_collections.kvmfleet.migration.tests.unit.plugins.module_utils._watcher.moves import acts, journal_of, record_of, state_in

ACTIONS = [
    (StartPostCopy(), "post_copy", "start_post_copy"),
    (SetBandwidth(7), "bandwidth", "set_bandwidth_mib"),
    (SetDowntime(900), "downtime", "set_max_downtime_ms"),
    (Suspend(), "suspend", "suspend"),
]


class ControlledJob:
    """A running job that may switch to post-copy, and its controller."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.fleet = FakeFleet(link_mib=100)
        self.guest = self.fleet.guest(dirty_bytes=512 * MIB, dirty_rate_bytes=500 * MIB)
        self.migration = self.fleet.begin_elsewhere(UUID, "POSTCOPY")
        self.fleet.clock.sleep(1)
        self.host = self.fleet.open(LOCAL_URI)
        self.controller = JobController(UUID, journal_of(record_of(), folder))

    def events(self) -> t.List[str]:
        return [line["status"] for line in state_in(self.folder)["history"]]


@pytest.fixture
def job(tmp_path: pathlib.Path) -> ControlledJob:
    return ControlledJob(tmp_path)


@pytest.mark.parametrize(("action", "name", "call"), ACTIONS)
def test_each_act_is_recorded_before_it_is_executed(job: ControlledJob, action: ForceAction, name: str, call: str) -> None:
    seen: t.List[t.List[str]] = []
    job.fleet.before_call = lambda machine, asked: seen.append(acts(state_in(job.folder))) if asked == call else None
    assert job.controller.force_job(job.host, action) is None
    assert seen == [[f"force: {name}"]]
    assert [one.split()[0] for one in job.fleet.source.calls] == [call]


@pytest.mark.parametrize(("action", "name", "call"), ACTIONS)
@pytest.mark.parametrize("error", [InvalidState("no"), TimedOut("job lock"), Internal("QEMU command failed")])
def test_a_refusal_is_returned_and_noted_once(job: ControlledJob, action: ForceAction, name: str, call: str, error: KvmfleetError) -> None:
    job.fleet.source.refuse[call] = error
    assert [job.controller.force_job(job.host, action) for _poll in range(3)] == [error] * 3
    assert job.events().count(f"force: {name} refused") == 1
    assert acts(state_in(job.folder)) == [f"force: {name}"]


@pytest.mark.parametrize(("action", "name", "call"), ACTIONS)
def test_a_lost_connection_during_an_act_is_not_a_refusal(job: ControlledJob, action: ForceAction, name: str, call: str) -> None:
    job.fleet.source.go_dark()
    with pytest.raises(Unreachable):
        job.controller.force_job(job.host, action)
    assert acts(state_in(job.folder)) == [f"force: {name}"]
    assert f"force: {name} refused" not in job.events()


@pytest.mark.parametrize("error", [InvalidState("no job"), NotSupported("in post-copy")])
def test_an_abort_that_comes_too_late_is_returned(job: ControlledJob, error: KvmfleetError) -> None:
    job.fleet.source.refuse["abort"] = error
    assert [job.controller.abort_job(job.host, Abort("timeout")) for _poll in range(2)] == [error] * 2
    assert job.events().count("abort: timeout refused") == 1


@pytest.mark.parametrize("error", [TimedOut("job lock"), Internal("QEMU command failed"), Unreachable("socket is closed")])
def test_an_abort_that_may_be_lost_raises_its_error(job: ControlledJob, error: KvmfleetError) -> None:
    job.fleet.source.refuse["abort"] = error
    for _poll in range(2):
        with pytest.raises(type(error)):
            job.controller.abort_job(job.host, Abort("stalled"))
    del job.fleet.source.refuse["abort"]
    assert job.controller.abort_job(job.host, Abort("stalled")) is None
    assert job.migration.ended.is_set()
    assert (acts(state_in(job.folder)), job.events().count("abort_start")) == (["abort: stalled"], 1)


def test_a_step_of_the_ramp_is_not_recorded_in_the_history(job: ControlledJob) -> None:
    assert job.controller.allow_downtime(job.host, 300) is None
    assert job.guest.max_downtime_ms == 300
    assert not (job.folder / f"{UUID}.json").exists(), "nothing was worth writing"
    job.fleet.source.refuse["set_max_downtime_ms"] = InvalidState("no")
    assert [str(job.controller.allow_downtime(job.host, 400)) for _poll in range(3)] == ["no"] * 3
    assert job.events().count("downtime refused") == 1


def test_pausing_a_post_copy_stream_is_recorded(job: ControlledJob) -> None:
    job.migration.start_post_copy()
    job.controller.break_post_copy(job.host)
    assert acts(state_in(job.folder)) == ["recover: pause"]
    assert job.guest.view().describe() == "paused (post-copy failed)"
