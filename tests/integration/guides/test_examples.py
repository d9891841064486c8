# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The examples that only read, run as they stand in the documentation, on hosts that a ledger knows and where nothing was moved yet."""

from __future__ import annotations

import json
import typing as t

import yaml

from ansible_collections.kvmfleet.migration.tests.integration.guides.support.reader import LabReader

ALL = "all"
# By plugin: all of its examples, or those of these names.
READING: dict[str, tuple[str, ...]] = {
    "boot_guard": ("See whether the host is held, and what waits for its release",),
    "displaced_domains": (ALL,),
    "domain_location": (ALL,),
    "domain_policy": ("Read what holds for a domain, and where each value comes from",),
    "drain_plan": (ALL,),
    "fleet_scan": (ALL,),
    "fleet_check": (ALL,),
    "fleet_status": (ALL,),
    "host": ("Read the entry",),
    "host_facts": (ALL,),
    "ledger": (ALL,),
    "ledger_query": ("Show the domains whose moves failed",),
    "migration_info": (ALL,),
    "plan_drain": (ALL,),
    "recover_plan": (ALL,),
    "recover_verify": (ALL,),
    "scheduler_check": (ALL,),
}
GUESTS = ("web1", "db1")

Task = dict[str, t.Any]


def examples(reader: LabReader) -> dict[str, list[Task]]:
    """Return the examples of every plugin: tasks or plays."""
    assert reader.run("ansible-doc --metadata-dump kvmfleet.migration") == 0, reader.printed
    told = json.loads(reader.printed[reader.printed.index("{") :])["all"]
    found = {name.rpartition(".")[2]: one["examples"] for kind in ("module", "lookup", "filter") for name, one in told[kind].items()}
    return {name: yaml.safe_load(text) for name, text in found.items()}


def playbook(found: dict[str, list[Task]]) -> list[Task]:
    """Return plays with what is to be run: those that are plays already first, for the others use the facts that they gather."""
    chosen = [one for name, wanted in READING.items() for one in found[name] if wanted == (ALL,) or one["name"] in wanted]
    plays, tasks = [one for one in chosen if "hosts" in one], [one for one in chosen if "hosts" not in one]
    return [*plays, {"name": "All others", "hosts": "kvm1", "gather_facts": False, "tasks": tasks}]


def test_read_only_examples_of_the_documentation_run_and_change_nothing(reader: LabReader) -> None:
    for name in GUESTS:
        reader.guest(name, "kvm1", "--mib", "48")
    assert reader.run("ansible kvm1 -m kvmfleet.migration.host -a state=enabled") == 0, reader.printed
    found = examples(reader)
    assert [(name, one) for name, wanted in READING.items() for one in wanted if one != ALL and one not in {each["name"] for each in found[name]}] == []
    reader.write("examples.yml", yaml.safe_dump(playbook(found), sort_keys=False))
    assert reader.run("ansible-playbook examples.yml") == 0, reader.printed
    assert {name: reader.lab.places(name) for name in GUESTS} == {name: {1: "running"} for name in GUESTS}
    assert "changed=0" in reader.printed
    assert not any(f"changed={number}" in reader.printed for number in range(1, 10))
