# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which maintenance runs need a person, and until when."""

from __future__ import annotations

import dataclasses
import os

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model import maintenance_runs as m
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.maintenance_runs import Drill, MaintenanceRun
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import DiscardDecision, HostEntry
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.findings import list_findings
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.holding import identify_process
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._maintenance.transitions import close_run, fail_host, release_run
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._ledger.entries import host_entry
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._maintenance.nights import at, done, night, passed

DRILL = Drill(90, 300, "run", (), (), at().at, (), False, None, None, ("web: it was not started elsewhere",))


def stopped(step: str = m.DRAIN) -> MaintenanceRun:
    """Return a run that stopped because kvm1 failed in that step, after a minute."""
    return close_run(fail_host(passed(night("kvm1", "kvm2"), "kvm1", step), "kvm1", "it broke.", at(60)), {}, at(60))


def entry(state: str, since: float) -> HostEntry:
    return host_entry({"name": "kvm1", "state": state, "since": at(since).at})


def texts(*runs: MaintenanceRun, hosts: tuple[HostEntry, ...] = ()) -> list[str]:
    return [text for _run, text in list_findings(runs, hosts)]


@pytest.mark.parametrize(("step", "is_down"), [(m.CHECK, False), (m.DRAIN, True), (m.RECOVER, True)])
def test_a_stopped_run_names_its_failed_host_and_what_to_do(step: str, is_down: bool) -> None:
    (text,) = texts(stopped(step), hosts=(entry("maintenance", 10),))
    assert f"Failed: kvm1 ({step}: it broke)." in text
    assert ("kvmfleet.migration.recover -e target=kvm1" in text) is is_down


@pytest.mark.parametrize(("state", "since", "findings"), [("enabled", 70, 0), ("enabled", 50, 1), ("maintenance", 70, 1), ("fenced", 70, 1)])
def test_a_failed_host_that_was_put_into_service_since_needs_no_person(state: str, since: float, findings: int) -> None:
    assert len(texts(stopped(), hosts=(entry(state, since),))) == findings


def test_a_failed_host_that_a_person_has_discarded_needs_no_person() -> None:
    discarded = dataclasses.replace(entry("fenced", 70), discarded=DiscardDecision(reason="It burned"))
    assert texts(stopped(), hosts=(discarded,)) == []


def test_a_failed_host_that_was_put_into_service_before_its_run_ended_needs_no_person() -> None:
    failed = fail_host(passed(night("kvm1", "kvm2"), "kvm1", m.DRAIN), "kvm1", "it broke.", at(60))
    assert texts(close_run(failed, {}, at(900)), hosts=(entry("enabled", 70),)) == []
    # The process was killed in the step, and a person has recovered the host before the run was ended.
    left = close_run(passed(night("kvm1", "kvm2"), "kvm1", m.DRAIN), {}, at(900))
    assert texts(left, hosts=(entry("enabled", 600),)) == []
    assert len(texts(left, hosts=(entry("maintenance", 600),))) == 1


def test_a_failed_host_of_a_later_run_is_judged_by_that_run() -> None:
    run = stopped()
    waiting = dataclasses.replace(close_run(night("kvm1"), {}, at(100)), id="later")
    assert len(texts(run, waiting)) == 1
    later = dataclasses.replace(close_run(done(night("kvm1"), "kvm1", 100), {}, at(200)), id="later")
    assert texts(run, later) == []
    assert texts(later, run) == []


def test_a_run_that_a_person_stopped_or_that_is_done_needs_no_person() -> None:
    assert texts(close_run(done(night("kvm1", "kvm2"), "kvm1"), {}, at(90))) == []
    assert texts(close_run(done(night("kvm1"), "kvm1"), {}, at(90))) == []


def test_a_paused_run_needs_a_person() -> None:
    (text,) = texts(dataclasses.replace(night(), state=m.PAUSED, reason="paused by ann", holder=identify_process(os.getpid(), "ann", at().at)))
    assert "is paused: paused by ann. To resume it:" in text
    assert "run its command again" not in text


def test_a_paused_run_that_its_process_has_given_up_is_not_continued_by_a_request_alone() -> None:
    run = dataclasses.replace(passed(night("kvm1", "kvm2"), "kvm1", m.DRAIN), state=m.PAUSED, reason="paused by ann")
    (text,) = texts(release_run(run, at()))
    assert "is paused: paused by ann. No process carries it out any more. kvm1 is out of service. To resume it:" in text
    assert text.endswith("request=resume, and run its command again")


def test_a_drill_is_named_once_and_by_its_verdict() -> None:
    run = close_run(fail_host(night("kvm1"), "kvm1", "it broke.", at(60)), {}, at(60))
    (text,) = texts(dataclasses.replace(run, drill=DRILL))
    assert text.startswith("The last drill was not passed: kvm1 at ")
    # Without a verdict, it is a run that failed.
    (text,) = texts(dataclasses.replace(run, drill=dataclasses.replace(DRILL, passed=None)))
    assert text.startswith(f"The drill {run.id} is stopped: ")
