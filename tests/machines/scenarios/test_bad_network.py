# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""50 ms of delay and 1 % of loss in what every host sends: moves are slow, and right."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.machines import Machines
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.site import Site


def test_a_guest_moves_there_and_back_over_a_network_with_delay_and_loss(machines: Machines, site: Site) -> None:
    # By the usual estimate, 1.22 * MSS / (RTT * sqrt(loss)), one connection carries 180 KB/s here: the guest writes a tenth of that.
    machines("guest", "web", "--host", "m1", "--mib", "32", "--dirty-mib", "8", "--rate", "5")
    for number in machines.numbers:
        machines("netem", machines.host(number), "--delay-ms", "50", "--loss-percent", "1")
    for source, destination in ((1, 2), (2, 1)):
        moved = site.do(source, "live_migrate", name="web", destination=machines.host(destination))
        assert moved.code == 0, moved.text
        assert machines.active() == {number: {"web"} if number == destination else set() for number in machines.numbers}
    for number in machines.numbers:
        assert "loss 1%" in machines.on(number, "tc qdisc show dev eth0"), "the network was not bad"
    site.check_end_state({1: {"web"}, 2: set(), 3: set()}, ("web", "completed", None, "m1", "m2"), ("web", "completed", None, "m2", "m1"))
