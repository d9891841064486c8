# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whether the CPU and the QEMU of a host can run the guest: CPU model, threads of a package, machine type and QEMU version."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterable

from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import PLATFORM_CPUS, CpuFacts
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.requests import GuestCpu

from ..fleet import Fleet, HostState
from ..request import Request
from .base import PASS, Finding, Rule, names_text, version_text

# Modes that give the host's own CPU to the guest.
HOST_CPU_MODES: t.Final = ("host-passthrough", "maximum")
# The kind of guests whose CPU is emulated.
_EMULATED = "qemu"
# The policy of a CPU feature in a definition without which the guest does not start.
REQUIRED_POLICY: t.Final = "require"
_DISABLING_POLICIES = ("disable", "forbid")


class Cpus(Rule):
    """Counted in vCPUs: (CPUs - reserved) x ratio, and no domain with more vCPUs than the host has CPUs."""

    name = "cpus"

    def host_passes(self, request: Request, host: HostState, fleet: Fleet) -> bool:
        """Compare without building a reason."""
        return request.vcpus <= host.hardware.cpus and request.vcpus <= host.free_vcpus(request.uuid)

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Return how many vCPUs are missing."""
        if self.host_passes(request, host, fleet):
            return PASS
        if request.vcpus > host.hardware.cpus:
            return Finding(f"{request.name} has {request.vcpus} vCPUs, the whole host has {host.hardware.cpus} CPUs.")
        free = host.free_vcpus(request.uuid)
        return Finding(
            f"It is {request.vcpus - free} vCPUs short: {request.vcpus} are needed, {max(0, free)} of {host.capacity_vcpus} are free "
            f"({host.hardware.cpus} CPUs, {host.settings.reserved_cpus} of them reserved, times {host.settings.cpu_allocation_ratio:g})."
        )


class CpuModel(Rule):
    """libvirt's own comparison decides if available; otherwise model and features are compared with those of the host's platform.

    libvirt does not judge host-passthrough (docs/libvirt.md, "Processors"): the CPUs of both hosts are compared instead. A guest that starts anew with
    host-passthrough or host-model is given the CPU of its new host.
    """

    name = "cpu_model"
    overridable = False

    def applies_to(self, request: Request) -> bool:
        """Return whether the CPU of the guest is known."""
        return bool(request.cpu and request.cpu.mode)

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Name the missing features. An unknown value is a warning."""
        if request.starts:
            return judge_start(request, host)
        finding = _judge_present_cpu(request, host)
        return _judge_host_passthrough(request, host, fleet) if _has_host_cpu(request) and finding is PASS else finding


def _has_host_cpu(request: Request) -> bool:
    """Whether the guest was given the CPU of its host. QEMU emulates the maximum CPU of a guest without KVM, which is the same on every host."""
    return bool(request.cpu and request.cpu.mode in HOST_CPU_MODES and request.virt_type != _EMULATED)


class CpuAtStart(CpuModel):
    """The rule for guests of which each starts anew."""

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Name the missing features. An unknown value is a warning."""
        return judge_start(request, host)


def judge_start(request: Request, host: HostState) -> Finding:
    """Judge the CPU that the guest has after a start on this host."""
    cpu = request.start_cpu
    return _judge_by_platform(request, host, cpu) if cpu else _judge_present_cpu(request, host)


def _judge_present_cpu(request: Request, host: HostState) -> Finding:
    """Judge the CPU that the guest has. One that was given the CPU of its host is only refused if libvirt refuses it."""
    cpu = request.cpu or GuestCpu()
    verdict = host.cpu_verdicts.get(request.uuid)
    if verdict is not None and not verdict.passed:
        return Finding(f"According to libvirt's comparison, it cannot run {request.name}: {_as_clause(verdict.reason)}.")
    return PASS if verdict is not None or cpu.mode in HOST_CPU_MODES else _judge_by_platform(request, host, cpu)


def _judge_by_platform(request: Request, host: HostState, cpu: GuestCpu) -> Finding:
    key = (request.arch or "", request.virt_type or "")
    if key not in host.hardware.cpu_features:
        is_absent = host.hardware.platforms is not None and all(key) and key not in host.hardware.platforms
        why = host.hardware.explain_unknown(PLATFORM_CPUS)
        because = f" ({why})" if why else ""
        # The filter for machine types reports a missing platform.
        return PASS if is_absent else _warn_unknown_cpu(request, host, f"the CPU features that it can give a guest are not known{because}")
    missing = _required_features(cpu) - host.hardware.cpu_features[key]
    if missing:
        return Finding(f"Its CPU lacks {names_text(missing)}, which {request.name} has been using.")
    model = cpu.model
    if not model or model in host.hardware.cpu_models[key]:
        return PASS
    if any(policy in _DISABLING_POLICIES for policy in (cpu.features or {}).values()):
        return _warn_unknown_cpu(request, host, f"it cannot give the whole CPU model {model}, and the guest runs without some of its features")
    return Finding(f"It cannot give {request.name} its CPU model {model}.")


def _required_features(cpu: GuestCpu) -> frozenset[str]:
    return frozenset(name for name, policy in (cpu.features or {}).items() if policy == REQUIRED_POLICY)


def _judge_host_passthrough(request: Request, host: HostState, fleet: Fleet) -> Finding:
    source, key = fleet.source_of(request), (request.arch or "", request.virt_type or "")
    ours, theirs = (source.hardware.find_given_cpu(key) if source else None), host.hardware.find_given_cpu(key)
    if not ours or not theirs:
        return _warn_unknown_cpu(request, host, "the CPU of one of the two hosts is not known", "Libvirt does not check a CPU that is passed through.")
    has, had = frozenset(theirs.features or ()), frozenset(ours.features or ())
    lacking = (had - has) & _visible_features(request, source, had)
    if lacking:
        return Finding(f"Its CPU lacks {names_text(lacking)}, and {request.name} has been given the whole CPU of its host.")
    if _make_of(ours) != _make_of(theirs) or has != had:
        difference = _features_text("with", has - had) + _features_text("without", had - has)
        return Finding(
            f"{request.name} has been given the whole CPU of its host, {_cpu_text(ours)}, and here is another: {_cpu_text(theirs)}{difference}.",
            overridable=True,
        )
    if (ours.microcode or None) != (theirs.microcode or None):
        return Finding(warnings=(f"The CPU microcode of {host.name} differs from that of the host whose CPU {request.name} was given.",))
    return PASS


def _visible_features(request: Request, source: HostState | None, had: frozenset[str]) -> frozenset[str]:
    """Return the features of its host that the guest can have seen: without those that the hypervisor does not pass on, if they are known."""
    platforms = source.hardware.cpu_features if source else {}
    return platforms.get((request.arch or "", request.virt_type or ""), had)


def _warn_unknown_cpu(request: Request, host: HostState, why: str, check: str = "Libvirt checks it at the start.") -> Finding:
    return Finding(warnings=(f"Whether {host.name} can run the CPU of {request.name} could not be determined: {why}. {check}",))


def _make_of(cpu: CpuFacts) -> tuple[str, str]:
    return cpu.vendor or "", cpu.model or ""


def _cpu_text(cpu: CpuFacts) -> str:
    return " ".join(part for part in _make_of(cpu) if part) or "of no known model"


def _features_text(word: str, features: frozenset[str]) -> str:
    return f", {word} {names_text(features)}" if features else ""


def _as_clause(sentence: t.Optional[str]) -> str:
    text = str(sentence or "the CPU is incompatible").strip().rstrip(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


# The first QEMU that reports several threads of a package as the feature ht, and the first libvirt that accepts this (docs/libvirt.md, "Processors").
SHOWN_SINCE: t.Final = 10_000_000
IGNORED_SINCE: t.Final = 11_010_000


class CpuThreads(Rule):
    """Libvirt compares what the guest saw with what it sees on arrival.

    QEMU 10.0 was the first to report several threads, and libvirt before 11.10 refuses the difference.
    """

    name = "cpu_threads"
    overridable = False

    def applies_to(self, request: Request) -> bool:
        """Return whether a package of the guest has several threads, and whether it is known what the guest sees."""
        return _package_threads(request) > 1 and _shows_threads(request) is not None

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Compare what the guest sees with what it would see on this host."""
        qemu, libvirt = host.hardware.hypervisor, host.hardware.libvirt
        if not qemu or not libvirt or libvirt >= IGNORED_SINCE:
            return PASS
        shown, shows = bool(_shows_threads(request)), qemu >= SHOWN_SINCE
        return PASS if shown == shows else Finding(_threads_reason(request, shows, qemu, libvirt))


def _package_threads(request: Request) -> int:
    return (request.cpu.package_threads if request.cpu else None) or 1


def _shows_threads(request: Request) -> t.Optional[bool]:
    shows = request.cpu.shows_threads if request.cpu else None
    return shows if isinstance(shows, bool) else None


def _threads_reason(request: Request, shows: bool, qemu: int, libvirt: int) -> str:
    own, other = ("reports", "does not") if shows else ("does not report", "does")
    threads = _package_threads(request)
    return (
        f"Its libvirt {version_text(libvirt)} would refuse {request.name}: its QEMU {version_text(qemu)} {own} {threads} threads in a processor package "
        f"to libvirt, but the QEMU of the guest {other}. From libvirt {version_text(IGNORED_SINCE)} on, this makes no difference. It could be started there."
    )


_VERSIONED_MACHINE = re.compile(r"(.*?)-?(\d+(?:\.\d+)+)(.*)")


class MachineType(Rule):
    """The host must have the platform and the machine type with which the guest was started."""

    name = "machine_type"
    overridable = False

    def applies_to(self, request: Request) -> bool:
        """Return whether the guest's platform is known."""
        return bool(request.arch and request.virt_type)

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Name the newest machine type of the same family that the host has."""
        machines = host.hardware.machines.get((request.arch or "", request.virt_type or ""))
        if machines is None:
            return _judge_missing_platform(request, host)
        if request.machine is None or request.machine in machines:
            return PASS
        newest = newest_of_family(request.machine, machines)
        has = f"the newest of that family is {newest}" if newest else "it has none of that family"
        return Finding(f"It does not have the machine type {request.machine}: {has}.")


class Hypervisor(Rule):
    """QEMU supports migration to the same or a newer version, not to an older one."""

    name = "hypervisor"

    def applies_to(self, request: Request) -> bool:
        """Return whether the version that it runs on is known."""
        return bool(request.hypervisor)

    def judge_host(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Compare major and minor version; an older micro version is a warning only."""
        ours, theirs = request.hypervisor or 0, host.hardware.hypervisor
        if theirs and theirs >= ours:
            return PASS
        if not theirs:
            return Finding(warnings=(f"The QEMU version of {host.name} is not known.",))
        versions = f"{version_text(theirs)}, and {request.name} runs on {version_text(ours)}"
        if theirs // 1000 == ours // 1000:
            return Finding(warnings=(f"The QEMU of {host.name} is slightly older: {versions}.",))
        return Finding(f"Its QEMU is older: {versions}.")


def newest_of_family(machine: str, machines: Iterable[str]) -> str:
    """Return the machine type of the same family with the highest version, or an empty text."""
    wanted = _split_version(machine)
    family = [
        (version, name) for name in machines for prefix, version, suffix in [_split_version(name)] if version and (prefix, suffix) == (wanted[0], wanted[2])
    ]
    return max(family, default=((), ""))[1]


def _split_version(machine: str) -> tuple[str, tuple[int, ...], str]:
    match = _VERSIONED_MACHINE.fullmatch(machine)
    return (match[1], tuple(int(part) for part in match[2].split(".")), match[3]) if match else (machine, (), "")


def _judge_missing_platform(request: Request, host: HostState) -> Finding:
    platforms = host.hardware.platforms
    if platforms is None:
        return Finding(warnings=(f"Whether {host.name} has the machine type {request.machine} is not known.",))
    has = ", ".join(f"{virt_type} for {arch}" for arch, virt_type in sorted(platforms)) or "nothing"
    return Finding(f"It cannot run guests of {request.virt_type} for {request.arch}; it has {has}.")
