# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the control node gets into the machines: the fleet's SSH key, the keys of their servers, the inventory."""

from __future__ import annotations

import pathlib
import typing as t

from ...lab.kvmlab import hostfiles
from ...lab.kvmlab.commands import succeeds
from ...lab.kvmlab.errors import LabError
from ...lab.kvmlab.namespaces import in_network
from ...lab.kvmlab.ssh import create_key
from . import faults, qemu
from .layout import Fleet, Machine

OPERATOR = hostfiles.OPERATOR
# Under emulation, the login of a user who has no session yet answers nothing while systemd starts a manager for that user.
UNANSWERED = 12
# Lets in the fleet's key, and tells the server's own.
GREETING = """
for user in root operator; do
    home=$(getent passwd $user | cut -d: -f6)
    install -d -m 0700 -o $user "$home/.ssh"
    grep -qsxF "$1" "$home/.ssh/authorized_keys" || echo "$1" >>"$home/.ssh/authorized_keys"
    chown $user "$home/.ssh/authorized_keys"
done
cut -d' ' -f1,2 /etc/ssh/ssh_host_ed25519_key.pub
"""


def create_keys(fleet: Fleet) -> None:
    """Make the key of the users and the client's configuration, where they are missing."""
    for folder in (fleet.ssh, sockets(fleet)):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    create_key(user_key(fleet))
    config_file(fleet).write_text(hostfiles.ssh_config(user_key(fleet), known_hosts_file(fleet), UNANSWERED))


def greet(fleet: Fleet, machine: Machine) -> str:
    """Set a machine's clock, let the control node in, and return the line that knows its SSH server."""
    faults.set_clock(fleet, machine, 0)
    key = user_key(fleet).with_suffix(".pub").read_text().strip()
    done = qemu.agent(fleet, machine).run("/bin/sh", "-ec", GREETING, "sh", key)
    if done.code:
        raise LabError(f"{machine.name} cannot be reached by SSH: {done.err.strip()}")
    return f"{machine.name},{machine.address} {done.out.strip()}\n"


def write_files(fleet: Fleet, known_hosts: t.Iterable[str]) -> None:
    """Write whom the control node knows, and the inventories of both users."""
    known_hosts_file(fleet).write_text("".join(known_hosts))
    for user, become in (("root", False), (OPERATOR, False), (OPERATOR, True)):
        inventory_file(fleet, user, become).write_text(inventory(fleet, user, become))


def close_connections(fleet: Fleet) -> None:
    """End the connections that ssh keeps open on the control node."""
    for socket in sockets(fleet).iterdir():
        succeeds("ssh", "-F", "none", "-o", f"ControlPath={socket}", "-O", "exit", "nobody", timeout=5)
        socket.unlink(missing_ok=True)


def ssh_command(fleet: Fleet, machine: Machine, user: str, *arguments: str) -> t.List[str]:
    """Return the command line that logs in at a machine from the control node."""
    return in_network(fleet.namespace, "ssh", "-F", str(config_file(fleet)), "-l", user, machine.address, *arguments)


def inventory(fleet: Fleet, user: str, become: bool) -> str:
    """Return the hosts as an Ansible inventory in YAML."""
    lines = ["all:", "  children:", "    kvmfleet_hosts:", "      hosts:"]
    for machine in fleet.hosts:
        lines += [f"        {machine.name}:", f"          ansible_host: {machine.address}"]
    lines += ["      vars:", *(f"        {name}: {value}" for name, value in _variables(fleet, user, become).items())]
    return "---\n" + "".join(f"{line}\n" for line in lines)


def _variables(fleet: Fleet, user: str, become: bool) -> t.Dict[str, str]:
    return {
        "ansible_user": user,
        "ansible_become": "true" if become else "false",
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_ssh_private_key_file": f'"{user_key(fleet)}"',
        "ansible_ssh_common_args": f'"-F {config_file(fleet)}"',
        "ansible_ssh_args": '"-o ControlMaster=auto -o ControlPersist=600s"',
        # Ansible formats this value: %% is one %, of which ssh makes a hash of user, host and port
        "ansible_control_path": f'"{sockets(fleet)}/%%C"',
        # What takes a second elsewhere takes many under emulation.
        "ansible_timeout": "60",
        "ansible_pipelining": "true",
        "kvmfleet_transport": "ssh",
        "kvmfleet_scheduler": "{cpu_allocation_ratio: 32.0}",
    }


def inventory_file(fleet: Fleet, user: str = "root", become: bool = False) -> pathlib.Path:
    return fleet.state / ("inventory.yml" if user == "root" and not become else f"inventory-{user}{'-become' if become else ''}.yml")


def user_key(fleet: Fleet) -> pathlib.Path:
    return fleet.ssh / "id"


def sockets(fleet: Fleet) -> pathlib.Path:
    """Return the folder of the connections that ssh keeps open on the control node."""
    return fleet.state / "cm"


def known_hosts_file(fleet: Fleet) -> pathlib.Path:
    return fleet.ssh / "known_hosts"


def config_file(fleet: Fleet) -> pathlib.Path:
    return fleet.ssh / "config"
