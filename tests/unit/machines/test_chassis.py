# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the BMC of a machine answers and does, for each way in which it can behave."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.kvmfleet.migration.tests.lab.kvmlab.errors import UsageError
from ansible_collections.kvmfleet.migration.tests.machines.kvmmachines import chassis
from ansible_collections.kvmfleet.migration.tests.machines.kvmmachines.chassis import Behaviour, Kind


class Switch:
    """A power switch that remembers what was done with it."""

    def __init__(self, on: bool = True) -> None:
        self.on = on
        self.done: list[object] = []

    def is_on(self) -> bool:
        return self.on

    def switch(self, on: bool) -> None:
        self.on = on
        self.done.append(on)

    def switch_later(self, on: bool, seconds: int) -> None:
        self.done.append((on, seconds))


def ask(folder: pathlib.Path, request: str, switch: Switch) -> str:
    return chassis.answer(folder, request.split(), switch)


def test_an_honest_bmc_switches_at_once(tmp_path: pathlib.Path) -> None:
    switch = Switch()
    assert ask(tmp_path, "get power", switch) == "power:1\n"
    assert ask(tmp_path, "set power 0", switch) == ""
    assert ask(tmp_path, "get power", switch) == "power:0\n"
    ask(tmp_path, "set power 1", switch)
    assert switch.done == [False, True]


def test_a_request_for_the_present_state_switches_nothing(tmp_path: pathlib.Path) -> None:
    switch = Switch()
    ask(tmp_path, "set power 1", switch)
    assert switch.done == []


@pytest.mark.parametrize(("on", "done"), [(True, [False, True]), (False, [])])
def test_a_reset_is_a_power_cycle_of_a_machine_that_is_on(tmp_path: pathlib.Path, on: bool, done: list[bool]) -> None:
    switch = Switch(on)
    ask(tmp_path, "set reset 1", switch)
    assert switch.done == done


def test_a_slow_bmc_reports_the_old_state_until_it_acts(tmp_path: pathlib.Path) -> None:
    switch = Switch()
    chassis.write_behaviour(tmp_path, Behaviour(Kind.SLOW, seconds=75))
    ask(tmp_path, "set power 0", switch)
    assert switch.done == [(False, 75)]
    assert ask(tmp_path, "get power", switch) == "power:1\n"


def test_a_lying_bmc_reports_the_requested_state_and_does_nothing(tmp_path: pathlib.Path) -> None:
    switch = Switch()
    chassis.write_behaviour(tmp_path, Behaviour(Kind.LYING))
    assert ask(tmp_path, "get power", switch) == "power:1\n"
    ask(tmp_path, "set power 0", switch)
    assert ask(tmp_path, "get power", switch) == "power:0\n"
    ask(tmp_path, "set reset 1", switch)
    assert (switch.on, switch.done) == (True, [])


@pytest.mark.parametrize("request_", ["", "get", "get power 1", "set power", "set power 2", "set shutdown 1", "set power 0 0"])
def test_an_unknown_request_is_refused_and_changes_nothing(tmp_path: pathlib.Path, request_: str) -> None:
    switch = Switch()
    with pytest.raises(UsageError, match="it knows"):
        ask(tmp_path, request_, switch)
    assert switch.done == []
