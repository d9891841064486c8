# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Networks, bridges and interfaces that the guest is plugged into."""

from __future__ import annotations

import re

from ..fleet import Fleet
from ..hardware import Body
from ..host_state import HostState
from ..request import Request
from .base import PASS, Finding, Rule


class Networks(Rule):
    """Each must be there under the same name; a network of libvirt's must be active too."""

    name = "networks"

    def concerns(self, request: Request) -> bool:
        """Return whether it has any interface."""
        return bool(request.networks)

    def judge(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Name what is missing. What the host could not tell is a warning."""
        judged = (_JUDGES.get(network["type"], _anything)(network.get("source") or "", host) for network in request.networks)
        findings = [finding for finding in judged if finding is not PASS]
        if not findings:
            return PASS
        reasons = dict.fromkeys(finding.reason for finding in findings if finding.reason)
        return Finding(" ".join(reasons) or None, tuple(dict.fromkeys(warning for finding in findings for warning in finding.warnings)))


def _network(name: str, host: HostState) -> Finding:
    networks = host.hardware.networks
    if networks is None:
        return _unknown("network", name, host)
    found: Body | None = networks.get(name)
    if found is None:
        return Finding(f"It has no network {name}.")
    return PASS if found.get("active") else Finding(f"Its network {name} is not active.")


def _bridge(name: str, host: HostState) -> Finding:
    if name in host.hardware.network_bridges or name in (host.hardware.bridges or ()):
        return PASS
    return _unless_seen("bridge", name, host) if host.hardware.bridges is None else Finding(f"It has no bridge {name}.")


def _direct(name: str, host: HostState) -> Finding:
    interfaces = host.hardware.interfaces
    if interfaces is None:
        return _unless_seen("interface", name, host)
    return PASS if name in interfaces else Finding(f"It has no network interface {name}.")


def _anything(_name: str, _host: HostState) -> Finding:
    return PASS


def _unless_seen(kind: str, name: str, host: HostState) -> Finding:
    """Let pass what libvirt has told of, where the host itself was not asked; its silence proves nothing."""
    return PASS if re.sub("[^A-Za-z0-9]", "_", name) in host.hardware.net_devices else _unknown(kind, name, host)


def _unknown(kind: str, name: str, host: HostState) -> Finding:
    return Finding(warnings=(f"Whether {host.name} has the {kind} {name} is not known.",))


_JUDGES = {"network": _network, "bridge": _bridge, "direct": _direct}
