# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's hosts as an Ansible inventory, reached over real SSH."""

from __future__ import annotations

import pathlib
import typing as t

from . import hostfiles, ssh
from .layout import Lab


def path(lab: Lab, user: str = "root", become: bool = False) -> pathlib.Path:
    """Return the file of the inventory for that user."""
    return lab.state / ("inventory.yml" if user == "root" and not become else f"inventory-{user}{'-become' if become else ''}.yml")


def write_all(lab: Lab) -> None:
    """Write the inventory for root, and those for the unprivileged user, with and without privilege escalation."""
    path(lab).write_text(text(lab))
    for become in (False, True):
        path(lab, hostfiles.OPERATOR, become).write_text(text(lab, hostfiles.OPERATOR, become))


def text(lab: Lab, user: str = "root", become: bool = False) -> str:
    """Return the inventory as YAML."""
    lines = ["all:", "  children:", "    kvmfleet_hosts:", "      hosts:"]
    for host in lab.hosts:
        lines += [f"        {host}:", f"          ansible_host: {lab.host_address(host)}"]
    lines += ["      vars:", *(f"        {name}: {value}" for name, value in _variables(lab, user, become).items())]
    return "---\n" + "".join(f"{line}\n" for line in lines)


def _variables(lab: Lab, user: str, become: bool) -> t.Dict[str, str]:
    return {
        "ansible_user": user,
        "ansible_become": "true" if become else "false",
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_ssh_private_key_file": f'"{ssh.user_key(lab)}"',
        # Scenarios wait less for a host that is off than the collection itself would.
        "ansible_ssh_common_args": f'"-F {ssh.config_file(lab)} -o ServerAliveInterval=5 -o ServerAliveCountMax=3"',
        "ansible_ssh_args": '"-o ControlMaster=auto -o ControlPersist=60s"',
        # Ansible formats this value: %% is one %, of which ssh makes a hash of user, host and port
        "ansible_control_path": f'"{lab.sockets}/%%C"',
        "ansible_pipelining": "true",
        "kvmfleet_transport": "tcp",
        # Lab guests sleep nine tenths of their time, and every lab host counts the few processors of the machine as its own.
        "kvmfleet_scheduler": "{cpu_allocation_ratio: 32.0}",
    }
