# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The service of a host's lease, and users of etcd that may write the lease of one host each."""

from __future__ import annotations

import subprocess
import time
import typing as t

from . import host as hosts
from . import services
from .commands import run
from .errors import LabError
from .etcd import PREFIX, Cluster
from .layout import PYTHON, Lab

UNIT = "kvmfleet-lease.service"
PROGRAM = "/usr/local/lib/kvmfleet/kvmfleet-lease.pyz"
SIGNALS = {"stop": "TERM", "restart": "TERM", "kill": "KILL", "freeze": "STOP", "thaw": "CONT"}
QUESTIONS = ("status", "test")
ACTIONS = ("start", *SIGNALS, *QUESTIONS)
FOLDER = "leases"
_START_SECONDS = 60.0


def act(lab: Lab, host: str, action: str) -> t.Tuple[int, str]:
    """Do something to the service, or ask it; return exit code and output.

    :arg action: C(start); C(stop), after which it stays away; C(restart) or C(kill), after which it comes back; C(freeze) and C(thaw); C(status) and
        C(test) are commands of the program.
    :raises LabError: the service is not installed, or does not run.
    """
    if action in QUESTIONS:
        return _ask(lab, host, action)
    hold = services.hold_file(lab.host_folder(host), UNIT)
    if action == "start":
        hold.unlink(missing_ok=True)
        _wait_until_started(lab, host)
        return 0, ""
    if action == "stop":
        hold.touch()
    for pid in _pids(lab, host):
        run(*hosts.command_on(lab, host, "kill", f"-{SIGNALS[action]}", pid))
    return 0, ""


def make_users(lab: Lab, cluster: Cluster) -> t.Dict[str, t.Dict[str, str]]:
    """Make a user of etcd for each host that was protected, and return C(user) and C(password) by host."""
    users = {}
    for host in lab.hosts:
        identity = lab.host_folder(host) / "var-lib-kvmfleet/host-id"
        if identity.exists():
            key = f"{cluster.settings['prefix'] or PREFIX}/{FOLDER}/{identity.read_text().strip()}"
            users[host] = {"user": f"lease-{host}", "password": cluster.add_writer(f"lease-{host}", key)}
    return users


def _ask(lab: Lab, host: str, question: str) -> t.Tuple[int, str]:
    done = subprocess.run(hosts.command_on(lab, host, PYTHON, "-I", PROGRAM, question), capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def _pids(lab: Lab, host: str) -> t.List[str]:
    """Return the processes of the service, as the host numbers them."""
    return run(*hosts.command_on(lab, host, "pgrep", "-f", f"{PROGRAM} serve"), check=False).split()


def _wait_until_started(lab: Lab, host: str) -> None:
    limit = time.monotonic() + _START_SECONDS
    while not _pids(lab, host):
        if time.monotonic() > limit:
            raise LabError(f"The service of the lease does not start on {host}: it is not installed, or its host is off.")
        time.sleep(0.1)
