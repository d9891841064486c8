# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Libvirt's own hook on lab hosts, by which a start can be held for a while at a known point, or be refused."""

from __future__ import annotations

import contextlib
import os
import pathlib
import typing as t

from ansible_collections.kvmfleet.migration.tests.integration.support.fleet import Lab, eventually, fresh_lab

LABS = pathlib.Path(os.environ.get("KVMFLEET_LAB_STATE") or "/run/kvmfleet-lab")

# Before QEMU begins, and when the guest runs.
BEFORE, AFTER = "prepare", "started"

_HOOK = """#!/bin/sh
# Called by libvirt: domain, operation, step.
cat > /dev/null
marks=/etc/libvirt/hooks/marks
touch "$marks/seen-$2-$1"
[ -e "$marks/refuse-$2-$1" ] && { echo "No $2 of $1: refused by a test." >&2; exit 1; }
while [ -e "$marks/hold-$2-$1" ]; do sleep 0.1; done
exit 0
"""


def disk_of(lab: Lab, number: int) -> pathlib.Path:
    """Return where the lab keeps what is a host's own."""
    return LABS / lab.prefix / "hosts" / lab.host(number)


@contextlib.contextmanager
def hooked_lab(prefix: str, hosts: int) -> t.Iterator[Lab]:
    """Give a lab of so many hosts whose libvirt calls the hook; afterwards it is gone."""
    with fresh_lab(prefix, hosts) as lab:
        for number in range(1, hosts + 1):
            Hooks(lab, number).install()
            lab("libvirtd", lab.host(number), "restart")
        lab("up", "--hosts", str(hosts))
        yield lab


class Hooks:
    """The hook of one host. A libvirtd sees it that started after it was installed."""

    def __init__(self, lab: Lab, number: int) -> None:
        self._folder = disk_of(lab, number) / "etc-libvirt/hooks"
        self._marks = self._folder / "marks"

    def install(self) -> None:
        self._marks.mkdir(parents=True, exist_ok=True)
        hook = self._folder / "qemu"
        hook.write_text(_HOOK)
        hook.chmod(0o755)

    def clear(self) -> None:
        for mark in self._marks.iterdir():
            mark.unlink()

    def hold(self, when: str, guest: str) -> None:
        (self._marks / f"hold-{when}-{guest}").touch()

    def let_go(self, when: str, guest: str) -> None:
        (self._marks / f"hold-{when}-{guest}").unlink(missing_ok=True)

    def forget(self, when: str, guest: str) -> None:
        """Forget that a guest came to this point."""
        (self._marks / f"seen-{when}-{guest}").unlink(missing_ok=True)

    def refuse(self, when: str, guest: str) -> None:
        (self._marks / f"refuse-{when}-{guest}").touch()

    def admit(self, when: str, guest: str) -> None:
        (self._marks / f"refuse-{when}-{guest}").unlink(missing_ok=True)

    def seen(self, when: str, guest: str) -> bool:
        """Whether a guest came to this point since the hooks were cleared."""
        return (self._marks / f"seen-{when}-{guest}").exists()

    def wait_for(self, when: str, guest: str) -> None:
        eventually(lambda: self.seen(when, guest), f"{guest} comes to '{when}'")
