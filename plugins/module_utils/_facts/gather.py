# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The facts of C(host_facts): the identity of a host, its hardware and network interfaces, and every domain with its requirements."""

from __future__ import annotations

import dataclasses
import typing as t

from .._host_identity import find_ledger_id, read_host_id, read_machine_id
from .._libvirt.host import open_reader
from .._libvirt.interface import Host, OpenHost
from .._libvirt.values import Definition, DefinitionList
from .._model import domain_states
from .._model.clock import boot_moment, utc_now
from .._model.codec import ABSENT, Maybe, encode
from .._model.errors import Forbidden, KvmfleetError
from .._model.facts import (
    CPU_COMPARISON,
    DIRTY_RATES,
    DOMAIN_DISKS,
    FROM_AFAR,
    MOUNT_SIZES,
    NOT_READABLE,
    NOT_REPORTED,
    PATHS,
    PLATFORM_CPUS,
    WITHHELD,
    DomainDisk,
    DomainFacts,
    HostFacts,
)
from .._model.libvirt_formats import is_local
from .._model.policy_documents import OwnPolicy, parse_policy
from .._model.requests import DomainRequest
from .._module import is_root
from .._run_folder import RUN_FOLDER
from .firmware import list_firmware_files
from .identity import probe_traits
from .links import BRIDGES, describe_interfaces, read_links
from .load import ActiveGuest, LoadMeasurement, LoadReport, read_balloon_period
from .load_means import NO_EARLIER_READING
from .local_stores import LocalStores, Stores
from .measurements import DirtyRates, probe_links, read_used_mib
from .own_moves import NOTES_FOLDER, list_remembered
from .request import build_request

Own = t.Mapping[str, OwnPolicy]

# Facts that only a host itself can determine: its files, its file systems, its network interfaces.
_OF_ITSELF = ("machine_id", "boot_id", "ledger_id", "mounts", "bridges", "interfaces", "interface_details", "firmware_files")
# Those of them that can be unknown on the host itself, too.
_OWN_OPEN = ("mounts", "bridges", "interfaces", "interface_details")
# Facts that are null if they are unknown.
_OPEN = ("host_cpu", "pools", "networks", "devices", "net_devices", "network_filters", "secrets")
# How many paths a reason names.
_MOST_PATHS = 3

Reasons = t.Dict[str, str]


def gather_facts(
    host: Host,
    dirty_rate_seconds: int = 0,
    link_to: t.Sequence[str] = (),
    open_host: OpenHost = open_reader,
    load_seconds: int = 0,
    keeps_counters: bool = True,
) -> t.Tuple[HostFacts, t.List[str]]:
    """Return the facts of a host and warnings. Each domain is read once. Sizes are in MiB if the name says so, else in bytes.

    For a host behind a remote URI, the facts that only the host itself can determine are null and listed in C(unverified). Its C(host_id) is read through
    libvirt. For a user other than root, C(unverified) also lists what libvirt withholds and what only root can read, each with its reason.

    :arg dirty_rate_seconds: how long to measure the dirty rate of the running domains; 0 to measure nothing.
    :arg link_to: libvirt URIs of hosts; the rate of the link to them is probed.
    :arg load_seconds: over about how many seconds the mean load is reported; 0 to report no load.
    :arg keeps_counters: whether the counters are stored for later tasks, if the user is root.
    """
    measurement = LoadMeasurement(host.uri, open_host, load_seconds, keeps_counters and is_root()) if load_seconds and is_local(host.uri) else None
    roll = host.list_definitions()
    running = {definition.info.uuid: definition.info.name for definition in roll.definitions if _is_measurable(definition.info.view)}
    # Everything else is read while the guests are measured.
    rates = DirtyRates(host, list(running), dirty_rate_seconds, names=running if is_local(host.uri) else None)
    facts, warnings = _gather_domains(host, roll, bool(dirty_rate_seconds and running))
    links = probe_links(host, link_to, open_host) if link_to else ABSENT
    if load_seconds:
        facts, warnings = _add_load(facts, measurement.finish(_list_active(facts, roll)) if measurement else None, warnings)
    measured = rates.collect_rates()
    domains = tuple(dataclasses.replace(domain, dirty_rate_mib=measured.get(domain.uuid)) for domain in facts.domains or ())
    return dataclasses.replace(facts, domains=domains, links=links, dirty_rate_seconds=dirty_rate_seconds or ABSENT), warnings


def _list_active(facts: HostFacts, roll: DefinitionList) -> t.Iterator[ActiveGuest]:
    periods = {definition.info.uuid: read_balloon_period(definition) for definition in roll.definitions}
    for domain in facts.domains or ():
        if domain.active:
            yield ActiveGuest(domain.uuid, domain.name, domain.used_mib if domain.used_mib is not ABSENT else None, periods.get(domain.uuid, 0))


def _add_load(facts: HostFacts, report: t.Optional[LoadReport], warnings: t.List[str]) -> t.Tuple[HostFacts, t.List[str]]:
    """Return the facts with the load of the host and of its active domains, and warnings. What an earlier reading would have provided is not unverified."""
    if report is None:
        unknown = {"load": FROM_AFAR}
        facts = dataclasses.replace(facts, load=None)
    else:
        unknown = {f"load.{name}": why for name, why in (report.host.unknown or {}).items() if why != NO_EARLIER_READING}
        domains = (dataclasses.replace(domain, load=report.domains.get(domain.uuid) if domain.active else ABSENT) for domain in facts.domains or ())
        facts = dataclasses.replace(facts, load=report.host, domains=tuple(domains))
    reasons = facts.unverified_reasons if facts.unverified_reasons is ABSENT else {**facts.unverified_reasons, **unknown}
    facts = dataclasses.replace(facts, unverified=(*(facts.unverified or ()), *unknown), unverified_reasons=reasons)
    return facts, [*warnings, *(report.warnings if report else ())]


def _gather_domains(host: Host, roll: DefinitionList, with_rates: bool) -> t.Tuple[HostFacts, t.List[str]]:
    """Return the facts without what is measured, and warnings."""
    stores = LocalStores() if is_local(host.uri) else None
    facts, reasons, warnings = _read_host_facts(host, stores)
    denied_mounts = set(stores.denied) if stores else set()
    definitions = sorted(roll.definitions, key=lambda definition: (definition.info.name, definition.info.uuid))
    own = {definition.info.uuid: parse_policy(definition.info.policy_xml) for definition in definitions}
    domains, problems = _describe_domains(definitions, own, stores, facts)
    facts = dataclasses.replace(facts, domains=tuple(domains), unverified=tuple(reasons))
    if not is_root():
        reasons = {**reasons, **_list_withheld(host, facts, with_rates), **_list_concealed(facts, stores, denied_mounts)}
        facts = dataclasses.replace(facts, unverified=tuple(reasons), unverified_reasons=reasons)
    return facts, [*warnings, *_list_warnings(roll, definitions, own, problems)]


def _list_withheld(host: Host, facts: HostFacts, with_rates: bool) -> Reasons:
    """Return what libvirt withholds on its read-only connection, beyond the facts that are null."""
    if not host.is_read_only:
        return {}
    platforms = [PLATFORM_CPUS] if any(platform.arch == facts.arch and not platform.cpu for platform in facts.platforms or ()) else []
    return dict.fromkeys([*platforms, CPU_COMPARISON, PATHS, *([DIRTY_RATES] if with_rates else ())], WITHHELD)


def _list_concealed(facts: HostFacts, stores: t.Optional[LocalStores], denied_mounts: t.Set[str]) -> Reasons:
    """Return what the permissions of files conceal from this user."""
    if stores is None:
        return {"remembered": FROM_AFAR}
    found = {} if facts.remembered is not None else {"remembered": f"{NOT_READABLE} ({RUN_FOLDER}, {NOTES_FOLDER})"}
    parts = ((MOUNT_SIZES, denied_mounts), (DOMAIN_DISKS, stores.denied - denied_mounts))
    return {**found, **{part: f"{NOT_READABLE} ({_name_paths(paths)})" for part, paths in parts if paths}}


def _name_paths(paths: t.Collection[str]) -> str:
    rest = len(paths) - _MOST_PATHS
    return ", ".join(sorted(paths)[:_MOST_PATHS]) + (f" and {rest} more" if rest > 0 else "")


def _read_host_facts(host: Host, stores: t.Optional[LocalStores]) -> t.Tuple[HostFacts, Reasons, t.List[str]]:
    """Return the facts of the host without its domains, which of them are unknown and why, and warnings.

    :arg stores: null if the host is reached through a remote URI.
    """
    hardware, around, traits = host.read_hardware(), host.read_surroundings(), probe_traits(host)
    facts = HostFacts(
        gathered_at=utc_now(),
        name=None,
        host_uuid=host.host_uuid(),
        hostname=host.read_hostname(),
        versions=host.read_versions(),
        memory=host.read_memory(),
        cpus=host.count_cpus(),
        arch=hardware.arch,
        cpu_ids=hardware.cpu_ids,
        numa_cells=hardware.numa_cells,
        platforms=hardware.platforms,
        host_cpu=hardware.host_cpu,
        pools=around.pools,
        networks=around.networks,
        devices=around.devices,
        net_devices=around.net_devices,
        network_filters=around.network_filters,
        secrets=around.secrets,
        traits=traits.traits,
        missing_traits=traits.missing_traits,
        remembered=None,
    )
    if stores:
        facts, more, warnings = _add_own_facts(facts, stores)
        return facts, {**traits.unverified, **dict.fromkeys(_list_null(facts, (*_OPEN, *_OWN_OPEN)), NOT_REPORTED), **more}, warnings
    facts = _from_afar(facts, host.host_id())
    no_id = WITHHELD if host.is_read_only else NOT_REPORTED
    reasons = {**dict.fromkeys(_OPEN, NOT_REPORTED), "host_id": no_id, **dict.fromkeys(_OF_ITSELF, FROM_AFAR)}
    return facts, {**traits.unverified, **{key: reasons[key] for key in _list_null(facts, tuple(reasons))}}, []


def _list_null(facts: HostFacts, names: t.Sequence[str]) -> t.List[str]:
    return [name for name in names if getattr(facts, name) is None]


def _from_afar(facts: HostFacts, host_id: t.Optional[str]) -> HostFacts:
    of_itself: t.Any = dict.fromkeys(_OF_ITSELF)
    return dataclasses.replace(facts, host_id=host_id, **of_itself)


def _add_own_facts(facts: HostFacts, stores: LocalStores) -> t.Tuple[HostFacts, Reasons, t.List[str]]:
    """Return the facts with those that only the host itself can determine, which of these only root can read, and warnings."""
    host_id, reasons, warnings = _read_host_id()
    links, moves = read_links(), list_remembered()
    itself = dataclasses.replace(
        facts,
        host_id=host_id,
        machine_id=read_machine_id(),
        boot_id=boot_moment().boot_id or None,
        ledger_id=find_ledger_id(),
        mounts=tuple(stores.describe_mounts()),
        bridges=None if links is None else tuple(sorted(name for link in links if link.kind in BRIDGES for name in link.names)),
        interfaces=None if links is None else tuple(sorted(name for link in links for name in link.names)),
        interface_details=None if links is None else describe_interfaces(links),
        firmware_files=list_firmware_files(),
        remembered=None if moves is None else tuple(moves),
    )
    return itself, reasons, warnings


def _read_host_id() -> t.Tuple[t.Optional[str], Reasons, t.List[str]]:
    """Return the ID of the host that this runs on. An unreadable ID is null, with a warning; a missing one is a known fact."""
    try:
        return read_host_id(), {}, []
    except KvmfleetError as error:
        is_denied = isinstance(error, Forbidden) and not is_root()
        return None, {"host_id": NOT_READABLE} if is_denied else {}, [str(error)]


def _is_measurable(view: domain_states.DomainView) -> bool:
    return view.active and view.state == domain_states.RUNNING and not view.is_busy


def _describe_domains(
    definitions: t.Sequence[Definition], own: Own, stores: t.Optional[Stores], facts: HostFacts
) -> t.Tuple[t.List[DomainFacts], t.Dict[str, str]]:
    """Return the domains, and by UUID what is wrong with the definitions that cannot be read."""
    domains, problems = [], {}
    for definition in definitions:
        policy = own[definition.info.uuid]
        try:
            request = build_request(definition, policy, facts.versions or {}, stores, facts.pools or ())
        except KvmfleetError as error:
            definition = dataclasses.replace(definition, root=None, problem=f"Its definition could not be parsed: {error}")
            request = build_request(definition, policy, facts.versions or {}, stores, ())
        used_mib = read_used_mib(definition.info.name, request.memory_mib) if stores and definition.info.view.active else ABSENT
        domains.append(_describe_domain(definition, policy, request, used_mib))
        if definition.problem:
            problems[definition.info.uuid] = definition.problem
    return domains, problems


def _describe_domain(definition: Definition, own: OwnPolicy, request: DomainRequest, used_mib: Maybe[int]) -> DomainFacts:
    """Return one domain; its request includes its own policy, but not its profile, which hosts do not know."""
    info = definition.info
    return DomainFacts(
        uuid=info.uuid,
        name=info.name,
        state=info.view.state,
        reason=info.view.reason,
        active=info.view.active,
        persistent=info.view.persistent,
        autostart=info.autostart,
        managed_save=definition.has_saved_memory,
        job=info.view.job,
        memory_mib=request.memory_mib,
        vcpus=info.vcpus,
        disks=tuple(DomainDisk(disk.target, disk.kind, disk.source, disk.readonly, disk.shareable) for disk in info.disks),
        policy=own.values,
        policy_problems=own.wrong,
        request=encode(request),
        used_mib=used_mib,
    )


def _list_warnings(roll: DefinitionList, definitions: t.Sequence[Definition], own: Own, problems: t.Mapping[str, str]) -> t.Iterator[str]:
    for name in sorted(roll.vanished):
        yield f"Domain {name} disappeared while the facts were gathered, and is not included."
    for info in (definition.info for definition in definitions):
        if info.uuid in problems:
            yield f"Domain {info.name} is listed without its requirements, and will not be moved. {problems[info.uuid]}"
        if own[info.uuid].wrong:
            yield f"The migration policy in the XML of domain {info.name} has invalid fields: {', '.join(own[info.uuid].wrong)}."
