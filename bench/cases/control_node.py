# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The control node of a drain in a large fleet: seconds, memory and bytes on the wire up to the plan, beside Ansible's C(ping) of the same hosts."""

from __future__ import annotations

import json
import pathlib
import tempfile

from ansible_collections.kvmfleet.migration.bench.fake_fleet import Cost, FakeFleet
from ansible_collections.kvmfleet.migration.bench.figures import Effort, Figure, Section
from ansible_collections.kvmfleet.migration.tests.simulator import fleets

PER_HOST = 20
MIB = 2**20
_PING = "ansible.builtin.ping"
_SIMULATED = (
    "Ansible is real; in place of `ssh` runs a program that answers for each host with what the module would return, and counts the bytes of the module and "
    "of its answer, before compression and encryption. The work of the hosts is therefore not included, and a login costs nothing. Pipelining is on; "
    "{forks} forks. Memory is that of the largest process."
)
_PLAN = (
    "The drain ends with its plan (`drain_host_plan_only`): the facts of all hosts, the state of the host in the ledger, the plan. What follows concerns only "
    "the hosts of the moves, however large the fleet is."
)


def run(effort: Effort) -> Section:
    """Plan the drain of one host."""
    section = Section("The control node of a drain in a large fleet", notes=[_PLAN])
    for hosts in (20,) if effort.quick else (100, 1000):
        drain = fleets.large(hosts, PER_HOST * hosts, PER_HOST)
        with tempfile.TemporaryDirectory() as folder:
            fleet = FakeFleet(pathlib.Path(folder, "fleet"), drain.facts)
            fleet.prepare()
            ours, bare = _plan(fleet, drain.source), _ping(fleet)
            section.figures += _figures(hosts, ours, bare)
    section.notes.append(_SIMULATED.format(forks=fleet.forks))
    return section


def _plan(fleet: FakeFleet, source: str) -> Cost:
    plan = fleet.folder / "plan.json"
    cost = fleet.run_playbook("kvmfleet.migration.drain", "-e", json.dumps({"target": source, "drain_host_plan_only": True, "drain_host_plan_file": str(plan)}))
    moves = json.loads(plan.read_text(encoding="utf-8"))["moves"]
    if len(moves) != PER_HOST:
        raise RuntimeError(f"The plan has {len(moves)} moves, not {PER_HOST}.")
    return cost


def _ping(fleet: FakeFleet) -> Cost:
    playbook = fleet.folder / "ping.yml"
    playbook.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": [{_PING: {}}]}]), encoding="utf-8")
    return fleet.run_playbook(str(playbook))


def _figures(hosts: int, ours: Cost, bare: Cost) -> list[Figure]:
    what = f"Plan of one host's drain, {hosts:,} hosts / {PER_HOST * hosts:,} domains"
    sent, received = (f"{ours.sent_bytes / MIB:.1f} MiB in {ours.modules:,} modules", f"{ours.received_bytes / MIB:.1f} MiB")
    return [
        Figure(f"{what}: seconds", f"{ours.seconds:.1f} s", f"{bare.seconds:.1f} s {_PING}", ours.seconds / bare.seconds),
        Figure(f"{what}: CPU seconds", f"{ours.cpu_seconds:.1f} s", f"{bare.cpu_seconds:.1f} s {_PING}", ours.cpu_seconds / bare.cpu_seconds),
        Figure(f"{what}: memory", f"{ours.peak_mib:.0f} MiB", f"{bare.peak_mib:.0f} MiB {_PING}", ours.peak_mib / bare.peak_mib),
        Figure(f"{what}: sent", sent, f"{bare.sent_bytes / MIB:.1f} MiB {_PING}", ours.sent_bytes / bare.sent_bytes),
        Figure(f"{what}: received", received, f"{bare.received_bytes / MIB:.2f} MiB {_PING}"),
    ]
