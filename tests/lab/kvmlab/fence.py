# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fence agent for the lab's hosts, by the ClusterLabs convention: options on the command line or as C(key=value) lines on standard input."""

from __future__ import annotations

import typing as t

from . import fleet
from . import host as hosts
from .errors import UsageError
from .layout import Lab

OK, FAILED, OFF = 0, 1, 2
"""Exit codes. C(status) of a host that is off ends with 2."""
ACTIONS = ("on", "off", "reboot", "status", "monitor", "list", "metadata")
ALIASES = {"o": "action", "option": "action", "n": "plug", "port": "plug"}
METADATA = """\
<?xml version="1.0" ?>
<resource-agent name="fence_lab" shortdesc="Fence agent for the hosts of the test lab">
  <parameters>
    <parameter name="action"><content type="string" default="reboot"/></parameter>
    <parameter name="plug"><content type="string"/></parameter>
  </parameters>
  <actions>
    <action name="on"/><action name="off"/><action name="reboot"/><action name="status"/><action name="monitor"/><action name="list"/><action name="metadata"/>
  </actions>
</resource-agent>
"""


def parse(text: str) -> t.Dict[str, str]:
    """Return the options given on standard input; empty lines and comments do not count."""
    lines = [line.strip() for line in text.splitlines()]
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    return {ALIASES.get(key.strip(), key.strip()): value.strip() for key, _equals, value in pairs}


def act(lab: Lab, action: str, plug: t.Optional[str]) -> t.Tuple[int, str]:
    """Do what is asked, verify it, and return exit code and message.

    :raises UsageError: there is no such action or host.
    """
    if action not in ACTIONS:
        raise UsageError(f"There is no fencing action {action!r}: it is one of {', '.join(ACTIONS)}.")
    if action == "metadata":
        return OK, METADATA
    if action == "list":
        return OK, "".join(f"{host},\n" for host in lab.hosts)
    if action == "monitor" and not plug:
        return OK, "Status: lab reachable"
    if not plug:
        raise UsageError(f"The fencing action {action!r} needs a host: -n HOST, or plug=HOST on standard input.")
    return _act_on(lab, action, lab.require_host(plug))


def _act_on(lab: Lab, action: str, host: str) -> t.Tuple[int, str]:
    if action in ("off", "reboot"):
        hosts.power_off(lab, host)
    if action in ("on", "reboot"):
        fleet.power_on(lab, host)
    on = hosts.is_on(lab, host)
    if action in ("status", "monitor"):
        return OK if on else OFF, f"Status: {'ON' if on else 'OFF'}"
    if on == (action == "off"):
        return FAILED, f"Failed: {host} is {'on' if on else 'off'}"
    return OK, "Success: Rebooted" if action == "reboot" else f"Success: Powered {action.upper()}"
