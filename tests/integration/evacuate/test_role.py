# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role on all survivors at once: one fencing, one plan, each domain in one share; and the errors that end it."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.evacuation.conftest import Make
from ansible_collections.kvmfleet.migration.tests.integration.support import agents
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import COMMAND, eventually
from ansible_collections.kvmfleet.migration.tests.integration.support.hooks import AFTER
from ansible_collections.kvmfleet.migration.tests.integration.support.site import Site
from ansible_collections.kvmfleet.migration.tests.schemas.check import check_document

SECRET = "hunter2x"

FENCE_TASKS = """
- name: Pull the plug
  ansible.builtin.command: {command}
  delegate_to: localhost
  vars: {{ansible_connection: local}}
  changed_when: true

- name: Say so
  ansible.builtin.set_fact:
    evacuate_host_evidence: {{host: {host}, action: "off", status: "{status}", at: "{{{{ now(utc=true).isoformat() }}}}Z"}}
"""


def stats(text: str) -> dict[str, t.Any]:
    """Return the role's result from the run's custom statistics."""
    shown = re.search(r"CUSTOM STATS: \**\s*RUN: (.*)", text, re.DOTALL)
    assert shown, text
    result: dict[str, t.Any] = json.JSONDecoder().raw_decode(shown[1])[0]["evacuate_host_result"]
    check_document("evacuation-result.json", result)
    return result


def fence_tasks(site: Site, folder: pathlib.Path, status: str = "off") -> str:
    counter, tasks = folder / "pulled", folder / "fence.yml"
    tasks.write_text(FENCE_TASKS.format(command=f"sh -c 'echo >> {counter}'", host=site.name(1), status=status))
    return str(tasks)


def pulled(folder: pathlib.Path) -> int:
    counter = folder / "pulled"
    return len(counter.read_text().splitlines()) if counter.exists() else 0


def test_survivors_share_the_starts_and_domains_with_local_disks_are_reported(site: Site, guest: Make, tmp_path: pathlib.Path) -> None:
    """The refusals are tested first, in the same fleet: after each of them nothing was fenced or started."""
    site.environment["ANSIBLE_SHOW_CUSTOM_STATS"] = "true"
    names = [guest(f"web{number}") for number in range(3)]
    guest("held", "--paused")
    guest("local", storage="local")
    site.lab.virsh(1, "destroy", "web0")
    definition = site.lab.virsh(1, "dumpxml", "web0").replace("</devices>", f"<graphics type='vnc' port='-1' autoport='yes' passwd='{SECRET}'/></devices>")
    site.lab.on(1, "sh", "-c", f"cat > /run/web0.xml <<'END'\n{definition}\nEND\nvirsh define /run/web0.xml && virsh start web0")
    site.protect()
    site.fencing(1, None)
    tasks = fence_tasks(site, tmp_path)

    code, text = site.playbook("evacuate", source=site.name(1), evacuate_host_fence_tasks=tasks)
    assert (code != 0, pulled(tmp_path)) == (True, 0), text
    assert "never evacuated" in text
    site.lose(1)
    code, text = site.playbook("evacuate", source=site.name(1))
    assert code != 0
    assert "There is no evidence" in " ".join(text.split())
    code, text = site.playbook("evacuate", source=site.name(1), evacuate_host_force_down=True)
    assert code != 0
    assert "needs evacuate_host_reason" in text
    code, text = site.playbook("evacuate", source=site.name(1), evacuate_host_fence_tasks=fence_tasks(site, tmp_path, "on"))
    assert (code != 0, pulled(tmp_path)) == (True, 1), text
    assert "not off" in " ".join(text.split())
    site.check_end_state({2: [], 3: []})

    code, text = site.playbook("evacuate", "-vvvv", source=site.name(1), evacuate_host_fence_tasks=fence_tasks(site, tmp_path))
    assert code != 0, text
    assert pulled(tmp_path) == 2
    assert "local" in text.partition("PLAY RECAP")[0]
    assert SECRET not in text
    result = stats(text)[site.name(1)]
    assert [one["name"] for one in result["lost_until_return"]] == ["local"]
    assert sorted(one["name"] for one in result["evacuated"]) == sorted([*names, "held"])
    assert (result["failed"], result["not_selected"], result["unaccounted"]) == ([], [], [])
    assert [(one["kind"], one["status"]) for one in result["evidence"]] == [("tasks", "off")]
    there = site.fleet()
    assert sorted(there[2] | there[3]) == sorted([*names, "held (paused)"])
    assert there[2]
    assert there[3]
    assert not there[2] & there[3]
    assert {(line[0], line[1]) for line in site.record_summaries()} == {(name, "done") for name in [*names, "held"]}
    found = site.ledger.find_host(name=site.name(1))
    assert found
    assert found.body["state"] == "fenced"
    number = 2 if "web0" in there[2] else 3
    assert SECRET in site.lab.virsh(number, "dumpxml", "--security-info", "web0")
    site.verify_audit()


# Far below the quarter of an hour after which TCP gives up.
KEPT_CONNECTION_SECONDS = 150


def within(site: Site, seconds: float, **variables: t.Any) -> tuple[int, str]:
    """Evacuate the first host; return exit code and all that was printed. A run that takes longer is ended, and fails the test."""
    process = site.popen(site.playbook_command("evacuate", {"source": site.name(1), **variables}))
    try:
        text, dummy = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail(f"The evacuation did not end within {seconds} s: {process.communicate()[0]}")
    return process.returncode, text


@pytest.mark.long
@pytest.mark.parametrize("lost", [[1], [1, 3]])
def test_kept_ssh_connections_to_hosts_without_power_do_not_delay_the_evacuation(site: Site, guest: Make, lost: list[int]) -> None:
    """A cut link stands for a power failure: in both cases nothing closes the connection."""
    guest("web")
    site.protect()
    asked = site.popen(["ansible", "-i", site.inventory, "all", "-m", "ansible.builtin.raw", "-a", "true"])
    assert asked.wait(60) == 0
    kept = list(site.lab.layout.sockets.iterdir())
    assert len(kept) >= len(lost)
    for number in lost:
        site.lab("cut", site.lab.host(number))
    code, text = within(site, KEPT_CONNECTION_SECONDS, evacuate_host_accept_silent=[site.name(number) for number in lost[1:]])
    assert code == 0, text
    for number in lost:
        site.lab("heal", site.lab.host(number))
    assert site.fleet()[2] | site.fleet().get(3, set()) == {"web"}
    assert {line[:2] for line in site.record_summaries()} == {("web", "done")}
    site.verify_audit()


# Longer than facts count, and than a BMC that is busy takes.
SLOW_SECONDS = 65


@pytest.mark.long
def test_a_fence_agent_that_outlasts_the_age_of_facts_only_delays_the_evacuation(site: Site, guest: Make, tmp_path: pathlib.Path) -> None:
    guest("web")
    site.protect()
    once = tmp_path / "asked"
    script = f"input=$(cat)\ntest -e {once} || sleep {SLOW_SECONDS}\ntouch {once}\necho \"$input\" | '{COMMAND.with_name('fence_lab')}'"
    agent = agents.write(tmp_path, "fence_slowly", script)
    site.fencing(1, site.agent(1, agent, timeout_seconds=200, status_timeout_seconds=100))
    site.lose(1)
    code, text = within(site, 4 * SLOW_SECONDS)
    assert code == 0, text
    assert once.exists()
    assert "Query the domains and the capacity of the host" in text
    assert site.fleet()[2] | site.fleet()[3] == {"web"}


@pytest.mark.long
def test_the_next_run_finishes_an_evacuation_whose_control_node_was_killed(site: Site, guest: Make) -> None:
    """Killed between the start of a guest and the writing of C(done)."""
    names = [guest(f"web{number}") for number in range(4)]
    site.protect()
    site.lose(1)
    for name in names:
        site.hooks[2].hold(AFTER, name)
    variables = json.dumps({"kvmfleet_ledger": str(site.path), "source": site.name(1)})
    process = site.popen(["ansible-playbook", "-i", site.inventory, "kvmfleet.migration.evacuate", "-e", variables])
    eventually(lambda: any(site.hooks[2].seen(AFTER, name) for name in names), "a guest runs on the second host")
    process.kill()
    process.communicate(timeout=300)
    for name in names:
        site.hooks[2].let_go(AFTER, name)
    assert "pre-migrating" in {line[1] for line in site.record_summaries()}

    def ended() -> bool:
        return site.playbook("evacuate", source=site.name(1))[0] == 0

    eventually(ended, "the evacuation can be run to its end")
    there = site.fleet()
    assert sorted([*there[2], *there[3]]) == names
    assert {line[1] for line in site.record_summaries()} == {"done"}
    assert len(site.record_summaries()) == len(names)
    site.verify_audit()
