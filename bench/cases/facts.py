# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""C(host_facts) on a host with many domains: the whole module as Ansible runs it there."""

from __future__ import annotations

import uuid

from ansible_collections.kvmfleet.migration.tests.integration.support.control import Control

from ..figures import Effort, Figure, Section
from ..hosts import fleet
from ..timing import in_turn, seconds_of, seconds_of_command

LIMIT_SECONDS = 1.0

_MODULE, _DUMPS = "host_facts", "virsh dumpxml of each"


def run(effort: Effort) -> Section:
    """Gather the facts of a host with 200 defined domains, and beside it what the bare tool needs to read their definitions alone."""
    domains = effort.size(200, 10)
    section = Section("Facts of a host with many domains")
    with fleet("f", 1) as control:
        lab = control.lab
        _define(control, domains)
        program = _kept_module(control)
        dumps = "for uuid in $(virsh list --all --uuid); do virsh dumpxml $uuid; done"
        taken = in_turn(
            {
                _MODULE: lambda: seconds_of(lambda: lab.on(1, "/usr/bin/python3", program)),
                _DUMPS: lambda: seconds_of(lambda: lab.on(1, "sh", "-c", dumps)),
                "nothing": lambda: seconds_of(lambda: lab.on(1, "true")),
            },
            effort.rounds,
        )
        found = len(control.facts()["domains"])
    ours, bare = taken[_MODULE], taken["nothing"].median
    value = ours.median - bare
    beside = f"{taken[_DUMPS].told()} {_DUMPS}"
    section.figures.append(Figure(f"`{_MODULE}` of a host with {found} domains, seconds", ours.told(), beside, value, LIMIT_SECONDS))
    section.notes.append(
        f"The whole process of the module on the host, as Ansible sends it: start of Python, unpacking, libvirt, JSON. The {bare:.2f} s that an empty "
        "command takes to enter the host are subtracted. The domains are defined and not running, each with a disk and a network card."
    )
    return section


def _define(control: Control, domains: int) -> None:
    """Define domains that are like one that the lab makes."""
    lab, folder = control.lab, control.folder
    lab("guest", "model", "--host", lab.host(1), "--off")
    model = lab.virsh(1, "dumpxml", "model")
    before = lab.uuid("model")
    devices = "<disk type='network' device='disk'><source protocol='nbd' name='NAME'><host name='192.0.2.1' port='10809'/></source><target dev='vda'/></disk>"
    devices += "<interface type='bridge'><source bridge='br0'/></interface></devices>"
    files = []
    for number in range(domains - 1):
        name = f"many{number:03}"
        xml = model.replace(before, str(uuid.uuid4())).replace("<name>model</name>", f"<name>{name}</name>")
        path = folder / f"{name}.xml"
        path.write_text(xml.replace("</devices>", devices.replace("NAME", name)), encoding="utf-8")
        files.append(f"define {path}")
    lab.on(1, "virsh", "; ".join(files))


def _kept_module(control: Control) -> str:
    """Return the path, on the host, of the module as Ansible sends it."""
    arguments = ["-m", f"kvmfleet.migration.{_MODULE}", "-a", "uri=qemu:///system", "-e", "ansible_pipelining=false"]
    keeping = {**control.environment, "ANSIBLE_KEEP_REMOTE_FILES": "1"}
    seconds_of_command(["ansible", "-i", control.inventory, control.lab.host(1), *arguments], keeping)
    (program,) = control.lab.on(1, "sh", "-c", f"find $HOME/.ansible/tmp -name AnsiballZ_{_MODULE}.py").split()
    return program
