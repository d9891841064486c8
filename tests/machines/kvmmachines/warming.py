# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is done once with a fleet that has booted, so that no scenario has to wait for it: everybody knows everybody, and libvirt knows its QEMU."""

from __future__ import annotations

import typing as t

from ...lab.kvmlab.errors import LabError
from . import qemu, readiness
from .layout import Fleet, Machine

VERSION = 1
STEPS = {
    "key": "test -e /root/.ssh/id_ed25519 || ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519; cut -d' ' -f1,2 /root/.ssh/id_ed25519.pub",
    "server": "cut -d' ' -f1,2 /etc/ssh/ssh_host_ed25519_key.pub",
    "know": """while read -r name address kind key; do echo "$name,$address $kind $key"; done >/root/.ssh/known_hosts""",
    "admit": "cat >>/root/.ssh/authorized_keys",
    # Each login of root would else start a manager of his own and some scripts, which takes longer under emulation than libvirt waits for a peer.
    "login": "loginctl enable-linger root; rm -f /etc/update-motd.d/*",
    "probe": "virsh -q capabilities >/dev/null && python3 -c 'import libvirt'",
}
SERVICES = "findmnt -n /srv/images >/dev/null && timeout 60 ls /srv/images >/dev/null && virsh -q -c qemu:///system list >/dev/null"
SERVICE_SECONDS = 240


def warm_up(fleet: Fleet) -> None:
    """Let root of each host log in on the others, as kvmfleet.migration.exchange_keys does it, and have libvirt look at its QEMU."""
    keys = {machine: _run(fleet, machine, "key") for machine in fleet.hosts}
    servers = "".join(f"{machine.name} {machine.address} {_run(fleet, machine, 'server')}" for machine in fleet.hosts)
    for machine in fleet.hosts:
        _run(fleet, machine, "know", servers)
        _run(fleet, machine, "admit", "".join(key for other, key in keys.items() if other is not machine))
        _run(fleet, machine, "login")
        _run(fleet, machine, "probe")
        wait_for_services(fleet, machine)


def wait_for_services(fleet: Fleet, machine: Machine) -> None:
    """Return when NFS and libvirt answer on a host."""
    agent = qemu.agent(fleet, machine)
    readiness.wait_for(lambda: agent.run("/bin/sh", "-c", SERVICES).code == 0, f"NFS and libvirt answer on {machine.name}", SERVICE_SECONDS)


def _run(fleet: Fleet, machine: Machine, step: str, stdin: t.Optional[str] = None) -> str:
    done = qemu.agent(fleet, machine).run("/bin/sh", "-ec", STEPS[step], stdin=stdin or "")
    if done.code:
        raise LabError(f"The step '{step}' failed on {machine.name}: {done.err.strip()}")
    return done.out
