# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Whether the host's CPU can be what the guest sees."""

from __future__ import annotations

import typing as t

from ..fleet import Fleet
from ..host_state import HostState
from ..request import Request
from ..words import names_text
from .base import PASS, Finding, Rule

# Modes that hand the host's own CPU to the guest.
_AS_HOST = ("host-passthrough", "maximum")
_DISABLED = ("disable", "forbid")


class CpuModel(Rule):
    """Libvirt's own comparison decides where there is one; else model and features are compared with what the host's platform can give.

    Libvirt does not judge host-passthrough (libvirt.md, section 5.2): there the CPUs of both hosts are compared.
    """

    name = "cpu_model"
    overridable = False

    def concerns(self, request: Request) -> bool:
        """Return whether it is known what the guest sees."""
        return bool(request.cpu and request.cpu.get("mode"))

    def judge(self, request: Request, host: HostState, fleet: Fleet) -> Finding:
        """Name the features that are missing. What is not known is a warning."""
        cpu = request.cpu or {}
        verdict = host.cpu_verdicts.get(request.uuid)
        if verdict is not None and not verdict["passed"]:
            return Finding(f"By libvirt's own comparison it cannot run {request.name}: {_inside(verdict.get('reason'))}.")
        if cpu["mode"] in _AS_HOST:
            return _passed_through(request, host, fleet)
        return PASS if verdict is not None else _by_platform(request, host, cpu)


def _by_platform(request: Request, host: HostState, cpu: t.Mapping[str, t.Any]) -> Finding:
    key = (request.arch or "", request.virt_type or "")
    if key not in host.hardware.cpu_features:
        is_absent = host.hardware.platforms is not None and all(key) and key not in host.hardware.platforms
        # A platform that is not there is told by the machine type.
        return PASS if is_absent else _unknown(request, host, "what its own CPU can give a guest is not known")
    missing = request.required_features - host.hardware.cpu_features[key]
    if missing:
        return Finding(f"Its CPU lacks {names_text(missing)}, which {request.name} has been using.")
    model = cpu.get("model")
    if not model or model in host.hardware.cpu_models[key]:
        return PASS
    if any(policy in _DISABLED for policy in (cpu.get("features") or {}).values()):
        return _unknown(request, host, f"it cannot give the whole CPU model {model}, of which the guest does without some features")
    return Finding(f"It cannot give {request.name} its CPU model {model}.")


def _passed_through(request: Request, host: HostState, fleet: Fleet) -> Finding:
    source = fleet.source_of(request)
    ours, theirs = (source.hardware.host_cpu if source else None), host.hardware.host_cpu
    if not ours or not theirs:
        return _unknown(request, host, "the CPU of one of the two hosts is not known")
    has, had = frozenset(theirs.get("features") or ()), frozenset(ours.get("features") or ())
    lacking = (had - has) & _given(request, source, had)
    if lacking:
        return Finding(f"Its CPU lacks {names_text(lacking)}, and {request.name} has been given the whole CPU of its host.")
    if (ours.get("vendor"), ours.get("model")) != (theirs.get("vendor"), theirs.get("model")) or has != had:
        difference = _listed("with", has - had) + _listed("without", had - has)
        return Finding(
            f"{request.name} has been given the whole CPU of its host, {_cpu_text(ours)}, and here is another: {_cpu_text(theirs)}{difference}.",
            overridable=True,
        )
    if ours.get("microcode") != theirs.get("microcode"):
        return Finding(warnings=(f"The CPU microcode of {host.name} differs from that of the host whose CPU {request.name} was given.",))
    return PASS


def _given(request: Request, source: HostState | None, had: frozenset[str]) -> frozenset[str]:
    """Return the features of its host that the guest can have seen: not those that the hypervisor keeps for itself, where that is known."""
    platforms = source.hardware.cpu_features if source else {}
    return platforms.get((request.arch or "", request.virt_type or ""), had)


def _unknown(request: Request, host: HostState, why: str) -> Finding:
    return Finding(warnings=(f"Whether {host.name} can run the CPU of {request.name} could not be told: {why}. Libvirt checks it at the start.",))


def _cpu_text(cpu: t.Mapping[str, t.Any]) -> str:
    return " ".join(str(cpu[key]) for key in ("vendor", "model") if cpu.get(key)) or "of no known model"


def _listed(word: str, features: frozenset[str]) -> str:
    return f", {word} {names_text(features)}" if features else ""


def _inside(sentence: t.Optional[str]) -> str:
    text = str(sentence or "the CPU is incompatible").strip().rstrip(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
