# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Everything the control node must know before it decides on moves. Reads both hosts, changes nothing."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import typing as t

from .._errors import KvmfleetError, NotFound
from .._policy.document import parse
from . import hypervisor as h


class SurveyedHost(h.Host, t.Protocol):
    """A host that can also say how much room it has."""

    def memory(self) -> t.Dict[str, int]:
        """C(total_bytes) and C(free_bytes)."""

    def cpus(self) -> int:
        """Number of active CPUs."""

    def roster(self) -> t.List[t.Dict[str, t.Any]]:
        """C({uuid, name, active, memory_bytes, vcpus}) of every domain."""


Open = t.Callable[[str], SurveyedHost]
Probe = t.Callable[[t.Any], t.Dict[str, t.Any]]
# What both hosts say of a domain's images, given the domain's UUID, its source and a destination.
Examine = t.Callable[[str, t.Any, t.Any], t.List[t.Dict[str, t.Any]]]

# How a domain is asked for: its name or its UUID, and the UUIDs that the ledger knows for the name.
Wanted = t.Mapping[str, t.Any]
Destinations = t.Mapping[str, t.Mapping[str, t.Any]]


def survey(
    source: SurveyedHost,
    wanted: t.Sequence[Wanted],
    open_host: Open,
    is_shared: t.Callable[[str], bool],
    probe: t.Optional[Probe] = None,
    examine: t.Optional[Examine] = None,
) -> t.Dict[str, t.Any]:
    """Return C({source, destinations, domains}) for these moves, as JSON can carry it.

    :arg wanted: for each move C(name) or C(uuid), C(known_uuids), and C(destination_uris): one, or all candidates.
    :arg is_shared: whether a file of this host lies on shared storage.
    :arg probe: what a host can do, for C(traits) of each.
    :arg examine: asked for C(storage) of a move that says C(copy_storage), once for each destination that can take it.
    """
    uris = sorted({uri for move in wanted for uri in move["destination_uris"]})
    with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, len(uris))) as pool:
        destinations = dict(zip(uris, pool.map(lambda uri: _destination(uri, open_host, probe), uris)))
    try:
        domains = [_domain(source, move, destinations, is_shared, examine) for move in wanted]
        described = {uri: _without_host(facts) for uri, facts in destinations.items()}
        return {"source": describe_host(source, probe), "destinations": described, "domains": domains}
    finally:
        for facts in destinations.values():
            if "host" in facts:
                facts["host"].close()


def describe_host(host: SurveyedHost, probe: t.Optional[Probe] = None) -> t.Dict[str, t.Any]:
    """Return identity, versions, memory and the roster of one host, and its C(traits) where there is a probe for them."""
    return {
        "host_uuid": host.host_uuid(),
        "hostname": host.hostname(),
        "versions": host.versions(),
        "memory": host.memory(),
        "cpus": host.cpus(),
        "roster": host.roster(),
        "traits": probe(host) if probe else None,
    }


def _destination(uri: str, open_host: Open, probe: t.Optional[Probe]) -> t.Dict[str, t.Any]:
    try:
        host = open_host(uri)
        return {"answered": True, "host": host, **describe_host(host, probe)}
    except KvmfleetError as error:
        return {"answered": False, **error.as_result()}


def _without_host(facts: t.Mapping[str, t.Any]) -> t.Dict[str, t.Any]:
    return {key: value for key, value in facts.items() if key != "host"}


def _domain(
    source: SurveyedHost, move: Wanted, destinations: Destinations, is_shared: t.Callable[[str], bool], examine: t.Optional[Examine]
) -> t.Dict[str, t.Any]:
    # The source under another name is no other place where the domain could be.
    asked = {uri: destinations[uri] for uri in move["destination_uris"] if destinations[uri].get("host_uuid") != source.host_uuid()}
    try:
        info = source.find(name=move.get("name"), uuid=move.get("uuid"))
    except NotFound:
        known = [uuid for uuid in (move.get("uuid"), *move.get("known_uuids", ())) if uuid]
        return {"found": False, "there": _there(asked, known)}
    return {
        "found": True,
        "info": dataclasses.asdict(info),
        "policy": dataclasses.asdict(parse(info.policy_xml)),
        "unshared_disks": [disk.target for disk in info.disks if _is_unshared(disk, is_shared)],
        "storage": _storage(source, info, asked, examine) if examine and move.get("copy_storage") else {},
        "there": _there(asked, [info.uuid]),
        "name_taken": {uri: uuid for uri, uuid in ((uri, _name_taken(facts, info)) for uri, facts in asked.items()) if uuid},
    }


def _storage(source: SurveyedHost, info: h.DomainInfo, destinations: Destinations, examine: Examine) -> t.Dict[str, t.Any]:
    """Return, by URI, what is known of the images, or C(msg) where nothing could be found out.

    A domain with a job, or that is off, is not going to be moved now.
    """
    if not info.view.active or info.view.job != h.JOB_NONE:
        return {}
    here = source.host_uuid()
    others = {uri: facts["host"] for uri, facts in destinations.items() if facts["answered"] and facts["host_uuid"] != here}
    return {uri: _examined(info.uuid, source, host, examine) for uri, host in others.items()}


def _examined(uuid: str, source: SurveyedHost, destination: SurveyedHost, examine: Examine) -> t.Any:
    try:
        return examine(uuid, source, destination)
    except KvmfleetError as error:
        return error.as_result()


def _there(destinations: Destinations, uuids: t.Sequence[str]) -> t.Dict[str, t.Dict[str, t.Any]]:
    """Return, by URI, what a destination says of the first of these domains that it has; a name alone proves nothing."""
    there = {}
    for uri, facts in destinations.items():
        present = {entry["uuid"] for entry in facts.get("roster", ())}
        uuid = next((uuid for uuid in uuids if uuid in present), None)
        if uuid is not None:
            there[uri] = {"uuid": uuid, **dataclasses.asdict(facts["host"].view(uuid))}
    return there


def _name_taken(destination: t.Mapping[str, t.Any], info: h.DomainInfo) -> t.Optional[str]:
    """Return the UUID of another domain that has this one's name at the destination."""
    return next((entry["uuid"] for entry in destination.get("roster", ()) if entry["name"] == info.name and entry["uuid"] != info.uuid), None)


def _is_unshared(disk: h.Disk, is_shared: t.Callable[[str], bool]) -> bool:
    return disk.kind in ("file", "dir") and bool(disk.source) and not disk.readonly and not is_shared(disk.source)
