# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""BMCs that do not do what they should: one takes 75 s, one is dead, one says "off" and is not."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.machines import Machines
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.site import Site


def test_evacuation_is_refused_with_a_lying_or_dead_bmc_and_waits_for_a_slow_one(machines: Machines, site: Site) -> None:
    machines("guest", "web", "--host", "m1", "--mib", "24")
    site.succeed("protect", target="kvmfleet_hosts")

    machines("bmc", "m1", "lying")
    lied_to = site.play_book("evacuate", source="m1")
    assert lied_to.code != 0
    assert "A host that answers is never evacuated" in lied_to.text
    assert machines.active() == {1: {"web"}, 2: set(), 3: set()}

    machines("cut", "m1")
    machines("bmc", "m1", "dead")
    unproved = site.play_book("evacuate", source="m1")
    assert unproved.code != 0
    assert "confirm it with force_down and a reason" in " ".join(unproved.text.split()), unproved.text
    assert site.records() == []
    assert machines.active() == {1: {"web"}, 2: set(), 3: set()}

    machines("bmc", "m1", "slow", "--seconds", "75")
    site.fence_with(timeout_seconds=240, power_timeout=150)
    site.succeed("evacuate", source="m1")
    assert not machines.is_on(1)
    active = machines.active()
    (host,) = [number for number in (2, 3) if active[number]]
    site.check_end_state({2: set(), 3: set(), host: {"web"}}, ("web", "done", None, "m1", machines.host(host)))
