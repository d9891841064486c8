# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wrong with the fence devices of a host that answers."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._fleet_check.differences import FENCING, Finding
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._fleet_check.fence_devices import ask_fence_devices, find_fence_problems
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.fence_programs import SECRET, Agent

OTHER_MACHINE = "reports it as off, and kvm1 answers: it is probably the device of another machine."
REFUSED = f'echo "Login failed for {SECRET}"; exit 1'


def test_a_device_that_reports_the_host_as_on_is_as_it_should_be_and_only_asked(tmp_path: pathlib.Path) -> None:
    agent = Agent(tmp_path)
    assert ask_fence_devices(agent.entry(), "kvm1") == []
    assert agent.asked() == ["status"]


def test_a_device_that_reports_the_host_as_off_is_named(tmp_path: pathlib.Path) -> None:
    (problem,) = ask_fence_devices(Agent(tmp_path, power="off").entry(), "kvm1")
    assert OTHER_MACHINE in problem


def test_a_device_that_reports_nothing_is_named_with_its_output_and_without_secrets(tmp_path: pathlib.Path) -> None:
    (problem,) = ask_fence_devices(Agent(tmp_path, REFUSED).entry(), "kvm1")
    assert "of kvm1 does not report a power state: status exited with 1 (Login failed for ***)." in problem


def test_each_device_of_each_level_is_asked(tmp_path: pathlib.Path) -> None:
    bmc, strip = Agent(tmp_path, power="off", name="fence_bmc"), Agent(tmp_path, name="fence_strip")
    (problem,) = ask_fence_devices({"levels": [[bmc.entry()], [strip.entry()]]}, "kvm1")
    assert f"{bmc.path} (level 1) of kvm1 reports it as off, while {strip.path} (level 2) reports it as on" in problem


def test_an_outlet_that_was_left_off_does_not_make_the_host_count_as_off(tmp_path: pathlib.Path) -> None:
    one, other = Agent(tmp_path, power="off", name="fence_one"), Agent(tmp_path, name="fence_other")
    (problem,) = ask_fence_devices({"levels": [[one.entry(), other.entry()]]}, "kvm1")
    assert "one of several power supplies was left off, or it is the device of another machine. Switch it on, or correct" in problem


def test_the_message_of_a_host_that_has_not_read_it_yet_is_no_problem(tmp_path: pathlib.Path) -> None:
    agent = Agent(tmp_path, power="off", name="fence_sbd")
    assert ask_fence_devices({**agent.entry(), "options": {"plug": "kvm1", "devices": "/dev/disk/by-id/sbd"}}, "kvm1") == []


@pytest.mark.parametrize("given", [None, {"watchdog_seconds": 60}])
def test_a_host_without_a_device_is_not_asked(given: dict[str, int] | None) -> None:
    assert ask_fence_devices(given, "kvm1") == []


def test_a_configuration_that_cannot_be_used_is_named() -> None:
    (problem,) = ask_fence_devices({"agent": "fence_no_such_agent", "options": {}}, "kvm1")
    assert "fence_no_such_agent" in problem


def test_each_problem_is_a_finding() -> None:
    assert find_fence_problems({"kvm2": ["b", "c"], "kvm1": ["a"], "kvm3": []}) == [
        Finding(FENCING, ("kvm1",), "a"),
        Finding(FENCING, ("kvm2",), "b"),
        Finding(FENCING, ("kvm2",), "c"),
    ]
