# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whether the host's libvirt takes the threads of the guest's processor packages for a feature that was not there, or is missing."""

from __future__ import annotations

import typing as t

from ..fleet import Fleet
from ..host_state import HostState
from ..request import Request
from ..words import version_text
from .base import PASS, Finding, Rule

# QEMU from which on several threads of a package are told of as the feature ht, and libvirt from which on that is expected (libvirt.md, section 5.2).
SHOWN_SINCE: t.Final = 10_000_000
EXPECTED_SINCE: t.Final = 11_010_000


class CpuThreads(Rule):
    """Libvirt compares what the guest saw with what it sees on arrival. QEMU 10.0 was the first to tell of several threads, and libvirt minds until 11.10."""

    name = "cpu_threads"
    overridable = False

    def concerns(self, request: Request) -> bool:
        """Return whether a package of the guest has several threads, and it is known what the guest sees of that."""
        cpu = request.cpu or {}
        return cpu.get("package_threads", 1) > 1 and cpu.get("shows_threads") is not None

    def judge(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Compare what the guest sees with what it would see here."""
        qemu, libvirt = host.hardware.hypervisor, host.hardware.libvirt
        if not qemu or not libvirt or libvirt >= EXPECTED_SINCE:
            return PASS
        shown, shows = bool((request.cpu or {})["shows_threads"]), qemu >= SHOWN_SINCE
        return PASS if shown == shows else Finding(_reason(request, shows, qemu, libvirt))


def _reason(request: Request, shows: bool, qemu: int, libvirt: int) -> str:
    here, there = ("tells", "did not") if shows else ("does not tell", "did")
    threads = (request.cpu or {})["package_threads"]
    return (
        f"Its libvirt {version_text(libvirt)} would refuse {request.name}: of {threads} threads in a processor package its QEMU {version_text(qemu)} {here} "
        f"libvirt, and that of the guest {there}. From libvirt {version_text(EXPECTED_SINCE)} on that is no difference. Shut down, it could be started there."
    )
