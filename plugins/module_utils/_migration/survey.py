# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""Everything the control node must know before it decides on moves. Reads both hosts, changes nothing."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import typing as t

from .._errors import KvmfleetError, NotFound, Unreachable
from .._facts.needed_files import boot_paths
from .._patience import within
from .._policy.document import parse
from .._records.hosts import same_answer
from . import hypervisor as h


class SurveyedHost(h.Host, t.Protocol):
    """A host that can also say what it would make of a domain that came to it."""

    def has_path(self, path: str) -> t.Optional[bool]:
        """Whether the host has that file, folder or device; null where it cannot be told."""

    def compare_cpu(self, platform: t.Mapping[str, t.Any], cpu_xml: str) -> t.Dict[str, t.Any]:
        """C(passed) and C(reason): whether the host can run a guest with that CPU. Raises L(KvmfleetError) where it cannot be told."""


Open = t.Callable[[str], SurveyedHost]
# C(kvmfleet_host) of a host.
Describe = t.Callable[[t.Any], t.Dict[str, t.Any]]
# What both hosts say of a domain's images, given the domain's UUID, its source and a destination.
Examine = t.Callable[[str, t.Any, t.Any], t.List[t.Dict[str, t.Any]]]

# How a domain is asked for: its name or its UUID, and the UUIDs that the ledger knows for the name.
Wanted = t.Mapping[str, t.Any]
Facts = t.Dict[str, t.Any]
Destinations = t.Mapping[str, t.Mapping[str, t.Any]]

# All that a destination is asked at first: some ten questions, for which libvirt may start QEMU.
DESTINATION_SECONDS = 90.0
_COMPARED_MODES = ("custom", "host-model")
_PATH_KINDS = ("file", "dir", "block")
_DEVICE_KINDS = ("block", "volume")
_NO_FIT: Facts = {"cpu": {}, "paths": {}}


def survey(
    source: SurveyedHost,
    wanted: t.Sequence[Wanted],
    open_host: Open,
    is_shared: t.Callable[[str], bool],
    describe: Describe,
    examine: t.Optional[Examine] = None,
) -> Facts:
    """Return C({source, destinations, domains}) for these moves, as JSON can carry it.

    :arg wanted: for each move C(name) or C(uuid), C(known_uuids), and C(destination_uris): one, or all candidates. With a C(request) that was saved
      only the candidates are asked, and what they say of it stands in its C(domains).
    :arg is_shared: whether a file of this host lies on shared storage.
    :arg examine: asked for C(storage) of a move that says C(copy_storage), once for each destination that can take it.
    """
    uris = sorted({uri for move in wanted for uri in move["destination_uris"]})
    with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, len(uris))) as pool:
        destinations = dict(zip(uris, pool.map(lambda uri: _in_time(uri, open_host, describe), uris)))
    try:
        here = describe_host(source, describe)
        domains = [_domain(source, here, move, destinations, is_shared, examine) for move in wanted]
        return {"source": here, "destinations": {uri: _without_host(facts) for uri, facts in destinations.items()}, "domains": domains}
    finally:
        for facts in destinations.values():
            if "host" in facts:
                facts["host"].close()


def describe_host(host: SurveyedHost, describe: Describe) -> Facts:
    """Return C(answered) true and C(kvmfleet_host) of a host."""
    return {"answered": True, **describe(host)}


def _in_time(uri: str, open_host: Open, describe: Describe) -> Facts:
    """One destination that hangs is no reason not to ask the others."""
    found = within(DESTINATION_SECONDS, lambda: _destination(uri, open_host, describe))
    return found or {"answered": False, **Unreachable(f"libvirt at {uri} did not answer within {DESTINATION_SECONDS:.0f} s.").as_result()}


def _destination(uri: str, open_host: Open, describe: Describe) -> Facts:
    try:
        host = open_host(uri)
        return {"host": host, **describe_host(host, describe)}
    except KvmfleetError as error:
        return {"answered": False, **error.as_result()}


def _without_host(facts: t.Mapping[str, t.Any]) -> Facts:
    return {key: value for key, value in facts.items() if key != "host"}


def _domain(
    source: SurveyedHost,
    here: Facts,
    move: Wanted,
    destinations: Destinations,
    is_shared: t.Callable[[str], bool],
    examine: t.Optional[Examine],
) -> Facts:
    # The source under another name is no other place where the domain could be.
    asked = {uri: destinations[uri] for uri in move["destination_uris"] if not same_answer(destinations[uri], here)}
    if move.get("request"):
        return {"found": False, "there": _there(asked, [move["uuid"]]), "request": move["request"], **_fit(move["request"], asked)}
    try:
        info = source.find(name=move.get("name"), uuid=move.get("uuid"))
    except NotFound:
        known = [uuid for uuid in (move.get("uuid"), *move.get("known_uuids", ())) if uuid]
        return {"found": False, "there": _there(asked, known)}
    request = next((domain["request"] for domain in here["domains"] if domain["uuid"] == info.uuid), None)
    return {
        "found": True,
        "info": dataclasses.asdict(info),
        "policy": dataclasses.asdict(parse(info.policy_xml)),
        "request": request,
        **(_fit(request, asked) if request and info.view.active and info.view.job == h.JOB_NONE else _NO_FIT),
        "unshared_disks": [disk.target for disk in info.disks if _is_unshared(disk, is_shared)],
        "unproved_devices": unproved_devices(info.disks, request),
        "unshared_files": unshared_files(request, is_shared) if request else [],
        "storage": _storage(source, info, asked, examine) if examine and move.get("copy_storage") else {},
        "there": _there(asked, [info.uuid]),
        "name_taken": {uri: uuid for uri, uuid in ((uri, _name_taken(facts, info)) for uri, facts in asked.items()) if uuid},
    }


def _fit(request: Facts, destinations: Destinations) -> Facts:
    """Return C(cpu) and C(paths): what each destination that answered says of the domain's CPU, and which paths of its disks, and of what they are built on,
    are there.

    What cannot be told is left out. Nobody is asked about a domain with a job, or that is off: it is not going to be moved now.
    """
    others = {uri: facts["host"] for uri, facts in destinations.items() if facts["answered"]}
    verdicts = {uri: _cpu(host, request) for uri, host in others.items()}
    return {"cpu": {uri: verdict for uri, verdict in verdicts.items() if verdict}, "paths": {uri: _paths(host, request) for uri, host in others.items()}}


def _cpu(host: SurveyedHost, request: Facts) -> t.Optional[Facts]:
    """Return the destination's verdict. Of what is passed through from the host's own CPU libvirt says nothing."""
    cpu = request.get("cpu") or {}
    if cpu.get("mode") not in _COMPARED_MODES or not (cpu.get("xml") and request.get("arch") and request.get("virt_type")):
        return None
    try:
        return host.compare_cpu(request, cpu["xml"])
    except KvmfleetError:
        return None


def _paths(host: SurveyedHost, request: Facts) -> t.Dict[str, bool]:
    disks = request.get("disks") or ()
    images = [*disks, *(file for disk in disks for file in disk.get("files") or ())]
    found = {image["source"] for image in images if image.get("kind") in _PATH_KINDS and image.get("source")}
    paths = sorted(found.union(boot_paths(request)))
    try:
        answers = {path: host.has_path(path) for path in paths}
    except KvmfleetError:
        return {}
    return {path: is_there for path, is_there in answers.items() if is_there is not None}


def _storage(source: SurveyedHost, info: h.DomainInfo, destinations: Destinations, examine: Examine) -> t.Dict[str, t.Any]:
    """Return, by URI, what is known of the images, or C(msg) where nothing could be found out.

    A domain with a job, or that is off, is not going to be moved now.
    """
    if not info.view.active or info.view.job != h.JOB_NONE:
        return {}
    others = {uri: facts["host"] for uri, facts in destinations.items() if facts["answered"]}
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
        present = {entry["uuid"] for entry in facts.get("domains", ())}
        uuid = next((uuid for uuid in uuids if uuid in present), None)
        if uuid is not None:
            there[uri] = {"uuid": uuid, **dataclasses.asdict(facts["host"].view(uuid))}
    return there


def _name_taken(destination: t.Mapping[str, t.Any], info: h.DomainInfo) -> t.Optional[str]:
    """Return the UUID of another domain that has this one's name at the destination."""
    return next((entry["uuid"] for entry in destination.get("domains", ()) if entry["name"] == info.name and entry["uuid"] != info.uuid), None)


def _is_unshared(disk: h.Disk, is_shared: t.Callable[[str], bool]) -> bool:
    return disk.kind in ("file", "dir") and bool(disk.source) and not disk.readonly and not is_shared(disk.source)


def unproved_devices(disks: t.Iterable[h.Disk], request: t.Optional[Facts]) -> t.List[Facts]:
    """Return C({target, path, store}) of each device or volume that a domain writes to and that other hosts are not known to see.

    Libvirt takes every device for shared. C(store) is the device's identity, the same on every host that has it; null where it has none.
    """
    known = {disk["target"]: disk for disk in (request or {}).get("disks") or ()}
    written = [disk for disk in disks if disk.kind in _DEVICE_KINDS and disk.source and not disk.readonly]
    found = [(disk, known.get(disk.target, {})) for disk in written]
    return [
        {"target": disk.target, "path": facts.get("source") or disk.source, "store": facts.get("store")}
        for disk, facts in found
        if facts.get("shared") is not True
    ]


def unshared_files(request: Facts, is_shared: t.Callable[[str], bool]) -> t.List[Facts]:
    """Return C({target, role, path, why}) of what disks are built on and other hosts are not known to see; C(path) null where even that is not known."""
    found = []
    for disk in request.get("disks") or ():
        files = [file for file in disk.get("files") or () if not _is_file_shared(file, is_shared)]
        found += [{"target": disk["target"], "role": file["role"], "path": file["source"], "why": None} for file in files]
        if disk.get("files_problem"):
            found.append({"target": disk["target"], "role": None, "path": None, "why": disk["files_problem"]})
    return found


def _is_file_shared(file: Facts, is_shared: t.Callable[[str], bool]) -> bool:
    return is_shared(file["source"]) if file["kind"] in ("file", "dir") else file["shared"] is True
