# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An NFS server stops answering: the kernel retries for ever, and no task waits for it longer than it says."""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.machines import Machines, eventually
from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.site import Site

READ = ("timeout", "5", "stat", "/srv/images/probe")
# What libvirt is told, as of a host whose images were moved to a file server.
LINKED = "/srv/linked"
SILENT = "that file system does not answer"


@contextlib.contextmanager
def hung_nfs(machines: Machines, *numbers: int) -> t.Iterator[None]:
    """Let the NFS server no longer answer these hosts; afterwards it answers them again."""
    server = machines.fleet.require_machine("nfs").address
    machines.on(1, "touch /srv/images/probe")
    for number in numbers:
        machines.on(number, f"ip route add blackhole {server}/32")
    try:
        for number in numbers:
            # What the client has cached it answers for some seconds.
            eventually(lambda number=number: machines.run(number, *READ).code != 0, f"the NFS server no longer answers m{number}")  # type: ignore[misc]
        yield
    finally:
        for number in numbers:
            machines.on(number, f"ip route del blackhole {server}/32")
        for number in numbers:
            eventually(lambda number=number: machines.run(number, *READ).code == 0, f"the NFS server answers m{number} again")  # type: ignore[misc]


def test_a_hung_nfs_server_delays_no_task_and_withdraws_no_proof(machines: Machines, site: Site) -> None:
    machines("guest", "web", "--host", "m1", "--mib", "24")
    for number in machines.numbers:
        machines.on(number, f"ln -s /srv/images {LINKED}")
    machines("guest", "db", "--host", "m1", "--mib", "24", "--storage", LINKED)
    site.succeed("protect", target="kvmfleet_hosts")

    # A timer protects the fleet during an outage of the hosts that are to start the guests later.
    with hung_nfs(machines, 2, 3):
        site.succeed("protect", target="kvmfleet_hosts")

    with hung_nfs(machines, 2):
        refused = site.play_book("drain", target="m1", drain_host_candidates=["m2"])
        assert refused.code != 0, refused.text
        assert SILENT in " ".join(refused.text.split()), refused.text
        assert machines.active() == {1: {"web", "db"}, 2: set(), 3: set()}

        machines("poweroff", "m1")
        site.succeed("evacuate", source="m1", evacuate_host_lock_wait_seconds=600)
        assert machines.active() == {2: set(), 3: {"web", "db"}}
    site.check_end_state({2: set(), 3: {"web", "db"}}, ("web", "done", None, "m1", "m3"), ("db", "done", None, "m1", "m3"))
