# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The guide to high availability, from its first line to its last: leases by systemd, BMCs, an armed rulebook, and a drill that this one evacuates."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.kvmfleet.migration.plugins.plugin_utils._ledger.locate import open_ledger
from ansible_collections.kvmfleet.migration.tests.integration.guides.support import guide as g
from ansible_collections.kvmfleet.migration.tests.lab.kvmlab.namespaces import entered_network
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.leased import begin_cluster
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.machines import Machines
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.reader import MachineReader


@pytest.fixture
def reader(machines: Machines, tmp_path: pathlib.Path) -> t.Iterator[MachineReader]:
    """Somebody who has done what the first guide says to write."""
    (tmp_path / "reader").mkdir()
    with entered_network(machines.fleet.namespace):
        cluster = begin_cluster(tmp_path / "etcd")
        reader = MachineReader(machines, tmp_path / "reader", cluster)
        try:
            reader.files_of("first-drain.md")
            yield reader
            assert open_ledger(cluster.location(), cluster.options).verify_audit() == []
        finally:
            reader.close()
            cluster.down()


def test_the_guide_works_step_by_step_and_its_drill_is_evacuated_by_the_rulebook(reader: MachineReader) -> None:
    machines, cluster = reader.machines, reader.cluster
    boots = {number: machines.on(number, "cat /proc/sys/kernel/random/boot_id") for number in machines.numbers}
    reader.follow(g.steps_of(g.GUIDES / "high-availability.md"))
    assert machines.active() == {1: {"web1"}, 2: {"web2"}, 3: set()}
    assert [number for number, boot in boots.items() if machines.on(number, "cat /proc/sys/kernel/random/boot_id") != boot] == [1]
    ledger = open_ledger(cluster.location(), cluster.options)
    (run,) = ledger.list_maintenance_runs()
    drill = t.cast("dict[str, t.Any]", run.body["drill"])
    print(json.dumps(drill), flush=True)
    assert (drill["passed"], drill["reaction"], [guest["name"] for guest in drill["guests"]]) == (True, "wait", ["web1"])
    brake = ledger.read_brake()
    assert brake
    assert [(slot.reaction, slot.host) for slot in brake.brake.slots] == [("evacuate", "m1")]
