# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The silence of the source, and the proof that it is off, have an age, also if the task was stopped or had to wait after it."""

from __future__ import annotations

import dataclasses
import functools
import threading
import time
import types
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.clock import BootMoment, boot_moment
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import Unsafe
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate import evacuation, evidence, starts
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.evidence import PowerOffEvidence, SilenceRenewal
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fleet_answers import SourceAnswers
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate import sites
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.sites import Body, Site

LONG_SECONDS = 300.0


class Clocks:
    """The clocks of the control node and of the hosts, which all go on by C(passed) seconds at once. C(read_beside) is set when a thread reads one."""

    def __init__(self) -> None:
        self.passed = 0.0
        self.read_beside = threading.Event()

    def monotonic(self) -> float:
        now = time.monotonic() + self.passed
        if threading.current_thread() is not threading.main_thread():
            self.read_beside.set()
        return now

    def boot_moment(self) -> BootMoment:
        now = boot_moment()
        return dataclasses.replace(now, seconds=now.seconds + self.passed)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    """Let the code and the hosts have these clocks."""
    clocks = Clocks()
    for module in (evacuation, evidence, starts):
        monkeypatch.setattr(module, "time", types.SimpleNamespace(monotonic=clocks.monotonic, sleep=time.sleep))
    monkeypatch.setattr(starts, "SilenceRenewal", functools.partial(SilenceRenewal, clock=clocks.monotonic))
    for module in (evacuation, sites):
        monkeypatch.setattr(module, "boot_moment", clocks.boot_moment)
    return clocks


def test_a_task_that_was_stopped_after_it_asked_the_agent_asks_again_before_a_start(site: Site, clocks: Clocks, monkeypatch: pytest.MonkeyPatch) -> None:
    site.save("web")
    agent, stops = site.agent(), [True]

    def stop_once(_self: PowerOffEvidence, _ledger: object) -> None:
        if stops.pop() if stops else False:
            clocks.passed += LONG_SECONDS
            agent.switch("on")

    monkeypatch.setattr(PowerOffEvidence, "check_not_withdrawn", stop_once)
    site.evacuate()
    assert (site.running(), site.record_summaries()) == ({}, [("web", "failed", "kvm2")])


def test_a_task_that_was_stopped_starts_the_domain_once_the_source_was_proved_off_again(site: Site, clocks: Clocks, monkeypatch: pytest.MonkeyPatch) -> None:
    site.save("web")
    site.agent()
    monkeypatch.setattr(PowerOffEvidence, "check_not_withdrawn", lambda _self, _ledger: setattr(clocks, "passed", LONG_SECONDS))
    site.evacuate()
    assert site.record_summaries() == [("web", "done", "kvm2")]


def test_a_source_that_wakes_while_the_survivor_asks_the_fleet_is_found_before_a_start(site: Site, clocks: Clocks, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person has confirmed that it is off, and it has no agent: its silence is all that shows this."""
    site.save("web")
    look = site._look

    def look_for_long(on: str, work: t.Mapping[str, t.Any]) -> Body:
        answer = look(on, work)
        assert clocks.read_beside.wait(30)
        clocks.passed += 20.0
        site.refuses = True
        return {**answer, "at": {**answer["at"], "seconds": clocks.boot_moment().seconds}}

    monkeypatch.setattr(site, "_look", look_for_long)
    run = site.evacuate()
    assert site.running() == {}
    assert [type(job.error) for job in run.jobs if isinstance(job.error, Unsafe)] != []
    assert site.record_summaries() == [("web", "failed", "kvm2")]


@pytest.mark.parametrize("is_awake", [True, False])
def test_a_source_is_asked_again_before_it_is_fenced_by_a_task_that_was_stopped_or_suspended(
    site: Site, clocks: Clocks, monkeypatch: pytest.MonkeyPatch, is_awake: bool
) -> None:
    """Meanwhile a person may have repaired it, and its guests may run again."""
    site.save("web")
    agent, check = site.agent(power="on"), site.ledger.check_writable

    def stop() -> None:
        check()
        clocks.passed += LONG_SECONDS
        site.refuses = is_awake

    monkeypatch.setattr(site.ledger, "check_writable", stop)
    if is_awake:
        with pytest.raises(SourceAnswers):
            site.evacuate()
    else:
        site.evacuate()
    assert ("off" in [action for line in agent.asked() for action in line.split("=")], site.running()) == (not is_awake, {} if is_awake else {"kvm2": ["web"]})
