# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The first process of a host from when its file systems are mounted: it starts the host's services, and is the parent of their orphans."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
import typing as t

from . import units
from .commands import run
from .layout import Lab
from .requirements import find_program

HOLD = "libvirtd.hold"
"""While this file is in a host's folder, its libvirtd is not started again."""
RETRY_SECONDS = 1
RESTART_SECONDS = 1


def main(prefix: str, root: str, host: str) -> t.NoReturn:
    lab = Lab.named(prefix, root)
    folder = lab.host_folder(host)
    _mount_gluster(lab)
    os.environ["HOME"] = str(folder / "home-root")
    _supervise(folder)


def _mount_gluster(lab: Lab) -> None:
    bindfs = find_program("bindfs")
    if bindfs and os.path.exists("/dev/fuse"):
        run(bindfs, "-o", "subtype=glusterfs,fsname=server:/vol", str(lab.gluster_store), str(lab.gluster))


def _supervise(folder: pathlib.Path) -> t.NoReturn:
    log = open(folder / "var-log-libvirt/services.log", "ab")  # noqa: SIM115 - it belongs to the services
    services: t.Dict[str, t.Optional[subprocess.Popen[bytes]]] = {"sshd": None, "libvirtd": None}
    commands = {
        "sshd": [find_program("sshd"), "-D", "-e", "-f", "/etc/ssh/sshd_config"],
        "libvirtd": [find_program("libvirtd"), "--listen"],
    }
    units.run_at_boot(log)
    retry_libvirtd = 0.0
    restarts: t.Dict[str, float] = {}
    while True:
        _keep_units(folder, services, restarts, log)
        for name in commands:
            if services[name] is not None or (name == "libvirtd" and ((folder / HOLD).exists() or time.monotonic() < retry_libvirtd)):
                continue
            if name == "libvirtd" and not units.may_start_libvirtd(log):
                retry_libvirtd = time.monotonic() + RETRY_SECONDS
                continue
            command: t.Any = commands[name]
            services[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        _reap(services)
        time.sleep(0.1)


def _keep_units(folder: pathlib.Path, services: t.Dict[str, t.Optional[subprocess.Popen[bytes]]], restarts: t.Dict[str, float], log: t.Any) -> None:
    """Start the units that systemd would run for ever, unless they are held, and stop those that were removed."""
    wanted = units.list_kept()
    for name, command in wanted.items():
        if services.get(name) is None and time.monotonic() >= restarts.get(name, 0.0) and not hold_file(folder, name).exists():
            restarts[name] = time.monotonic() + RESTART_SECONDS
            services[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    for name, service in services.items():
        if service is not None and name.endswith(units.SUFFIX) and name not in wanted:
            # Its own method would collect a service that has ended, of which nobody else would hear then.
            os.kill(service.pid, signal.SIGTERM)


def hold_file(folder: pathlib.Path, unit: str) -> pathlib.Path:
    """Return the file in a host's folder that keeps a unit from being started."""
    return folder / f"{unit}.hold"


def _reap(services: t.Dict[str, t.Optional[subprocess.Popen[bytes]]]) -> None:
    """Collect every child that ended; a service among them is to be started again."""
    while True:
        try:
            pid, _status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        for name, service in services.items():
            if service is not None and service.pid == pid:
                services[name] = None


if __name__ == "__main__":
    main(*sys.argv[1:])
