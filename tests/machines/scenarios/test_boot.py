# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a real boot would start by itself: autostart, and the list that libvirt-guests left at a clean shutdown. Nothing of it runs where it must not."""

from __future__ import annotations

from ansible_collections.kvmfleet.migration.tests.machines.scenarios.support.site import Site

# Saves the guests at shutdown, and starts them again at boot.
LIBVIRT_GUESTS = "printf 'ON_BOOT=start\\nON_SHUTDOWN=suspend\\nSTART_DELAY=0\\n' >/etc/default/libvirt-guests; systemctl restart libvirt-guests"
LISTED = "cat /var/lib/libvirt/libvirt-guests 2>/dev/null; ls /var/lib/libvirt/qemu/save /etc/libvirt/qemu/autostart 2>/dev/null"


def test_an_evacuated_host_starts_no_guest_when_it_returns(protected: Site) -> None:
    site, machines = protected, protected.machines
    machines.on(1, LIBVIRT_GUESTS)

    machines.shut_down(1)
    site.succeed("evacuate", source="m1")
    evacuated = machines.active()
    assert sorted([*evacuated[2], *evacuated[3]]) == ["db", "web"]

    machines("poweron", "m1")
    left = machines.on(1, LISTED)
    assert machines.uuid("db") in left, left
    assert "web" in left, left
    assert machines.active() == {1: set(), **evacuated}, "the returned host started guests that run elsewhere"

    site.succeed("recover", target="m1")
    assert machines.active() == {1: set(), **evacuated}
    machines("reboot", "m1")
    closed = [(name, "completed", None, "m1", machines.host(number)) for number in (2, 3) for name in evacuated[number]]
    site.check_end_state({1: set(), **evacuated}, *closed)
