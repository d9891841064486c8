# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How a run changes, and what its document says afterwards."""

from __future__ import annotations

import json
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import maintenance_runs as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import MaintenanceRun
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance import transitions
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.begin import MAX_HOSTS
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._maintenance.nights import at, done, holder, night, passed


def test_a_run_is_finished_when_every_host_is_done() -> None:
    run = night("kvm1", "kvm2")
    for host in run.host_names:
        run = done(run, host)
    closed = transitions.close_run(run, {}, at(200))
    assert (closed.state, closed.holder, closed.reason) == (m.FINISHED, None, None)
    assert [line.event for line in closed.history] == ["started", "host_started", "host_done", "host_started", "host_done", "finished"]
    assert [one.seconds for one in closed.hosts] == [60, 60]


def test_a_host_that_was_left_in_a_step_is_failed_when_the_run_is_closed() -> None:
    closed = transitions.close_run(passed(night("kvm1"), "kvm1", m.REBOOT), {}, at())
    assert (closed.state, closed.hosts[0].status, closed.hosts[0].error) == (m.STOPPED, m.FAILED, "it was left in the step reboot")


def test_a_run_that_is_closed_keeps_why_it_began_no_further_host() -> None:
    failed = transitions.fail_host(passed(night(), "kvm1", m.CHECK), "kvm1", "no room", at())
    closed = transitions.close_run(failed, {}, at())
    assert (closed.reason, closed.history[-1].detail) == ("kvm1 failed, and max_failures is 0",) * 2
    assert transitions.close_run(night(), {}, at()).reason == "not every host is done"


def test_a_lost_host_is_failed_where_it_stood_and_only_once() -> None:
    run = passed(night("kvm1", "kvm2", "kvm3", max_unavailable=2), "kvm1", m.DRAIN)
    run = done(transitions.begin_host(run, "kvm3", at()), "kvm2")
    lost = transitions.fail_lost_hosts(run, run.host_names, at())
    assert [one.status for one in lost.hosts] == [m.FAILED, m.DONE, m.FAILED]
    assert "ended it in the step drain: it became unreachable" in str(lost.hosts[0].error)
    assert "ended it before its first step" in str(lost.hosts[2].error)
    assert (lost.is_stopping, transitions.fail_lost_hosts(lost, run.host_names, at())) == (True, lost)


def test_a_step_ends_when_the_next_one_begins() -> None:
    run = passed(night(), "kvm1", m.CHECK)
    run = transitions.begin_step(run, "kvm1", m.BEFORE_DRAIN, at(30))
    assert [(one.step, one.began_at, one.ended_at) for one in run.hosts[0].steps] == [
        (m.CHECK, at().at, at(30).at),
        (m.BEFORE_DRAIN, at(30).at, None),
    ]


def test_a_repeated_step_keeps_the_boot_that_it_began_in() -> None:
    run = transitions.begin_step(passed(night(), "kvm1", m.MAINTAIN), "kvm1", m.REBOOT, at(), boot_id="before")
    again = transitions.begin_step(run, "kvm1", m.REBOOT, at(60), boot_id="after").hosts[0].steps[-1]
    assert (again.boot_id, again.began_at) == ("before", at(60).at)


def test_a_step_whose_host_may_have_guests_again_forgets_its_boot() -> None:
    run = transitions.begin_step(passed(night(), "kvm1", m.MAINTAIN), "kvm1", m.REBOOT, at(), boot_id="before")
    run = transitions.begin_step(run, "kvm1", m.REBOOT, at(60), boot_id="")
    assert run.hosts[0].steps[-1].boot_id is ABSENT
    again = transitions.begin_step(run, "kvm1", m.REBOOT, at(90), boot_id="before")
    assert again.hosts[0].steps[-1].boot_id == "before"


def test_a_repeated_step_knows_from_its_last_time_whether_the_host_starts_guests() -> None:
    run = transitions.begin_step(passed(night(), "kvm1", m.MAINTAIN), "kvm1", m.REBOOT, at(), "before", True)
    run = transitions.begin_step(run, "kvm1", m.REBOOT, at(60))
    assert run.hosts[0].steps[-1].starts_guests is True
    again = transitions.begin_step(run, "kvm1", m.REBOOT, at(90), "before", False)
    assert again.hosts[0].steps[-1].starts_guests is False


def test_the_largest_run_fits_into_a_request_of_etcd_when_all_its_hosts_are_done() -> None:
    """A request may have 1.5 MiB. Without room for its last lines, a run could be neither continued nor ended."""
    guests = [str(uuid.UUID(int=number)) for number in range(200)]
    run = night(*(f"compute-{number:03}.rack-17.hall-2.frankfurt.cloud.example.org" for number in range(50)))
    for number, host in enumerate(run.host_names):
        run = passed(run, host, m.MAINTAIN)
        run = transitions.begin_step(run, host, m.REBOOT, at(), str(uuid.UUID(int=1)), False, tuple(guests))
        assert run.hosts[number].steps[-1].placed == tuple(guests)
        for step in (m.VERIFY, m.RECOVER):
            run = transitions.begin_step(run, host, step, at())
        run = transitions.complete_host(run, host, at())
        assert {step.placed for step in run.hosts[number].steps} == {ABSENT}
    assert len(json.dumps(encode(run))) / 50 * MAX_HOSTS < 1.4 * 2**20


def test_a_host_is_down_from_its_drain_until_it_is_done() -> None:
    states = [passed(night(), "kvm1", step).hosts[0].is_down for step in m.STEPS]
    assert states == [False, False, True, True, True, True, True]
    assert not done(night(), "kvm1").hosts[0].is_down


def test_a_later_request_replaces_one_that_was_not_seen() -> None:
    run = transitions.add_request(transitions.add_request(night(), m.PAUSE, None, at()), m.RESUME, None, at(5))
    assert (transitions.heed_request(run, at(6)).state, transitions.heed_request(run, at(6)).request) == (m.RUNNING, None)


def test_a_process_that_takes_over_a_paused_run_leaves_it_paused() -> None:
    paused = transitions.heed_request(transitions.add_request(night(), m.PAUSE, "alarm", at()), at())
    after = transitions.take_over(paused, holder(2, "other"), at())
    assert (after.state, after.term, after.reason) == (m.PAUSED, 2, paused.reason)


def test_a_run_of_another_control_node_has_no_seconds() -> None:
    run = transitions.complete_host(passed(night(), "kvm1"), "kvm1", at(60, boot="boot-2"))
    assert not run.hosts[0].seconds
    assert decode(MaintenanceRun, encode(run)) == run


def test_an_unknown_host_is_an_error() -> None:
    with pytest.raises(KeyError):
        transitions.begin_host(night(), "kvm9", at())
