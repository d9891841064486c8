# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The whole story of a host as operators live it: protect, drain, a real reboot, home again; then its power fails, and it is evacuated and taken back."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.machines import Machines
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.site import Site

GUARD = "systemctl show -P ActiveState kvmfleet-guard.service; cat /proc/sys/kernel/random/boot_id"
# web belongs to the host and starts with it; db was started by hand.
GUESTS = {"web", "db"}


def test_a_host_is_drained_recovered_evacuated_and_recovered_again(machines: Machines, site: Site) -> None:
    machines("guest", "web", "--host", "m1", "--mib", "32", "--autostart")
    machines("guest", "db", "--host", "m1", "--mib", "24")
    site.succeed("protect", target="kvmfleet_hosts")

    site.succeed("drain", target="m1")
    drained = machines.active()
    assert drained[1] == set()
    assert drained[2] | drained[3] == GUESTS

    machines("reboot", "m1")
    assert machines.active() == drained, "a boot started a guest that runs elsewhere"

    site.succeed("recover", target="m1", recover_host_bring_home=True)
    assert machines.active() == {1: GUESTS, 2: set(), 3: set()}
    moves = site.record_summaries()
    assert [(status, reason) for _name, status, reason, _source, _destination in moves] == [("completed", None)] * 4, moves

    machines("poweroff", "m1")
    site.succeed("evacuate", source="m1")
    evacuated = machines.active()
    assert evacuated.keys() == {2, 3}
    assert evacuated[2] | evacuated[3] == GUESTS
    assert not evacuated[2] & evacuated[3]

    machines("poweron", "m1")
    assert machines.on(1, GUARD).startswith("active")
    assert machines.active() == {1: set(), **evacuated}, "a host that returned started guests that run elsewhere"

    site.succeed("recover", target="m1")
    evacuations = [(name, "completed", None, "m1", site.machines.host(number)) for number in (2, 3) for name in evacuated[number]]
    site.check_end_state({1: set(), **evacuated}, *moves, *evacuations)
    # What was cleaned up is gone for good: not even a definition is left.
    assert machines.known()[1] == {}
