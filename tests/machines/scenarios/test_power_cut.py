# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host loses its power in the minute after a playbook, while SSH still keeps its connection: its BMC proves that it is off, and it is evacuated."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.machines import Machines
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.site import Site


def test_a_dead_host_is_evacuated_despite_a_kept_ssh_connection(machines: Machines, site: Site) -> None:
    machines("guest", "web", "--host", "m1", "--mib", "24")
    site.succeed("protect", target="kvmfleet_hosts")

    machines("poweroff", "m1")
    site.succeed("evacuate", source="m1")

    (record,) = site.records()
    fenced = [one for one in record["evidence"] if one.get("agent") == "fence_ipmilan"]
    assert [one["status"] for one in fenced] == ["off"], record["evidence"]
    active = machines.active()
    (host,) = [number for number in (2, 3) if active[number]]
    site.check_end_state({2: set(), 3: set(), host: {"web"}}, ("web", "done", None, "m1", machines.host(host)))
