# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A package upgrade of libvirt on a machine, which restarts its daemon."""

from __future__ import annotations

from .machines import Machines

REINSTALL = "DEBIAN_FRONTEND=noninteractive apt-get install -q -y --reinstall /srv/packages/libvirt-daemon_*.deb /srv/packages/libvirt-daemon-system_*.deb"
STARTED = "systemctl show -P ActiveEnterTimestampMonotonic libvirtd.service"


def reinstall_libvirt(machines: Machines, number: int) -> None:
    """Install libvirt's daemon again; fail where that did not restart it."""
    before = machines.on(number, STARTED)
    machines.on(number, REINSTALL, seconds=600)
    assert machines.on(number, STARTED) != before, "the daemon was not restarted"
