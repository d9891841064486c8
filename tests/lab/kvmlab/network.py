# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's network: a bridge in a namespace of its own (so that no firewall of this machine meddles), the control node and all hosts plugged into it."""

from __future__ import annotations

import ipaddress
import json
import typing as t
import zlib

from . import namespaces
from .commands import run, succeeds
from .errors import LabError
from .layout import Lab

NETWORK = "10.177"
BRIDGE = "br0"


def choose_subnet(prefix: str) -> str:
    """Return the first three numbers of a /24 that no route of this machine touches; the same prefix gets the same one where it can."""
    routes = [ipaddress.ip_network(route["dst"]) for route in json.loads(run("ip", "-4", "-j", "route", "show", "table", "all")) if _is_network(route)]
    first = zlib.crc32(prefix.encode())
    for step in range(256):
        subnet = f"{NETWORK}.{(first + step) % 256}"
        if not any(ipaddress.ip_network(f"{subnet}.0/24").overlaps(route) for route in routes):
            return subnet
    raise LabError(f"All of {NETWORK}.0.0/16 is routed elsewhere on this machine: there is no subnet left for a lab.")


def _is_network(route: t.Dict[str, t.Any]) -> bool:
    return route["dst"] != "default" and route.get("type", "unicast") in ("unicast", "local")


def create_switch(lab: Lab) -> None:
    """Make the bridge and plug the control node in, where that is not done yet."""
    if namespaces.exists(lab.switch) and succeeds("ip", "link", "show", lab.uplink):
        return
    delete(lab.switch)
    run("ip", "netns", "add", lab.switch)
    run("ip", "-n", lab.switch, "link", "set", "lo", "up")
    run("ip", "-n", lab.switch, "link", "add", BRIDGE, "type", "bridge", "forward_delay", "0")
    run("ip", "-n", lab.switch, "addr", "add", f"{lab.storage_address}/24", "dev", BRIDGE)
    run("ip", "-n", lab.switch, "link", "set", BRIDGE, "up")
    run("ip", "link", "add", lab.uplink, "type", "veth", "peer", "name", "ctl", "netns", lab.switch)
    run("ip", "-n", lab.switch, "link", "set", "ctl", "master", BRIDGE, "up")
    run("ip", "addr", "add", f"{lab.control_address}/24", "dev", lab.uplink)
    run("ip", "link", "set", lab.uplink, "up")


def plug_in(lab: Lab, host: str) -> None:
    """Make a host's network namespace with its interface C(eth0) and a bridge for guests, C(br0), where that is not done yet."""
    if namespaces.exists(host) and succeeds("ip", "-n", host, "link", "show", "eth0"):
        return
    delete(host)
    run("ip", "netns", "add", host)
    run("ip", "-n", host, "link", "set", "lo", "up")
    run("ip", "-n", lab.switch, "link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", host)
    run("ip", "-n", lab.switch, "link", "set", host, "master", BRIDGE, "up")
    run("ip", "-n", host, "addr", "add", f"{lab.host_address(host)}/24", "dev", "eth0")
    run("ip", "-n", host, "link", "set", "eth0", "up")
    run("ip", "-n", host, "route", "add", "default", "via", lab.control_address)
    run("ip", "-n", host, "link", "add", BRIDGE, "type", "bridge")
    run("ip", "-n", host, "link", "set", BRIDGE, "up")


def delete(namespace: str) -> None:
    """Remove a network namespace and all interfaces in it, where it exists. Nothing may run in it any more."""
    if namespaces.exists(namespace):
        run("ip", "netns", "delete", namespace)


def delete_uplink(lab: Lab) -> None:
    if succeeds("ip", "link", "show", lab.uplink):
        run("ip", "link", "delete", lab.uplink)


def remaining_namespaces(lab: Lab) -> list[str]:
    """Return the network namespaces of this lab that exist now, known to its state or not."""
    candidates = [lab.switch, *(lab.host_name(number) for number in range(1, 10))]
    return [name for name in candidates if namespaces.exists(name)]


def silence(lab: Lab, host: str) -> None:
    """Let nothing out of a host that has no power. Its cable stays as it is; the kernel in its namespace would refuse connections in its name."""
    succeeds("ip", "-n", lab.switch, "link", "set", host, "nomaster")


def end_silence(lab: Lab, host: str) -> None:
    run("ip", "-n", lab.switch, "link", "set", host, "master", BRIDGE)


def has_carrier(lab: Lab, host: str) -> bool:
    """Return whether the host's cable is plugged in."""
    state = run("ip", "-n", lab.switch, "-j", "link", "show", host)
    return "UP" in json.loads(state)[0]["flags"]


def unplug(lab: Lab, host: str) -> None:
    run("ip", "-n", lab.switch, "link", "set", host, "down")


def plug_back(lab: Lab, host: str) -> None:
    run("ip", "-n", lab.switch, "link", "set", host, "up")
