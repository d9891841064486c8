# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Settings of a play apply to a whole drain: variables to the plan and to the moves, C(module_defaults) to modules and lookups."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.tests.integration.scheduler.support.desk import Desk
from ansible_collections.kvmfleet.migration.tests.integration.support.control import LIMIT_SECONDS
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab

Make = t.Callable[..., str]
SOURCE = 2
NAME = "alpha"


def drain(control: Desk, policy: dict[str, t.Any], **variables: t.Any) -> tuple[int, str]:
    """Run the role in a play that names the ledger in module_defaults alone; return its exit code and all that it printed."""
    play = {
        "hosts": control.name(SOURCE),
        "gather_facts": False,
        # Not by the group migration: some of its modules have no option ledger.
        "module_defaults": {f"kvmfleet.migration.{module}": {"ledger": control.where} for module in ("host", "live_migrate")},
        "vars": {"kvmfleet_migration_policy": policy, **variables},
        "roles": ["kvmfleet.migration.drain_host"],
    }
    playbook = control.folder / "drain.yml"
    playbook.write_text(json.dumps([play]), encoding="utf-8")
    process = control.popen(["ansible-playbook", "-i", control.inventory, str(playbook)])
    text, dummy = process.communicate(timeout=LIMIT_SECONDS)
    return process.returncode, text


@pytest.mark.long
def test_a_drain_uses_the_variables_and_module_defaults_of_its_play(lab: Lab, control: Desk, guest: Make) -> None:
    """The plan follows the play's policy, the move has it, and one ledger knows of all of it."""
    guest(NAME, "--mib", "48", "--dirty-mib", "8", "--rate", "500", "--integrity", on=SOURCE)
    saved = control.folder / "plan.json"
    code, text = drain(control, {"drain": "shutdown"}, drain_host_plan_only=True, drain_host_plan_file=str(saved))
    assert code == 0, text
    plan = json.loads(saved.read_text(encoding="utf-8"))
    assert ([one["name"] for one in plan["shutdowns"]], plan["moves"]) == ([NAME], [])
    code, text = drain(control, {"timeout_seconds": 77})
    assert code == 0, text
    record = control.only_record()
    assert record["policy"]["timeout_seconds"] == {"value": 77, "source": "host"}
    assert (record["domain"]["name"], record["status"]) == (NAME, "completed")
    assert lab.check(NAME)["intact"]
    # A second run reads the first one's ledger: there is nothing left, and the maintenance goes on.
    code, text = drain(control, {"timeout_seconds": 77})
    assert code == 0, text
    assert {one.body["name"]: one.body["state"] for one in control.ledger.list_hosts()} == {control.name(SOURCE): "maintenance"}
    assert not (control.folder / "state/kvmfleet/ledger").exists()
