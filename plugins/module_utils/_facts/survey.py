# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This code is PRIVATE to the collection kvmfleet.migration: do not use it from outside.

"""The survey on which the control node decides about moves: both hosts are queried, and nothing is changed."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import typing as t

from .._dataclass import dataclass
from .._libvirt.interface import Host
from .._libvirt.reading import parse_domain_xml, replace_definition
from .._logins import spread_logins
from .._migration.outcome import is_running
from .._migration.renamed_request import rename_request
from .._migration.rewriting import rewrite_for_move
from .._model import domain_states
from .._model.codec import ABSENT, Absent, Json, JsonObject, decode
from .._model.definition_files import list_boot_paths
from .._model.errors import KvmfleetError, NotFound, Unreachable
from .._model.facts import GuestPlatform, HostFacts
from .._model.libvirt_formats import is_local
from .._model.policy_documents import parse_policy
from .._model.requests import DiskFile, DiskNeed, DomainRequest
from .._model.resource_maps import Renaming
from .._model.watched_moves import (
    CpuVerdict,
    PresentDomain,
    RewriteVerdict,
    Survey,
    SurveyedDomain,
    SurveyQuestion,
    UnprovedDevice,
    UnsharedFile,
)
from .._time_limits import answer_within
from .local_stores import LocalStores, Stores
from .other_files import ImageProbe, SharedImage, list_shared_images
from .request import build_request

H = t.TypeVar("H", bound=Host)
OpenSurveyedHost = t.Callable[[str], H]
Describe = t.Callable[[H], HostFacts]
# Examines a domain's images on both hosts, given the domain's UUID, its source and a destination.
Examine = t.Callable[[str, H, H], t.Sequence[JsonObject]]


@dataclass(frozen=True)
class _Destination(t.Generic[H]):
    """A host that may be a destination; one that did not answer has no connection."""

    facts: HostFacts
    host: t.Optional[H] = None


@dataclass(frozen=True)
class _Source(t.Generic[H]):
    """The host that the domains leave. C(stores) is null if it is queried remotely."""

    host: H
    facts: HostFacts
    stores: t.Optional[Stores]


_Destinations = t.Mapping[str, _Destination[H]]

# The limit for the first queries of a destination: about ten calls, for which libvirt may start QEMU.
DESTINATION_SECONDS = 90.0
# The period in which the logins at many destinations begin: few hosts survey them at the same moment.
LOGINS_SECONDS = 1.0
# The shortest measurement of libvirt, and how old one may be that is not repeated.
SAMPLE_SECONDS = 1
SAMPLED_BEFORE_SECONDS = 60
_COMPARED_MODES = ("custom", "host-model")
_PATH_KINDS = ("file", "dir", "block")
_FILE_KINDS = ("file", "dir")
_DEVICE_KIND = "block"


def survey_hosts(
    source: H,
    questions: t.Sequence[SurveyQuestion],
    open_host: OpenSurveyedHost[H],
    is_shared: t.Callable[[str], bool],
    describe: Describe[H],
    examine: t.Optional[Examine[H]] = None,
) -> Survey:
    """Return the reports of the hosts for these moves.

    :arg is_shared: whether a file of this host lies on shared storage.
    :arg examine: called for C(storage) if a move has C(copy_storage), once for each destination that can accept the domain. Without it, the
      storage of both hosts must not be tested.
    """
    uris = sorted({uri for question in questions for uri in question.destination_uris})
    open_in_slot = spread_logins(open_host, uris, LOGINS_SECONDS)
    with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, len(uris))) as pool:
        destinations = dict(zip(uris, pool.map(lambda uri: _survey_in_time(uri, open_in_slot, describe), uris)))
    try:
        source_facts = describe_host(source, describe)
        leaving = _Source(source, source_facts, LocalStores() if is_local(source.uri) else None)
        with contextlib.closing(ImageProbe()) as probe:
            domains = tuple(_survey_domain(leaving, question, destinations, is_shared, examine, probe) for question in questions)
        if examine:
            _start_samples(source, domains)
        return Survey(source_facts, {uri: destination.facts for uri, destination in destinations.items()}, domains)
    finally:
        for destination in destinations.values():
            if destination.host is not None:
                destination.host.close()


def _start_samples(source: Host, domains: t.Sequence[SurveyedDomain]) -> None:
    """Have the dirty rates of domains that may move together measured, for the watcher that will share the link between them.

    It would wait for a measurement that is repeated; those of a plan have just been made.
    """
    running = [domain.info.uuid for domain in domains if domain.found and domain.info and is_running(domain.info.view)]
    if len(running) > 1:
        known: t.Dict[str, int] = {}
        with contextlib.suppress(KvmfleetError):
            known = source.recent_dirty_rates(running, SAMPLED_BEFORE_SECONDS)
        source.start_dirty_rates([uuid for uuid in running if uuid not in known], SAMPLE_SECONDS)


def describe_host(host: H, describe: Describe[H]) -> HostFacts:
    """Return the facts of a host that answers."""
    return dataclasses.replace(describe(host), answered=True)


def _survey_in_time(uri: str, open_host: OpenSurveyedHost[H], describe: Describe[H]) -> _Destination[H]:
    """Query each destination with a time limit, so that one that hangs does not block the others."""
    found = answer_within(DESTINATION_SECONDS, lambda: _survey_destination(uri, open_host, describe))
    return found or _Destination(_silent_facts(Unreachable(f"libvirt at {uri} did not answer within {DESTINATION_SECONDS:.0f} s.")))


def _survey_destination(uri: str, open_host: OpenSurveyedHost[H], describe: Describe[H]) -> _Destination[H]:
    try:
        host = open_host(uri)
        return _Destination(describe_host(host, describe), host)
    except KvmfleetError as error:
        return _Destination(_silent_facts(error))


def _silent_facts(error: KvmfleetError) -> HostFacts:
    return decode(HostFacts, {"answered": False, **error.as_result()})


def _survey_domain(
    leaving: _Source[H],
    question: SurveyQuestion,
    destinations: _Destinations[H],
    is_shared: t.Callable[[str], bool],
    examine: t.Optional[Examine[H]],
    probe: ImageProbe,
) -> SurveyedDomain:
    source = leaving.host
    # The source under another name is not another host.
    others = {uri: destinations[uri] for uri in question.destination_uris if not destinations[uri].facts.host.is_same_answer(leaving.facts.host)}
    if question.request:
        cpu, paths = _ask_fit(question.request, others, question.renamings)
        return SurveyedDomain(False, _find_presence(others, [str(question.uuid)]), request=question.request, cpu=cpu, paths=paths)
    try:
        info, request = _read_domain(leaving, question)
    except NotFound:
        return SurveyedDomain(False, _find_presence(others, question.uuids))
    is_movable = _is_movable(info, bool(question.is_cold))
    images = _list_shared_images(request, leaving.facts, others, question.renamings) if request and is_movable and examine else {}
    # Before the destinations list the folders of the images.
    probe.leave_tokens(image for listed in images.values() for image in listed)
    cpu, paths = _ask_fit(request, others, question.renamings) if request and is_movable else ({}, {})
    other_files = {uri: probe.find_other_files(host, images[uri]) for uri, host in _find_answering(others).items() if uri in images}
    return SurveyedDomain(
        found=True,
        info=info,
        policy=parse_policy(info.policy_xml),
        request=request,
        cpu=cpu,
        paths=paths,
        other_files={uri: files for uri, files in other_files.items() if files} or ABSENT,
        unshared_disks=tuple(disk.target for disk in info.disks if _is_unshared(disk, is_shared)),
        unproved_devices=tuple(unproved_devices(info.disks, request)),
        unshared_files=tuple(unshared_files(request, is_shared)) if request else (),
        busy_with=source.find_other_job(info.uuid) or ABSENT,
        storage=_examine_storage(source, info, others, examine) if examine and question.copy_storage else {},
        there=_find_presence(others, [info.uuid]),
        name_taken={uri: uuid for uri, uuid in ((uri, _find_name_owner(others[uri].facts, info)) for uri in others) if uuid},
        rewrites=_try_rewrites(source, info, question.renamings) if is_movable and not source.is_read_only else ABSENT,
    )


def _read_domain(leaving: _Source[H], question: SurveyQuestion) -> t.Tuple[domain_states.DomainInfo, t.Optional[DomainRequest]]:
    """Return a domain of the source with what it needs: as it runs, or as its next start will be if it does not take its memory along."""
    info = leaving.host.find_domain(name=question.name or None, uuid=question.uuid or None)
    if question.gives_up_memory and info.view.active and info.view.persistent:
        saved = replace_definition(info, parse_domain_xml(leaving.host.read_definition(info.uuid)))
        policy, facts = parse_policy(saved.info.policy_xml), leaving.facts
        return saved.info, build_request(saved, policy, facts.versions or {}, leaving.stores, facts.pools or ())
    listed = leaving.facts.find_domain(info.uuid)
    return info, listed.needs if listed else None


def _is_movable(info: domain_states.DomainInfo, is_cold: bool = False) -> bool:
    """Whether the domain can be moved, perhaps after another job of it has ended.

    :arg is_cold: whether the domain need not run.
    """
    return (info.view.active or is_cold) and info.view.job in (domain_states.JOB_NONE, domain_states.JOB_OTHER)


def _try_rewrites(source: Host, info: domain_states.DomainInfo, renamings: t.Union[t.Mapping[str, Renaming], Absent]) -> t.Dict[str, RewriteVerdict]:
    """Return, by URI, what would differ in the definition of a domain at each destination where a name may."""
    return {uri: _try_rewrite(source, info, renaming) for uri, renaming in (renamings or {}).items()}


def _try_rewrite(source: Host, info: domain_states.DomainInfo, renaming: Renaming) -> RewriteVerdict:
    try:
        return RewriteVerdict(rewrite_for_move(source, info, renaming).changes)
    except KvmfleetError as error:
        return RewriteVerdict((), problem=error.message, error_code=error.error_code)


def _ask_fit(
    request: DomainRequest, destinations: _Destinations[H], renamings: t.Union[t.Mapping[str, Renaming], Absent]
) -> t.Tuple[t.Dict[str, CpuVerdict], t.Dict[str, t.Dict[str, bool]]]:
    """Return for each destination that answered its verdict about the CPU of the domain, and which paths of its disks and of their backing files exist there.

    Paths are those of the destination. Unknown values are left out. A domain that is being migrated is skipped, because it cannot be moved now; so is one that
    is off, unless it is to be moved cold.
    """
    others = _find_answering(destinations)
    verdicts = {uri: compare_cpu(host, request) for uri, host in others.items()}
    paths = {uri: _find_paths(host, _rename_for(uri, request, renamings)) for uri, host in others.items()}
    return {uri: verdict for uri, verdict in verdicts.items() if verdict}, paths


def _rename_for(uri: str, request: DomainRequest, renamings: t.Union[t.Mapping[str, Renaming], Absent]) -> DomainRequest:
    return rename_request(request, renamings[uri]).needs if renamings and uri in renamings else request


def _list_shared_images(
    request: DomainRequest, source_facts: HostFacts, destinations: _Destinations[H], renamings: t.Union[t.Mapping[str, Renaming], Absent]
) -> t.Dict[str, t.List[SharedImage]]:
    own = source_facts.pools or ()
    return {
        uri: list_shared_images(request, _rename_for(uri, request, renamings), own, destinations[uri].facts.pools or ())
        for uri in _find_answering(destinations)
    }


def _find_answering(destinations: _Destinations[H]) -> t.Dict[str, H]:
    return {uri: destination.host for uri, destination in destinations.items() if destination.host is not None}


def compare_cpu(host: Host, request: DomainRequest) -> t.Optional[CpuVerdict]:
    """Return the verdict of the host, or null. libvirt does not compare a CPU that is passed through from the host."""
    cpu = request.cpu
    if not cpu or cpu.mode not in _COMPARED_MODES or not (cpu.xml and request.arch and request.virt_type):
        return None
    try:
        return host.compare_cpu(GuestPlatform(request.arch, request.virt_type, request.machine or None), cpu.xml)
    except KvmfleetError:
        return None


def _find_paths(host: Host, request: DomainRequest) -> t.Dict[str, bool]:
    disks = request.disks or ()
    images = [*((disk.kind, disk.source) for disk in disks), *((file.kind, file.source) for disk in disks for file in disk.files or ())]
    found = {source for kind, source in images if kind in _PATH_KINDS and source}
    paths = sorted(found.union(list_boot_paths(request)))
    try:
        answers = {path: host.has_path(path) for path in paths}
    except KvmfleetError:
        return {}
    return {path: is_there for path, is_there in answers.items() if is_there is not None}


def _examine_storage(source: H, info: domain_states.DomainInfo, destinations: _Destinations[H], examine: Examine[H]) -> t.Dict[str, Json]:
    """Return, by URI, what is known of the images, or C(msg) if nothing could be determined.

    A domain that is being migrated, or is off, cannot be moved now.
    """
    if not _is_movable(info):
        return {}
    return {uri: _try_examine(info.uuid, source, host, examine) for uri, host in _find_answering(destinations).items()}


def _try_examine(uuid: str, source: H, destination: H, examine: Examine[H]) -> Json:
    try:
        return examine(uuid, source, destination)
    except KvmfleetError as error:
        return error.as_result()


def _find_presence(destinations: _Destinations[H], uuids: t.Sequence[str]) -> t.Dict[str, PresentDomain]:
    """Return, by URI, the destination's view of the first of these domains that it has. Only the UUID identifies a domain."""
    there: t.Dict[str, PresentDomain] = {}
    for uri, destination in destinations.items():
        uuid = next((uuid for uuid in uuids if destination.facts.find_domain(uuid)), None)
        if uuid is not None and destination.host is not None:
            view = destination.host.view_domain(uuid)
            there[uri] = PresentDomain(uuid, view.active, is_running(view), _is_saved(destination.host, uuid, view) or ABSENT)
    return there


def _is_saved(host: Host, uuid: str, view: domain_states.DomainView) -> bool:
    try:
        return view.present and not view.active and host.has_managed_save(uuid)
    except NotFound:
        return False


def _find_name_owner(destination: HostFacts, info: domain_states.DomainInfo) -> t.Optional[str]:
    """Return the UUID of another domain that has this one's name at the destination."""
    return next((domain.uuid for domain in destination.domains or () if domain.name == info.name and domain.uuid != info.uuid), None)


def _is_unshared(disk: domain_states.Disk, is_shared: t.Callable[[str], bool]) -> bool:
    return disk.kind in _FILE_KINDS and bool(disk.source) and not disk.readonly and not is_shared(disk.source)


def unproved_devices(disks: t.Iterable[domain_states.Disk], request: t.Optional[DomainRequest]) -> t.List[UnprovedDevice]:
    """Return each device, volume or served image that a domain writes to, and each device that its disks are built on, that other hosts are not known to see.

    Libvirt assumes that everything but a file is shared. An image of the network is, unless its own host serves it.
    """
    known = {disk.target: disk for disk in (request.disks if request else None) or ()}
    written = [disk for disk in disks if disk.kind not in _FILE_KINDS and disk.source and not disk.readonly]
    found = [(disk, known.get(disk.target, DiskNeed(disk.target))) for disk in written]
    unproved = [(disk, need) for disk, need in found if (need.shared is None if disk.kind == "network" else need.shared is not True)]
    own = [UnprovedDevice(disk.target, need.source or disk.source, need.store or None) for disk, need in unproved]
    below = [(disk.target, file) for disk in (request.disks if request else None) or () for file in disk.files or ()]
    return own + [UnprovedDevice(target, file.source, file.store or None) for target, file in below if file.kind == _DEVICE_KIND and file.shared is not True]


def unshared_files(request: DomainRequest, is_shared: t.Callable[[str], bool]) -> t.List[UnsharedFile]:
    """Return the backing files of disks that other hosts are not known to see, without devices (L(unproved_devices))."""
    found = []
    for disk in request.disks or ():
        files = [file for file in disk.files or () if file.kind != _DEVICE_KIND and not _is_file_shared(file, is_shared)]
        found += [UnsharedFile(disk.target, file.role, file.source, None) for file in files]
        if disk.files_problem:
            found.append(UnsharedFile(disk.target, None, None, disk.files_problem))
    return found


def _is_file_shared(file: DiskFile, is_shared: t.Callable[[str], bool]) -> bool:
    return is_shared(file.source) if file.kind in _FILE_KINDS else file.shared is True
