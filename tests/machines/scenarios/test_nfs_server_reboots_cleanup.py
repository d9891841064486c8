# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The NFS server reboots while a host that returned is cleaned up: what was evacuated runs on, its images stay, and the host is taken back."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.site import Site

CLEANUP = "Remove what was evacuated from here"


def test_a_host_is_recovered_while_the_nfs_server_reboots(protected: Site) -> None:
    site, machines = protected, protected.machines
    machines("poweroff", "m1")
    site.succeed("evacuate", source="m1")
    evacuated = machines.active()
    assert sorted([*evacuated[2], *evacuated[3]]) == ["db", "web"]
    machines("poweron", "m1")

    play = site.begin_book("recover", target="m1")
    site.wait_for_task(play, CLEANUP)
    machines("reboot", "nfs")
    text = site.finish(play)
    # A recovery that was kept from its work says so and leaves everything as it was.
    if play.returncode != 0:
        assert machines.active() == {1: set(), **evacuated}, text
        site.succeed("recover", target="m1")

    closed = [(name, "completed", None, "m1", machines.host(number)) for number in (2, 3) for name in evacuated[number]]
    site.check_end_state({1: set(), **evacuated}, *closed)
    assert machines.known()[1] == {}, text
    for name in ("web", "db"):
        assert machines.run(1, "qemu-img", "info", f"/srv/images/{name}.qcow2").code != 0, f"nobody holds the lock of {name}"
        assert machines.run(1, "qemu-img", "info", "-U", f"/srv/images/{name}.qcow2").code == 0, f"the image of {name} is gone"
