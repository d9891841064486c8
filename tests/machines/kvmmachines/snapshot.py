# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Snapshots of a whole fleet: all machines stopped together, their memory in files, their disks frozen under new layers.

A snapshot is never written again, so that any number of fleets can start from one at once. A folder has C(memory) and C(disk.qcow2) for each machine.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import pathlib
import re
import shutil
import typing as t

from ...lab.kvmlab.commands import run
from ...lab.kvmlab.errors import LabError, UsageError
from . import qemu, readiness
from .layout import UPGRADED_FILE, Fleet, Machine
from .sockets import Monitor

FORMAT = 2
SECONDS = 300
T = t.TypeVar("T")


def together(machines: t.Sequence[Machine], act: t.Callable[[Machine], T]) -> t.List[T]:
    """Do the same with all machines at once; raise the first error when all have ended."""
    with concurrent.futures.ThreadPoolExecutor(len(machines) or 1) as pool:
        return list(pool.map(act, machines))


def named(fleet: Fleet, name: str) -> pathlib.Path:
    """Return the folder of a snapshot of this fleet. Raises L(UsageError) for what cannot be its name."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,30}", name):
        raise UsageError(f"{name!r} is not valid as the name of a snapshot: use small letters, digits and -.")
    return fleet.snapshots / name


def save(fleet: Fleet, folder: pathlib.Path) -> None:
    """Keep the state of all machines in a new folder; afterwards they are off, and L(load) starts them from it.

    :raises UsageError: the folder exists, or a machine is off.
    """
    if folder.exists():
        raise UsageError(f"There is a snapshot {folder} already. Choose another name.")
    for machine in fleet.machines:
        qemu.require_on(fleet, machine)
    new = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    for machine in fleet.machines:
        (new / machine.name).mkdir(parents=True)
    try:
        together(fleet.machines, lambda machine: qemu.monitor(fleet, machine).execute("stop"))
        together(fleet.machines, lambda machine: _save_memory(qemu.monitor(fleet, machine), new / machine.name / "memory"))
    except BaseException:
        with contextlib.suppress(LabError):
            together(fleet.machines, lambda machine: qemu.monitor(fleet, machine).execute("cont"))
        shutil.rmtree(new)
        raise
    for machine in fleet.machines:
        qemu.kill(fleet, machine)
        (fleet.folder(machine) / "disk.qcow2").rename(new / machine.name / "disk.qcow2")
        _copy_release(fleet.folder(machine), new / machine.name)
    (new / "version").write_text(version())
    new.rename(folder)


def load(fleet: Fleet, folder: pathlib.Path) -> None:
    """Bring all machines to the state of a snapshot, whatever they do now. Raises L(LabError) where it is of another version."""
    require_usable(folder, fleet.machines)
    together(fleet.machines, lambda machine: _load_machine(fleet, machine, folder / machine.name))
    together(fleet.machines, lambda machine: qemu.monitor(fleet, machine).execute("cont"))


def require_usable(folder: pathlib.Path, machines: t.Iterable[Machine]) -> None:
    """Raise L(LabError) unless a snapshot is there, of all these machines, and of this version."""
    try:
        found = (folder / "version").read_text()
    except FileNotFoundError:
        raise UsageError(f"There is no snapshot {folder}. Make one with: machines snapshot save NAME") from None
    if found != version():
        raise LabError(f"The snapshot {folder} is of another version ({found}), and this machine has {version()}. Remove it, and make it anew.")
    missing = [machine.name for machine in machines if not (folder / machine.name / "memory").exists()]
    if missing:
        raise LabError(f"The snapshot {folder} has no {', '.join(missing)}. Remove it, and make it anew.")


def version() -> str:
    """Return what a snapshot depends on besides its machines."""
    first = run("qemu-system-x86_64", "--version").splitlines()[0]
    return f"format {FORMAT}, {first}, {_processor()}"


def _processor() -> str:
    """Return the processor: a machine counts its time in ticks of that one's clock."""
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown processor")


def _save_memory(monitor: Monitor, file: pathlib.Path) -> None:
    monitor.execute("migrate-set-parameters", **{"max-bandwidth": 2**40})
    monitor.execute("migrate", uri=f"exec:cat > '{file}'")
    _wait_for_migration(monitor, file)


def _wait_for_migration(monitor: Monitor, file: pathlib.Path) -> None:
    def is_over() -> bool:
        info = monitor.execute("query-migrate")
        if info.get("status") in ("failed", "cancelled"):
            raise LabError(f"The memory of {file.parent.name} could not be copied: {info.get('error-desc', info['status'])}")
        return bool(info.get("status") == "completed")

    readiness.wait_for(is_over, f"the memory of {file.parent.name} is copied", SECONDS, pause=0.2)


def _load_machine(fleet: Fleet, machine: Machine, saved: pathlib.Path) -> None:
    qemu.kill(fleet, machine)
    qemu.create_disk(saved / "disk.qcow2", fleet.folder(machine) / "disk.qcow2")
    _copy_release(saved, fleet.folder(machine))
    qemu.start(fleet, machine, incoming=True)
    monitor = qemu.monitor(fleet, machine)
    monitor.execute("migrate-incoming", uri=f"exec:cat '{saved / 'memory'}'")
    _wait_for_migration(monitor, saved / "memory")


def _copy_release(source: pathlib.Path, target: pathlib.Path) -> None:
    """Let a machine that was upgraded, or was not, be so with the disk that it gets."""
    (target / UPGRADED_FILE).unlink(missing_ok=True)
    if (source / UPGRADED_FILE).exists():
        shutil.copy(source / UPGRADED_FILE, target)
