# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What a domain needs of a host, by its definition and by its own policy; profiles are the control node's."""

from __future__ import annotations

import typing as t

from .._migration.policy import required_traits
from .._policy.document import OwnPolicy
from .._policy.fields import PLACE_DEFAULTS
from .blockers import blockers_of
from .cpu import cpu_of
from .cpusets import mib_of
from .devices import devices_of, networks_of
from .disks import Pools, disks_of
from .needed_files import boot_files
from .placement import hugepages_of, numa_of, pinning_of
from .ports import Definition, Facts, Stores


def request_of(definition: Definition, own: OwnPolicy, versions: t.Mapping[str, int], stores: t.Optional[Stores], pools: Pools) -> Facts:
    """Return the request. Of a domain whose definition could not be read it has the size, and that as a blocker.

    :arg versions: of the host that the domain is on.
    """
    info = definition.info
    known = _by_policy(own)
    size = {"memory_mib": mib_of(info.memory_bytes), "vcpus": info.vcpus}
    if definition.root is None:
        return {**_UNKNOWN, **size, **known, "hypervisor": versions.get("hypervisor"), "blockers": [definition.problem]}
    root, numa, cpu = definition.root, numa_of(definition.root), cpu_of(definition.root)
    kind = root.find("os/type")
    return {
        **size,
        "arch": kind.get("arch") if kind is not None else None,
        "virt_type": root.get("type"),
        "machine": kind.get("machine") if kind is not None else None,
        "hypervisor": versions.get("hypervisor"),
        "cpu": cpu,
        "pinning": pinning_of(root, info.vcpus),
        "numa": numa,
        "hugepages": hugepages_of(root, size["memory_mib"], numa),
        "devices": devices_of(root),
        "blockers": blockers_of(root, cpu, versions, definition.has_snapshots, stores),
        "disks": disks_of(root, stores, pools),
        "networks": networks_of(root),
        **_firmware(root),
        "boot_files": boot_files(root),
        "tpm": info.has_tpm,
        **known,
    }


def _by_policy(own: OwnPolicy) -> Facts:
    said = {field: default if own.values.get(field) is None else own.values[field] for field, default in PLACE_DEFAULTS.items()}
    return {"traits": required_traits(own.values), **said}


def _firmware(root: t.Any) -> Facts:
    nvram = root.find("os/nvram")
    source = nvram.find("source") if nvram is not None else None
    path = (nvram.text or "").strip() if nvram is not None else ""
    return {
        "nvram": path or (source.get("file") if source is not None else None),
        "loader": (root.findtext("os/loader") or "").strip() or None,
    }


_UNKNOWN: Facts = {
    "arch": None,
    "virt_type": None,
    "machine": None,
    "cpu": {"mode": None, "model": None, "features": {}, "xml": None, "package_threads": 1, "shows_threads": None},
    "pinning": None,
    "numa": None,
    "hugepages": [],
    "devices": [],
    "disks": [],
    "networks": [],
    "nvram": None,
    "loader": None,
    "boot_files": [],
    "tpm": False,
}
