# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The CPU of a guest: of an active one what it really sees, a host-model named and its features listed."""

from __future__ import annotations

import typing as t
from xml.etree import ElementTree

Cpu = t.Dict[str, t.Any]


def cpu_of(root: ElementTree.Element) -> Cpu:
    """Return C(mode), C(model), C(features) and C(xml) of a definition; without a CPU in it, QEMU's default is meant and all are empty."""
    cpu = root.find("cpu")
    if cpu is None:
        return {"mode": None, "model": None, "features": {}, "xml": None}
    model = (cpu.findtext("model") or "").strip() or None
    return {
        "mode": cpu.get("mode") or ("custom" if model else None),
        "model": model,
        "features": {feature.get("name", ""): feature.get("policy", "require") for feature in cpu.findall("feature")},
        "xml": ElementTree.tostring(cpu, encoding="unicode").strip(),
    }


def has_loose_tsc(root: ElementTree.Element, cpu: Cpu) -> bool:
    """Whether the guest sees an invariant TSC whose frequency is not fixed: it would run at another speed elsewhere."""
    is_fixed = any(timer.get("name") == "tsc" and timer.get("frequency") for timer in root.findall("clock/timer"))
    return cpu["features"].get("invtsc") in ("require", "force") and not is_fixed
