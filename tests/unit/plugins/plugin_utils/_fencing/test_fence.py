# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import datetime
import json
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._errors import KvmfleetError, Unreachable, Unsafe
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._fencing.agent import Power
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._fencing.evidence import KEYS, Evidence, check_evidence, is_fresh, person_evidence
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._fencing.fence import ask_power, confirm, fence
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._fencing.programs import GOOD, SECRET, Agent

BY = "root@control pid 4711"
CHOICES = ("mend the way to its BMC", "another agent in kvmfleet_fencing of kvm1", "tasks file", "force_down")


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def test_a_host_that_is_on_is_switched_off_and_asked(tmp_path: pathlib.Path) -> None:
    agent = Agent(tmp_path)
    evidence = fence(agent.config(), "id-1", BY)
    assert agent.asked() == ["status", "off", "status"]
    assert tuple(evidence) == KEYS
    assert evidence | {"at": None} == {
        "kind": "fence_agent",
        "host": "kvm1",
        "host_id": "id-1",
        "agent": str(agent.path),
        "action": "off",
        "status": "off",
        "output": "Status: OFF",
        "at": None,
        "by": BY,
        "ttl_seconds": 300,
        "reason": None,
    }
    assert is_fresh(evidence, now())
    assert json.loads(json.dumps(evidence)) == evidence


def test_a_host_that_is_off_already_is_left_alone(tmp_path: pathlib.Path) -> None:
    agent = Agent(tmp_path, power="off")
    assert fence(agent.config(), None, BY)["action"] == "status"
    assert agent.asked() == ["status"]


def test_a_host_that_takes_its_time_is_waited_for(tmp_path: pathlib.Path) -> None:
    # The power of the next moments, one a line; each question takes the first away.
    slow = GOOD.replace("off) echo off", "off) printf 'on\\non\\non\\noff\\n'").replace("status) if", "status) sed -i '1{$!d}' \"$0.power\"; if head -n 1")
    slow = slow.replace('grep -q on "$0.power"', '"$0.power" | grep -q on')
    agent = Agent(tmp_path, slow)
    assert fence(agent.config(), None, BY)["status"] == "off"
    assert agent.asked() == ["status", "off", "status", "status", "status"]


def test_an_agent_that_fails_but_whose_host_is_off_is_believed(tmp_path: pathlib.Path) -> None:
    agent = Agent(tmp_path, GOOD.replace('echo "Success: Powered OFF"', "exit 1"))
    assert fence(agent.config(), None, BY)["action"] == "off"


def refusal(agent: Agent, kind: type[KvmfleetError], **more: t.Any) -> str:
    """Fence in vain and return the message, which has the choices and no secret."""
    with pytest.raises(kind) as refused:
        fence(agent.config(**more), None, BY)
    message = str(refused.value)
    assert all(choice in message for choice in CHOICES), message
    assert SECRET not in message
    assert refused.value.__cause__ is None
    return message


def test_an_agent_that_says_done_while_the_host_stays_on_is_not_believed(tmp_path: pathlib.Path) -> None:
    agent = Agent(tmp_path, GOOD.replace('echo off > "$0.power"; ', ""))
    message = refusal(agent, Unsafe, timeout_seconds=4)
    assert "kvm1 is still on" in message
    assert agent.asked().count("off") == 1


def test_an_agent_that_refuses_ends_in_choices(tmp_path: pathlib.Path) -> None:
    body = GOOD.replace('off) echo off > "$0.power"; echo "Success: Powered OFF"', 'off) echo "insufficient privileges" >&2; exit 1')
    assert "off ended with 1 (insufficient privileges); status ended with 0" in refusal(Agent(tmp_path, body), Unsafe)


def test_a_bmc_that_is_not_reached_ends_in_choices(tmp_path: pathlib.Path) -> None:
    agent = Agent(tmp_path, 'echo "Failed: Unable to connect with $(cat | tail -n 1)" >&2; exit 1')
    message = refusal(agent, Unreachable)
    assert "does not say that it is off: off ended with 1 (Failed: Unable to connect with password=***)" in message


def test_an_agent_that_hangs_ends_in_choices(tmp_path: pathlib.Path) -> None:
    message = refusal(Agent(tmp_path, "trap '' TERM; cat; sleep 600"), Unreachable, timeout_seconds=3, status_timeout_seconds=1)
    assert "off was killed at its time limit (action=off plug=kvm1 password=***); status was killed at its time limit" in message


def test_an_agent_that_does_not_understand_is_not_taken_for_off(tmp_path: pathlib.Path) -> None:
    refusal(Agent(tmp_path, 'echo "usage: fence_x -o ACTION   on, off, status" >&2; exit 2'), Unreachable)


def test_asking_changes_nothing(tmp_path: pathlib.Path) -> None:
    agent = Agent(tmp_path)
    assert ask_power(agent.config()).power is Power.ON
    assert agent.asked() == ["status"]


def agent_s(agent: Agent) -> Evidence:
    return fence(agent.config(), "id-1", BY)


def test_a_fenced_host_is_asked_again_and_the_evidence_is_dated_anew(tmp_path: pathlib.Path) -> None:
    agent = Agent(tmp_path, power="off")
    old = {**agent_s(agent), "at": "2001-01-01T00:00:00.000Z"}
    renewed = confirm(old, agent.config(), now())
    assert is_fresh(renewed, now())
    assert {**renewed, "at": old["at"]} == old


def test_a_host_that_is_on_again_stops_everything(tmp_path: pathlib.Path) -> None:
    agent = Agent(tmp_path)
    evidence = agent_s(agent)
    agent.switch("on")
    with pytest.raises(Unsafe, match=r"kvm1 is on, says .*although it was fenced at .*Nothing more is started"):
        confirm(evidence, agent.config(), now())
    assert agent.asked().count("off") == 1


def test_an_agent_that_cannot_tell_any_more_confirms_nothing(tmp_path: pathlib.Path) -> None:
    evidence = agent_s(Agent(tmp_path))
    with pytest.raises(Unreachable, match="cannot tell any more") as refused:
        confirm(evidence, Agent(tmp_path, "cat; exit 1").config(), now())
    assert SECRET not in str(refused.value)


def test_evidence_of_an_agent_needs_the_agent_and_its_host(tmp_path: pathlib.Path) -> None:
    agent = Agent(tmp_path, power="off")
    evidence = agent_s(agent)
    with pytest.raises(Unsafe, match=r"kvm1 was fenced by .*no kvmfleet_fencing"):
        confirm(evidence, None, now())
    with pytest.raises(Unsafe, match="about kvm7, the agent about kvm1"):
        confirm({**evidence, "host": "kvm7"}, agent.config(), now())


def words(kind: str) -> Evidence:
    if kind == "person":
        return person_evidence({"reason": "unplugged"}, "kvm1", "id-1", BY)
    made = {"host": "kvm1", "action": "off", "status": "off", "at": now()}
    return check_evidence(made, "kvm1", "id-1", BY, now())


@pytest.mark.parametrize("kind", ["person", "tasks"])
def test_another_s_word_stands_without_an_agent_or_with_one_that_cannot_tell(tmp_path: pathlib.Path, kind: str) -> None:
    evidence = words(kind)
    assert confirm(evidence, None, now()) == evidence
    assert confirm(evidence, Agent(tmp_path, "exit 1").config(), now()) == evidence
    assert confirm(evidence, Agent(tmp_path, power="off").config(), now()) == evidence


@pytest.mark.parametrize("kind", ["person", "tasks"])
def test_another_s_word_does_not_stand_against_an_agent_or_for_ever(tmp_path: pathlib.Path, kind: str) -> None:
    evidence = words(kind)
    with pytest.raises(Unsafe, match=r"kvm1 is on, says .*set kvmfleet_fencing of kvm1 to null"):
        confirm(evidence, Agent(tmp_path, power="on").config(), now())
    with pytest.raises(Unsafe, match="seconds old"):
        confirm(evidence, None, now() + datetime.timedelta(days=1))
