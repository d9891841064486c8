# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A whole fleet: up and down, power, and the warm snapshot from which a fleet starts in seconds."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import shutil
import sys
import typing as t

from ...lab.kvmlab import namespaces, releases
from ...lab.kvmlab.errors import LabError, UsageError
from ...lab.kvmlab.lock import locked
from ...lab.kvmlab.requirements import require_mounted_root
from . import acceleration, access, bmc, image, network, qemu, readiness, snapshot, warming
from .chassis import Behaviour
from .layout import Fleet, Machine, plan_machines
from .requirements import require_memory, require_programs, require_room

BOOT_SECONDS = 900
ROOM_GIB = 8


def up(fleet: Fleet, hosts: int, wanted: t.Mapping[int, str], cold: bool = False) -> Fleet:
    """Bring a fleet up, and return it: from the warm snapshot of such a fleet, which is made first where it is missing.

    :arg wanted: of hosts that run another Debian release than this machine, by number.
    :arg cold: boot the machines instead, and do nothing else with them.
    :raises LabError: it cannot be brought up; nothing of it is left then.
    """
    require_mounted_root()
    require_programs()
    with locked(fleet.cache / "locks" / fleet.prefix):
        _require_down(fleet)
        fleet.state.mkdir(parents=True)
        try:
            return _up(fleet, plan_machines(hosts, wanted, releases.own()), cold)
        except BaseException:
            down(fleet)
            raise


def _up(fleet: Fleet, machines: t.List[Machine], cold: bool) -> Fleet:
    images = {release: image.ensure_image(fleet.cache, release) for release in sorted({machine.release for machine in machines})}
    require_memory(sum(machine.memory_mib for machine in machines))
    fleet = fleet.write_settings(
        {
            "machines": [dataclasses.asdict(machine) for machine in machines],
            "images": {release: str(folder) for release, folder in images.items()},
            "accelerator": acceleration.choose(fleet.cache, next(iter(images.values()))),
        }
    )
    access.create_keys(fleet)
    network.create(fleet)
    for machine in machines:
        fleet.folder(machine).mkdir()
        network.plug_in(fleet, machine)
    for machine in fleet.hosts:
        network.add_bmc_address(fleet, machine)
    if cold:
        boot(fleet, machines)
        start_bmcs(fleet)
    else:
        start_warm(fleet)
    return fleet


def boot(fleet: Fleet, machines: t.Sequence[Machine]) -> None:
    """Give these machines empty layers over their images, and boot them."""
    require_room(fleet.cache, ROOM_GIB)
    qemu.create_shared_disk(fleet)
    for machine in machines:
        qemu.create_disk(fleet.image(machine) / "disk.qcow2", fleet.folder(machine) / "disk.qcow2")
        qemu.start(fleet, machine)
    wait_until_booted(fleet, machines)
    greet_all(fleet)


def start_warm(fleet: Fleet) -> None:
    """Load the warm snapshot of such a fleet, made where it is missing."""
    folder = fleet.cache / f"warm-{warm_digest(fleet)}"
    with locked(fleet.cache / "warming"):
        if not folder.is_dir():
            print(f"machines: making {folder}; it takes some minutes, once.", file=sys.stderr, flush=True)
            boot(fleet, fleet.machines)
            warming.warm_up(fleet)
            snapshot.save(fleet, folder)
    load(fleet, folder)


def start_bmcs(fleet: Fleet) -> None:
    """Start the BMC of each host where it does not run; all behave as they should."""
    for machine in fleet.hosts:
        bmc.set_behaviour(fleet, machine, Behaviour())


def warm_digest(fleet: Fleet) -> str:
    """Return what changes with everything that the warm snapshot depends on."""
    text = json.dumps([fleet.settings, snapshot.version(), warming.VERSION, warming.STEPS], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def load(fleet: Fleet, folder: pathlib.Path) -> None:
    """Bring the fleet to the state of a snapshot; then its clocks are right, its NFS and its libvirt answer, and the shared disk of the hosts is empty."""
    for machine in fleet.machines:
        network.plug_in(fleet, machine)
    access.close_connections(fleet)
    qemu.create_shared_disk(fleet)
    snapshot.load(fleet, folder)
    start_bmcs(fleet)
    greet_all(fleet)
    snapshot.together(fleet.hosts, lambda machine: warming.wait_for_services(fleet, machine))


def greet_all(fleet: Fleet) -> None:
    """Set all clocks, and let the control node in everywhere."""
    access.write_files(fleet, snapshot.together(fleet.machines, lambda machine: access.greet(fleet, machine)))


def power_on(fleet: Fleet, machine: Machine, wait: bool = True) -> None:
    """Switch a machine on, from the disk that it has; does nothing where it is on."""
    if not qemu.is_on(fleet, machine):
        qemu.start(fleet, machine)
    if wait:
        wait_until_booted(fleet, [machine])


def reboot(fleet: Fleet, machine: Machine, wait: bool = True) -> None:
    """Let a machine reboot itself as C(systemctl reboot) does it."""
    agent = qemu.agent(fleet, machine)
    before = boot_id(fleet, machine)
    agent.run("systemctl", "--no-block", "reboot")
    if wait:
        readiness.wait_for(lambda: _has_rebooted(fleet, machine, before), f"{machine.name} has rebooted", BOOT_SECONDS, pause=2)
        wait_until_booted(fleet, [machine])


def boot_id(fleet: Fleet, machine: Machine) -> str:
    return qemu.agent(fleet, machine).run("cat", "/proc/sys/kernel/random/boot_id").out.strip()


def _has_rebooted(fleet: Fleet, machine: Machine, before: str) -> bool:
    try:
        return boot_id(fleet, machine) not in ("", before)
    except LabError:
        return False


def wait_until_booted(fleet: Fleet, machines: t.Sequence[Machine]) -> None:
    """Return when systemd in these machines has started all that it should. Raises L(NotReady) with the serial log of one where it has not."""
    snapshot.together(machines, lambda machine: _wait_until_booted(fleet, machine))


def _wait_until_booted(fleet: Fleet, machine: Machine) -> None:
    readiness.wait_until_running(qemu.agent(fleet, machine), fleet.folder(machine), BOOT_SECONDS, lambda: qemu.is_on(fleet, machine))


def down(fleet: Fleet) -> None:
    """End all that runs in the fleet and remove all of it but images and warm snapshots. It works on what is left of a fleet, too."""
    for file in fleet.state.rglob("qemu.pid"):
        qemu.kill_in(file.parent)
    network.delete(fleet)
    if fleet.state.is_dir():
        shutil.rmtree(fleet.state)


def _require_down(fleet: Fleet) -> None:
    if fleet.state.exists():
        raise UsageError(f"The fleet '{fleet.prefix}' is up, or was not taken down. Take it down with: machines --prefix {fleet.prefix} down")
    if namespaces.exists(fleet.namespace):
        raise LabError(
            f"There is a network namespace {fleet.namespace} that belongs to no fleet. "
            f"Choose another --prefix, or remove it with: ip netns delete {fleet.namespace}"
        )
