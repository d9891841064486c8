# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One machine's QEMU: its command line, starting and killing it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import signal
import typing as t

from ...lab.kvmlab.commands import run
from ...lab.kvmlab.errors import LabError
from ...lab.kvmlab.namespaces import in_network
from .layout import CONTROL_ADDRESS, Fleet, Machine
from .sockets import Agent, Monitor, Unreachable

# Without la57 a page walk is shorter; without svm no machine tries hardware virtualisation that is only emulated.
PROCESSORS = {"tcg": ("tcg,thread=multi", "max,la57=off,svm=off"), "kvm": ("kvm", "host")}
CARD = "eth0"
KILL_SECONDS = 20
SHARED_MIB = 16


def network_words(address: str, gateway: str, name: str) -> str:
    """Return the words of a kernel's command line from which systemd takes the address.

    The last one is for the initial RAM disk, which heeds only that: Debian 13's would else wait 180 s for a card whose driver it does not have.
    """
    return f"ip={address}::{gateway}:255.255.255.0:{name}:{CARD}:none ip=off"


def kernel_arguments(machine: Machine) -> str:
    """Return the kernel's command line, from which systemd takes name, identity and address."""
    words = [
        "root=/dev/vda rw console=ttyS0 net.ifnames=0 mitigations=off panic=-1",
        f"systemd.hostname={machine.name} systemd.machine_id={machine.uuid.hex}",
        network_words(machine.address, CONTROL_ADDRESS, machine.name),
        f"machine.nfs={'client' if machine.is_host else 'server'}",
    ]
    return " ".join(words)


def base_command(image: pathlib.Path, folder: pathlib.Path, accelerator: str, memory_mib: int, append: str) -> t.List[str]:
    """Return the command line of a machine but for its network: kernel, disk, serial log, monitor, guest agent."""
    acceleration, processor = PROCESSORS[accelerator]
    return [
        "qemu-system-x86_64", "-machine", "pc", "-accel", acceleration, "-cpu", processor, "-smp", "1", "-m", str(memory_mib),
        "-nodefaults", "-no-user-config", "-display", "none", "-daemonize", "-pidfile", str(folder / "qemu.pid"),
        "-kernel", str(image / "vmlinuz"), "-initrd", str(image / "initrd"), "-append", append,
        "-drive", f"file={folder / 'disk.qcow2'},if=none,id=disk,format=qcow2,discard=unmap", "-device", "virtio-blk-pci,drive=disk",
        "-device", "virtio-rng-pci",
        "-chardev", f"file,id=serial,path={folder / 'serial.log'},append=on", "-serial", "chardev:serial",
        "-qmp", f"unix:{folder / 'monitor.sock'},server=on,wait=off",
        "-device", "virtio-serial-pci", "-chardev", f"socket,id=agent,path={folder / 'agent.sock'},server=on,wait=off",
        "-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0",
    ]  # fmt: skip


def command(fleet: Fleet, machine: Machine, incoming: bool = False) -> t.List[str]:
    """Return the command line of a machine's QEMU.

    :arg incoming: whether it waits for the memory of a snapshot.
    """
    words = base_command(fleet.image(machine), fleet.folder(machine), fleet.settings["accelerator"], machine.memory_mib, kernel_arguments(machine))
    words += ["-name", f"{fleet.prefix}-{machine.name}"]
    words += ["-netdev", f"tap,id=net,ifname={machine.name},script=no,downscript=no", "-device", f"virtio-net-pci,netdev=net,mac={machine.mac}"]
    if machine.is_host:
        words += host_devices(fleet)
    if machine.has_uuid:
        words += ["-uuid", str(machine.uuid), "-smbios", f"type=1,manufacturer=kvmfleet,product=machine,serial={machine.name},uuid={machine.uuid}"]
    return [*words, "-incoming", "defer"] if incoming else words


def host_devices(fleet: Fleet) -> t.List[str]:
    """Return what a host has besides: a hardware watchdog that resets it, and a disk that all hosts share, in which each write is at once seen by all."""
    return [
        "-device", "i6300esb", "-action", "watchdog=reset",
        "-drive", f"file={fleet.shared_disk},if=none,id=shared,format=raw,cache=none,file.locking=off",
        "-device", "virtio-blk-pci,drive=shared,serial=shared,share-rw=on",
    ]  # fmt: skip


def create_shared_disk(fleet: Fleet) -> None:
    """Make the disk that all hosts share empty; hosts that are on keep the old one."""
    fleet.shared_disk.unlink(missing_ok=True)
    with fleet.shared_disk.open("xb") as disk:
        disk.truncate(SHARED_MIB * 2**20)


def create_disk(backing: pathlib.Path, disk: pathlib.Path) -> None:
    """Make an empty layer over a disk, in the place of what was there."""
    kind = "qcow2" if backing.suffix == ".qcow2" else "raw"
    disk.unlink(missing_ok=True)
    run("qemu-img", "create", "-q", "-f", "qcow2", "-F", kind, "-b", str(backing), str(disk))


def start(fleet: Fleet, machine: Machine, incoming: bool = False) -> None:
    """Start a machine's QEMU in the network of the fleet. Raises L(LabError) with QEMU's own words where it does not start."""
    for name in ("monitor.sock", "agent.sock"):
        (fleet.folder(machine) / name).unlink(missing_ok=True)
    run(*in_network(fleet.namespace, *command(fleet, machine, incoming)), timeout=120)


def pid(folder: pathlib.Path) -> t.Optional[int]:
    """Return the process of the machine of a folder, where it is on."""
    file = folder / "qemu.pid"
    with contextlib.suppress(FileNotFoundError, ValueError, ProcessLookupError):
        found = int(file.read_text())
        if str(file).encode() in pathlib.Path(f"/proc/{found}/cmdline").read_bytes().split(b"\0"):
            return found
    return None


def is_on(fleet: Fleet, machine: Machine) -> bool:
    return pid(fleet.folder(machine)) is not None


def kill(fleet: Fleet, machine: Machine) -> None:
    """Cut a machine's power: whatever it had not written to its disk is lost. Does nothing where it is off."""
    kill_in(fleet.folder(machine))


def kill_in(folder: pathlib.Path) -> None:
    """Kill the machine of a folder, and wait for its end. Raises L(LabError) where it does not end."""
    found = pid(folder)
    if found is None:
        return
    with contextlib.suppress(ProcessLookupError), _opened(found) as process:
        signal.pidfd_send_signal(process, signal.SIGKILL)
        # Its command line is gone before it has let go of its tap device: only this says that it has.
        waiting = select.poll()
        waiting.register(process, select.POLLIN)
        if not waiting.poll(KILL_SECONDS * 1000):
            raise LabError(f"The process {found} of {folder.name} does not end. Look at it with: ps -fp {found}")


@contextlib.contextmanager
def _opened(process: int) -> t.Iterator[int]:
    descriptor = os.pidfd_open(process)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def monitor(fleet: Fleet, machine: Machine, timeout_seconds: float = 20) -> Monitor:
    require_on(fleet, machine)
    return Monitor(fleet.folder(machine) / "monitor.sock", timeout_seconds)


def agent(fleet: Fleet, machine: Machine, timeout_seconds: float = 60) -> Agent:
    require_on(fleet, machine)
    return Agent(fleet.folder(machine) / "agent.sock", timeout_seconds)


def require_on(fleet: Fleet, machine: Machine) -> None:
    """Raise L(Unreachable) unless a machine is on."""
    if not is_on(fleet, machine):
        raise Unreachable(f"{machine.name} is off. Switch it on with: machines --prefix {fleet.prefix} poweron {machine.name}")


def serial_log(folder: pathlib.Path) -> str:
    """Return a serial log without what would steer a terminal; empty where there is none."""
    try:
        text = (folder / "serial.log").read_text(errors="replace")
    except FileNotFoundError:
        return ""
    return "".join(character for character in text if character.isprintable() or character == "\n")


def serial_tail(folder: pathlib.Path, lines: int = 15) -> str:
    """Return the last lines of a serial log that are not empty."""
    return last_lines(serial_log(folder), lines)


def last_lines(log: str, lines: int = 15) -> str:
    return "\n".join([line for line in log.splitlines() if line.strip()][-lines:]) or "(the serial log is empty)"
