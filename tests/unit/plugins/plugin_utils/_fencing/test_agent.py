# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._fencing.agent import Action, Power, call, power_of
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._fencing.programs import SECRET, Agent

USAGE = "usage: fence_x [-h] [-o {on,off,status}]\n  -o ACTION   status, off\n  actions: on, off, status off\nfence_x: error: unrecognized arguments: off"


@pytest.mark.parametrize(
    ("exit_code", "text", "power"),
    [
        (2, "Status: OFF\n", Power.OFF),
        (2, "2026-11-21 03:00:00,123 INFO: Running command: ipmitool\nChassis Power is off\nStatus: OFF", Power.OFF),
        (2, '{"PowerState": "Off"}', Power.OFF),
        (0, "Status: ON\n", Power.ON),
        (0, "", Power.ON),
        (0, "Status: OFF\n", Power.UNKNOWN),
        (2, "", Power.UNKNOWN),
        (2, USAGE, Power.UNKNOWN),
        (2, "sh: 3: Syntax error: end of file unexpected", Power.UNKNOWN),
        (2, "Status: ON", Power.UNKNOWN),
        (2, "Status: ON\nStatus: OFF", Power.UNKNOWN),
        (2, "Status: OFFLINE", Power.UNKNOWN),
        (1, "Status: OFF", Power.UNKNOWN),
        (-9, "Status: OFF", Power.UNKNOWN),
        (None, "Status: OFF", Power.UNKNOWN),
    ],
)
def test_off_needs_its_exit_code_and_its_words(exit_code: int | None, text: str, power: Power) -> None:
    assert power_of(exit_code, text) is power


def test_a_reply_shows_no_secret(tmp_path: pathlib.Path) -> None:
    reply = call(Agent(tmp_path, "cat; echo Status: OFF; exit 2").config(), Action.STATUS, 30)
    assert reply.power is Power.OFF
    assert reply.output == "action=status\nplug=kvm1\npassword=***\nStatus: OFF"
    assert SECRET not in f"{reply} {reply!r}"


def test_a_secret_that_is_the_answer_s_own_word_does_not_hide_the_answer(tmp_path: pathlib.Path) -> None:
    config = Agent(tmp_path, "echo Status: OFF; exit 2").config({"pin": {"value": "off", "secret": True}})
    reply = call(config, Action.STATUS, 30)
    assert (reply.power, reply.output) == (Power.OFF, "Status: ***")


def test_ten_megabytes_of_secrets_are_cut_and_masked(tmp_path: pathlib.Path) -> None:
    body = 'while IFS="=" read -r name value; do test "$name" = password && secret=$value; done; yes "$secret" | head -n 700000; echo Status: OFF; exit 2'
    reply = call(Agent(tmp_path, body).config({"password": "hunter2hunter3"}), Action.STATUS, 60)
    assert reply.power is Power.OFF
    assert "hunter" not in reply.output
    assert len(reply.output) <= 4096


def test_an_agent_killed_in_the_middle_of_a_secret_shows_none_of_it(tmp_path: pathlib.Path) -> None:
    reply = call(Agent(tmp_path, "printf 'password is S3cret/of'; sleep 600").config(), Action.OFF, 1)
    assert (reply.exit_code, reply.output) == (None, "password is ***")


def test_a_program_that_cannot_be_run_is_bad_configuration(tmp_path: pathlib.Path) -> None:
    agent = Agent(tmp_path, shell="/no/such/shell")
    with pytest.raises(InvalidArgument, match=r"kvmfleet_fencing of kvm1: .*fence_test cannot be run on the control node") as refused:
        call(agent.config(), Action.OFF, 30)
    assert SECRET not in str(refused.value)
