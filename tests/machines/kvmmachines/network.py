# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet's network: a bridge in a network namespace of its own, the control node's address on it, a tap device for each machine.

No address of it is known outside of the namespace, so it cannot collide with any other network of this machine.
"""

from __future__ import annotations

import json

from ...lab.kvmlab import namespaces
from ...lab.kvmlab.commands import run, succeeds
from .layout import CONTROL_ADDRESS, Fleet, Machine

BRIDGE = "br0"


def create(fleet: Fleet) -> None:
    """Make the namespace with its bridge, and plug the control node in, where that is not done yet."""
    if namespaces.exists(fleet.namespace) and succeeds("ip", "-n", fleet.namespace, "link", "show", BRIDGE):
        return
    run("ip", "netns", "add", fleet.namespace)
    run("ip", "-n", fleet.namespace, "link", "set", "lo", "up")
    run("ip", "-n", fleet.namespace, "link", "add", BRIDGE, "type", "bridge", "forward_delay", "0")
    run("ip", "-n", fleet.namespace, "addr", "add", f"{CONTROL_ADDRESS}/24", "dev", BRIDGE)
    run("ip", "-n", fleet.namespace, "link", "set", BRIDGE, "up")


def plug_in(fleet: Fleet, machine: Machine) -> None:
    """Make a machine's tap device, where it is missing."""
    if not succeeds("ip", "-n", fleet.namespace, "link", "show", machine.name):
        run("ip", "-n", fleet.namespace, "tuntap", "add", "dev", machine.name, "mode", "tap")
    run("ip", "-n", fleet.namespace, "link", "set", machine.name, "master", BRIDGE, "up")


def add_bmc_address(fleet: Fleet, machine: Machine) -> None:
    """Give the control node's end of the bridge the address of a machine's BMC, which runs there."""
    run("ip", "-n", fleet.namespace, "addr", "replace", f"{machine.bmc_address}/24", "dev", BRIDGE)


def cut(fleet: Fleet, machine: Machine) -> None:
    """Let no frame pass between a machine and the others; its own card notices nothing."""
    run("ip", "-n", fleet.namespace, "link", "set", machine.name, "nomaster")


def heal(fleet: Fleet, machine: Machine) -> None:
    run("ip", "-n", fleet.namespace, "link", "set", machine.name, "master", BRIDGE, "up")


def is_cut(fleet: Fleet, machine: Machine) -> bool:
    links = json.loads(run("ip", "-n", fleet.namespace, "-j", "link", "show", machine.name))
    return bool(links[0].get("master") != BRIDGE)


def delete(fleet: Fleet) -> None:
    """End everything that runs in the namespace, and remove it with all that is in it."""
    if namespaces.exists(fleet.namespace):
        namespaces.kill_all(fleet.namespace)
        run("ip", "netns", "delete", fleet.namespace)
