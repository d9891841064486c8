# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What scenarios do to the hosts of the lab, and what they ask of them beyond the lab's own words."""

from __future__ import annotations

import contextlib
import subprocess
import typing as t

from ansible_collections.kvmfleet.migration.tests.integration.support.control import LIMIT_SECONDS
from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import COMMAND, Lab, eventually

HOSTS = (1, 2, 3)

CONTRADICT = """\
import libvirt, time
libvirt.registerErrorHandler(lambda *dummy: None, None)
domain = libvirt.open("qemu:///system").lookupByName("{name}")
while True:
    try:
        domain.migrateSetMaxDowntime(1)
    except libvirt.libvirtError:
        pass
    time.sleep(0.002)
"""


def heal(lab: Lab) -> None:
    """Undo every fault: cut or slow cables, daemons that are stopped or asleep."""
    for number in HOSTS:
        lab("heal", lab.host(number))
        lab.try_("exec", lab.host(number), "--", "sh", "-c", "kill -CONT $(cat /run/libvirtd.pid)")
        lab("libvirtd", lab.host(number), "start")
    for number in HOSTS:
        eventually(lambda: lab.rows()[lab.host(number)]["libvirtd"], "libvirtd answers")  # noqa: B023 - asked at once


def put_to_sleep(lab: Lab, number: int) -> None:
    """Stop a host's libvirtd from answering; its guests go on."""
    lab.on(number, "sh", "-c", "kill -STOP $(cat /run/libvirtd.pid)")


def wake(lab: Lab, number: int) -> None:
    lab.on(number, "sh", "-c", "kill -CONT $(cat /run/libvirtd.pid)")


def state_of(lab: Lab, name: str, number: int) -> str:
    """Return state and reason of a domain as C(virsh domstate --reason) says them; empty where the host does not know it."""
    done = lab.try_("virsh", lab.host(number), "domstate", name, "--reason")
    return done.stdout.strip() if done.returncode == 0 else ""


@contextlib.contextmanager
def migrate_by_virsh(lab: Lab, name: str, *options: str) -> t.Iterator[subprocess.Popen[str]]:
    """Migrate a guest to the second host as somebody does without the collection, so slowly that it does not end by itself."""
    given = ("migrate", "--live", "--p2p", "--persistent", "--undefinesource", "--bandwidth", "1", *options, name, f"qemu+tcp://{lab.host(2)}/system")
    command = [str(COMMAND), "--prefix", lab.prefix, "virsh", lab.host(1), *given]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        eventually(lambda: lab.has_job(name), "virsh migrates")
        try:
            yield process
        finally:
            process.communicate(timeout=LIMIT_SECONDS)


@contextlib.contextmanager
def contradict(lab: Lab, name: str) -> t.Iterator[None]:
    """Let somebody's own tool on the first host take back every pause that is allowed."""
    command = [str(COMMAND), "--prefix", lab.prefix, "exec", lab.host(1), "--", "/usr/bin/python3", "-c", CONTRADICT.format(name=name)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()
