# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Cutting a host off, whole or by channel and direction, and healing it."""

from __future__ import annotations

import typing as t

from . import namespaces, network
from .commands import run, succeeds
from .errors import UsageError
from .layout import Lab

CHAINS = {"in": "LAB-IN", "out": "LAB-OUT"}
HOOKS = {"in": "INPUT", "out": "OUTPUT"}
CHANNELS = {
    "data": "49152:49215",
    "control": "16509,16514",
    "ssh": "22",
    "storage": "10809:10999",
}
"""TCP ports; C(data) is what QEMU migrates through, C(control) what libvirt daemons talk through."""


def cut(lab: Lab, host: str, channels: t.Sequence[str], directions: t.Sequence[str], peer: t.Optional[str]) -> None:
    """Drop a host's traffic.

    :arg channels: of L(CHANNELS); none means everything.
    :arg directions: of C(in), C(out), as the host sees it; none means both.
    :arg peer: drop only what goes to or comes from this host.
    """
    if not channels and not directions and not peer:
        network.unplug(lab, host)
        return
    for direction in directions or HOOKS:
        _ensure_chain(host, direction)
        for match in _matches(channels):
            _iptables(host, "-A", CHAINS[direction], *_peer_match(lab, direction, peer), *match, "-j", "DROP")


def slow(lab: Lab, host: str, mbit: int) -> None:
    """Let a host's cable carry only so many megabits a second, in each direction."""
    if not 1 <= mbit <= 100_000:
        raise UsageError(f"A cable carries 1 to 100000 Mbit/s, not {mbit}.")
    for namespace, device in _cable(lab, host):
        run("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{mbit}mbit", "burst", "256kb", "latency", "50ms")


def heal(lab: Lab, host: str) -> None:
    """Undo every L(cut) and L(slow) of a host."""
    network.plug_back(lab, host)
    for namespace, device in _cable(lab, host):
        succeeds("tc", "-n", namespace, "qdisc", "delete", "dev", device, "root")
    for direction, chain in CHAINS.items():
        if succeeds(*namespaces.in_network(host, "iptables", "-w", "-n", "-L", chain)):
            _iptables(host, "-D", HOOKS[direction], "-j", chain)
            _iptables(host, "-F", chain)
            _iptables(host, "-X", chain)


def is_cut(lab: Lab, host: str) -> bool:
    """Return whether any cut of this host is in force."""
    rules = run(*namespaces.in_network(host, "iptables", "-w", "-S"))
    return not network.has_carrier(lab, host) or any(f"-N {chain}\n" in rules for chain in CHAINS.values())


def _cable(lab: Lab, host: str) -> t.List[t.Tuple[str, str]]:
    return [(lab.switch, host), (host, "eth0")]


def _ensure_chain(host: str, direction: str) -> None:
    if not succeeds(*namespaces.in_network(host, "iptables", "-w", "-n", "-L", CHAINS[direction])):
        _iptables(host, "-N", CHAINS[direction])
        _iptables(host, "-I", HOOKS[direction], "1", "-j", CHAINS[direction])


def _matches(channels: t.Sequence[str]) -> t.List[t.List[str]]:
    return [["-p", "tcp", "-m", "multiport", "--ports", CHANNELS[channel]] for channel in channels] or [[]]


def _peer_match(lab: Lab, direction: str, peer: t.Optional[str]) -> t.List[str]:
    return ["-s" if direction == "in" else "-d", lab.host_address(peer)] if peer else []


def _iptables(host: str, *arguments: str) -> None:
    run(*namespaces.in_network(host, "iptables", "-w", *arguments))
