# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests of the machines: QEMU without hardware virtualisation inside of an emulated machine, so they are small and do little."""

from __future__ import annotations

import base64
import dataclasses
import re
import typing as t
import uuid

from ...lab.kvmlab import bootcode, domainxml
from ...lab.kvmlab.errors import LabError, UsageError
from . import qemu, snapshot
from .layout import Fleet, Machine
from .sockets import Done, Unreachable

FOLDERS = {"nfs": "/srv/images", "local": "/var/lib/libvirt/images"}
DISK_MIB = 16
# Of the guest's timer. A thousand, as in the lab of namespaces, would take 40 % of an emulated machine.
TICKS_PER_SECOND = 50
# The image's name is $1, the boot sector comes on standard input.
CREATE_IMAGE = f"""
base64 -d >"$1.raw"
truncate -s {DISK_MIB}M "$1.raw"
qemu-img convert -q -f raw -O qcow2 "$1.raw" "$1"
rm "$1.raw"
"""
DEFINE = "cat >/run/guest.xml; virsh -q define /run/guest.xml >/dev/null; rm /run/guest.xml"
LIST = 'virsh -q list --all | awk \'{ name = $2; $1 = $2 = ""; sub(/^ +/, ""); print name "\\t" $0 }\''
START_SECONDS = 240


@dataclasses.dataclass(frozen=True)
class Wish:
    """What a new guest shall be like. C(storage) is one of L(FOLDERS), or a folder of the host."""

    name: str
    program: bootcode.Program
    storage: str = "nfs"
    running: bool = True
    autostart: bool = False
    machine: str = domainxml.MACHINE


def create(fleet: Fleet, machine: Machine, wish: Wish) -> None:
    """Make a guest's image and definition on a host, and start it where that is wished."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}", wish.name):
        raise UsageError(f"The name {wish.name!r} is not valid for a guest: use letters, digits and . _ -, beginning with a letter or digit.")
    image = f"{FOLDERS.get(wish.storage, wish.storage)}/{wish.name}.qcow2"
    sector = base64.b64encode(bootcode.boot_sector(wish.program)).decode()
    _run(fleet, machine, "/bin/sh", "-ec", CREATE_IMAGE, "sh", image, stdin=sector)
    xml = domainxml.domain(wish.name, uuid.uuid4(), wish.program.memory_mib, None, domainxml.file_disk(image), wish.machine)
    _run(fleet, machine, "/bin/sh", "-ec", DEFINE, stdin=xml)
    if wish.autostart:
        _run(fleet, machine, "virsh", "-q", "autostart", wish.name)
    if wish.running:
        _run(fleet, machine, "virsh", "-q", "start", wish.name)


def remove(fleet: Fleet, name: str) -> None:
    """Destroy and undefine a guest on all hosts that answer, and remove its image."""
    script = 'virsh -q destroy "$1"; virsh -q undefine --nvram "$1"; rm -f /srv/images/"$1".qcow2 /var/lib/libvirt/images/"$1".qcow2; true'
    for machine in fleet.hosts:
        if qemu.is_on(fleet, machine):
            _run(fleet, machine, "/bin/sh", "-c", script, "sh", name)


def list_guests(fleet: Fleet, machine: Machine) -> t.Optional[t.Dict[str, str]]:
    """Return the state of each guest that a host's libvirt knows; none where it does not answer."""
    try:
        done = qemu.agent(fleet, machine).run("/bin/sh", "-c", LIST, timeout_seconds=120)
    except Unreachable:
        return None
    return dict(line.split("\t", 1) for line in done.out.splitlines()) if done.code == 0 and not done.err else None


def list_everywhere(fleet: Fleet) -> t.Dict[str, t.Optional[t.Dict[str, str]]]:
    """Return the guests of each host, asked all at once; none for one that does not answer."""
    answers = snapshot.together(fleet.hosts, lambda machine: list_guests(fleet, machine))
    return {machine.name: answer for machine, answer in zip(fleet.hosts, answers, strict=True)}


def _run(fleet: Fleet, machine: Machine, *command: str, stdin: str = "") -> Done:
    done = qemu.agent(fleet, machine).run(*command, timeout_seconds=START_SECONDS, stdin=stdin)
    if done.code:
        raise LabError(f"'{command[0]}' failed on {machine.name} with {done.code}: {(done.err or done.out).strip()}")
    return done
