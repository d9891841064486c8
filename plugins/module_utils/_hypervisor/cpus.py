# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""CPUs as libvirt describes, expands and compares them (libvirt.md, section 5.2)."""

from __future__ import annotations

import typing as t
from xml.etree import ElementTree

from .._errors import Conflict, KvmfleetError
from .._facts.cpusets import number_of
from .._xml import parse_libvirts
from .errors import libvirt_errors
from .library import libvirt

Json = t.Dict[str, t.Any]
Platform = t.Mapping[str, t.Any]

_REQUIRED = ("require", "force")
_ABSENT = ("disable", "forbid")
_EXPAND_FEATURES = 1
_FAIL_INCOMPATIBLE = 1


def guest_cpu(connection: t.Any, uri: str, platform: Platform) -> t.Optional[Json]:
    """Return C(model), C(vendor), C(features), C(usable_models): the most that the host can give a guest of that platform; null where libvirt cannot tell."""
    try:
        with libvirt_errors(f"read the domain capabilities of {uri}"):
            xml = connection.getDomainCapabilities(platform["emulator"], platform["arch"], None, platform["virt_type"], 0)
        capabilities = parse_libvirts(xml, "domain capabilities")
        model = _host_model(capabilities)
        return None if model is None else {**_expanded(connection, uri, platform, model), "usable_models": _usable(capabilities)}
    except KvmfleetError:
        if not connection.isAlive():
            raise
        return None


def host_cpu(connection: t.Any, uri: str, capabilities: ElementTree.Element) -> t.Optional[Json]:
    """Return C(model), C(vendor), C(features) and C(microcode) of the host's own CPU."""
    cpu = capabilities.find("host/cpu")
    if cpu is None:
        return None
    listed = {feature.get("name", "") for feature in cpu.findall("feature")}
    try:
        with libvirt_errors(f"read the CPU of {uri}"):
            expanded = connection.baselineCPU([ElementTree.tostring(cpu, encoding="unicode")], _EXPAND_FEATURES)
        listed |= _features(parse_libvirts(expanded, "a CPU"), _REQUIRED)
    except KvmfleetError:
        if not connection.isAlive():
            raise
    microcode = cpu.find("microcode")
    version = microcode.get("version", "") if microcode is not None else ""
    return {
        "model": cpu.findtext("model"),
        "vendor": cpu.findtext("vendor"),
        "features": sorted(listed),
        "microcode": number_of(version) if version.isdecimal() else None,
    }


def compare_cpu(connection: t.Any, uri: str, platform: Platform, cpu_xml: str, able: t.Sequence[str]) -> Json:
    """Return C(passed) and C(reason): whether the host can run a guest with that CPU, by libvirt's own comparison, the missing features named.

    :arg platform: C(arch), C(machine) and C(virt_type) of the guest.
    :arg able: every feature that the host can give such a guest, empty where that is not known.
    Raises L(KvmfleetError) where libvirt cannot compare, e.g. because it does not know the machine type.
    """
    arguments = (None, platform["arch"], platform.get("machine"), platform["virt_type"])
    try:
        with libvirt_errors(f"compare the CPU with that of {uri}"):
            result = connection.compareHypervisorCPU(*arguments, cpu_xml, _FAIL_INCOMPATIBLE)
    except Conflict as error:
        return {"passed": False, "reason": _reason(connection, arguments, cpu_xml, able, error.message)}
    if result <= 0:
        return {"passed": False, "reason": _reason(connection, arguments, cpu_xml, able, "libvirt calls the CPU of the host incompatible.")}
    return {"passed": True, "reason": None}


def _reason(connection: t.Any, arguments: t.Tuple[t.Any, ...], cpu_xml: str, able: t.Sequence[str], otherwise: str) -> str:
    missing = _missing(connection, arguments, cpu_xml, able)
    return f"its CPU lacks {', '.join(missing)}" if missing else otherwise


def _missing(connection: t.Any, arguments: t.Tuple[t.Any, ...], cpu_xml: str, able: t.Sequence[str]) -> t.List[str]:
    """Expanded on the host, a model has those of its features disabled that the host cannot give; what was required beyond the model stays required."""
    own = parse_libvirts(cpu_xml, "a CPU")
    beyond = _features(own, _REQUIRED) - {*able} if able else set()
    try:
        expanded = parse_libvirts(connection.baselineHypervisorCPU(*arguments, [cpu_xml], _EXPAND_FEATURES), "a CPU")
    except libvirt().libvirtError:
        return sorted(beyond)
    return sorted(beyond | (_features(expanded, _ABSENT) - _features(own, _ABSENT)))


def _host_model(capabilities: ElementTree.Element) -> t.Optional[ElementTree.Element]:
    mode = capabilities.find("cpu/mode[@name='host-model']")
    if mode is None or mode.get("supported") != "yes" or mode.find("model") is None:
        return None
    cpu = ElementTree.Element("cpu")
    cpu.extend(list(mode))
    return cpu


def _expanded(connection: t.Any, uri: str, platform: Platform, cpu: ElementTree.Element) -> Json:
    xml = ElementTree.tostring(cpu, encoding="unicode")
    with libvirt_errors(f"expand the CPU of {uri}"):
        expanded = connection.baselineHypervisorCPU(platform["emulator"], platform["arch"], None, platform["virt_type"], [xml], _EXPAND_FEATURES)
    features = _features(parse_libvirts(expanded, "a CPU"), _REQUIRED)
    return {"model": cpu.findtext("model"), "vendor": cpu.findtext("vendor"), "features": sorted(features)}


def _usable(capabilities: ElementTree.Element) -> t.List[str]:
    models = capabilities.findall("cpu/mode[@name='custom']/model[@usable='yes']")
    return sorted({(model.text or "").strip() for model in models})


def _features(cpu: ElementTree.Element, policies: t.Sequence[str]) -> t.Set[str]:
    return {feature.get("name", "") for feature in cpu.findall("feature") if feature.get("policy", "require") in policies}
