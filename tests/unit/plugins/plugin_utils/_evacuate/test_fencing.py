# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import datetime
import json
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import decode, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.errors import KvmfleetError, Unreachable, Unsafe
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.evidence import Evidence
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_agent import PowerState
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fence_levels import PowerReply
from ansible_collections.kvmfleet.migration.plugins.plugin_utils._evacuate.fencing import (
    EVIDENCE_KEYS,
    ask_power,
    check_evidence,
    confirm_evidence,
    fence_host,
    is_fresh,
    person_evidence,
)
from ansible_collections.kvmfleet.migration.tests.unit.plugins.plugin_utils._evacuate.fence_programs import GOOD, SECRET, Agent

BY = "root@control pid 4711"
CHOICES = ("Repair the connection to its BMC", "another agent in kvmfleet_fencing of kvm1", "tasks file", "force_down")


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def test_a_host_that_is_on_is_switched_off_and_its_status_checked(tmp_path: pathlib.Path) -> None:
    agent = Agent(tmp_path)
    evidence = fence_host(agent.config(), "id-1", BY)
    assert agent.asked() == ["status", "off", "status"]
    assert tuple(encode(evidence)) == EVIDENCE_KEYS
    assert encode(evidence) | {"at": None} == {
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
    assert decode(Evidence, json.loads(json.dumps(encode(evidence)))) == evidence


def test_a_host_that_is_off_already_is_not_switched(tmp_path: pathlib.Path) -> None:
    agent = Agent(tmp_path, power="off")
    assert fence_host(agent.config(), None, BY).action == "status"
    assert agent.asked() == ["status"]


def test_a_status_that_was_asked_before_is_not_asked_again(tmp_path: pathlib.Path) -> None:
    """Evidence has the time before the question, and passes from one task to the next as JSON."""
    agent = Agent(tmp_path, power="off")
    before = PowerReply.from_json(json.loads(json.dumps(ask_power(agent.config()).as_json())))
    evidence = fence_host(agent.config(), "id-1", BY, before)
    assert (evidence.action, evidence.at, agent.asked()) == ("status", before.at, ["status"])


def test_a_host_that_was_on_a_moment_ago_is_switched_off(tmp_path: pathlib.Path) -> None:
    agent = Agent(tmp_path, power="on")
    assert fence_host(agent.config(), "id-1", BY, ask_power(agent.config())).action == "off"
    assert agent.asked() == ["status", "off", "status"]


def test_a_slow_switch_off_is_awaited(tmp_path: pathlib.Path) -> None:
    # The power of the next moments, one a line; each question takes the first away.
    slow = GOOD.replace("off) echo off", "off) printf 'on\\non\\non\\noff\\n'").replace("status) if", "status) sed -i '1{$!d}' \"$0.power\"; if head -n 1")
    slow = slow.replace('grep -q on "$0.power"', '"$0.power" | grep -q on')
    agent = Agent(tmp_path, slow)
    assert fence_host(agent.config(), None, BY).status == "off"
    assert agent.asked() == ["status", "off", "status", "status", "status"]


def test_a_failed_off_of_a_host_whose_status_is_off_is_evidence(tmp_path: pathlib.Path) -> None:
    agent = Agent(tmp_path, GOOD.replace('echo "Success: Powered OFF"', "exit 1"))
    assert fence_host(agent.config(), None, BY).action == "off"


def refusal(agent: Agent, kind: type[KvmfleetError], **more: t.Any) -> str:
    """Fence in vain and return the message, which has the choices and no secret."""
    with pytest.raises(kind) as refused:
        fence_host(agent.config(**more), None, BY)
    message = str(refused.value)
    assert all(choice in message for choice in CHOICES), message
    assert SECRET not in message
    assert refused.value.__cause__ is None
    return message


def test_a_successful_off_of_a_host_whose_status_stays_on_is_unsafe(tmp_path: pathlib.Path) -> None:
    agent = Agent(tmp_path, GOOD.replace('echo off > "$0.power"; ', ""))
    message = refusal(agent, Unsafe, timeout_seconds=4)
    assert "kvm1 is still on" in message
    assert agent.asked().count("off") == 1


def test_an_agent_that_refuses_is_an_error_that_names_the_choices(tmp_path: pathlib.Path) -> None:
    body = GOOD.replace('off) echo off > "$0.power"; echo "Success: Powered OFF"', 'off) echo "insufficient privileges" >&2; exit 1')
    assert "off exited with 1 (insufficient privileges); status exited with 0" in refusal(Agent(tmp_path, body), Unsafe)


def test_an_unreachable_bmc_is_an_error_that_names_the_choices(tmp_path: pathlib.Path) -> None:
    agent = Agent(tmp_path, 'echo "Failed: Unable to connect with $(cat | tail -n 1)" >&2; exit 1')
    message = refusal(agent, Unreachable)
    assert "does not say that it is off: off exited with 1 (Failed: Unable to connect with password=***)" in message


def test_an_agent_that_hangs_is_an_error_that_names_the_choices(tmp_path: pathlib.Path) -> None:
    message = refusal(Agent(tmp_path, "trap '' TERM; cat; sleep 600"), Unreachable, timeout_seconds=3, status_timeout_seconds=1)
    assert "off was killed at its time limit (action=off plug=kvm1 password=***); status was killed at its time limit" in message


def test_a_usage_error_of_an_agent_does_not_count_as_off(tmp_path: pathlib.Path) -> None:
    refusal(Agent(tmp_path, 'echo "usage: fence_x -o ACTION   on, off, status" >&2; exit 2'), Unreachable)


def test_asking_for_the_power_changes_nothing(tmp_path: pathlib.Path) -> None:
    agent = Agent(tmp_path)
    assert ask_power(agent.config()).reply.power is PowerState.ON
    assert agent.asked() == ["status"]


def agent_s(agent: Agent) -> Evidence:
    return fence_host(agent.config(), "id-1", BY)


def test_confirming_evidence_asks_the_agent_and_renews_its_time(tmp_path: pathlib.Path) -> None:
    agent = Agent(tmp_path, power="off")
    old = dataclasses.replace(agent_s(agent), at="2001-01-01T00:00:00.000Z")
    renewed = confirm_evidence(old, agent.config(), now())
    assert is_fresh(renewed, now())
    assert dataclasses.replace(renewed, at=old.at) == old


def test_confirming_evidence_of_a_host_that_is_on_again_is_unsafe(tmp_path: pathlib.Path) -> None:
    agent = Agent(tmp_path)
    evidence = agent_s(agent)
    agent.switch("on")
    with pytest.raises(Unsafe, match=r"kvm1 is on, says .*although it was fenced at .*Nothing more is started"):
        confirm_evidence(evidence, agent.config(), now())
    assert agent.asked().count("off") == 1


def test_confirming_evidence_with_a_broken_agent_is_unreachable(tmp_path: pathlib.Path) -> None:
    evidence = agent_s(Agent(tmp_path))
    with pytest.raises(Unreachable, match="no longer reports its state") as refused:
        confirm_evidence(evidence, Agent(tmp_path, "cat; exit 1").config(status_timeout_seconds=1), now())
    assert SECRET not in str(refused.value)


def test_confirming_evidence_waits_for_an_agent_that_has_too_many_sessions(tmp_path: pathlib.Path) -> None:
    agent = Agent(tmp_path, power="off")
    evidence = agent_s(agent)
    agent.write('if [ ! -e "$0.busy" ]; then : > "$0.busy"; echo "insufficient resources for session"; exit 1; fi\n' + GOOD)
    assert confirm_evidence(evidence, agent.config(), now()).status == "off"


def test_evidence_of_an_agent_needs_the_configuration_of_its_host(tmp_path: pathlib.Path) -> None:
    agent = Agent(tmp_path, power="off")
    evidence = agent_s(agent)
    with pytest.raises(Unsafe, match=r"kvm1 was fenced by .*no kvmfleet_fencing"):
        confirm_evidence(evidence, None, now())
    with pytest.raises(Unsafe, match="about kvm7, the agent about kvm1"):
        confirm_evidence(dataclasses.replace(evidence, host="kvm7"), agent.config(), now())


def evidence_of(kind: str) -> Evidence:
    if kind == "person":
        return person_evidence({"reason": "unplugged"}, "kvm1", "id-1", BY)
    made = {"host": "kvm1", "action": "off", "status": "off", "at": now()}
    return check_evidence(made, "kvm1", "id-1", BY, now())


@pytest.mark.parametrize("kind", ["person", "tasks"])
def test_given_evidence_is_confirmed_without_an_agent_or_with_a_broken_one(tmp_path: pathlib.Path, kind: str) -> None:
    evidence = evidence_of(kind)
    assert confirm_evidence(evidence, None, now()) == evidence
    assert confirm_evidence(evidence, Agent(tmp_path, "exit 1").config(), now()) == evidence
    assert confirm_evidence(evidence, Agent(tmp_path, power="off").config(), now()) == evidence


@pytest.mark.parametrize("kind", ["person", "tasks"])
def test_given_evidence_is_refused_if_the_agent_says_on_or_it_is_too_old(tmp_path: pathlib.Path, kind: str) -> None:
    evidence = evidence_of(kind)
    with pytest.raises(Unsafe, match=r"kvm1 is on, says .*set kvmfleet_fencing of kvm1 to null"):
        confirm_evidence(evidence, Agent(tmp_path, power="on").config(), now())
    with pytest.raises(Unsafe, match="seconds old"):
        confirm_evidence(evidence, None, now() + datetime.timedelta(days=1))
