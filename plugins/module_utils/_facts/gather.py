# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""What C(host_facts) tells of a host: who it is, what it is and has, and every domain with what it needs."""

from __future__ import annotations

import dataclasses
import typing as t

from .._errors import KvmfleetError
from .._hypervisor.uri import is_local
from .._migration import hypervisor as h
from .._policy.document import OwnPolicy, parse
from .._records.clock import utc_now
from .identity import read_host_id, read_machine_id
from .links import BRIDGES, read_links
from .mounts import LocalStores
from .ports import Definition, Facts, GatheredHost, Roll, Stores
from .remembered import remembered
from .request import request_of
from .traits import host_traits

Own = t.Mapping[str, OwnPolicy]

# What only a host itself can tell: its files, its file systems, its network interfaces.
_OF_ITSELF = ("machine_id", "mounts", "bridges", "interfaces")
# Facts that are null where they could not be told.
_OPEN = ("host_cpu", "pools", "networks", "devices", "net_devices")


def gather(host: GatheredHost, dirty_rate_seconds: int = 0) -> t.Tuple[Facts, t.List[str]]:
    """Return C(kvmfleet_host) and warnings. Each domain is read once; sizes in MiB where the name says so, else in bytes.

    Of a host that is reached through a remote URI, what only itself can tell is null and stands in C(unverified). Its C(host_id) is read through libvirt.

    :arg dirty_rate_seconds: measure for so long how fast the running domains write to their memory; 0 to measure nothing.
    """
    own_files = is_local(host.uri)
    stores = LocalStores() if own_files else None
    itself, warnings = _itself(stores) if stores else ({"host_id": host.host_id(), **dict.fromkeys(_OF_ITSELF)}, [])
    around, roll, traits = host.surroundings(), host.roll(), host_traits(host)
    definitions = sorted(roll.definitions, key=lambda definition: (definition.info.name, definition.info.uuid))
    own = {definition.info.uuid: parse(definition.info.policy_xml) for definition in definitions}
    facts = {
        "gathered_at": utc_now(),
        "name": None,
        "host_uuid": host.host_uuid(),
        "hostname": host.hostname(),
        "versions": host.versions(),
        "memory": host.memory(),
        "cpus": host.cpus(),
        **host.hardware(),
        **around,
        **itself,
        **traits,
        "remembered": remembered() if own_files else None,
    }
    domains, problems = _domains(definitions, own, stores, facts)
    running = [definition.info.uuid for definition in definitions if _is_measurable(definition.info.view)]
    rates = host.dirty_rates(running, dirty_rate_seconds) if dirty_rate_seconds and running else {}
    facts["domains"] = [{**domain, "dirty_rate_mib": rates.get(domain["uuid"])} for domain in domains]
    facts["unverified"] = [*traits["unverified"], *_open(facts, own_files)]
    return facts, [*warnings, *_warnings(roll, definitions, own, problems)]


def _open(facts: Facts, own_files: bool) -> t.List[str]:
    """Return the facts that could not be told. A host without an identity file has told just that."""
    told = ("host_id", "machine_id") if own_files else ()
    return [key for key in (*_OPEN, "host_id", *_OF_ITSELF) if facts[key] is None and key not in told]


def _is_measurable(view: h.GuestView) -> bool:
    return view.active and view.state == h.RUNNING and not view.is_busy


def _itself(stores: LocalStores) -> t.Tuple[Facts, t.List[str]]:
    identity, warnings = identity_facts()
    links = read_links()
    interfaces = None if links is None else sorted(links)
    bridges = None if links is None else sorted(name for name, kind in links.items() if kind in BRIDGES)
    return {**identity, "mounts": stores.described(), "bridges": bridges, "interfaces": interfaces}, warnings


def identity_facts() -> t.Tuple[Facts, t.List[str]]:
    """Return C(host_id) and C(machine_id) of the host that this runs on; one that is not readable is null, with a warning."""
    warnings = []
    host_id = None
    try:
        host_id = read_host_id()
    except KvmfleetError as error:
        warnings.append(str(error))
    return {"host_id": host_id, "machine_id": read_machine_id()}, warnings


def _domains(definitions: t.Sequence[Definition], own: Own, stores: t.Optional[Stores], facts: Facts) -> t.Tuple[t.List[Facts], t.Dict[str, str]]:
    """Return the domains, and by UUID what is wrong with the definitions that cannot be read."""
    domains, problems = [], {}
    for definition in definitions:
        policy = own[definition.info.uuid]
        try:
            request = request_of(definition, policy, facts["versions"], stores, facts["pools"] or ())
        except KvmfleetError as error:
            definition = dataclasses.replace(definition, root=None, problem=f"Its definition could not be understood: {error}")
            request = request_of(definition, policy, facts["versions"], stores, ())
        domains.append(_domain(definition.info, policy, request))
        if definition.problem:
            problems[definition.info.uuid] = definition.problem
    return domains, problems


def _domain(info: h.DomainInfo, own: OwnPolicy, request: Facts) -> Facts:
    """Return one domain; its request is what its own policy makes of it, without its profile, which hosts do not know."""
    return {
        "uuid": info.uuid,
        "name": info.name,
        "state": info.view.state,
        "reason": info.view.reason,
        "active": info.view.active,
        "persistent": info.view.persistent,
        "autostart": info.autostart,
        "job": info.view.job,
        "memory_mib": request["memory_mib"],
        "vcpus": info.vcpus,
        "disks": [dataclasses.asdict(disk) for disk in info.disks],
        "policy": own.values,
        "policy_problems": own.wrong,
        "request": request,
    }


def _warnings(roll: Roll, definitions: t.Sequence[Definition], own: Own, problems: t.Mapping[str, str]) -> t.Iterator[str]:
    for name in sorted(roll.vanished):
        yield f"Domain {name} went away while the facts were gathered: it is not among them."
    for info in (definition.info for definition in definitions):
        if info.uuid in problems:
            yield f"Domain {info.name} is listed without its needs, and will not be moved. {problems[info.uuid]}"
        if own[info.uuid].wrong:
            yield f"The migration policy in the XML of domain {info.name} is wrong in: {', '.join(own[info.uuid].wrong)}."
