# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests: making, finding, checking, removing them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import typing as t
import uuid

from . import bootcode, domainxml, questions, storage
from . import host as hosts
from .errors import LabError, UsageError
from .layout import Lab
from .requirements import require_program


@dataclasses.dataclass(frozen=True)
class Wish:
    """What a new guest shall be like: its start is one of C(running), C(paused), C(off)."""

    name: str
    host: str
    program: bootcode.Program
    storage: str = "none"
    start: str = "running"
    transient: bool = False
    autostart: bool = False
    bridge: t.Optional[str] = None
    machine: str = domainxml.MACHINE
    cores: int = 1
    firmware: t.Optional[str] = None
    tpm: bool = False


def create(lab: Lab, wish: Wish) -> None:
    """Make a guest, start it as wished, and wait until it has filled its dirty set."""
    _require_possible(lab, wish)
    try:
        _create(lab, wish)
    except LabError:
        if _file(lab, wish.name).exists():
            remove(lab, wish.name)
        raise


def _create(lab: Lab, wish: Wish) -> None:
    identity = uuid.uuid4()
    disk = storage.create(lab, wish.storage, wish.name, wish.host, bootcode.boot_sector(wish.program), _ports(lab))
    _remember(lab, wish, identity, disk.port)
    devices = disk.xml + (domainxml.interface(wish.bridge) if wish.bridge else "") + (domainxml.TPM if wish.tpm else "")
    kernel = None if disk.xml or wish.firmware else _kernel(lab, wish)
    xml = domainxml.domain(wish.name, identity, wish.program.memory_mib, kernel, devices, wish.machine, wish.cores, wish.firmware)
    hosts.ask(lab, wish.host, lambda connection: questions.start(connection, xml, wish.start, wish.transient, wish.autostart))
    if wish.storage == "local":
        hosts.virsh(lab, wish.host, "pool-refresh", "default")
    if wish.firmware:
        return
    if wish.start == "running" and not hosts.ask(lab, wish.host, lambda connection: questions.wait(connection, wish.name, wish.program.pages)):
        raise LabError(f"The guest {wish.name} on {wish.host} runs, but does not fill its memory. Look at it with: lab virsh {wish.host} dominfo {wish.name}")


def remove(lab: Lab, name: str) -> None:
    """Destroy a guest on every host that is on, undefine it on all, and remove its disks."""
    record = load(lab, name)
    for host in lab.hosts:
        if hosts.is_on(lab, host):
            # One that does not know it, or whose libvirtd does not answer, is no reason to leave the rest.
            with contextlib.suppress(LabError):
                hosts.ask(lab, host, lambda connection: questions.remove(connection, name))
        for folder in ("qemu", "qemu/autostart"):
            (lab.host_folder(host) / "etc-libvirt" / folder / f"{name}.xml").unlink(missing_ok=True)
    storage.remove(lab, name, record["port"])
    (lab.boot / name).unlink(missing_ok=True)
    _file(lab, name).unlink()


def check(lab: Lab, name: str, host: t.Optional[str]) -> t.Dict[str, t.Any]:
    """Judge a guest's memory where it is active: the keys of C(counters.Verdict), and C(host).

    :raises LabError: it is active nowhere, or on several hosts and none of them was named.
    """
    record = load(lab, name)
    where = [host] if host else active_on(lab, name)
    if len(where) != 1:
        raise LabError(f"The guest {name} is active on {len(where)} hosts ({', '.join(where) or 'none'}): its memory cannot be checked. Name one with --host.")
    program = bootcode.Program(record["mib"], record["dirty_mib"], record["rate"])
    verdict = hosts.ask(lab, where[0], lambda connection: questions.check(connection, name, program.pages))
    return {"host": where[0], **dataclasses.asdict(verdict)}


def active_on(lab: Lab, name: str) -> t.List[str]:
    """Return the hosts where a guest is active, paused ones included."""
    return [host for host, guests in on_hosts(lab).items() if any(guest["name"] == name and guest["state"] != "shut off" for guest in guests)]


def on_hosts(lab: Lab) -> t.Dict[str, t.List[t.Dict[str, t.Any]]]:
    """Return all guests of every host that is on and whose libvirtd answers."""
    answers = {host: hosts.guests(lab, host) for host in lab.hosts}
    return {host: known for host, known in answers.items() if known is not None}


def load(lab: Lab, name: str) -> t.Dict[str, t.Any]:
    """Return what the lab knows of a guest.

    :raises UsageError: it made none of that name.
    """
    if not _is_name(name) or not _file(lab, name).exists():
        known = ", ".join(sorted(path.stem for path in lab.guests.glob("*.json"))) or "none"
        raise UsageError(f"There is no guest {name!r} in the lab '{lab.prefix}'. It has: {known}.")
    known_guest: t.Dict[str, t.Any] = json.loads(_file(lab, name).read_text())
    return known_guest


def _require_possible(lab: Lab, wish: Wish) -> None:
    if not _is_name(wish.name):
        raise UsageError(f"The name {wish.name!r} does not serve for a guest: at most 40 letters, digits and . _ - in it, beginning with a letter or digit.")
    if _file(lab, wish.name).exists():
        raise UsageError(f"There is a guest {wish.name!r} already. Remove it with: lab --prefix {lab.prefix} rmguest {wish.name}")
    if wish.transient and (wish.start == "off" or wish.autostart):
        raise UsageError("A transient guest has no definition: it can neither be off nor start with its host.")
    if wish.tpm:
        require_program("swtpm_setup", "a guest with a TPM")
    if wish.firmware and not domainxml.FIRMWARE_FOLDER.is_dir():
        raise UsageError("There is no firmware for guests on this machine. Install it with: apt install -y --no-install-recommends ovmf")
    hosts.command_on(lab, wish.host)


def _is_name(name: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}", name) is not None


def _kernel(lab: Lab, wish: Wish) -> str:
    path = lab.boot / wish.name
    path.write_bytes(bootcode.kernel(wish.program))
    return str(path)


def _remember(lab: Lab, wish: Wish, identity: uuid.UUID, port: t.Optional[int]) -> None:
    program = wish.program
    record = {"uuid": str(identity), "mib": program.memory_mib, "dirty_mib": program.dirty_mib, "rate": program.rate, "storage": wish.storage, "port": port}
    _file(lab, wish.name).write_text(json.dumps(record))


def _ports(lab: Lab) -> t.Set[int]:
    return {json.loads(path.read_text())["port"] for path in lab.guests.glob("*.json")}


def _file(lab: Lab, name: str) -> t.Any:
    return lab.guests / f"{name}.json"
