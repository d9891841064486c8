# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A drill cuts the power of a real host by its fence agent, and brings all back; killed at any step, the same command continues it."""

from __future__ import annotations

import dataclasses
import os
import shlex
import signal
import time
import typing as t
import uuid

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.documents import DiscardDecision, HostEntry
from ansible_collections.kvmfleet.migration.tests.integration.recover.support.operator import Operator, Run
from ansible_collections.kvmfleet.migration.tests.integration.recover.test_rolling import boots
from ansible_collections.kvmfleet.migration.tests.integration.recover.test_rolling_runs import killer, runs, with_agent
from ansible_collections.kvmfleet.migration.tests.integration.support import agents
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Make = t.Callable[..., str]


def drill(operator: Operator, *options: str, **variables: t.Any) -> Run:
    """Run a drill of the first host. No boot guard runs in the lab, where no systemd does; none of its guests starts automatically."""
    given = {"target": operator.lab.host(1), "drill_accept_unguarded": True, "recover_host_timeout_seconds": 60, **with_agent(operator), **variables}
    return operator.playbook("drill", *options, **given)


def verdict(operator: Operator) -> dict[str, t.Any]:
    """Return the verdict of the only drill."""
    (run,) = runs(operator)
    return t.cast("dict[str, t.Any]", run["drill"])


@pytest.mark.long
def test_a_drill_cuts_the_power_measures_and_brings_all_back(lab: Lab, operator: Operator, guest: Make) -> None:
    one, two, other = guest("one"), guest("two"), guest("other", on=2)
    operator.protect()
    before = boots(lab)
    run = drill(operator)
    assert run.code == 0, run.text
    result = run.stats["drill_result"][lab.host(1)]
    assert (result["passed"], result["reasons"], [entry["name"] for entry in result["guests"]]) == (True, [], [one, two])
    assert 0 < result["median_seconds"] <= result["longest_seconds"] <= 90
    assert set(result["guests"][0]["stages"]) == {"detection", "evidence", "start", "verification"}
    after = boots(lab)
    assert [number for number in after if after[number] != before[number]] == [1]
    assert [lab.places(name) for name in (one, two, other)] == [{1: "running"}, {1: "running"}, {2: "running"}]
    assert {operator.entry(number)["state"] for number in (1, 2, 3)} == {"enabled"}
    (document,) = runs(operator)
    assert (document["state"], document["drill"]) == ("finished", result)
    assert f"{lab.host(1)} at {result['cut_at'][:16].replace('T', ' ')} UTC: passed: 2 of 2 guests ran elsewhere" in operator.playbook("status").text


@pytest.mark.long
def test_what_a_drill_needs_is_checked_before_the_power_is_cut(lab: Lab, operator: Operator, guest: Make) -> None:
    one, stuck = guest("one"), guest("stuck", "--storage", "local")
    operator.protect()
    before, fenced = boots(lab), with_agent(operator)
    refusals = {
        "has no fence agent (kvmfleet_fencing)": {"kvmfleet_fencing": None},
        f"No boot guard holds {lab.host(1)} at its next boot": {"drill_accept_unguarded": False},
        "as stuck could not be started elsewhere": {},
        "drill_deadline_seconds is 30, and the limit is 90 s": {"drill_deadline_seconds": 30},
        "drill_limit_seconds is 0": {"drill_limit_seconds": "0"},
        "the past": {"drill_until": "2020-01-01T00:00:00Z"},
        "is not one host of the fleet": {"target": "kvmfleet_hosts"},
        f"No guest runs on {lab.host(3)}": {"target": lab.host(3)},
    }
    for text, given in refusals.items():
        run = drill(operator, **{**fenced, **given})
        assert (run.code != 0, text in run.text) == (True, True), (text, run.text)
    # The last host with room: the other one is out of service.
    assert operator.task(2, "host", {"state": "maintenance", "reason": "Memory to be replaced"}).code == 0
    run = drill(operator, drill_accept_lost=[stuck])
    assert f"{lab.host(2)} is in the state 'maintenance'" in run.text, run.text
    assert operator.task(2, "host", {"state": "enabled"}).code == 0
    # A host that was removed from the inventory, without whose answer nothing would be started.
    gone = HostEntry("gone", str(uuid.uuid4()), None, "enabled")
    version = operator.ledger.put_host(gone, None).version
    run = drill(operator, drill_accept_lost=[stuck])
    assert "gone is in the ledger, but not in the inventory" in run.text, run.text
    discarded = DiscardDecision("2026-11-21T03:00:00.000Z", "a test", "It was sold")
    operator.ledger.put_host(dataclasses.replace(gone, state="fenced", discarded=discarded), version)
    # No room on any other host.
    run = drill(operator, drill_accept_lost=[stuck], kvmfleet_scheduler={"limits": {"domains": 0}})
    assert f"The fleet cannot lose {lab.host(1)} now, as one could not be started elsewhere" in run.text, run.text
    seen = drill(operator, "--check", drill_accept_lost=[stuck])
    assert (seen.code, "stuck may stay off until the host returns" in seen.text) == (0, True), seen.text
    assert (boots(lab), runs(operator), lab.places(one), lab.places(stuck)) == (before, [], {1: "running"}, {1: "running"})
    lab("poweroff", lab.host(3))
    run = drill(operator, drill_accept_lost=[stuck])
    assert (run.code != 0, f"{lab.host(3)} did not answer." in run.text, runs(operator)) == (True, True, []), run.text
    lab("poweron", lab.host(3))


def kill_in_step(operator: Operator, step: str) -> None:
    """Begin a drill, and kill its process with SIGKILL when its document has that step."""
    given = {"target": operator.lab.host(1), "drill_accept_unguarded": True, "recover_host_timeout_seconds": 60, **with_agent(operator)}
    process = operator.begin_playbook("drill", **given).process
    deadline = time.monotonic() + 240
    while process.poll() is None and time.monotonic() < deadline:
        steps = [one["step"] for run in runs(operator) for one in run["hosts"][0]["steps"]]
        if steps and steps[-1] == step:
            os.kill(process.pid, signal.SIGKILL)
            break
        time.sleep(0.1)
    text, _none = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL, text


@pytest.mark.long
@pytest.mark.parametrize("step", ["check", "cut", "evacuate", "switch_on", "recover"])
def test_a_drill_that_was_killed_in_a_step_is_continued_by_the_same_command(lab: Lab, operator: Operator, guest: Make, step: str) -> None:
    one = guest("one")
    operator.protect()
    before = boots(lab)
    kill_in_step(operator, step)
    (left,) = runs(operator)
    assert (left["state"], left["hosts"][0]["steps"][-1]["step"]) == ("running", step)
    assert f"The process of the drill {left['id']} is gone" in operator.playbook("status").text
    # The limit is generous: what is shown here is that nothing is left behind.
    run = drill(operator)
    (document,) = runs(operator)
    assert (document["id"], document["state"], document["term"]) == (left["id"], "finished", 2), run.text
    assert document["drill"]["passed"] == (run.code == 0)
    assert all("interrupted" in reason for reason in document["drill"]["reasons"]), document["drill"]
    assert lab.places(one) == {1: "running"}
    after = boots(lab)
    assert [number for number in after if after[number] != before[number]] == [1]
    assert {operator.entry(number)["state"] for number in (1, 2, 3)} == {"enabled"}


# Kills its playbook once, before or after an act of the agent.
KILLS = """input=$(cat)
die() {{ test -e '{mark}' || {{ {command}; exit 1; }}; }}
case "$input" in *action={act}*) {before} ;; esac
echo "$input" | '{agent}'
code=$?
case "$input" in *action={act}*) {after} ;; esac
exit $code
"""


@pytest.mark.long
@pytest.mark.parametrize(("act", "when"), [("off", "before"), ("off", "after"), ("on", "before"), ("on", "after")])
def test_a_drill_that_was_killed_around_a_call_of_the_agent_is_continued(lab: Lab, operator: Operator, guest: Make, act: str, when: str) -> None:
    one = guest("one")
    operator.protect()
    before = boots(lab)
    command = killer(operator, f"{act}-{when}")
    script = KILLS.format(
        mark=command[-1],
        command=shlex.join(command),
        act=act,
        agent=agents.of_the_lab(operator.folder),
        before="die" if when == "before" else ":",
        after="die" if when == "after" else ":",
    )
    fencing = {"agent": agents.write(operator.folder, "fence_kills", script), "options": {"plug": "{{ inventory_hostname }}"}}
    assert drill(operator, kvmfleet_fencing=fencing).code != 0
    (left,) = runs(operator)
    assert (left["state"], left["drill"]["cut_at"] is not None) == ("running", True)
    run = drill(operator, kvmfleet_fencing=fencing)
    (document,) = runs(operator)
    assert (document["id"], document["state"]) == (left["id"], "finished"), run.text
    assert all("interrupted" in reason for reason in document["drill"]["reasons"]), document["drill"]
    assert lab.places(one) == {1: "running"}
    after = boots(lab)
    assert [number for number in after if after[number] != before[number]] == [1]


@pytest.mark.long
def test_a_second_drill_and_a_night_are_refused_while_one_is_open(lab: Lab, operator: Operator, guest: Make) -> None:
    guest("one")
    guest("two", on=2)
    operator.protect()
    kill_in_step(operator, "check")
    other = drill(operator, target=lab.host(2))
    assert f"{lab.host(2)} cannot be taken out of service now: the drill" in other.text, other.text
    tasks = operator.folder / "tasks.yml"
    tasks.write_text("---\n- name: Do it\n  ansible.builtin.command: 'true'\n  changed_when: false\n", encoding="utf-8")
    night = operator.playbook("rolling_maintenance", target=lab.host(2), rolling_maintenance_tasks=str(tasks))
    assert f"{lab.host(2)} cannot be taken out of service now: the drill" in night.text, night.text
    assert len(runs(operator)) == 1
    assert operator.playbook("maintenance", request="stop").code == 0
    assert runs(operator)[0]["state"] == "stopped"
