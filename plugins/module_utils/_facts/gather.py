# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What C(host_facts) tells of a host: who it is, how much room it has, and every domain with what it needs."""

from __future__ import annotations

import dataclasses
import typing as t

from .._errors import KvmfleetError
from .._hypervisor.uri import is_local
from .._migration import hypervisor as h
from .._migration.policy import required_traits
from .._policy.document import OwnPolicy, parse
from .._records.clock import utc_now
from .identity import read_host_id, read_machine_id
from .traits import host_traits

MIB = 1024**2

Facts = t.Dict[str, t.Any]


class GatheredHost(h.Host, t.Protocol):
    """A host that can also say how much room it has, and name all its domains."""

    def memory(self) -> t.Dict[str, int]:
        """C(total_bytes) and C(free_bytes)."""

    def cpus(self) -> int:
        """Number of active CPUs."""

    def emulator_uid(self) -> t.Optional[int]:
        """The user ID that QEMU runs as, null where libvirt does not tell it."""

    def domains(self) -> t.List[h.DomainInfo]:
        """Every domain, defined or active."""


def gather(host: GatheredHost) -> t.Tuple[Facts, t.List[str]]:
    """Return C(kvmfleet_host) and warnings. Each domain is read once; sizes in MiB where the name says so, else in bytes.

    Of a host that is reached through a remote URI the identity files are somebody else's, so they are null.
    """
    identity, warnings = identity_facts() if is_local(host.uri) else ({"host_id": None, "machine_id": None}, [])
    infos = sorted(host.domains(), key=lambda info: (info.name, info.uuid))
    policies = {info.uuid: parse(info.policy_xml) for info in infos}
    facts = {
        "gathered_at": utc_now(),
        "name": None,
        "host_uuid": host.host_uuid(),
        **identity,
        "hostname": host.hostname(),
        "versions": host.versions(),
        "memory": host.memory(),
        "cpus": host.cpus(),
        **host_traits(host),
        "domains": [domain_facts(info, policies[info.uuid]) for info in infos],
    }
    wrong = [f"The migration policy in the XML of domain {info.name} is wrong in: {', '.join(policies[info.uuid].wrong)}." for info in infos]
    return facts, warnings + [warning for warning, info in zip(wrong, infos) if policies[info.uuid].wrong]


def identity_facts() -> t.Tuple[Facts, t.List[str]]:
    """Return C(host_id) and C(machine_id) of the host that this runs on; one that is not readable is null, with a warning."""
    warnings = []
    host_id = None
    try:
        host_id = read_host_id()
    except KvmfleetError as error:
        warnings.append(str(error))
    return {"host_id": host_id, "machine_id": read_machine_id()}, warnings


def domain_facts(info: h.DomainInfo, own: OwnPolicy) -> Facts:
    """Return one domain of C(kvmfleet_host); its request is what its own policy makes of it, without its profile, which hosts do not know."""
    memory_mib = -(-info.memory_bytes // MIB)
    return {
        "uuid": info.uuid,
        "name": info.name,
        "state": info.view.state,
        "reason": info.view.reason,
        "active": info.view.active,
        "persistent": info.view.persistent,
        "autostart": info.autostart,
        "job": info.view.job,
        "memory_mib": memory_mib,
        "vcpus": info.vcpus,
        "disks": [dataclasses.asdict(disk) for disk in info.disks],
        "policy": own.values,
        "policy_problems": own.wrong,
        "request": {
            "memory_mib": memory_mib,
            "vcpus": info.vcpus,
            "traits": required_traits(own.values),
            "labels": own.values.get("labels", []),
            "group": own.values.get("group"),
        },
    }
