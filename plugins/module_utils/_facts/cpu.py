# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The CPU of a guest: of an active one what it really sees, a host-model named and its features listed."""

from __future__ import annotations

import copy
import math
import typing as t
from xml.etree import ElementTree

from .cpusets import count_of

Cpu = t.Dict[str, t.Any]

# What QEMU adds by itself where a processor package has several threads, and tells of from version 10.0 on (libvirt.md, section 5.2).
_OF_THREADS = ("ht", "cmp_legacy")
_PARTS = ("dies", "clusters", "cores", "threads")


def cpu_of(root: ElementTree.Element) -> Cpu:
    """Return C(mode), C(model), C(features) and C(xml) of a definition; without a CPU in it, QEMU's default is meant and all are empty.

    C(package_threads) is how many threads a processor package has. QEMU itself makes features of that, which are left out: no host has to give them.
    C(shows_threads) is whether they were among what the guest really sees, null where that is not known.
    """
    found = root.find("cpu")
    if found is None:
        return {"mode": None, "model": None, "features": {}, "xml": None, "package_threads": 1, "shows_threads": None}
    threads, shown = _package_threads(found), found.find("feature[@name='ht']") is not None
    cpu = _without_threads(found) if threads > 1 else found
    model = (cpu.findtext("model") or "").strip() or None
    return {
        "mode": cpu.get("mode") or ("custom" if model else None),
        "model": model,
        "features": {feature.get("name", ""): feature.get("policy", "require") for feature in cpu.findall("feature")},
        "xml": ElementTree.tostring(cpu, encoding="unicode").strip(),
        "package_threads": threads,
        "shows_threads": shown if cpu.get("check") == "full" else None,
    }


def has_loose_tsc(root: ElementTree.Element, cpu: Cpu) -> bool:
    """Whether the guest sees an invariant TSC whose frequency is not fixed: it would run at another speed elsewhere."""
    is_fixed = any(timer.get("name") == "tsc" and timer.get("frequency") for timer in root.findall("clock/timer"))
    return cpu["features"].get("invtsc") in ("require", "force") and not is_fixed


def _package_threads(cpu: ElementTree.Element) -> int:
    topology = cpu.find("topology")
    if topology is None:
        return 1
    return math.prod(max(1, count_of(topology.get(part), 1)) for part in _PARTS)


def _without_threads(cpu: ElementTree.Element) -> ElementTree.Element:
    cpu = copy.deepcopy(cpu)
    for feature in [feature for feature in cpu.findall("feature") if feature.get("name") in _OF_THREADS]:
        cpu.remove(feature)
    return cpu
