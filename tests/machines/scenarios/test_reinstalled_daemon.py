# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A package upgrade restarts libvirt's daemon in the middle of a move, at the source and at the destination: the record says what came of it."""

from __future__ import annotations

import pytest

from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support import upgrade
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.machines import Machines
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.site import Site


@pytest.mark.parametrize("number", [1, 2], ids=["source", "destination"])
def test_a_move_has_a_true_record_when_libvirtd_is_reinstalled(number: int, machines: Machines, site: Site) -> None:
    machines("guest", "busy", "--host", "m1", "--mib", "64", "--dirty-mib", "48", "--rate", "100")
    task = site.begin_task(1, "live_migrate", name="busy", destination="m2", bandwidth_mib=1, timeout_seconds=900)
    site.wait_until_moving(task, "busy")
    upgrade.reinstall_libvirt(machines, number)
    text = site.finish(task)

    active = machines.active()
    assert active in ({1: {"busy"}, 2: set(), 3: set()}, {1: set(), 2: {"busy"}, 3: set()}), (active, text)
    moved = bool(active[2])
    assert (task.returncode == 0) == moved, text
    record = site.only_record()
    assert (record["status"], record["reason"]) == (("completed", None) if moved else ("failed", None)), record
    first = ("busy", record["status"], record["reason"], "m1", "m2")

    if not moved:
        again = site.do(1, "live_migrate", name="busy", destination="m2")
        assert again.code == 0, again.text
    told = [first] if moved else [first, ("busy", "completed", None, "m1", "m2")]
    site.check_end_state({1: set(), 2: {"busy"}, 3: set()}, *told)
