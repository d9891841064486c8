# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Several fencing devices for one host: which are called, in which order, and what counts as evidence."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import json
import pathlib

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError, Unreachable, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.evidence import Evidence
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate import fence_levels, power_cycle
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_config import FencingConfig, parse_fencing
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_levels import do_at_once, query_host, query_host_patiently
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fencing import (
    check_evidence,
    confirm_evidence,
    fence_host,
    find_power_evidence,
    is_fresh,
    person_evidence,
)
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.power_cycle import switch_on
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.fence_programs import GOOD, SECRET, Agent, leveled

BY = "root@control pid 4711"
MUTE = 'while IFS= read -r line; do case "$line" in action=*) echo "${line#action=}" >> "$0.asked";; esac; done; echo "Failed: Unable to connect"; exit 1'
STUBBORN = GOOD.replace('echo off > "$0.power"; echo "Success: Powered OFF"', "exit 1")
CYCLED = GOOD.replace("*) exit 1;;", 'on) echo on > "$0.power";;\n*) exit 1;;')
SWITCHED = ["status", "off", "status"]
SBD = r"""case "$*" in *dump) printf 'Timeout (watchdog) : 1\nTimeout (msgwait) : 2\n';; *message*) sleep 2;; esac"""


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


@pytest.fixture
def bmc(tmp_path: pathlib.Path) -> Agent:
    """A BMC that does not answer."""
    return Agent(tmp_path, MUTE, name="fence_bmc")


@pytest.fixture
def left(tmp_path: pathlib.Path) -> Agent:
    return Agent(tmp_path, CYCLED, name="fence_left")


@pytest.fixture
def right(tmp_path: pathlib.Path) -> Agent:
    return Agent(tmp_path, CYCLED, name="fence_right")


def refusal(config: FencingConfig, kind: type[KvmfleetError]) -> KvmfleetError:
    with pytest.raises(kind) as refused:
        fence_host(config, "id-1", BY)
    assert refused.value.result["reason"] == "fencing_impossible"
    assert len(refused.value.result["choices"]) == 4
    assert SECRET not in str(refused.value) + json.dumps(refused.value.result)
    return refused.value


def test_the_next_level_is_called_when_a_device_fails_and_all_attempts_are_evidence(bmc: Agent, left: Agent, right: Agent) -> None:
    config = leveled([bmc], [left, right])
    evidence = fence_host(config, "id-1", BY)
    assert (bmc.asked(), left.asked(), right.asked()) == (SWITCHED, [*SWITCHED, "status"], SWITCHED)
    assert (evidence.level, evidence.action, evidence.status, evidence.output) == (2, "off", "off", "Status: OFF\nStatus: OFF")
    assert evidence.agent == f"{left.path}, {right.path}"
    attempts = evidence.attempts or ()
    assert [(one.level, one.device, one.agent, one.action, one.power) for one in attempts] == [
        (1, 1, str(bmc.path), "off", "unknown"),
        (2, 1, str(left.path), "off", "off"),
        (2, 2, str(right.path), "off", "off"),
    ]
    assert "Unable to connect" in attempts[0].output
    assert is_fresh(evidence, now())
    assert decode(Evidence, json.loads(json.dumps(encode(evidence)))) == evidence
    assert check_evidence(encode(evidence), "kvm1", "id-1", BY, now()) == evidence


def test_a_level_that_succeeds_ends_the_fencing(left: Agent, right: Agent) -> None:
    evidence = fence_host(leveled([left], [right]), "id-1", BY)
    assert (evidence.level, left.asked(), right.asked()) == (1, SWITCHED, [])


def test_a_host_that_is_off_at_one_of_two_supplies_is_switched_off_at_the_other(left: Agent, right: Agent) -> None:
    left.switch("off")
    evidence = fence_host(leveled([left, right]), "id-1", BY)
    assert (evidence.action, left.asked(), right.asked()) == ("off", ["status", "status"], SWITCHED)


def test_a_level_fails_as_a_whole_if_one_of_its_devices_does(bmc: Agent, left: Agent, tmp_path: pathlib.Path) -> None:
    """The first supply was switched off, and the host runs on the second: that is no evidence."""
    error = refusal(leveled([left, bmc]), Unreachable)
    assert "kvm1 could not be fenced by any of its 1 levels" in str(error)
    assert f"{left.path} (level 1 device 1) is off" in str(error)
    # The next run goes on by itself: what is off stays off, and the other device answers again.
    bmc.write(GOOD)
    left.file("asked").unlink()
    assert fence_host(leveled([left, bmc]), "id-1", BY).level == 1
    assert left.asked() == ["status", "status"]


def test_no_level_that_succeeds_is_a_named_state_with_the_attempts(bmc: Agent, tmp_path: pathlib.Path) -> None:
    stubborn = Agent(tmp_path, STUBBORN, name="fence_stubborn")
    error = refusal(leveled([bmc], [stubborn]), Unsafe)
    assert [(one["level"], one["power"]) for one in error.result["attempts"]] == [(1, "unknown"), (2, "on")]
    assert "Nothing was started." in str(error)


def test_a_supply_that_comes_on_again_while_the_other_is_switched_off_is_no_evidence(left: Agent, right: Agent) -> None:
    right.write(GOOD.replace("off) echo off", f"off) echo on > {left.path}.power; echo off"))
    refusal(leveled([left, right]), Unsafe)


def test_a_bmc_that_still_reports_on_refutes_a_power_strip(tmp_path: pathlib.Path, left: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plug of the strip is that of another machine."""
    monkeypatch.setattr(fence_levels, "_FADE_SECONDS", 0)
    stubborn = Agent(tmp_path, STUBBORN, name="fence_stubborn")
    error = refusal(leveled([stubborn], [left]), Unsafe)
    assert f"{stubborn.path} (level 1) still reports it as on" in str(error)
    assert left.asked().count("off") == 1


def test_a_bmc_that_falls_silent_with_the_power_does_not_refute_it(tmp_path: pathlib.Path, left: Agent) -> None:
    stubborn = Agent(tmp_path, STUBBORN, name="fence_stubborn")
    left.write(GOOD.replace("off) echo off", f"off) echo 'exit 1' > {stubborn.path}.dead; echo off"))
    stubborn.write(f". {stubborn.path}.dead\n{STUBBORN}")
    stubborn.file("dead").write_text("")
    assert fence_host(leveled([stubborn], [left]), "id-1", BY).level == 2


def test_an_agent_that_cannot_be_started_fails_its_level_alone(tmp_path: pathlib.Path, left: Agent) -> None:
    broken = Agent(tmp_path, shell="/no/such/shell", name="fence_broken")
    evidence = fence_host(leveled([broken], [left]), "id-1", BY)
    assert (evidence.level, [one.power for one in evidence.attempts or ()]) == (2, ["unknown", "off"])


def test_each_device_has_a_time_limit_of_its_own(tmp_path: pathlib.Path, left: Agent) -> None:
    hanging = Agent(tmp_path, "trap '' TERM; sleep 600", name="fence_hanging")
    config = leveled([hanging], [left], timeout_seconds=2, status_timeout_seconds=1)
    assert [(device.timeout_seconds, device.status_timeout_seconds) for device in config.devices] == [(2, 1), (2, 1)]
    evidence = fence_host(config, "id-1", BY)
    assert "killed at its time limit" in (evidence.attempts or ())[0].output


def test_evidence_of_a_level_is_confirmed_by_all_its_devices_and_no_other(bmc: Agent, left: Agent, right: Agent) -> None:
    config = leveled([bmc], [left, right], status_timeout_seconds=1)
    evidence = dataclasses.replace(fence_host(config, "id-1", BY), at="2001-01-01T00:00:00.000Z")
    asked = len(bmc.asked())
    renewed = confirm_evidence(evidence, config, now())
    assert is_fresh(renewed, now())
    assert (renewed.level, renewed.attempts, len(bmc.asked())) == (2, evidence.attempts, asked)
    right.switch("on")
    with pytest.raises(Unsafe, match=r"kvm1 is on, says .*fence_right \(level 2 device 2\), although it was fenced"):
        confirm_evidence(evidence, config, now())
    right.switch("off")
    left.write(MUTE)
    with pytest.raises(Unreachable, match="no longer reports its state"):
        confirm_evidence(evidence, config, now())


def test_evidence_of_a_level_that_the_inventory_no_longer_names_is_refused(bmc: Agent, left: Agent, right: Agent) -> None:
    evidence = fence_host(leveled([bmc], [left]), "id-1", BY)
    for config in (leveled([bmc], [right]), leveled([left])):
        with pytest.raises(Unsafe, match="no longer names"):
            confirm_evidence(evidence, config, now())


def test_the_word_of_a_person_is_refuted_by_any_device(bmc: Agent, left: Agent) -> None:
    word = person_evidence({"reason": "unplugged"}, "kvm1", "id-1", BY)
    config = leveled([bmc], [left])
    with pytest.raises(Unsafe, match=r"kvm1 is on, says .*fence_left \(level 2\)"):
        confirm_evidence(word, config, now())
    left.switch("off")
    assert confirm_evidence(word, config, now()) == word


def test_devices_that_are_only_asked_are_evidence_if_a_whole_level_says_off_and_none_says_on(bmc: Agent, left: Agent, right: Agent) -> None:
    config = leveled([bmc], [left, right])
    left.switch("off")
    assert find_power_evidence(config, "id-1", query_host(config), BY) is None
    right.switch("off")
    evidence = find_power_evidence(config, "id-1", query_host(config), BY)
    assert evidence
    assert (evidence.level, evidence.action) == (2, "status")
    bmc.write(GOOD)
    assert find_power_evidence(config, "id-1", query_host(config), BY) is None
    assert "off" not in bmc.asked() + left.asked() + right.asked()


def test_the_status_of_a_message_on_a_disk_is_no_evidence_without_its_off(tmp_path: pathlib.Path, bmc: Agent) -> None:
    sbd, program = Agent(tmp_path, name="fence_sbd", power="off"), Agent(tmp_path, SBD, name="sbd")
    options = {"devices": "/dev/a", "plug": "kvm1", "sbd_path": str(program.path)}
    config = parse_fencing({"levels": [[bmc.entry()], [{"agent": str(sbd.path), "options": options}]]}, "kvm1")
    assert config
    assert find_power_evidence(config, "id-1", query_host(config), BY) is None
    evidence = fence_host(config, "id-1", BY)
    assert (evidence.action, sbd.asked()) == ("off", ["status", "status", "status"])
    assert confirm_evidence(evidence, config, now()).action == "off"
    with pytest.raises(Unsafe, match="does not show that kvm1 is off"):
        confirm_evidence(dataclasses.replace(evidence, action="status"), config, now())
    program.write(SBD.replace("sleep 2", "exit 1"))
    refusal(config, Unreachable)


class Killed(BaseException):
    """The end of a process between two calls of agents."""


@pytest.mark.parametrize("calls", range(10))
def test_a_process_that_is_killed_before_any_call_claims_nothing_and_the_next_run_goes_on(
    bmc: Agent, left: Agent, right: Agent, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """Ten calls: three of each device, and the last status of the left supply."""
    config, counter, call = leveled([bmc], [left, right]), itertools.count(), fence_levels.call_agent

    def call_or_die(*given: object) -> object:
        if next(counter) == calls:
            raise Killed
        return call(*given)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(fence_levels, "call_agent", call_or_die)
        with pytest.raises(Killed):
            fence_host(config, "id-1", BY)
    evidence = fence_host(config, "id-1", BY)
    assert evidence.level == 2
    # A supply that is off is not switched again.
    assert (left.asked().count("off"), right.asked().count("off")) == (1, 1)


def test_a_host_is_switched_on_by_both_supplies(bmc: Agent, left: Agent, right: Agent) -> None:
    config = leveled([bmc], [left, right])
    fence_host(config, "id-1", BY)
    switch_on(config)
    assert (left.asked()[-3:], right.asked()[-3:]) == (["status", "on", "status"], ["status", "on", "status"])
    assert "on" not in bmc.asked()


def test_a_supply_that_was_left_off_is_switched_on_later(left: Agent, right: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process was killed between the two supplies: the host runs, on one of them."""
    config, call = leveled([left, right]), power_cycle.call_agent
    fence_host(config, "id-1", BY)

    def call_or_die(*given: object) -> object:
        if given[0] == config.devices[1]:
            raise Killed
        return call(*given)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(power_cycle, "call_agent", call_or_die)
        with pytest.raises(Killed):
            switch_on(config)
    switch_on(config, query_host(config))
    assert (left.asked().count("on"), right.asked().count("on")) == (1, 1)


def test_a_supply_that_stays_off_is_named(left: Agent, right: Agent) -> None:
    config = leveled([left, right])
    fence_host(config, "id-1", BY)
    right.write(GOOD)
    with pytest.raises(Unreachable, match=r"fence_right \(level 1 device 2\) does not report that it is on again"):
        switch_on(config)


# One login at a time, each of which takes a while.
STRIP = """
if ! mkdir "$(dirname "$0")/login" 2>/dev/null; then cat > /dev/null; echo "Unable to connect/login to fencing device"; exit 1; fi
sleep 0.2
rmdir "$(dirname "$0")/login"
"""


def test_ten_hosts_on_one_power_strip_are_queried_although_it_accepts_one_login_at_a_time(tmp_path: pathlib.Path) -> None:
    hosts = [Agent(tmp_path, STRIP + GOOD, power="off", name=f"fence_plug{number}") for number in range(10)]
    answers = do_at_once(query_host_patiently, [host.config(status_timeout_seconds=60) for host in hosts])
    assert [str(one.find_off()) for one in answers] == ["1"] * 10
