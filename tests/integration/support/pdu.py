# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A power strip of two outlets, both of which supply one host of the lab, behind a real snmpd. Debian's C(fence_apc_snmp) switches it.

The host loses its power when both outlets are off, and an outlet reports "off" only after that.
"""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess
import typing as t

from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import COMMAND, Lab, eventually

SNMPD = "/usr/sbin/snmpd"
COMMUNITY = "open sesame of the strip"
# The tree of the vendor; outlets are switched in one table and read in another one.
TREE = ".1.3.6.1.4.1.318"
STRIP = f"{TREE}.1.3.4.5"
SWITCH, STATE = f"{TREE}.1.1.12.3.3.1.1.4", f"{TREE}.1.1.12.3.5.1.1.4"
ON, OFF = "1", "2"

CONFIG = """
agentaddress udp:127.0.0.1:{port}
sysobjectid {strip}
rwcommunity "{community}" 127.0.0.1
pass_persist {tree} /bin/sh {script}
"""

# By snmpd's protocol. Unlike a script that it calls for each question, one that goes on is asked each time: snmpd keeps other answers for 30 seconds.
SCRIPT = """
export KVMFLEET_LAB_STATE='{state}' PATH=/usr/sbin:/usr/bin:/sbin:/bin
switch() {{
    echo "$2" >> {folder}/switched
    if [ "$2" = {off} ] && grep -q {off} {folder}/outlet.$((3 - $1)); then
        ('{lab}' --prefix {prefix} poweroff {host} > {folder}/poweroff.log 2>&1 && echo {off} > {folder}/outlet.$1) < /dev/null > /dev/null 2>&1 &
    else
        echo "$2" > {folder}/outlet.$1
    fi
}}
while read -r command; do
    case "$command" in
    "") continue;;
    PING) echo PONG; continue;;
    get|getnext) read -r oid;;
    set) read -r oid; read -r kind value;;
    esac
    outlet=${{oid##*.}}
    case "$command $oid" in
    get\\ {switch}.[12]|get\\ {read}.[12]) echo "$oid"; echo integer; cat {folder}/outlet.$outlet;;
    set\\ {switch}.[12]) switch "$outlet" "$value"; echo DONE;;
    set*) echo not-writable;;
    *) echo NONE;;
    esac
done
"""


class PowerStrip:
    """:arg folder: of its own. It is reachable while it is open."""

    def __init__(self, lab: Lab, host: int, folder: pathlib.Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        names = {"state": os.environ.get("KVMFLEET_LAB_STATE", ""), "lab": COMMAND, "prefix": lab.prefix, "host": lab.host(host), "folder": folder, "off": OFF}
        (folder / "outlets.sh").write_text(SCRIPT.format(switch=SWITCH, read=STATE, **names))
        (folder / "snmpd.conf").write_text(CONFIG.format(port=self.port, strip=STRIP, community=COMMUNITY, tree=TREE, script=folder / "outlets.sh"))
        for number in (1, 2):
            (folder / f"outlet.{number}").write_text(f"{ON}\n")

    def open(self) -> None:
        """Make it reachable."""
        environment = {**os.environ, "SNMP_PERSISTENT_DIR": str(self.folder / "persistent")}
        with (self.folder / "snmpd.log").open("wb") as log:
            command = [SNMPD, "-f", "-Le", "-C", "-c", str(self.folder / "snmpd.conf")]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        eventually(lambda: "NET-SNMP version" in (self.folder / "snmpd.log").read_text(), "snmpd listens")

    def close(self) -> None:
        """End it."""
        if self._process:
            self._process.terminate()
            self._process.wait(60)
            self._process = None

    def device(self, outlet: int) -> dict[str, t.Any]:
        """Return an outlet as a device of a level."""
        return {
            "agent": "fence_apc_snmp",
            "options": {"ip": "127.0.0.1", "ipport": self.port, "community": COMMUNITY, "plug": str(outlet), "snmp_version": "1"},
            "timeout_seconds": 60,
        }

    def outlets(self) -> list[str]:
        """Return what both outlets report."""
        return [(self.folder / f"outlet.{number}").read_text().strip() for number in (1, 2)]

    def switched(self) -> list[str]:
        """Return what outlets were told, in order."""
        told = self.folder / "switched"
        return told.read_text().split() if told.exists() else []


def free_port() -> int:
    """Return a UDP port that nobody listens at."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def dead_bmc() -> dict[str, t.Any]:
    """Return a BMC that has no power, as a device of a level: nobody listens at its port."""
    return {"agent": "fence_redfish", "options": {"ip": "127.0.0.1", "ipport": free_port(), "username": "admin", "password": "not needed here"}}
