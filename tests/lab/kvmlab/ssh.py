# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's own SSH keys, and how the control node uses them."""

from __future__ import annotations

import contextlib
import pathlib
import typing as t

from . import hostfiles
from .commands import run, succeeds
from .layout import Lab


def create_keys(lab: Lab) -> None:
    """Make the key of the users and the client's configuration, where they are missing."""
    lab.ssh.mkdir(mode=0o700, exist_ok=True)
    lab.sockets.mkdir(mode=0o700, exist_ok=True)
    create_key(user_key(lab))
    config_file(lab).write_text(hostfiles.ssh_config(user_key(lab), known_hosts_file(lab)))


def create_key(path: pathlib.Path) -> None:
    """Make a key pair without a passphrase, C(path) and C(path.pub), where it is missing."""
    if not path.exists():
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "kvmfleet-lab", "-f", str(path))


def write_known_hosts(lab: Lab) -> None:
    """Write the host keys of all hosts, by name and by address."""
    lines = []
    for host in lab.hosts:
        kind, key = (lab.host_folder(host) / "etc-ssh/ssh_host_key.pub").read_text().split()[:2]
        lines.append(f"{host},{lab.host_address(host)} {kind} {key}\n")
    known_hosts_file(lab).write_text("".join(lines))


def command(lab: Lab, host: str, user: str, *arguments: str) -> t.List[str]:
    """Return the command line that logs in at a host from the control node."""
    return ["ssh", "-F", str(config_file(lab)), "-l", user, lab.host_address(host), *arguments]


def close_connections(lab: Lab) -> None:
    """End the connections that ssh keeps open in the background on the control node."""
    for socket in lab.sockets.iterdir() if lab.sockets.is_dir() else ():
        succeeds("ssh", "-F", "none", "-o", f"ControlPath={socket}", "-O", "exit", "nobody", timeout=5)
        with contextlib.suppress(FileNotFoundError):
            socket.unlink()


def user_key(lab: Lab) -> pathlib.Path:
    return lab.ssh / "id"


def known_hosts_file(lab: Lab) -> pathlib.Path:
    return lab.ssh / "known_hosts"


def config_file(lab: Lab) -> pathlib.Path:
    return lab.ssh / "config"
