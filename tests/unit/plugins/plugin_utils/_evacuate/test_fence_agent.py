# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_agent import FenceAction, PowerState, call_agent, read_power
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.fence_programs import SECRET, Agent

USAGE = "usage: fence_x [-h] [-o {on,off,status}]\n  -o ACTION   status, off\n  actions: on, off, status off\nfence_x: error: unrecognized arguments: off"


@pytest.mark.parametrize(
    ("exit_code", "text", "power"),
    [
        (2, "Status: OFF\n", PowerState.OFF),
        (2, "2026-11-21 03:00:00,123 INFO: Running command: ipmitool\nChassis Power is off\nStatus: OFF", PowerState.OFF),
        (2, '{"PowerState": "Off"}', PowerState.OFF),
        (0, "Status: ON\n", PowerState.ON),
        (0, "", PowerState.ON),
        (0, "Status: OFF\n", PowerState.UNKNOWN),
        (2, "", PowerState.UNKNOWN),
        (2, USAGE, PowerState.UNKNOWN),
        (2, "sh: 3: Syntax error: end of file unexpected", PowerState.UNKNOWN),
        (2, "Status: ON", PowerState.UNKNOWN),
        (2, "Status: ON\nStatus: OFF", PowerState.UNKNOWN),
        (2, "Status: OFFLINE", PowerState.UNKNOWN),
        (1, "Status: OFF", PowerState.UNKNOWN),
        (-9, "Status: OFF", PowerState.UNKNOWN),
        (None, "Status: OFF", PowerState.UNKNOWN),
    ],
)
def test_off_needs_both_exit_code_and_text(exit_code: int | None, text: str, power: PowerState) -> None:
    assert read_power(exit_code, text) is power


def test_a_reply_shows_no_secret(tmp_path: pathlib.Path) -> None:
    reply = call_agent(Agent(tmp_path, "cat; echo Status: OFF; exit 2").device(), FenceAction.STATUS, 30)
    assert reply.power is PowerState.OFF
    assert reply.output == "action=status\nplug=kvm1\npassword=***\nStatus: OFF"
    assert SECRET not in f"{reply} {reply!r}"


def test_a_secret_equal_to_the_status_does_not_hide_the_status(tmp_path: pathlib.Path) -> None:
    config = Agent(tmp_path, "echo Status: OFF; exit 2").device({"pin": {"value": "off", "secret": True}})
    reply = call_agent(config, FenceAction.STATUS, 30)
    assert (reply.power, reply.output) == (PowerState.OFF, "Status: ***")


def test_ten_megabytes_of_secrets_are_cut_and_masked(tmp_path: pathlib.Path) -> None:
    body = 'while IFS="=" read -r name value; do test "$name" = password && secret=$value; done; yes "$secret" | head -n 700000; echo Status: OFF; exit 2'
    reply = call_agent(Agent(tmp_path, body).device({"password": "hunter2hunter3"}), FenceAction.STATUS, 60)
    assert reply.power is PowerState.OFF
    assert "hunter" not in reply.output
    assert len(reply.output) <= 4096


def test_an_agent_killed_while_it_prints_a_secret_shows_nothing_of_it(tmp_path: pathlib.Path) -> None:
    reply = call_agent(Agent(tmp_path, "printf 'password is S3cret/of'; sleep 600").device(), FenceAction.OFF, 1)
    assert (reply.exit_code, reply.output) == (None, "password is ***")


def test_an_agent_that_cannot_be_run_is_an_invalid_argument(tmp_path: pathlib.Path) -> None:
    agent = Agent(tmp_path, shell="/no/such/shell")
    with pytest.raises(InvalidArgument, match=r"kvmfleet_fencing of kvm1: .*fence_test cannot be run on the control node") as refused:
        call_agent(agent.device(), FenceAction.OFF, 30)
    assert SECRET not in str(refused.value)
