# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fencing by a message on disks, with programs in place of fence_sbd and sbd that do what the real ones do."""

from __future__ import annotations

import pathlib
import time

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import InvalidArgument, Unreachable, Unsafe
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_agent import PowerState
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_config import FencingConfig, parse_fencing
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_levels import query_host
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fencing import fence_host, find_power_evidence
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.fence_programs import Agent

BY = "root@control pid 4711"
WAIT = 2
# As fence_sbd does it: with a message on the disk there is nothing to do.
FENCE_SBD = """
while IFS='=' read -r name value; do case "$name" in action) action=$value;; esac; done
echo "$action" >> "$0.asked"
if grep -q on "$0.power"; then power=on; else power=off; fi
case "$action$power" in
offoff) echo "Success: Already OFF";;
offon) echo off > "$0.power"; echo "Success: Powered OFF";;
statuson) echo "Status: ON"; exit 0;;
statusoff) echo "Status: OFF"; exit 2;;
*) exit 1;;
esac
"""
SBD = """
echo "$@" >> "$0.asked"
case "$*" in
*broken*dump) echo "==Header on disk $2 NOT dumped"; exit 1;;
*dump) printf 'Timeout (watchdog) : %s\\nTimeout (msgwait)  : %s\\n' {watchdog} {wait};;
*message*) sleep {takes}; echo off > {power}; exit {code};;
esac
"""


class Disks:
    """The two programs and the options that lead to them."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.agent = Agent(folder, FENCE_SBD, name="fence_sbd")
        self.sbd = Agent(folder, name="sbd")
        self.write()

    def write(self, watchdog: int = 1, wait: int = WAIT, takes: float = WAIT, code: int = 0) -> None:
        self.sbd.write(SBD.format(watchdog=watchdog, wait=wait, takes=takes, code=code, power=self.agent.file("power")))

    def config(self, devices: str = "/dev/a", timeout_seconds: int = 60, **more: object) -> FencingConfig:
        options = {"devices": devices, "plug": "kvm1", "sbd_path": str(self.sbd.path)}
        config = parse_fencing({"agent": str(self.agent.path), "options": options, "timeout_seconds": timeout_seconds, **more}, "kvm1")
        assert config
        return config

    @property
    def messages(self) -> list[str]:
        return [line for line in self.sbd.file("asked").read_text().splitlines() if "message" in line] if self.sbd.file("asked").exists() else []


@pytest.fixture
def disks(tmp_path: pathlib.Path) -> Disks:
    return Disks(tmp_path)


def test_a_message_that_counts_is_evidence(disks: Disks) -> None:
    begun = time.monotonic()
    evidence = fence_host(disks.config("/dev/a,/dev/b,/dev/broken"), "id-1", BY)
    assert time.monotonic() - begun >= WAIT
    assert (evidence.action, evidence.status) == ("off", "off")
    assert disks.messages == ["-d /dev/a -d /dev/b -d /dev/broken message kvm1 off"]
    assert "off" not in disks.agent.asked()


def test_a_message_of_an_earlier_run_is_written_and_waited_for_again(disks: Disks) -> None:
    """An earlier run died after it had written its message: fence_sbd would say "Already OFF" at once."""
    disks.agent.switch("off")
    config = disks.config()
    assert find_power_evidence(config, "id-1", query_host(config), BY) is None
    begun = time.monotonic()
    assert fence_host(config, "id-1", BY).action == "off"
    assert time.monotonic() - begun >= WAIT
    assert len(disks.messages) == 1


@pytest.mark.parametrize(("takes", "code"), [(0, 0), (0, 1), (WAIT, 1)])
def test_a_message_that_does_not_count_is_no_evidence(disks: Disks, takes: float, code: int) -> None:
    disks.write(takes=takes, code=code)
    with pytest.raises(Unreachable) as refused:
        fence_host(disks.config(), "id-1", BY)
    assert ("a message counts after 2 s" in str(refused.value)) is (code == 0)


def test_a_host_that_has_cleared_its_message_runs_again(disks: Disks) -> None:
    disks.write(takes=WAIT)
    disks.sbd.write(disks.sbd.path.read_text().replace("echo off >", "echo on >"))
    with pytest.raises(Unsafe, match="still on"):
        fence_host(disks.config(timeout_seconds=8), "id-1", BY)
    assert query_host(disks.config()).devices_in(PowerState.ON)


def test_disks_on_which_no_message_could_count_are_not_written(disks: Disks) -> None:
    for change, words in (
        ({"watchdog": 5, "wait": 9}, "would still run when the message counts"),
        ({"watchdog": 30, "wait": 60}, "a message on the disks of .* counts after 60 s"),
    ):
        disks.write(**change)
        with pytest.raises(InvalidArgument, match=words):
            fence_host(disks.config(), "id-1", BY)
    with pytest.raises(InvalidArgument, match="1 of its 2 disks cannot be read"):
        fence_host(disks.config("/dev/a,/dev/broken"), "id-1", BY)
    assert disks.messages == []


def test_a_control_node_without_sbd_is_told_so(disks: Disks) -> None:
    disks.sbd.path.unlink()
    with pytest.raises(InvalidArgument, match="Install the package sbd"):
        fence_host(disks.config(), "id-1", BY)


def test_the_next_level_is_tried_when_disks_are_not_fit(disks: Disks, tmp_path: pathlib.Path) -> None:
    disks.write(watchdog=5, wait=9)
    other = Agent(tmp_path, name="fence_other")
    options = {"devices": "/dev/a", "plug": "kvm1", "sbd_path": str(disks.sbd.path)}
    config = parse_fencing({"levels": [[{"agent": str(disks.agent.path), "options": options}], [other.entry()]]}, "kvm1")
    assert config
    disks.agent.switch("off")
    evidence = fence_host(config, "id-1", BY)
    assert evidence.level == 2
    assert "would still run" in (evidence.attempts or ())[0].output
