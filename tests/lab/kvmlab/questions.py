# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the lab asks and tells a host's libvirt."""

from __future__ import annotations

import contextlib
import time
import typing as t

from .bootcode import PAGE_BYTES, SET_START
from .counters import Verdict, judge
from .libvirtd import libvirt

CHUNK_BYTES = 1024 * 1024


def guests(connection: libvirt.virConnect) -> t.List[t.Dict[str, t.Any]]:
    """Return name, UUID, state and persistence of all domains."""
    return [
        {"name": domain.name(), "uuid": domain.UUIDString(), "state": _state(domain), "persistent": bool(domain.isPersistent())}
        for domain in connection.listAllDomains()
    ]


def _state(domain: libvirt.virDomain) -> str:
    names = {
        libvirt.VIR_DOMAIN_RUNNING: "running",
        libvirt.VIR_DOMAIN_BLOCKED: "blocked",
        libvirt.VIR_DOMAIN_PAUSED: "paused",
        libvirt.VIR_DOMAIN_SHUTDOWN: "in shutdown",
        libvirt.VIR_DOMAIN_SHUTOFF: "shut off",
        libvirt.VIR_DOMAIN_CRASHED: "crashed",
    }
    return names.get(domain.state()[0], "unknown")


def start(connection: libvirt.virConnect, xml: str, start: str, transient: bool, autostart: bool) -> None:
    """Make a domain and start it as wished: C(running), C(paused), C(off)."""
    flags = libvirt.VIR_DOMAIN_START_PAUSED if start == "paused" else 0
    if transient:
        connection.createXML(xml, flags)
        return
    domain = connection.defineXML(xml)
    if autostart:
        domain.setAutostart(True)
    if start != "off":
        domain.createWithFlags(flags)


def remove(connection: libvirt.virConnect, name: str) -> None:
    """Destroy a domain and undefine it. Raises libvirtError where it is not known, and where it is transient, after the first."""
    domain = connection.lookupByName(name)
    with contextlib.suppress(libvirt.libvirtError):
        domain.destroy()
    domain.undefineFlags(
        libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
        | libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
        | libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
        | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
    )


def has_job(connection: libvirt.virConnect, name: str) -> bool:
    """Return whether a job of an active domain is under way."""
    domain = connection.lookupByName(name)
    return bool(domain.isActive()) and domain.jobInfo()[0] != libvirt.VIR_DOMAIN_JOB_NONE


def wait(connection: libvirt.virConnect, name: str, pages: int, timeout_seconds: float = 300) -> bool:
    """Wait until a guest has filled its dirty set; return False where it does not in time."""
    domain, limit = connection.lookupByName(name), time.monotonic() + timeout_seconds
    while pages and not any(domain.memoryPeek(SET_START + (pages - 1) * PAGE_BYTES, 4, libvirt.VIR_MEMORY_PHYSICAL)):
        if time.monotonic() > limit:
            return False
        time.sleep(0.05)
    return True


def check(connection: libvirt.virConnect, name: str, pages: int) -> Verdict:
    """Judge a guest's memory. A running guest is paused for the reading, so that all pages are of one moment."""
    domain = connection.lookupByName(name)
    running = domain.state()[0] == libvirt.VIR_DOMAIN_RUNNING
    if running:
        domain.suspend()
    try:
        return judge(_counters(domain, pages))
    finally:
        if running:
            domain.resume()


def _counters(domain: libvirt.virDomain, pages: int) -> t.List[int]:
    values: t.List[int] = []
    for offset in range(0, pages * PAGE_BYTES, CHUNK_BYTES):
        chunk = domain.memoryPeek(SET_START + offset, CHUNK_BYTES, libvirt.VIR_MEMORY_PHYSICAL)
        values += memoryview(chunk).cast("I")[:: PAGE_BYTES // 4].tolist()
    return values
