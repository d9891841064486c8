# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Which hosts each guest can run on, whatever else runs there now, and what prevents it on the others.

Guests with equal requirements, and hosts that are equal for all guests, are judged once.
"""

from __future__ import annotations

import json
import posixpath
import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ansible_collections.kvmfleet.migration.plugins.module_utils._dataclass import dataclass
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.codec import ABSENT, JsonObject, encode
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.definition_files import POOLS_OF_UNITS
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.facts import HostFacts, LibvirtNetwork, StoragePool
from ansible_collections.kvmfleet.migration.plugins.module_utils._model.watched_moves import CpuVerdict

from .._ledger.documents import pause_collector
from .filters.base import Filter
from .filters.return_path import find_obstacle
from .filters.storage import explain_silent_images
from .fleet import Fleet, HostState
from .hardware import find_image_path, find_store
from .request import DiskImage, Request
from .verdicts import DEFAULT_FILTERS, Verdict, check_host

# What another guest or a person can change at any time.
_MOMENTARY_FILTERS = ("not_source", "enabled", "disk", "max_domains", "max_moves", "affinity", "anti_affinity", "migratable")
REACH_FILTERS: t.Final[tuple[Filter, ...]] = tuple(rule for rule in DEFAULT_FILTERS if rule.name not in _MOMENTARY_FILTERS)

# Parts of a request that say nothing about hosts.
_NOT_OF_HOSTS = ("uuid", "name", "priority", "drain", "group", "blockers", "copied_disk_bytes")
_DEVICE_KIND, _VOLUME_KIND = "block", "volume"
_CUSTOM_CPU = "custom"
_THIS_GUEST = "The guest"


@dataclass(frozen=True)
class Refusal:
    """Hosts that refuse a guest for the same filters, or about which the same filters are in doubt.

    :arg filters: their names; empty for a doubt.
    :arg reason: of the first of these hosts.
    """

    hosts: tuple[str, ...]
    filters: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Reach:
    """Where guests with equal requirements can run.

    :arg hosts: that can run them.
    :arg one_way: those of C(hosts) from which they could not move back to their own host; see L(find_obstacle).
    :arg refused: the other hosts.
    :arg unsure: those of C(hosts) about which something is not known.
    """

    guests: tuple[Request, ...]
    hosts: tuple[str, ...]
    one_way: tuple[str, ...]
    refused: tuple[Refusal, ...]
    unsure: tuple[Refusal, ...]


@pause_collector()
def find_reach(requests: Iterable[Request], fleet: Fleet, filters: Sequence[Filter] = REACH_FILTERS) -> list[Reach]:
    """Return where each of these guests can run, guests with equal requirements together, in the order of their names.

    :arg requests: of active guests, each with the name of its host as its source.
    :arg fleet: hosts that answered, each with libvirt's comparison of the CPUs of guests where it was made.
    """
    wanted = sorted(requests, key=lambda request: (request.name, request.uuid))
    empty = empty_fleet(fleet)
    groups: dict[str, list[Request]] = {}
    for request in wanted:
        verdicts = {name: (verdict.passed, verdict.reason) for name, state in empty.states.items() if (verdict := state.cpu_verdicts.get(request.uuid))}
        groups.setdefault(f"{requirement_key(request, empty)} {sorted(verdicts.items())}", []).append(request)
    keys = _host_keys(wanted, empty)
    return [_judge_hosts(tuple(guests), empty, keys, filters) for guests in groups.values()]


def empty_fleet(fleet: Fleet) -> Fleet:
    """Return the hosts that answered, as if none of them had a guest."""
    return Fleet({name: _without_guests(state) for name, state in fleet.states.items() if state.unanswered is None})


def _without_guests(state: HostState) -> HostState:
    # Without UUIDs: what they hold is free for the guest itself, too.
    there = tuple(replace(guest, uuid="") for guest in state.guests.values() if guest.arrived)
    return replace(state, guests={}, used_mib=0, used_vcpus=0, vacated=(*state.vacated, *there))


def _judge_hosts(guests: tuple[Request, ...], fleet: Fleet, keys: Mapping[str, str], filters: Sequence[Filter]) -> Reach:
    # The reasons are about all of these guests.
    request = guests[0] if len(guests) == 1 else replace(guests[0], name=_THIS_GUEST)
    groups: dict[tuple[str, CpuVerdict | None], list[str]] = {}
    for name, state in fleet.states.items():
        groups.setdefault((keys[name], state.cpu_verdicts.get(request.uuid)), []).append(name)
    judged = [(tuple(names), check_host(request, fleet.states[names[0]], fleet, filters)) for names in groups.values()]
    hosts = sorted(name for names, verdict in judged if verdict.passed for name in names)
    return Reach(
        guests=guests,
        hosts=tuple(hosts),
        one_way=tuple(name for name in hosts if find_obstacle(request, fleet.states[name], fleet)),
        refused=_merge_refusals((names, verdict) for names, verdict in judged if not verdict.passed),
        unsure=_merge_refusals((names, verdict) for names, verdict in judged if verdict.passed and verdict.warnings),
    )


def _merge_refusals(judged: Iterable[tuple[tuple[str, ...], Verdict]]) -> tuple[Refusal, ...]:
    found: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for names, verdict in judged:
        filters = tuple(dict.fromkeys(failure["filter"] for failure in verdict.failures))
        text = _as_sentence(verdict.reason or " ".join(verdict.warnings))
        found.setdefault((filters, "" if filters else text), []).extend(names)
        found.setdefault((filters, "reason"), [text])
    return tuple(
        Refusal(tuple(sorted(names)), filters, text if not filters else found[filters, "reason"][0])
        for (filters, text), names in found.items()
        if text != "reason"
    )


def _as_sentence(text: str) -> str:
    return text.replace(_THIS_GUEST, _THIS_GUEST.lower())[:1].upper() + text.replace(_THIS_GUEST, _THIS_GUEST.lower())[1:]


def requirement_key(request: Request, fleet: Fleet) -> str:
    """Return a text that is the same for guests that every host treats alike, as far as the host and not its other guests decide.

    Images in one folder or pool are alike, but devices are not, and neither are volumes that only libvirt finds.
    """
    needs: JsonObject = {key: value for key, value in encode(request.needs).items() if key not in _NOT_OF_HOSTS}
    images = [_image_key(image, request, fleet) for image in request.images]
    # The processor and the devices of its own host decide about these.
    is_bound = bool(request.devices or (request.cpu and request.cpu.mode not in (None, _CUSTOM_CPU)))
    own = [request.source if is_bound or any(image.shared is False for image in request.images) else "", request.unsafe, dict(request.copied)]
    source = fleet.source_of(request)
    own.append(encode(source.resource_maps) if source and source.resource_maps else None)
    own.append(bool(source and explain_silent_images(request, source)))
    there = (source.hardware.networks if source else None) or {}
    own.append([_network_parts(found) if (found := there.get(need.source or "")) else ABSENT for need in request.networks])
    whole = {**needs, "disks": images, "nvram": bool(request.nvram), "memory_mib": request.memory_mib, "vcpus": request.vcpus, "own": own}
    return json.dumps(whole, sort_keys=True, default=str)


def _image_key(image: DiskImage, request: Request, fleet: Fleet) -> list[t.Any]:
    source = fleet.source_of(request)
    found = find_store(source.hardware, find_image_path(source.hardware, image.kind, image.source)) if source and image.shared else None
    pool = (source.hardware.pools or {}).get(image.source.partition("/")[0]) if source and image.kind == _VOLUME_KIND else None
    volume = find_image_path(source.hardware, image.kind, image.source) if source and pool and pool.type in POOLS_OF_UNITS else None
    place = image.source if image.kind == _DEVICE_KIND or volume is not None else posixpath.dirname(image.source)
    is_linked = found is not None and (found.identity != image.store if image.store else found.mount.is_local)
    optional, problem = image.disk.optional, image.disk.files_problem
    return [
        image.kind,
        place,
        image.store and posixpath.dirname(image.store),
        image.shared,
        image.kind == _DEVICE_KIND and image.is_identified,
        image.is_readonly,
        optional,
        problem,
        is_linked,
        pool and [pool.type, pool.path or None, volume],
    ]


def _host_keys(requests: Sequence[Request], fleet: Fleet) -> dict[str, str]:
    """Return for each host a text that is the same for hosts that treat all of these guests alike, except for the comparison of CPUs."""
    names = {network.source or "" for request in requests for network in request.networks}
    filters = {network.network_filter for request in requests for network in request.networks if network.network_filter}
    has_devices = any(request.devices for request in requests)
    secrets = {name for request in requests for name in request.needs.secrets or ()}
    volumes = {image.source for request in requests for image in request.images if image.kind == _VOLUME_KIND}
    keys = {name: _host_key(state, names | filters, secrets, volumes, has_devices) for name, state in fleet.states.items()}
    return {name: json.dumps(key, sort_keys=True, default=str) for name, key in keys.items()}


_KEYS_OF_HOSTS = ("versions", "cpus", "cpu_ids", "platforms", "host_cpu", "traits", "missing_traits", "unverified_reasons")


def _host_key(state: HostState, networks: set[str], secrets: set[str], volumes: set[str], has_devices: bool) -> list[t.Any]:
    facts, settings = state.hardware.facts, state.settings
    return [
        *(encode(getattr(facts, key) or None) for key in _KEYS_OF_HOSTS),
        state.hardware.total_mib,
        [(cell.id, cell.total_mib, encode(cell.pages or ())) for cell in facts.numa_cells or ()],
        encode(facts.firmware_files or None),
        [(mount.path, mount.kind, mount.store, bool(mount.silent)) for mount in facts.mounts or ()],
        [(pool.name, pool.type, pool.active, pool.path, _select_volumes(pool, volumes)) for pool in facts.pools or ()],
        _network_key(facts, networks.union(state.resource_maps.networks.values(), state.resource_maps.bridges.values())),
        encode(facts.devices or None) if has_devices else [],
        sorted(secrets.intersection(facts.secrets)) if isinstance(facts.secrets, tuple) else None,
        [encode(guest.pages) for guest in state.vacated if guest.pages],
        [sorted(settings.labels), sorted(settings.filters_off), settings.reserved_memory_mib, settings.reserved_cpus],
        [settings.ram_allocation_ratio, settings.cpu_allocation_ratio],
        [facts.mounts is None, facts.pools is None, facts.devices is None],
        encode(state.resource_maps) if state.resource_maps else None,
    ]


def _select_volumes(pool: StoragePool, wanted: set[str]) -> dict[str, str]:
    return {volume: path for volume, path in (pool.volumes or {}).items() if f"{pool.name}/{volume}" in wanted}


def _network_parts(network: LibvirtNetwork) -> tuple[t.Any, ...]:
    """Return what is compared with the network of that name on another host."""
    return (network.forward, network.default_portgroup, network.vlan, network.portgroup_vlans)


def _network_key(facts: HostFacts, wanted: set[str]) -> list[t.Any]:
    """Return the networks and network filters that any guest needs: each host has interfaces of its own guests."""
    libvirt_networks = [
        (one.name, one.active, one.bridge, one.portgroups, *_network_parts(one)) for one in facts.networks or () if one.name in wanted or one.bridge in wanted
    ]
    lists = (facts.bridges, facts.interfaces, facts.net_devices, facts.network_filters)
    kinds = [(one.name, one.kind) for one in facts.interface_details or () if one.name in wanted]
    return [libvirt_networks, kinds, *(sorted(wanted.intersection(listed)) if isinstance(listed, tuple) else None for listed in lists), facts.networks is None]
