# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts and domains that do not exist, as the facts C(kvmfleet_host) that C(host_facts) would gather of them."""

from __future__ import annotations

import typing as t
import uuid
from collections.abc import Sequence

MIB = 1024**2
MACHINE = "pc-q35-7.2"
MACHINES = ["pc", "pc-i440fx-7.1", "pc-i440fx-7.2", "q35", "pc-q35-7.1", "pc-q35-7.2"]
FEATURES = ["aes", "avx", "avx2", "sse4.2", "ssse3", "vmx"]
HYPERVISOR = 7002000
GATHERED_AT = "2026-11-21T03:00:00.000Z"

Document = dict[str, t.Any]


def uuid_of(name: str) -> str:
    """Return the UUID that belongs to a name."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


def request(memory_mib: int = 1024, vcpus: int = 1, **changes: t.Any) -> Document:
    """Return what a plain domain needs: a custom CPU model, one disk on shared storage, one bridge."""
    return {
        "memory_mib": memory_mib,
        "vcpus": vcpus,
        "arch": "x86_64",
        "virt_type": "kvm",
        "machine": MACHINE,
        "hypervisor": HYPERVISOR,
        "cpu": {"mode": "custom", "model": "Haswell", "features": {"aes": "require"}, "xml": "<cpu mode='custom'><model>Haswell</model></cpu>"},
        "pinning": None,
        "numa": None,
        "hugepages": [],
        "devices": [],
        "blockers": [],
        "disks": [disk("vda")],
        "networks": [{"type": "bridge", "source": "br0"}],
        "nvram": None,
        "loader": None,
        "tpm": False,
        "traits": [],
        "labels": [],
        "group": None,
        "priority": 0,
        "drain": "migrate",
        **changes,
    }


def disk(target: str, shared: bool | None = True, **changes: t.Any) -> Document:
    """Return a disk of a request."""
    path = f"/srv/images/{target}.qcow2" if shared else f"/var/lib/libvirt/images/{target}.qcow2"
    store = f"nfs4:nas:/images/{target}.qcow2" if shared else None
    base = {"target": target, "device": "disk", "kind": "file", "source": path, "readonly": False, "shareable": False}
    return {**base, "shared": shared, "store": store, "optional": False, "bytes": 1024 * MIB, **changes}


def domain(name: str, memory_mib: int = 1024, vcpus: int = 1, **changes: t.Any) -> Document:
    """Return a running domain. Keys of the domain's own policy (priority, drain, group, labels) count for its policy and its request.

    :arg changes: keys of the domain or of its request.
    """
    own = {key: changes[key] for key in ("priority", "drain", "group", "labels") if key in changes}
    of_domain = {key: changes.pop(key) for key in _OF_DOMAIN if key in changes}
    return {
        "uuid": uuid_of(name),
        "name": name,
        "state": "running",
        "reason": "booted",
        "active": True,
        "persistent": True,
        "autostart": False,
        "job": "none",
        "memory_mib": memory_mib,
        "vcpus": vcpus,
        "disks": [],
        "policy": own,
        "policy_problems": {},
        "request": request(memory_mib, vcpus, **changes),
        "dirty_rate_mib": None,
        **of_domain,
    }


_OF_DOMAIN = ("uuid", "state", "reason", "active", "persistent", "autostart", "job", "policy", "policy_problems", "dirty_rate_mib")


def host(name: str, memory_mib: int = 65536, cpus: int = 16, domains: Sequence[Document] = (), **changes: t.Any) -> Document:
    """Return the facts of a host. Its memory is what guests may have, beside the 512 MiB that are reserved for the host itself."""
    total_mib = memory_mib + 512
    return {
        "gathered_at": GATHERED_AT,
        "name": name,
        "host_uuid": uuid_of(name),
        "host_id": None,
        "machine_id": None,
        "hostname": name,
        "versions": {"libvirt": 9000000, "hypervisor": HYPERVISOR},
        "memory": {"total_bytes": total_mib * MIB, "free_bytes": total_mib * MIB},
        "cpus": cpus,
        "arch": "x86_64",
        "cpu_ids": list(range(cpus)),
        "numa_cells": [{"id": 0, "total_mib": total_mib, "free_mib": total_mib, "cpus": list(range(cpus)), "pages": []}],
        "platforms": [_platform(cpus)],
        "host_cpu": {"model": "Haswell", "vendor": "Intel", "features": FEATURES},
        "pools": [],
        "mounts": [{"path": "/srv/images", "kind": "nfs4", "store": "nfs4:nas:/images", "capacity_bytes": 2**44, "available_bytes": 2**43}],
        "networks": [{"name": "default", "active": True, "bridge": "virbr0"}],
        "bridges": ["br0"],
        "interfaces": ["eth0", "br0"],
        "network_filters": ["clean-traffic"],
        "secrets": [],
        "devices": [],
        "traits": ["COMPUTE_MIGRATE_AUTO_CONVERGE", "COMPUTE_MIGRATE_POST_COPY"],
        "unverified": [],
        "missing_traits": {},
        "domains": list(domains),
        **changes,
    }


def _platform(cpus: int) -> Document:
    cpu = {"model": "Haswell", "vendor": "Intel", "features": FEATURES, "usable_models": ["Haswell", "IvyBridge", "qemu64"]}
    base = {"arch": "x86_64", "virt_type": "kvm", "emulator": "/usr/bin/qemu-system-x86_64"}
    return {**base, "machines": MACHINES, "max_vcpus": max(288, cpus), "cpu": cpu}
